package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"kvmark/client/experiment"
)

// lockName is a file that is locked while a result is on its way into its directory.
const lockName = ".kvmark-lock"

// claimOut keeps other kvmarks from saving a result at path until release is called, which also removes the directory if
// nothing was saved in it.
func claimOut(path string) (release func(), err error) {
	dir := filepath.Dir(path)
	lock := filepath.Join(dir, lockName)
	f, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("--out %s: %w", dir, err)
	}
	if err := experiment.LockFile(f); err != nil {
		return nil, errors.Join(usageError{fmt.Errorf("--out %s: another kvmark is about to save its result there (%w): name another directory", dir, err)}, f.Close())
	}
	if _, err := os.Lstat(path); err == nil { // saved since we looked
		return nil, errors.Join(usageError{fmt.Errorf("--out %s already holds a %s: name another directory", dir, filepath.Base(path))}, f.Close())
	}
	return func() {
		_, _ = os.Remove(lock), f.Close()
		removeEmpty(dir)
	}, nil
}

// removeEmpty removes a directory for results in which there is nothing, and the one that it is in by default.
func removeEmpty(dir string) {
	if os.Remove(dir) == nil && filepath.Dir(dir) == "results" {
		_ = os.Remove("results")
	}
}
