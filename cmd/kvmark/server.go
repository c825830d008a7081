package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// findServer returns the path of kvserver, and what removes it if it was built for this run. Whether it is one shows
// when it starts.
func findServer(ctx context.Context, given string, note func(string, ...any)) (path string, remove func(), err error) {
	remove = func() {}
	if given != "" {
		path, err := exec.LookPath(given)
		if errors.Is(err, exec.ErrDot) {
			err = nil
		}
		if err != nil {
			return "", remove, fmt.Errorf("--server %s: %w", given, err)
		}
		path, err = filepath.Abs(path)
		return path, remove, err
	}
	name := "kvserver"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	var tried []string
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if path, err := exec.LookPath(beside); err == nil {
			return path, remove, nil
		}
		tried = append(tried, beside)
	}
	if path, err := exec.LookPath("kvserver"); err == nil {
		return path, remove, nil
	}
	tried = append(tried, "kvserver in PATH")
	module := exec.CommandContext(ctx, "go", "list", "-m")
	if out, err := module.Output(); err != nil || strings.TrimSpace(string(out)) != "kvmark" {
		tried = append(tried, "go build (this is not the kvmark module)")
		return "", remove, fmt.Errorf("no kvserver found; tried %s: give its path with --server", strings.Join(tried, ", "))
	}
	dir, err := os.MkdirTemp("", "kvmark-build-")
	if err != nil {
		return "", remove, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, name)
	note("building kvserver")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "kvmark/cmd/kvserver")
	if out, err := build.CombinedOutput(); err != nil {
		remove()
		return "", func() {}, fmt.Errorf("go build kvmark/cmd/kvserver: %w\n%s", err, out)
	}
	return path, remove, nil
}
