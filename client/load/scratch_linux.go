package load

import (
	"errors"
	"os"
	"syscall"
)

// lockFile makes a file and locks it.
func lockFile(path string) (*os.File, error) {
	return lock(os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600))
}

var errInUse = errors.New("it belongs to another")

// lockStale locks a file that is there. Servers die with their kvmark here (see processAttributes), so that nobody uses
// what it guards. It must be this user's: in a directory for all, another's name may lead anywhere, or to a pipe, which would block.
func lockStale(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		if sys, ok := info.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() || !info.Mode().IsRegular() {
			err = errInUse
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return lock(f, nil)
}

func lock(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
