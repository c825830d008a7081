package wal

import (
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Rewrite replaces segment number of the log in dir, which nobody may use meanwhile, by one that holds every readable record
// of it and nothing else: those that [Scan] passes on, so that what stood between them is skipped. The old file is kept as
// aside, a path on the same file system that must not be taken. Where the segment is missing, it makes an empty one. A crash
// leaves the old segment or the new one.
func Rewrite(fs vfs.FS, dir string, number uint64, aside string) (records int64, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	path := fs.PathJoin(dir, segmentName(number))
	_, err = fs.Stat(path)
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return 0, fmt.Errorf("wal: rewrite: %w", err)
	}
	tmp := path + ".tmp"
	w, err := newRewriter(fs, tmp, number)
	if err != nil {
		return 0, err
	}
	if !missing {
		_, err = scanSegment(fs, dir, number, false, w.record, w.record)
	}
	if err = errors.Join(err, w.close(err == nil)); err != nil {
		return 0, err
	}
	if !missing {
		if err := vfs.LinkOrCopy(fs, path, aside); err != nil {
			return 0, fmt.Errorf("wal: keep %s as %s: %w", path, aside, err)
		}
		if err := syncDir(fs, dir); err != nil {
			return 0, fmt.Errorf("wal: %w", err)
		}
	}
	if err := fs.Rename(tmp, path); err != nil {
		return 0, fmt.Errorf("wal: rewrite %s: %w", path, err)
	}
	if err := syncDir(fs, dir); err != nil {
		return 0, fmt.Errorf("wal: %w", err)
	}
	return w.records, nil
}

// rewriter writes a segment that is ended and synced when it is closed.
type rewriter struct {
	path    string
	file    vfs.File
	sum     summer
	buf     []byte
	offset  int64 // of buf in the file
	records int64
}

func newRewriter(fs vfs.FS, path string, number uint64) (*rewriter, error) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("wal: rewrite: %w", err)
	}
	w := &rewriter{path: path, file: f, sum: newSummer(number), buf: appendSegmentHeader(nil, number)}
	if vfs.Root(fs) == vfs.Default {
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("wal: rewrite: %w", err), f.Close())
		}
	}
	return w, nil
}

func (w *rewriter) record(_ uint64, _ int64, payload []byte) error {
	start := len(w.buf)
	w.buf = appendFrame(w.buf, payload)
	w.sum.sign(w.buf[start:], w.offset+int64(start))
	w.records++
	if len(w.buf) < readBuffer {
		return nil
	}
	return w.flush()
}

func (w *rewriter) flush() error {
	if _, err := w.file.WriteAt(w.buf, w.offset); err != nil {
		return fmt.Errorf("wal: write %s at offset %d: %w", w.path, w.offset, err)
	}
	w.offset += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// close makes the segment complete, if it is to be used, and closes it.
func (w *rewriter) close(use bool) error {
	var err error
	if use {
		at := w.offset + int64(len(w.buf))
		var end [markFrameSize]byte
		w.sum.putMark(end[:], kindEnd, at, at)
		w.buf = append(w.buf, end[:]...)
		if err = w.flush(); err == nil {
			if err = w.file.Sync(); err != nil {
				err = fmt.Errorf("wal: sync %s: %w", w.path, err)
			}
		}
	}
	return errors.Join(err, w.file.Close())
}
