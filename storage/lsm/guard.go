package lsm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage/nowait"
)

// guardedFS is the file system as Pebble sees it. It syncs the log before each flush: the files of a flush are created after its
// memtables are complete, and whatever is in a memtable was put into the log before, so what a flush makes durable is in the synced
// log. (The event listener's FlushBegin cannot refuse a flush, and runs under Pebble's lock.) And it keeps Pebble from changing
// anything on disk after a fatal error.
type guardedFS struct {
	vfs.FS
	health     *health
	beforeWait func() (done func()) // see Options
}

// Open implements vfs.FS.
func (g *guardedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.Open(name, opts...)
	if err != nil || g.beforeWait == nil {
		return f, err
	}
	return &readFile{f, g.beforeWait}, nil
}

// readFile tells before a read waits for the device.
type readFile struct {
	vfs.File
	beforeWait func() (done func())
}

// ReadAt implements vfs.File.
func (f *readFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := nowait.ReadAt(f.File, p, off)
	if !errors.Is(err, nowait.ErrWouldWait) {
		return n, err
	}
	defer f.beforeWait()()
	return f.File.ReadAt(p, off)
}

// Categories by which Pebble says what it creates.
const (
	flushCategory    vfs.DiskWriteCategory = "pebble-memtable-flush"
	manifestCategory vfs.DiskWriteCategory = "pebble-manifest"
)

// Create implements vfs.FS.
func (g *guardedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.create(name, category)
	if category != manifestCategory && !g.isMarker(name) {
		return f, err
	}
	if err = g.health.manifestError(err); err == nil && f == nil {
		f, err = vfs.NewMem().Create("nowhere", category)
	}
	if err != nil {
		return nil, err
	}
	return &guardedFile{f, g.health}, nil
}

func (g *guardedFS) create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	mayCreate := g.health.mayWrite
	if category == flushCategory {
		mayCreate = g.health.mayFlush
	}
	err := mayCreate()
	if err == nil {
		err = g.settleMarker(name)
	}
	if err != nil {
		return nil, err
	}
	return g.FS.Create(name, category)
}

// OpenDir implements vfs.FS.
func (g *guardedFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err == nil {
		f = &guardedDir{f, g.health}
	}
	return f, err
}

// Remove implements vfs.FS. After a fatal error it is not known which files the next start will need.
func (g *guardedFS) Remove(name string) error {
	err := g.health.fatalErr()
	if err == nil {
		err = g.settleMarker(name)
	}
	if err != nil {
		return err
	}
	return g.FS.Remove(name)
}

// isMarker reports whether a file's name says which manifest is the valid one.
func (g *guardedFS) isMarker(name string) bool { return strings.HasPrefix(g.PathBase(name), "marker.") }

// settleMarker syncs the directory before a marker comes or goes. Pebble makes the manifest, makes the new marker, removes the old
// one, and syncs the directory once at the end. Where a power failure can lose entries of a directory in any order, that can leave
// a marker without its manifest, or no marker.
func (g *guardedFS) settleMarker(name string) error {
	if !g.isMarker(name) {
		return nil
	}
	return syncDir(g.FS, g.PathDir(name))
}

// Unwrap implements vfs.FS.
func (g *guardedFS) Unwrap() vfs.FS { return g.FS }

// guardedDir is a directory. Pebble panics when it cannot sync one; here that is
// a fatal error of the store and not of the process: nothing is written to the
// manifest after it, and nothing is removed, so either state that the directory
// may turn out to have can be opened.
type guardedDir struct {
	vfs.File
	health *health
}

func (d *guardedDir) Sync() error {
	if err := d.File.Sync(); err != nil {
		d.health.setFatal(fmt.Errorf("lsm: sync directory: %w", err))
	}
	return nil
}

// guardedFile is a manifest or a marker. Nothing is added to it after a fatal error, such as a write or a sync of it that failed:
// it is not known what of it is on disk.
type guardedFile struct {
	vfs.File
	health *health
}

func (f *guardedFile) Write(p []byte) (int, error) {
	err := f.health.mayWrite()
	if err == nil {
		_, err = f.File.Write(p)
	}
	if err = f.health.manifestError(err); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *guardedFile) Sync() error {
	err := f.health.mayWrite()
	if err == nil {
		err = f.File.Sync()
	}
	return f.health.manifestError(err)
}
