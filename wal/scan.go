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

// Errors in the [CorruptionError] of a segment whose header is whole, but is not that of the segment which should be there.
var (
	ErrForeign   = errors.New("the segment belongs to another data directory")
	ErrMisplaced = errors.New("the segment has another number")
	ErrUnlinked  = errors.New("the segment is not of the same time as its neighbour")
)

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

	ID uint64 // in its header; 0 if that is damaged

	previous   uint64 // in its header
	last       uint32 // checksum of the last record in front of the first damage
	end        int64  // offset behind the last frame in front of the first damage
	ended      bool   // an end frame was read
	endedAt    int64  // offset behind it
	followed   bool   // a mark was read which says that the next segment is there
	unfinished bool   // the header was never completed
}

// End is where a log ends, and with what. As text it is
//
//	segment 0000000012.wal id 89abcdef01234567 end 123456 sum 89abcdef
type End struct {
	Segment, ID uint64
	Offset      int64  // behind the last frame
	Sum         uint32 // checksum of the last record of the segment, 0 for none
}

const endFormat = "segment %s id %016x end %d sum %08x"

func (e End) String() string {
	return fmt.Sprintf(endFormat, segmentName(e.Segment), e.ID, e.Offset, e.Sum)
}

// ParseEnd is the inverse of End.String.
func ParseEnd(text string) (e End, err error) {
	var name string
	if _, err = fmt.Sscanf(text, endFormat, &name, &e.ID, &e.Offset, &e.Sum); err == nil {
		e.Segment, _ = parseSegmentName(name)
	}
	if err != nil || e.String() != text {
		return End{}, fmt.Errorf("%.80q is no end of a log", text)
	}
	return e, nil
}

// End returns where the log ends if this is its newest segment.
func (r *SegmentReport) End() End { return End{r.Segment, r.ID, r.end, r.last} }

// Lost returns why a log that ended at want when it was closed, and ends with this report now, is damaged.
func (r *SegmentReport) Lost(want End) error {
	got := r.End()
	if got == want && r.State == Clean {
		return nil
	}
	err := fmt.Errorf("the log has not the end that it had when the server stopped in good order: it was %v, and is %v", want, got)
	if got.Segment != want.Segment {
		return &CorruptionError{Path: r.Path, Offset: r.end, Err: err}
	}
	return &CorruptionError{Path: r.Path, Offset: min(got.Offset, want.Offset), Err: err}
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
func Scan(fs vfs.FS, dir string, identity Identity, fn func(segment uint64, offset int64, payload []byte) error) ([]SegmentReport, error) {
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
		place := segmentPlace{identity: identity, number: number, newest: i == len(numbers)-1}
		if n := len(reports); n > 0 {
			place.previous, place.complete = reports[n-1].ID, reports[n-1].followed
		}
		rep, err := scanSegment(fs, dir, place, fn, fn)
		if err != nil {
			return reports, err
		}
		reports = append(reports, rep)
	}
	if n := len(reports); n > 0 && reports[n-1].followed {
		reports = append(reports, missingNext(fs, dir, reports[n-1].Segment))
	}
	return reports, nil
}

// missingNext is the report of the segment behind one that says that it is there.
func missingNext(fs vfs.FS, dir string, number uint64) SegmentReport {
	rep := SegmentReport{Path: fs.PathJoin(dir, segmentName(number+1)), Segment: number + 1}
	rep.set(Corrupt, 0, fmt.Errorf("%w: it was there when records were last written, as %s says", ErrMissing, segmentName(number)))
	return rep
}

// segmentPlace is what a segment has to be.
type segmentPlace struct {
	identity     Identity
	number       uint64
	previous, id uint64 // of the segment in front of it, and its own; 0 if that is not known
	newest       bool
	complete     bool // its header is, as the segment in front of it says
	old          bool // of format version 1, see old.go
}

func scanSegment(fs vfs.FS, dir string, p segmentPlace, fn, behind recordFunc) (SegmentReport, error) {
	rep := SegmentReport{Segment: p.number}
	r, err := openReader(fs, fs.PathJoin(dir, segmentName(p.number)), p)
	if err == errDirectory {
		rep.Path = fs.PathJoin(dir, segmentName(p.number))
		rep.set(Corrupt, 0, err)
		return rep, nil
	}
	if err != nil {
		return rep, err
	}
	err = r.verify(&rep, fn, behind)
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
