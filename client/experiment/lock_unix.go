//go:build unix && !aix && !solaris

package experiment

import (
	"os"
	"syscall"
)

// lockFile keeps other processes from the file until it is closed.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
