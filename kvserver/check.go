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
// checkpoints, the values or tables, the log. It changes nothing, and does not stop at the first bad file. The error says what
// could not be checked: there is no directory, it is no data directory, a file cannot be opened. The reports beside it are of the
// rest. fs nil = the operating system's.
func Check(fs vfs.FS, dir string) ([]wal.SegmentReport, error) {
	if fs == nil {
		fs = vfs.Default
	}
	p, damage, err := placeOf(fs, dir, "")
	if err != nil {
		// If it is one of ours all the same, only its mode is unknown: what is read below is what all modes have.
		begun, _ := onlyBegun(fs, dir)
		if p == nil || !isDamage(damage) || errors.Is(damage, os.ErrNotExist) && begun {
			return nil, err
		}
	}
	return p.check(damage)
}

// check is [Check] for a directory whose FORMAT has that damage.
func (p *place) check(damage error) (all []wal.SegmentReport, err error) {
	report := func(path string, err error) {
		r := wal.SegmentReport{Path: path}
		setDamage(&r, err)
		all = append(all, r)
	}
	if damage != nil {
		report(p.path(formatName), damage)
	}
	numbers, _, err := listCheckpoints(p.fs, p.path(checkpointName))
	errs := []error{err}
	for i, n := range numbers {
		reports, err := p.checkCheckpoint(n, p.mode == storage.File && i == len(numbers)-1)
		all, errs = append(all, reports...), append(errs, err)
	}
	if p.mode == storage.LSM {
		r := wal.SegmentReport{Path: p.path(lsmName)}
		if r.Records, err = lsm.Check(p.fs, p.dir, lsm.Identity(p.identity), p.storeRecord(numbers)); err != nil {
			setDamage(&r, err)
		}
		all = append(all, r)
	}
	end, err := p.readClean()
	if err != nil {
		report(p.path(cleanName), err)
	}
	segments, err := p.checkLog(numbers, end, func() error { return nil })
	all, errs = append(all, segments...), append(errs, err)
	if err = errors.Join(errs...); err != nil || slices.ContainsFunc(all, func(r wal.SegmentReport) bool { return r.State == wal.Corrupt }) {
		return all, err
	}
	// What a start would say in spite of all this.
	if err := p.verify(&Options{Logf: func(string, ...any) {}}, new(loading), end); err != nil {
		report(p.dir, err)
	}
	return all, nil
}

// checkLog reports on the segments that are replayed over the newest of the checkpoints; those before it are about to go. end is
// where the log has to end, nil if that is not known. It asks going, whose error ends it, at every record.
func (p *place) checkLog(checkpoints []uint64, end *wal.End, going func() error) ([]wal.SegmentReport, error) {
	fs, path := p.fs, p.path(walName)
	if _, err := fs.Stat(path); errors.Is(err, os.ErrNotExist) {
		return []wal.SegmentReport{{Path: path, State: wal.Corrupt, Err: errLogGone}}, nil
	}
	type unread struct {
		offset int64
		err    error
		before int64 // records in front of it
	}
	undecoded := map[uint64]unread{} // the first record of a segment that is whole and makes no sense
	records := map[uint64]int64{}
	segments, err := wal.Scan(fs, path, wal.Identity(p.identity), func(segment uint64, offset int64, payload []byte) error {
		if err := checkEntries(payload); err != nil {
			if _, second := undecoded[segment]; !second {
				undecoded[segment] = unread{offset, err, records[segment]}
			}
		}
		records[segment]++
		return going()
	})
	for i := range segments {
		r := &segments[i]
		if u, ok := undecoded[r.Segment]; ok && (r.State == wal.Clean || u.offset < r.Offset) {
			r.State, r.Offset, r.Err = wal.Corrupt, u.offset, u.err
			r.Records, r.Behind = u.before, records[r.Segment]-u.before-1
		}
	}
	first := uint64(0)
	if n := len(checkpoints); n > 0 {
		first = checkpoints[n-1]
	}
	first, ferr := firstSegment(fs, path, first)
	if ferr != nil {
		if !IsDamage(ferr) {
			return segments, errors.Join(err, ferr)
		}
		if len(segments) == 0 {
			segments = append(segments, wal.SegmentReport{})
		}
		setDamage(&segments[0], ferr)
		return segments, err
	}
	segments = slices.DeleteFunc(segments, func(r wal.SegmentReport) bool { return r.Segment < first })
	if err == nil && (len(segments) > 0 && segments[0].Segment > first || len(segments) == 0 && len(checkpoints) > 0) {
		missing := wal.SegmentReport{
			Path: fs.PathJoin(path, segmentFile(first)), Segment: first, State: wal.Corrupt,
			Err: fmt.Errorf("%w: it should be the first one to replay", wal.ErrMissing),
		}
		segments = slices.Insert(segments, 0, missing)
	}
	if err != nil {
		return segments, err
	}
	if len(segments) > 0 && len(checkpoints) > 0 {
		head, err := readCheckpointHeader(fs, p.path(checkpointName, checkpointFile(first)))
		if r := &segments[0]; err == nil && r.State != wal.Corrupt && head.segment != 0 && r.ID != head.segment {
			setDamage(r, fmt.Errorf("%w: its id is %016x, and the checkpoint was made over one with id %016x; put the right file here", wal.ErrUnlinked, r.ID, head.segment))
		}
	}
	if end != nil && len(segments) == 0 {
		segments = append(segments, wal.SegmentReport{Path: p.path(walName, segmentFile(end.Segment)), Segment: end.Segment, State: wal.Corrupt, Err: wal.ErrMissing})
	} else if end != nil {
		if r := &segments[len(segments)-1]; r.State != wal.Corrupt {
			if err := r.Lost(*end); err != nil {
				setDamage(r, err)
			}
		}
	}
	return segments, nil
}

// checkEntries returns what is wrong with the payload of a record.
func checkEntries(payload []byte) error {
	return entry.Decode(payload, func(entry.Entry) error { return nil })
}

// errLogGone is the damage of a data directory without the log's directory, which is made first.
var errLogGone = errors.New("the log is gone: this directory was made with one; put it back, or give another --dir")

// damageOf returns what is wrong with a file; nil = nothing.
func damageOf(r wal.SegmentReport) error {
	if r.State == wal.Clean {
		return nil
	}
	return &wal.CorruptionError{Path: r.Path, Offset: r.Offset, Err: fmt.Errorf("%w; %d readable records behind it", r.Err, r.Behind)}
}

// storeRecord returns the first record of the store in the newest checkpoint, nil if it has none that can be read. The lsm mode
// has one in each.
func (p *place) storeRecord(checkpoints []uint64) (rec []byte) {
	if n := len(checkpoints); n > 0 {
		newest := checkpoints[n-1]
		_, _, _, _ = p.readCheckpoint(p.path(checkpointName, checkpointFile(newest)), newest, func(kind byte, payload []byte) error { // what is wrong with it is reported by itself
			if kind == frameStore && rec == nil {
				rec = slices.Clone(payload)
			}
			return nil
		})
	}
	return rec
}

// checkCheckpoint reports on a checkpoint, and on the value files that it refers to if they are to be read.
func (p *place) checkCheckpoint(number uint64, values bool) ([]wal.SegmentReport, error) {
	r := wal.SegmentReport{Path: p.path(checkpointName, checkpointFile(number))}
	good := wal.SegmentReport{Path: p.path(valuesName)}
	damaged := map[string]*wal.SegmentReport{}
	salvager := file.NewSalvager(p.fs, p.dir, file.Identity(p.identity))
	var kept []byte
	var err error
	_, r.Records, r.Bytes, err = p.readCheckpoint(r.Path, number, func(kind byte, payload []byte) error {
		switch {
		case kind == frameEnds:
			return checkEntries(payload)
		case kind == frameStore && values:
			var err error
			kept, err = salvager.Record(kept[:0], payload, func(_ []byte, err error) { noteDamage(damaged, err) })
			good.Bytes += int64(len(kept))
			return err
		case kind == frameStore && p.mode != "" && p.mode != storage.File:
			return storage.CheckRecord(p.mode, payload)
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

// IsDamage reports whether an error, of a start for example, says that a file is not what was written there.
func IsDamage(err error) bool {
	_, corrupt := errors.AsType[*wal.CorruptionError](err)
	_, table := errors.AsType[*lsm.DamageError](err)
	_, value := errors.AsType[*file.DamageError](err)
	return corrupt || table || value
}

// setDamage makes err the damage of a file.
func setDamage(r *wal.SegmentReport, err error) {
	r.State, r.Err = wal.Corrupt, err
	if c, ok := errors.AsType[*wal.CorruptionError](err); ok {
		r.Path, r.Offset, r.Err = c.Path, c.Offset, c.Err
	} else if d, ok := errors.AsType[*lsm.DamageError](err); ok {
		r.Path, r.Offset, r.Err = d.Path, d.Offset, d.Err
	} else if d, ok := errors.AsType[*file.DamageError](err); ok {
		r.Path, r.Offset, r.Err = d.Path, d.Offset, d.Err
	}
}

// Dump calls state for every entry of the newest checkpoint of a data directory, and then fn for every readable record of the log, in
// order, whatever the state of the rest. It changes nothing. The error is that of state or fn, or says what is damaged.
func Dump(fs vfs.FS, dir string, state func(checkpoint uint64, e entry.Entry) error, fn func(segment uint64, offset int64, payload []byte) error) error {
	if fs == nil {
		fs = vfs.Default
	}
	p, damage, err := placeOf(fs, dir, "")
	segments, serr := segmentNames(fs, fs.PathJoin(dir, walName))
	if p == nil || serr != nil || damage != nil && (len(segments) == 0 || !isDamage(damage)) {
		return errors.Join(damage, serr, err)
	}
	errs := []error{damage}
	if err == nil { // else its mode is not known
		_, err := p.state(state)
		errs = append(errs, err)
		if err != nil && !IsDamage(err) {
			return errors.Join(errs...)
		}
	}
	reports, err := wal.Scan(fs, p.path(walName), wal.Identity(p.identity), fn)
	errs = append(errs, err)
	for _, r := range reports {
		if r.State == wal.Corrupt {
			errs = append(errs, damageOf(r))
		}
	}
	return errors.Join(errs...)
}
