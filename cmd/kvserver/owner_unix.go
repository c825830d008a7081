//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ownFiles makes every file that the process creates its owner's alone, whoever creates it: values are in many of them.
func ownFiles() { syscall.Umask(0o077) }

// ownDirectory does the same for what is there already: a data directory that was made beforehand, or by an older server under
// another umask. A part of it may be a symbolic link to another file system.
func ownDirectory(dir string) error {
	var denied error
	for _, part := range []string{"", "wal", "checkpoint", "values", "lsm"} {
		root := filepath.Join(dir, part) + string(filepath.Separator) // follows a link
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() && !d.Type().IsRegular() {
				return ignoreGone(err)
			}
			info, err := d.Info()
			if err != nil || info.Mode().Perm()&0o077 == 0 {
				return ignoreGone(err)
			}
			return ignoreGone(os.Chmod(path, info.Mode().Perm()&^0o077))
		})
		denied = errors.Join(denied, ignoreGone(err))
	}
	return denied
}

// ignoreGone ignores that a file is not there: the modes have different parts, and files go while the server works.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
