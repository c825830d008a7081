package kvserver

import (
	"errors"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lenientFS is a file system whose directories need not be synced where the kernel says that they cannot be: CIFS, some FUSE
// file systems and vfat answer EINVAL or ENOTSUP. What a crash may then lose is noted once.
type lenientFS struct {
	vfs.FS
	logf func(format string, args ...any)
	once *sync.Once
}

// Unwrap implements vfs.FS.
func (l *lenientFS) Unwrap() vfs.FS { return l.FS }

// OpenDir implements vfs.FS.
func (l *lenientFS) OpenDir(name string) (vfs.File, error) {
	f, err := l.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &lenientDir{f, name, l}, nil
}

type lenientDir struct {
	vfs.File
	name string
	fs   *lenientFS
}

// Sync implements vfs.File.
func (d *lenientDir) Sync() error {
	err := d.File.Sync()
	if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	d.fs.once.Do(func() {
		d.fs.logf("kvserver: the file system of %s cannot sync a directory (%v): a power failure may lose files that were just made or renamed", d.name, err)
	})
	return nil
}
