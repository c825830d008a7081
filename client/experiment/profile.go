package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"kvmark/client/result"
)

// auto is the value of the factor pgo for which a profile is recorded: the server, built without one, runs under the
// load of the experiment once in each mode, and what it recorded of itself is merged.
const auto = "auto"

// profile returns the path of the profile for builds that are w but for their link order, recording it if this experiment has none.
// It stays in Out, so that an experiment that goes on has the same binaries.
func (x *experiment) profile(ctx context.Context, b *builder, w build) (string, error) {
	w.Layout, w.PGO = 0, Default
	plain, err := b.get(ctx, w)
	if err != nil {
		return "", err
	}
	path, err := filepath.Abs(filepath.Join(x.Out, "auto-"+plain.Hash[:12]+".pgo"))
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		return path, nil
	}
	dir, err := os.MkdirTemp(x.Out, "profile-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	var modes, files []string
	for i, v := range x.plan.Variants {
		other, err := v.buildOf()
		if err != nil {
			return "", err
		}
		if other.Layout, other.PGO = 0, Default; other != w || v.Get("pgo") != auto || v.Control != "" {
			continue
		}
		for _, mode := range x.plan.Modes {
			config, err := x.loadConfig(v, mode, plain.Path)
			if err != nil {
				return "", err
			}
			if slices.Contains(modes, config.Modes[0]) {
				continue
			}
			file, err := filepath.Abs(filepath.Join(dir, config.Modes[0]))
			if err != nil {
				return "", err
			}
			modes, files = append(modes, config.Modes[0]), append(files, file)
			config.ServerArgs = append(config.ServerArgs, "--cpu-profile="+file)
			config.Workload.Seed = x.plan.Seed
			x.Logf("recording a profile of %s in mode %s for pgo=%s", plain.Version, config.Modes[0], auto)
			settings := func(_ int, p result.Process) error { return v.seen(p, plain) }
			samples, err := measure(ctx, []arm{{cell: Cell{i, mode}, config: config}}, x.plan.Ops, 0, settings)
			if err == nil && samples[0].Failed != "" {
				err = errors.New(samples[0].Failed)
			}
			if err != nil {
				return "", fmt.Errorf("pgo=%s: record a profile in mode %s: %w", auto, config.Modes[0], err)
			}
		}
	}
	merged := filepath.Join(dir, "merged")
	if merged, err = filepath.Abs(merged); err != nil {
		return "", err
	}
	if _, err := b.run(ctx, b.toolchains[w.Go], nil, append([]string{"tool", "pprof", "-proto", "-output=" + merged}, files...)...); err != nil {
		return "", fmt.Errorf("pgo=%s: merge the profiles: %w", auto, err)
	}
	return path, os.Rename(merged, path)
}
