package wal

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// chmodFS is a file system that changes the modes of files otherwise than by the operating system.
type chmodFS interface {
	Chmod(path string, mode os.FileMode) error
}

// ownerOnly gives a file mode 0600: vfs makes files with 0666 less the umask, and has no word for another. denied is why a file
// system that knows no modes (vfat, CIFS, some of FUSE) does not do that, which is no reason to refuse it.
func ownerOnly(fs vfs.FS, path string) (denied, err error) {
	chmod := os.Chmod
	if c, ok := fs.(chmodFS); ok {
		chmod = c.Chmod
	} else if vfs.Root(fs) != vfs.Default {
		return nil, nil
	}
	err = chmod(path, 0o600)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("the file system of %s keeps no modes (%w): who may read it, how it is mounted decides", path, err), nil
	}
	return nil, err
}
