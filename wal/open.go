package wal

import (
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Recovery is what Open read, and what it cut.
type Recovery struct {
	Segments int   // read
	Records  int64 // replayed
	Bytes    int64 // of those records: payloads and frames

	CutPath    string // the segment with an unsynced tail; empty if there was none
	CutOffset  int64
	CutBytes   int64
	CutRecords int64 // readable records in the tail, which went with it
}

// Replayed is a log that has been read, and not been changed.
type Replayed struct {
	Recovery
	log    *Log
	old    []uint64      // segments in front of the first one, which a checkpoint has superseded
	newest SegmentReport // Segment 0 if there is none
	before SegmentReport // the one in front of it; Segment 0 if there is none
}

// Open is [Replay] and then [Replayed.Open].
func Open(dir string, o Options, fn func(payload []byte) error) (*Log, Recovery, error) {
	r, err := Replay(dir, o, fn)
	if err != nil {
		return nil, Recovery{}, err
	}
	l, err := r.Open()
	return l, r.Recovery, err
}

// Replay passes every record in order to fn (payload is valid only during the call), and changes nothing. Nobody else may use the
// directory from then on. Damage that is not an unsynced tail is a [CorruptionError], after fn has been called for the records
// in front of it.
func Replay(dir string, o Options, fn func(payload []byte) error) (*Replayed, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	numbers, err := listSegments(o.FS, dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	old := 0
	for old < len(numbers) && numbers[old] < o.FirstSegment {
		old++
	}
	r := &Replayed{log: newLog(dir, o), old: numbers[:old]}
	numbers = numbers[old:]
	if err := r.log.checkComplete(numbers); err != nil {
		return nil, err
	}
	p := segmentPlace{identity: o.Identity, id: o.FirstID}
	for i, number := range numbers {
		p.number, p.newest = number, i == len(numbers)-1
		rep, err := r.log.replay(p, fn)
		if err != nil {
			return nil, err
		}
		r.Segments++
		r.Records += rep.Records
		r.Bytes += rep.Bytes
		p.id, p.previous, p.complete = 0, rep.ID, rep.followed
		if p.newest {
			r.newest = rep
		} else {
			r.before = rep
			r.log.segments = append(r.log.segments, segmentSize{number: number, id: rep.ID, bytes: rep.Size})
		}
	}
	if r.newest.followed {
		missing := missingNext(o.FS, dir, r.newest.Segment)
		return nil, &CorruptionError{Path: missing.Path, Err: missing.Err}
	}
	if rep := &r.newest; rep.State == Torn {
		r.CutPath, r.CutOffset, r.CutBytes, r.CutRecords = rep.Path, rep.Offset, rep.Size-rep.Offset, rep.Behind
	}
	return r, nil
}

// CheckEnd returns why the log is not one that ended at want, which its last user knew when it closed it.
func (r *Replayed) CheckEnd(want End) error {
	if r.newest.Segment == 0 {
		return &CorruptionError{Path: r.log.path(want.Segment), Err: fmt.Errorf("%w: the log ended there, at offset %d, when it was closed", ErrMissing, want.Offset)}
	}
	return r.newest.Lost(want)
}

// Superseded reports whether there are segments in front of the first one, which [Replayed.Open] removes.
func (r *Replayed) Superseded() bool { return len(r.old) > 0 }

// Newest returns the number of the newest segment, 0 if there is none.
func (r *Replayed) Newest() uint64 { return r.newest.Segment }

// Open cuts an unsynced tail, and leaves the log ready for Append. The directory is created if it is missing. Segments in front of the first
// one are removed.
func (r *Replayed) Open() (*Log, error) {
	l := r.log
	fs := l.options.FS
	if err := fs.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("wal: create directory: %w", err)
	}
	if err := syncDir(fs, fs.PathDir(l.dir)); err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	head, ended, err := r.end()
	if err == nil {
		err = l.create(head)
	}
	if err == nil && ended.Segment > 0 && !ended.followed {
		err = l.markNextOf(ended)
	}
	if err == nil {
		err = l.removeOld(r.old)
	}
	if err != nil {
		if l.out.file != nil {
			err = errors.Join(err, l.out.file.Close())
		}
		return nil, fmt.Errorf("wal: %w", err)
	}
	l.done.Go(l.background)
	return l, nil
}

// end ends the newest segment, and returns the header of the one to go on with, and the segment in front of that if there is one.
func (r *Replayed) end() (head segmentHeader, ended SegmentReport, err error) {
	l, rep := r.log, &r.newest
	before := uint64(0)
	if n := len(l.segments); n > 0 {
		before = l.segments[n-1].id
	}
	switch {
	case rep.Segment == 0:
		return segmentHeader{number: max(1, l.options.FirstSegment), id: newSegmentID()}, ended, nil
	case rep.unfinished:
		return segmentHeader{number: rep.Segment, previous: before, id: newSegmentID()}, r.before, nil
	case rep.State == Clean && rep.Size == int64(segmentHeaderSize): // nothing was ever written to it
		return segmentHeader{number: rep.Segment, previous: rep.previous, id: rep.ID}, r.before, nil
	}
	size, err := l.endRecovered(rep)
	if err != nil {
		return segmentHeader{}, ended, err
	}
	l.segments = append(l.segments, segmentSize{number: rep.Segment, id: rep.ID, bytes: size})
	return segmentHeader{number: rep.Segment + 1, previous: rep.ID, id: newSegmentID()}, *rep, nil
}

// checkComplete checks that numbers begin with the first segment asked for and have no gap.
func (l *Log) checkComplete(numbers []uint64) error {
	want := l.options.FirstSegment
	if want == 0 && len(numbers) > 0 {
		want = numbers[0]
	}
	if want > 0 && len(numbers) == 0 {
		return &CorruptionError{Path: l.path(want), Err: fmt.Errorf("%w: it should be the first one to replay, and there is none", ErrMissing)}
	}
	for _, number := range numbers {
		if number != want {
			return &CorruptionError{Path: l.path(want), Err: fmt.Errorf("%w: the next one there is is %s", ErrMissing, segmentName(number))}
		}
		want++
	}
	return nil
}

func (l *Log) replay(p segmentPlace, fn func(payload []byte) error) (SegmentReport, error) {
	rep, err := scanSegment(l.options.FS, l.dir, p, func(_ uint64, offset int64, payload []byte) error {
		if err := fn(payload); err != nil {
			return fmt.Errorf("wal: replay %s at offset %d: %w", l.path(p.number), offset, err)
		}
		return nil
	}, nil)
	if err == nil && rep.State == Corrupt {
		err = &CorruptionError{Path: rep.Path, Offset: rep.Offset, Err: rep.Err}
	}
	return rep, err
}

// endRecovered makes the newest segment of the last process like any other older segment: zeros in place of a tail, an end
// frame, all of it synced before the next one is created. It returns the size of the file. What has been replayed may have
// been in the page cache alone, hence the first sync: before it, the end frame could not vouch for anything.
func (l *Log) endRecovered(rep *SegmentReport) (size int64, err error) {
	f, err := l.options.FS.OpenReadWrite(rep.Path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, fmt.Errorf("open segment to end it: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if rep.State == Torn {
		l.options.Logf("wal: %s: cut an unsynced tail at offset %d: %d bytes, %d readable records in it (%v)",
			rep.Path, rep.Offset, rep.Size-rep.Offset, rep.Behind, rep.Err)
		zeros := make([]byte, min(rep.Size-rep.Offset, readBuffer))
		for offset := rep.Offset; offset < rep.Size; {
			n, err := f.WriteAt(zeros[:min(rep.Size-offset, int64(len(zeros)))], offset)
			if err != nil {
				return 0, fmt.Errorf("cut the tail of %s at offset %d: %w", rep.Path, offset, err)
			}
			offset += int64(n)
		}
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("sync %s: %w", rep.Path, err)
	}
	if rep.ended {
		return rep.Size, nil
	}
	rep.endedAt = rep.end + markFrameSize
	var end [markFrameSize]byte
	sum := newSummer(l.options.Identity, rep.Segment)
	sum.putMark(end[:], kindEnd, rep.end, rep.end)
	if _, err := f.WriteAt(end[:], rep.end); err != nil {
		return 0, fmt.Errorf("end %s at offset %d: %w", rep.Path, rep.end, err)
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("sync %s: %w", rep.Path, err)
	}
	return max(rep.Size, rep.end+markFrameSize), nil
}

// removeOld removes the segments that a checkpoint has superseded.
func (l *Log) removeOld(numbers []uint64) error {
	for _, number := range numbers {
		if err := l.options.FS.Remove(l.path(number)); err != nil {
			return fmt.Errorf("remove old segment: %w", err)
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	return syncDir(l.options.FS, l.dir)
}
