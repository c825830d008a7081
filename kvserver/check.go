package kvserver

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/storage/file"
	"kvmark/storage/lsm"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// Check reads everything in a data directory that a start would use, and reports on every file, in the order of a start: the
// checkpoints, the values or tables, the log. It changes nothing, and does not stop at the first bad file. The error says that
// it could not be checked: there is none, it is no data directory, a file cannot be opened. fs nil = the operating system's.
func Check(fs vfs.FS, dir string) ([]wal.SegmentReport, error) {
	if fs == nil {
		fs = vfs.Default
	}
	mode, damage, err := modeOf(fs, dir, "")
	if err != nil {
		// If it is one of ours all the same, only its mode is unknown: what is read below is what all modes have.
		_, corrupt := errors.AsType[*wal.CorruptionError](damage)
		segments, _ := segmentNames(fs, fs.PathJoin(dir, walName))
		if !corrupt && !(errors.Is(damage, os.ErrNotExist) && len(segments) > 0) {
			return nil, err
		}
	}
	var all []wal.SegmentReport
	if damage != nil {
		r := wal.SegmentReport{Path: fs.PathJoin(dir, formatName)}
		setDamage(&r, damage)
		all = append(all, r)
	}
	numbers, _, err := listCheckpoints(fs, fs.PathJoin(dir, checkpointName))
	if err != nil {
		return nil, err
	}
	for i, n := range numbers {
		reports, err := checkCheckpoint(fs, dir, n, mode == storage.File && i == len(numbers)-1)
		if err != nil {
			return nil, err
		}
		all = append(all, reports...)
	}
	if mode == storage.LSM {
		r := wal.SegmentReport{Path: fs.PathJoin(dir, "lsm")}
		if r.Records, err = lsm.Check(fs, dir); err != nil {
			setDamage(&r, err)
		}
		all = append(all, r)
	}
	if _, err := checkClean(fs, dir); err != nil {
		r := wal.SegmentReport{Path: fs.PathJoin(dir, cleanName)}
		setDamage(&r, err)
		all = append(all, r)
	}
	segments, err := wal.Scan(fs, fs.PathJoin(dir, walName), func(_ uint64, _ int64, payload []byte) error {
		return entry.Decode(payload, func(entry.Entry) error { return nil })
	})
	first := uint64(1)
	if len(numbers) > 0 {
		first = numbers[len(numbers)-1]
	}
	// Segments that a checkpoint has superseded are about to go: nobody reads them any more.
	segments = slices.DeleteFunc(segments, func(r wal.SegmentReport) bool { return r.Segment < first })
	if len(segments) > 0 && segments[0].Segment > first || len(segments) == 0 && len(numbers) > 0 {
		all = append(all, wal.SegmentReport{
			Path: fs.PathJoin(dir, walName, segmentFile(first)), Segment: first, State: wal.Corrupt,
			Err: fmt.Errorf("%w: it should be the first one to replay", wal.ErrMissing),
		})
	}
	return append(all, segments...), err
}

// checkCheckpoint reports on a checkpoint, and on the value files that it refers to if they are to be read.
func checkCheckpoint(fs vfs.FS, dir string, number uint64, values bool) ([]wal.SegmentReport, error) {
	r := wal.SegmentReport{Path: fs.PathJoin(dir, checkpointName, checkpointFile(number))}
	good := wal.SegmentReport{Path: fs.PathJoin(dir, "values")}
	damaged := map[string]*wal.SegmentReport{}
	salvager := file.NewSalvager(fs, dir)
	var kept []byte
	var err error
	r.Records, r.Bytes, err = readCheckpoint(fs, r.Path, func(kind byte, payload []byte) error {
		switch {
		case kind == frameEnds:
			return entry.Decode(payload, func(entry.Entry) error { return nil })
		case kind == frameStore && values:
			var err error
			kept, err = salvager.Record(kept[:0], payload, func(_ []byte, err error) { noteDamage(damaged, err) })
			good.Bytes += int64(len(kept))
			return err
		}
		return nil
	})
	if err != nil {
		setDamage(&r, err)
	}
	all := []wal.SegmentReport{r}
	if values && len(damaged) == 0 {
		all = append(all, good)
	}
	for _, path := range slices.Sorted(maps.Keys(damaged)) {
		all = append(all, *damaged[path])
	}
	return all, salvager.Close()
}

// noteDamage notes the first damage of a file.
func noteDamage(all map[string]*wal.SegmentReport, err error) {
	d, ok := errors.AsType[*file.DamageError](err)
	if !ok {
		d = &file.DamageError{Err: err}
	}
	r := all[d.Path]
	if r == nil {
		r = &wal.SegmentReport{Path: d.Path, Offset: d.Offset, State: wal.Corrupt, Err: d.Err}
		all[d.Path] = r
	}
	if d.Offset < r.Offset {
		r.Offset, r.Err = d.Offset, d.Err
	}
}

// setDamage makes err the damage of a file.
func setDamage(r *wal.SegmentReport, err error) {
	r.State, r.Err = wal.Corrupt, err
	if c, ok := errors.AsType[*wal.CorruptionError](err); ok {
		r.Offset, r.Err = c.Offset, c.Err
	}
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
