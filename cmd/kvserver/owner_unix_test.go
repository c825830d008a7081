//go:build unix

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// What is there before the start, and what a link leads to, is the owner's alone as well.
func TestTheDirectoryIsItsOwnersAlone(t *testing.T) {
	ownFiles()
	dir, values := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "values")
	r := start(t, "--mode", "file", "--dir", dir)
	do(t, r.ready.Addr, 1, "SET k v")
	r.stop(t)
	if err := os.Rename(filepath.Join(dir, "values"), values); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(values, filepath.Join(dir, "values")); err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, d := range []string{dir, values} { // as a start under umask 0 left it
		if err := filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.Type()&fs.ModeSymlink != 0 {
				return err
			}
			open++
			return os.Chmod(path, 0o777)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if open < 8 {
		t.Fatalf("only %d files and directories were made", open)
	}
	r = start(t, "--mode", "file", "--dir", dir)
	defer r.stop(t)
	for _, d := range []string{dir, values} {
		if err := filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.Type()&fs.ModeSymlink != 0 {
				return err
			}
			info, err := e.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
