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

	"kvmark/client/experiment"
)

// findServer returns the path of kvserver: the given one, that beside kvmark, that in PATH, or one built from the sources around the
// working directory. Whether it is one shows when it starts.
func findServer(ctx context.Context, given string, note func(string, ...any)) (path string, err error) {
	if given != "" {
		path, err := exec.LookPath(given)
		if errors.Is(err, exec.ErrDot) {
			err = nil
		}
		if err != nil {
			return "", fmt.Errorf("--server %s: %w", given, err)
		}
		return filepath.Abs(path)
	}
	path, tried := readyServer()
	if path != "" {
		return path, nil
	}
	path, err = experiment.BuildServer(ctx, ".", note)
	if err != nil {
		return "", fmt.Errorf("no kvserver found; tried %s, and to build it: %w", strings.Join(tried, ", "), err)
	}
	return path, nil
}

// readyServer returns the path of a kvserver that needs not be built; "": there is none at the places that were tried.
func readyServer() (path string, tried []string) {
	name := "kvserver"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if path, err := exec.LookPath(beside); err == nil {
			return path, nil
		}
		tried = append(tried, beside)
	}
	if path, err := exec.LookPath("kvserver"); err == nil {
		return path, nil
	}
	return "", append(tried, "kvserver in PATH")
}
