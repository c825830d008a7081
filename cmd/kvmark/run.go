package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"kvmark/client/load"
	"kvmark/client/report"
	"kvmark/client/result"
	"kvmark/client/workload"
)

func runCommand() *cli.Command {
	d := load.Default()
	return &cli.Command{
		Name:  "run",
		Usage: "measure Set and Get in each storage mode and print the table",
		Description: "For each mode a fresh kvserver is started on an empty directory and loaded by closed-loop workers: Sets for the\n" +
			"duration, then Gets of keys that are proved to exist, every value compared. The result is INVALID (exit 3) unless\n" +
			"the client's books agree with the server's.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "modes", Value: strings.Join(d.Modes, ","), Usage: "storage modes: memory, serialize, file, lsm"},
			&cli.IntFlag{Name: "workers", Value: d.Workload.Workers, Usage: "connections, one request in flight on each"},
			&cli.DurationFlag{Name: "duration", Value: d.Duration, Usage: "measured `TIME` of each operation"},
			&cli.DurationFlag{Name: "warmup", Value: d.Warmup, Usage: "`TIME` before it that is not counted"},
			&cli.IntFlag{Name: "keys", Value: d.Workload.Keys, Usage: "keys of each worker"},
			&cli.IntFlag{Name: "repeat", Value: d.Repeat, Usage: "rounds over the modes, each with fresh servers"},
			&cli.Uint64Flag{Name: "seed", Usage: "seed of keys, values and their order (default: random, recorded)"},
			&cli.StringFlag{Name: "wal-sync", Value: d.WALSync, Usage: "when a Set is acknowledged: buffered, os, interval, always"},
			&cli.StringFlag{Name: "codec", Value: d.Codec, Usage: "of mode serialize: deflate, zlib, zip, zstd, s2, none"},
			&cli.IntFlag{Name: "level", Usage: "of the codec (default: its own)"},
			&cli.IntFlag{Name: "bucket-entries", Value: d.BucketEntries, Usage: "of mode serialize: entries compressed together"},
			&cli.StringFlag{Name: "value-size", Value: "classic", Usage: "`SIZE` or range of values: 128, 4KiB, 64-1KiB; classic: okuyama's 50 to 60 bytes"},
			&cli.Float64Flag{Name: "compressibility", Usage: "share of a value of given size that compresses away, 0..1"},
			&cli.StringFlag{Name: "distribution", Value: "uniform", Usage: "which key is next: uniform, zipf:THETA, sequential, latest, hotset:KEYS:REQUESTS"},
			&cli.StringFlag{Name: "mix", Usage: "one phase of mixed operations, `SET:GET` such as 10:90, instead of two"},
			&cli.IntFlag{Name: "pipeline", Value: d.Pipeline, Usage: "requests that a worker sends at once"},
			&cli.StringFlag{Name: "out", Usage: "`DIR` for result.json (default: results/ and the time)"},
			&cli.StringFlag{Name: "format", Value: string(report.Table), Usage: "table, json, csv, markdown or bench"},
			&cli.StringFlag{Name: "server", Usage: "`PATH` of kvserver (default: beside kvmark, else in PATH, else built if this is the kvmark module)"},
			&cli.StringFlag{Name: "dir", Usage: "`DIR` in which servers get their data directories (default: the system's for temporary files)"},
			&cli.BoolFlag{Name: "keep", Usage: "leave the data directories"},
		},
		Action: runAction,
	}
}

func runAction(c *cli.Context) error {
	cfg, format, err := runConfig(c)
	if err != nil {
		return usageError{err}
	}
	path, err := resultPath(c.String("out"), time.Now())
	if err != nil {
		return err
	}
	show := newDisplay(c.App.ErrWriter)
	ctx, kill, stop := interruptible(c.Context, show.note)
	defer stop()
	server, remove, err := findServer(ctx, c.String("server"), show.note)
	if err != nil {
		return err
	}
	defer remove()
	cfg.Server, cfg.Progress, cfg.Logf, cfg.Kill = server, show.progress, show.note, kill

	cells := len(cfg.Modes) * cfg.Repeat * 2
	if cfg.Workload.Mix.Mixed() {
		cells /= 2
	}
	show.note("%s: %d measurements of %v, about %v in all; seed %d", server, cells, cfg.Duration,
		(time.Duration(cells) * (cfg.Duration + cfg.Warmup)).Round(time.Second), cfg.Workload.Seed)
	f := &result.File{Command: "run", Started: time.Now().UTC(), Plan: cfg.Plan()}
	f.Env.Client = result.CaptureProcess()
	f.Version = f.Env.Client.Version
	f.Env.Host = result.CaptureHost(dataDir(cfg.Dir))
	f.Env.Before = result.CaptureLoad()
	out, err := load.Run(ctx, cfg)
	show.clear()
	f.Env.After = result.CaptureLoad()
	f.Finished = time.Now().UTC()
	f.Cells, f.Env.Server, f.Interrupted = out.Cells, out.Server, out.Interrupted
	if err != nil && len(f.Cells) == 0 {
		return err
	}
	if err != nil {
		show.note("%v", err)
	}
	saveErr := f.Write(path)
	if saveErr == nil {
		show.note("result in %s", path)
	}
	if err := errors.Join(report.Write(c.App.Writer, f, format), saveErr); err != nil {
		return err
	}
	if err != nil || !f.Valid() {
		return exitError(exitInvalid)
	}
	return nil
}

// runConfig reads the flags; its errors are usage errors.
func runConfig(c *cli.Context) (cfg load.Config, format report.Format, err error) {
	if c.NArg() > 0 {
		return cfg, "", fmt.Errorf("run takes no arguments, got %q: options begin with --", c.Args().First())
	}
	cfg = load.Default()
	cfg.Modes = splitList(c.String("modes"))
	cfg.Duration, cfg.Warmup, cfg.Repeat, cfg.Pipeline = c.Duration("duration"), c.Duration("warmup"), c.Int("repeat"), c.Int("pipeline")
	cfg.WALSync, cfg.Codec, cfg.BucketEntries = c.String("wal-sync"), c.String("codec"), c.Int("bucket-entries")
	cfg.Dir, cfg.Keep = c.String("dir"), c.Bool("keep")
	cfg.Workload.Workers, cfg.Workload.Keys = c.Int("workers"), c.Int("keys")
	cfg.Workload.Compressibility = c.Float64("compressibility")
	cfg.Workload.Seed = c.Uint64("seed")
	if !c.IsSet("seed") {
		cfg.Workload.Seed = uint64(rand.Uint32()) // short enough to be typed again, and exact in any JSON reader
	}
	if c.IsSet("level") {
		level := c.Int("level")
		cfg.Level = &level
	}
	if !slices.Contains(cfg.Modes, "serialize") {
		for _, name := range []string{"codec", "level", "bucket-entries"} {
			if c.IsSet(name) {
				return cfg, "", fmt.Errorf("--%s has no effect on the modes %v: add serialize to --modes", name, cfg.Modes)
			}
		}
	}
	if cfg.Workload.ValueSize, err = workload.ParseSize(c.String("value-size")); err != nil {
		return cfg, "", err
	}
	if cfg.Workload.Distribution, err = workload.ParseDistribution(c.String("distribution")); err != nil {
		return cfg, "", err
	}
	if cfg.Workload.Mix, err = workload.ParseMix(c.String("mix")); err != nil {
		return cfg, "", err
	}
	if format, err = report.ParseFormat(c.String("format")); err != nil {
		return cfg, "", err
	}
	if info, err := os.Stat(dataDir(cfg.Dir)); err != nil || !info.IsDir() {
		return cfg, "", fmt.Errorf("--dir %s is not a directory: make it first", cfg.Dir)
	}
	check := cfg
	check.Server = "found later"
	return cfg, format, check.Validate()
}

func splitList(s string) []string {
	var list []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

func dataDir(dir string) string {
	if dir == "" {
		return os.TempDir()
	}
	return dir
}

// resultPath makes the directory for the result, before anything is measured: a measurement that cannot be saved is lost.
// It never names a file that is there.
func resultPath(dir string, now time.Time) (string, error) {
	const name = "result.json"
	if dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return "", usageError{fmt.Errorf("--out %s already holds a %s: name another directory", dir, name)}
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return "", fmt.Errorf("--out: %w", err)
		}
		return path, nil
	}
	if err := os.MkdirAll("results", 0o777); err != nil {
		return "", fmt.Errorf("%w: use --out", err)
	}
	stamp := filepath.Join("results", now.UTC().Format("20060102T150405Z"))
	for n := 1; ; n++ {
		dir := stamp
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", stamp, n)
		}
		err := os.Mkdir(dir, 0o777)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%w: use --out", err)
		}
		return filepath.Join(dir, name), nil
	}
}
