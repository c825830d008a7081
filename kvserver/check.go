package kvserver

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/wal"
	"kvmark/wal/entry"
)

// Check reads the checkpoints and the log of a data directory and reports on every file, in the order of a start. It
// changes nothing, and does not stop at the first bad file. The error is about the directory itself. fs nil = the
// operating system's.
func Check(fs vfs.FS, dir string) ([]wal.SegmentReport, error) {
	if fs == nil {
		fs = vfs.Default
	}
	if _, err := ReadFormat(fs, dir); err != nil {
		return nil, err
	}
	var all []wal.SegmentReport
	numbers, _, err := listCheckpoints(fs, fs.PathJoin(dir, checkpointName))
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		r := wal.SegmentReport{Path: fs.PathJoin(dir, checkpointName, checkpointFile(n))}
		r.Records, r.Bytes, err = readCheckpoint(fs, r.Path, func(kind byte, payload []byte) error {
			if kind == frameEnds {
				return entry.Decode(payload, func(entry.Entry) error { return nil })
			}
			return nil
		})
		if err != nil {
			r.State, r.Err = wal.Corrupt, err
			if c, ok := errors.AsType[*wal.CorruptionError](err); ok {
				r.Offset, r.Err = c.Offset, c.Err
			}
		}
		all = append(all, r)
	}
	segments, err := wal.Scan(fs, fs.PathJoin(dir, walName), func(_ uint64, _ int64, payload []byte) error {
		return entry.Decode(payload, func(entry.Entry) error { return nil })
	})
	// Segments that a checkpoint has superseded are about to go: nobody reads them any more.
	for _, r := range segments {
		if len(numbers) == 0 || r.Segment >= numbers[len(numbers)-1] {
			all = append(all, r)
		}
	}
	return all, err
}

// Dump calls fn for every readable record of the log of a data directory, in order. It changes nothing.
func Dump(fs vfs.FS, dir string, fn func(segment uint64, offset int64, payload []byte) error) error {
	if fs == nil {
		fs = vfs.Default
	}
	if _, err := ReadFormat(fs, dir); err != nil {
		return err
	}
	reports, err := wal.Scan(fs, fs.PathJoin(dir, walName), fn)
	if err != nil {
		return err
	}
	for _, r := range reports {
		if r.State == wal.Corrupt {
			err = errors.Join(err, &wal.CorruptionError{Path: r.Path, Offset: r.Offset, Err: fmt.Errorf("%w; %d readable records behind it", r.Err, r.Behind)})
		}
	}
	return err
}
