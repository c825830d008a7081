//go:build unix && !aix && !solaris

package experiment

import (
	"os"
	"syscall"
)

// LockFile keeps other processes from the file until it is closed.
func LockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
