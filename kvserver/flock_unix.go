//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package kvserver

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// flockDir locks a directory itself until the closer is closed. An error for which isLocked is true means that another process
// has it; every other, that the file system has no such locks.
func flockDir(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
