package wal

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Rewrite replaces segment number of the log in dir, which nobody may use meanwhile, by one that holds every readable record
// of it and nothing else: those that [Scan] passes on, so that what stood between them is skipped. The old file is kept as
// aside, a path on the same file system that must not be taken. Where the segment is missing, it makes an empty one. A crash
// leaves the old segment or the new one.
//
// The new segment says that it follows the one in front of it, and keeps the id under which others know it: id if that is not 0,
// which a checkpoint tells, or what the segment behind it says, or its own.
func Rewrite(fs vfs.FS, dir string, identity Identity, number, id uint64, aside string) (records int64, err error) {
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
	head, err := rewrittenHeader(fs, dir, identity, number, id)
	if err != nil {
		return 0, err
	}
	w, err := newRewriter(fs, tmp, head)
	if err != nil {
		return 0, err
	}
	if !missing {
		_, err = scanSegment(fs, dir, segmentPlace{identity: identity, number: number}, w.record, w.record)
	}
	if _, serr := fs.Stat(fs.PathJoin(dir, segmentName(number+1))); serr == nil {
		w.followed = true
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

// rewrittenHeader returns the header of a segment that is written anew, from what is left of the old one and of its neighbours.
func rewrittenHeader(fs vfs.FS, dir string, identity Identity, number, id uint64) (segmentHeader, error) {
	head := segmentHeader{identity: identity, number: number, id: id}
	for n := max(1, number-1); n <= number+1; n++ {
		h, err := readHeader(fs, fs.PathJoin(dir, segmentName(n)))
		if err != nil {
			return head, err
		}
		if h.identity != identity || h.number != n {
			continue // missing, damaged, or not of this place
		}
		switch {
		case n < number:
			head.previous = h.id
		case n == number && head.id == 0:
			head.id = h.id
		case n > number && h.previous != 0:
			head.id = h.previous
		}
	}
	if head.id == 0 {
		head.id = newSegmentID()
	}
	return head, nil
}

// readHeader returns the header of a segment; the zero one if the file is missing or has none that can be read.
func readHeader(fs vfs.FS, path string) (h segmentHeader, err error) {
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("wal: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, segmentHeaderSize)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		if err != nil && err != io.EOF {
			return h, fmt.Errorf("wal: read %s: %w", path, err)
		}
		return h, nil
	}
	if parsed, _, err := parseSegmentHeader(b); err == nil {
		h = parsed
	}
	return h, nil
}

// SegmentID returns the id of a segment: that in its header, or else that by which the one behind it knows it, or else a new one.
func SegmentID(fs vfs.FS, dir string, identity Identity, number uint64) (uint64, error) {
	h, err := rewrittenHeader(fs, dir, identity, number, 0)
	return h.id, err
}

// ReadHeader returns which log and which number a file says that it is of; number 0 if it has no header that can be read.
func ReadHeader(fs vfs.FS, path string) (identity Identity, number uint64, err error) {
	h, err := readHeader(fs, path)
	return h.identity, h.number, err
}

// rewriter writes a segment that is ended and synced when it is closed.
type rewriter struct {
	path    string
	file    vfs.File
	sum     summer
	buf     []byte
	offset  int64 // of buf in the file
	records int64

	followed bool // the next segment is there
}

func newRewriter(fs vfs.FS, path string, head segmentHeader) (*rewriter, error) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("wal: rewrite: %w", err)
	}
	w := &rewriter{path: path, file: f, sum: newSummer(head.identity, head.number), buf: head.append(nil)}
	if _, err := ownerOnly(fs, path); err != nil { // a start says what the file system denies
		return nil, errors.Join(fmt.Errorf("wal: rewrite: %w", err), f.Close())
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
		if w.followed {
			at += markFrameSize
			mark := nextMarkAt(at)
			w.buf = append(append(w.buf, make([]byte, mark-at)...), w.sum.nextMark(mark)...)
		}
		if err = w.flush(); err == nil {
			if err = w.file.Sync(); err != nil {
				err = fmt.Errorf("wal: sync %s: %w", w.path, err)
			}
		}
	}
	return errors.Join(err, w.file.Close())
}
