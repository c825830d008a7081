package wal

import (
	"errors"
	"fmt"

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

// Open replays every record in order through fn (payload is valid only during the call), cuts an unsynced tail, and leaves
// the log ready for Append. The directory is created if it is missing; nobody else may use it meanwhile. Damage that is not
// an unsynced tail is a [CorruptionError], after fn has been called for the records in front of it, and nothing has been changed.
func Open(dir string, o Options, fn func(payload []byte) error) (*Log, Recovery, error) {
	var rec Recovery
	o, err := o.withDefaults()
	if err != nil {
		return nil, rec, err
	}
	if err := o.FS.MkdirAll(dir, 0o700); err != nil {
		return nil, rec, fmt.Errorf("wal: create directory: %w", err)
	}
	if err := syncDir(o.FS, o.FS.PathDir(dir)); err != nil {
		return nil, rec, fmt.Errorf("wal: %w", err)
	}
	numbers, err := listSegments(o.FS, dir)
	if err != nil {
		return nil, rec, err
	}
	l := newLog(dir, o)
	old := 0
	for old < len(numbers) && numbers[old] < o.FirstSegment {
		old++
	}
	numbers, oldNumbers := numbers[old:], numbers[:old]
	if err := l.checkComplete(numbers); err != nil {
		return nil, rec, err
	}
	next := uint64(1)
	for i, number := range numbers {
		newest := i == len(numbers)-1
		rep, err := l.replay(number, newest, fn)
		if err != nil {
			return nil, rec, err
		}
		rec.Segments++
		rec.Records += rep.Records
		rec.Bytes += rep.Bytes
		next = number
		if !newest {
			l.segments = append(l.segments, segmentSize{number: number, bytes: rep.Size})
			continue
		}
		if rep.State == Torn {
			rec.CutPath, rec.CutOffset, rec.CutBytes, rec.CutRecords = rep.Path, rep.Offset, rep.Size-rep.Offset, rep.Behind
		}
		if rep.unfinished || rep.State == Clean && rep.Size == int64(segmentHeaderSize) {
			break // nothing was ever written to it: create goes on with it
		}
		size, err := l.endRecovered(&rep)
		if err != nil {
			return nil, rec, fmt.Errorf("wal: %w", err)
		}
		l.segments = append(l.segments, segmentSize{number: number, bytes: size})
		next++
	}
	err = l.create(next)
	if err == nil {
		err = l.removeOld(oldNumbers)
	}
	if err != nil {
		if l.out.file != nil {
			err = errors.Join(err, l.out.file.Close())
		}
		return nil, rec, fmt.Errorf("wal: %w", err)
	}
	l.done.Go(l.background)
	return l, rec, nil
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

func (l *Log) replay(number uint64, newest bool, fn func(payload []byte) error) (SegmentReport, error) {
	rep, err := scanSegment(l.options.FS, l.dir, number, newest, func(_ uint64, offset int64, payload []byte) error {
		if err := fn(payload); err != nil {
			return fmt.Errorf("wal: replay %s at offset %d: %w", l.path(number), offset, err)
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
	var end [markFrameSize]byte
	sum := newSummer(rep.Segment)
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
