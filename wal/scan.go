package wal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CorruptionError is damage that no crash explains. It is never repaired by a start.
type CorruptionError struct {
	Path   string
	Offset int64 // where the first unreadable bytes begin
	Err    error
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("wal: %s is corrupt at offset %d: %v", e.Path, e.Offset, e.Err)
}

func (e *CorruptionError) Unwrap() error { return e.Err }

// ErrMissing is in the [CorruptionError] of a segment that should be there and is not.
var ErrMissing = errors.New("segment missing")

// State is the verdict on one segment.
type State uint8

const (
	Clean   State = iota // every byte is accounted for
	Torn                 // an unsynced tail, which Open would cut
	Corrupt              // Open would refuse
)

func (s State) String() string {
	switch s {
	case Clean:
		return "clean"
	case Torn:
		return "torn tail"
	case Corrupt:
		return "corrupt"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// SegmentReport is what [Scan] found in one segment.
type SegmentReport struct {
	Path    string
	Segment uint64
	Size    int64 // bytes of the file
	Records int64 // readable in front of the first damage
	Bytes   int64 // of those records: payloads and frames
	State   State
	Offset  int64 // of the first damage
	Err     error // what the first damage is; nil if clean
	Behind  int64 // readable records behind the first damage

	end        int64 // offset behind the last frame in front of the first damage
	ended      bool  // an end frame was read
	unfinished bool  // the header was never completed
}

func (r *SegmentReport) set(s State, offset int64, err error) {
	r.State, r.Offset, r.Err = s, offset, err
}

type recordFunc = func(segment uint64, offset int64, payload []byte) error

// Scan reads the log in dir without changing anything, whatever its state, and passes every readable record to fn, in order,
// also those behind damage (at offsets above the report's). A nil fn only counts; payload is valid during the call. There is one
// report per segment, and one, without size, for the first of each row of missing segments. A log whose older segments a checkpoint has
// superseded is judged like any other: ignore reports of segments below the checkpoint's.
// The error is fn's or the file system's. A nil fs is [vfs.Default].
func Scan(fs vfs.FS, dir string, fn func(segment uint64, offset int64, payload []byte) error) ([]SegmentReport, error) {
	if fs == nil {
		fs = vfs.Default
	}
	if fn == nil {
		fn = func(uint64, int64, []byte) error { return nil }
	}
	numbers, err := listSegments(fs, dir)
	if err != nil {
		return nil, err
	}
	var reports []SegmentReport
	for i, number := range numbers {
		if i > 0 && number != numbers[i-1]+1 {
			missing := numbers[i-1] + 1
			rep := SegmentReport{Path: fs.PathJoin(dir, segmentName(missing)), Segment: missing}
			rep.set(Corrupt, 0, fmt.Errorf("%w: the next one there is is %s", ErrMissing, segmentName(number)))
			reports = append(reports, rep)
		}
		rep, err := scanSegment(fs, dir, number, i == len(numbers)-1, fn, fn)
		if err != nil {
			return reports, err
		}
		reports = append(reports, rep)
	}
	return reports, nil
}

func scanSegment(fs vfs.FS, dir string, number uint64, newest bool, fn, behind recordFunc) (SegmentReport, error) {
	rep := SegmentReport{Segment: number}
	r, err := openReader(fs, fs.PathJoin(dir, segmentName(number)), number)
	if err != nil {
		return rep, err
	}
	err = r.verify(&rep, newest, fn, behind)
	return rep, errors.Join(err, r.file.Close())
}

// listSegments returns the numbers of the segments in dir, ascending.
func listSegments(fs vfs.FS, dir string) ([]uint64, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("wal: list %s: %w", dir, err)
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := parseSegmentName(name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
