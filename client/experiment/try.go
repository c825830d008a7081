package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kvmark/client/load"
)

// refusals are the words with which a runtime ends a program whose settings it does not know, or cannot obey.
var refusals = regexp.MustCompile(`fatal error: removed GODEBUG [^\n]*|This program can only be run on [^\n]*|malformed GO[^\n]*`)

// try starts every cell once, so that whatever cannot work shows before anything is measured. A variant that the Go runtime
// itself refuses becomes "n/a" with the runtime's reason; one that the server refuses is a mistake.
func (x *experiment) try(ctx context.Context) error {
	for i := range x.plan.Variants {
		v := &x.plan.Variants[i]
		for _, mode := range x.plan.Modes {
			if v.NA != "" || v.Control == "A/A" {
				continue
			}
			cell := Cell{i, mode}
			a, err := x.arm(cell, 0)
			if err != nil {
				return err
			}
			a.config.Workload.Workers = 1
			server, err := load.Start(ctx, a.config)
			if err != nil {
				if reason := refusals.FindString(err.Error()); reason != "" {
					v.NA = reason
					continue
				}
				return fmt.Errorf("%s: %w", v.Name, err)
			}
			err = x.check(cell, server.Process(), a.layout)
			if err := errors.Join(err, server.Stop()); err != nil {
				return err
			}
		}
	}
	return nil
}

var godebugName = regexp.MustCompile(`(?m)^\s*\{[Nn]ame: "([a-zA-Z0-9]+)"`)

// warnAboutGODEBUG notes keys that the toolchain's own tables do not have: the runtime ignores them without a word.
func (b *builder) warnAboutGODEBUG(ctx context.Context, t *toolchain, v Variant) error {
	value := v.Get("GODEBUG")
	if value == Default || v.Control != "" {
		return nil
	}
	out, err := b.run(ctx, t, nil, "env", "GOROOT")
	if err != nil {
		return err
	}
	root := strings.TrimSpace(string(out))
	var known []string
	for _, file := range []string{"internal/godebugs/table.go", "runtime/runtime1.go"} {
		text, err := os.ReadFile(filepath.Join(root, "src", filepath.FromSlash(file)))
		if err != nil {
			return nil //nolint:nilerr // a toolchain without its sources: there is nothing to look up
		}
		for _, m := range godebugName.FindAllStringSubmatch(string(text), -1) {
			known = append(known, m[1])
		}
	}
	for part := range strings.SplitSeq(value, "+") {
		key, _, _ := strings.Cut(part, "=")
		if !slices.Contains(known, key) && !strings.HasPrefix(key, "cpu.") {
			b.logf("GODEBUG %s is unknown to %s, which will ignore it without a word", key, t.version)
		}
	}
	return nil
}
