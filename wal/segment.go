package wal

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func (l *Log) path(number uint64) string {
	return l.options.FS.PathJoin(l.dir, segmentName(number))
}

// Rotate writes and syncs everything, and returns the number of the segment to which later records go. It creates one unless the current
// one is empty.
func (l *Log) Rotate() (segment uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ownLocked()
	defer l.disownLocked()
	if err := l.usableLocked(); err != nil {
		return 0, err
	}
	l.flushOwned()
	if err := l.Err(); err != nil {
		return 0, err
	}
	if l.out.records {
		l.mu.Unlock()
		err := l.rotateOwned()
		if err != nil {
			l.fail(err)
		}
		l.mu.Lock()
		if err != nil {
			return 0, l.Err()
		}
	}
	return l.out.number, nil
}

// rotateOwned ends the segment, with one sync for the records and the end frame, and creates the next. REQUIRES: busy set by the caller.
func (l *Log) rotateOwned() error {
	synced, _ := l.markDue()
	if err := l.writeEnd(synced); err != nil {
		return err
	}
	if err := l.syncOwned(); err != nil {
		return err
	}
	ended := l.out
	err := l.create(segmentHeader{number: ended.number + 1, previous: ended.id, id: newSegmentID()})
	if l.out.file == ended.file {
		return err
	}
	if err == nil {
		err = l.markNext(ended.file, ended.number, ended.offset)
	}
	if cerr := ended.file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close %s: %w", l.path(ended.number), cerr)
	}
	return err
}

// markNext says in a segment, whose end frame ends at end, that the next one is there, of which all has been synced; records go there
// only then, so a next segment that is missing is noticed.
func (l *Log) markNext(f vfs.File, number uint64, end int64) error {
	at, sum := nextMarkAt(end), newSummer(l.options.Identity, number)
	if n, err := f.WriteAt(sum.nextMark(at), at); err != nil {
		return fmt.Errorf("mark the end of %s after %d bytes: %w", l.path(number), n, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", l.path(number), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.segments {
		if s := &l.segments[i]; s.number == number {
			s.bytes = max(s.bytes, at+int64(nextMarkSize))
		}
	}
	return nil
}

// markNextOf is markNext for a segment that was found ended.
func (l *Log) markNextOf(rep SegmentReport) error {
	f, err := l.options.FS.OpenReadWrite(rep.Path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("open segment to mark its end: %w", err)
	}
	return errors.Join(l.markNext(f, rep.Segment, rep.endedAt), f.Close())
}

// endOwned ends the segment at Close: synced, vouched for as a whole, and synced again. An empty segment stays as it is, for the next
// Open to go on with.
func (l *Log) endOwned() error {
	if !l.out.records {
		return nil
	}
	if synced, _ := l.markDue(); synced < l.out.offset {
		if err := l.syncOwned(); err != nil {
			return err
		}
	}
	if err := l.writeEnd(l.out.offset); err != nil {
		return err
	}
	return l.syncOwned()
}

func (l *Log) writeEnd(synced int64) error {
	var end [markFrameSize]byte
	l.out.sum.putMark(end[:], kindEnd, l.out.offset, synced)
	return l.write(end[:], 0)
}

// create makes the segment of that header the current one: its header and its directory entry are on the device. The file may be there
// already, empty or with a part of the header.
func (l *Log) create(head segmentHeader) error {
	head.identity = l.options.Identity
	number := head.number
	if number > maxSegment {
		return fmt.Errorf("segment number %d is above %d", number, uint64(maxSegment))
	}
	path := l.path(number)
	f, err := l.options.FS.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create segment: %w", err)
	}
	l.out.file, l.out.number, l.out.id, l.out.sum = f, number, head.id, newSummer(head.identity, number)
	l.out.offset, l.out.last, l.out.records, l.out.filled = int64(segmentHeaderSize), 0, false, int64(segmentHeaderSize)
	denied, err := ownerOnly(l.options.FS, path)
	if err != nil {
		return fmt.Errorf("create segment: %w", err)
	}
	if denied != nil {
		l.deniedOnce.Do(func() { l.options.Logf("wal: %v", denied) })
	}
	n, err := f.WriteAt(head.append(nil), 0)
	if err != nil {
		return fmt.Errorf("write the header of %s after %d bytes: %w", path, n, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	if err := syncDir(l.options.FS, l.dir); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, segmentSize{number: number, id: head.id, bytes: l.out.offset})
	l.synced, l.marked = l.out.offset, l.out.offset
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory to sync it: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// RemoveBefore removes the segments below segment, oldest first, except the current one. An error leaves the log usable.
func (l *Log) RemoveBefore(segment uint64) error {
	l.syncMu.Lock() // the syncer must not open a file that is being removed
	defer l.syncMu.Unlock()
	for {
		l.mu.Lock()
		oldest, only := l.segments[0].number, len(l.segments) == 1
		l.mu.Unlock()
		if only || oldest >= segment {
			break
		}
		if err := l.options.FS.Remove(l.path(oldest)); err != nil {
			return fmt.Errorf("wal: remove old segment: %w", err)
		}
		l.mu.Lock()
		l.segments = l.segments[1:]
		l.mu.Unlock()
	}
	if err := syncDir(l.options.FS, l.dir); err != nil {
		return fmt.Errorf("wal: %w", err)
	}
	return nil
}
