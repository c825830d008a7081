package kvserver

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/storage/file"
	"kvmark/storage/lsm"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// Replayed is what a start read to get to the state that the server has.
type Replayed struct {
	CheckpointRecords, CheckpointBytes int64
	Log                                wal.Recovery
	Duration                           time.Duration
}

func (r Replayed) String() string {
	text := fmt.Sprintf("replayed %d records, %d bytes of the log", r.Log.Records, r.Log.Bytes)
	if r.CheckpointBytes > 0 {
		text += fmt.Sprintf(" over a checkpoint of %d records, %d bytes", r.CheckpointRecords, r.CheckpointBytes)
	}
	text += fmt.Sprintf(" in %.3f s", r.Duration.Seconds())
	if r.Log.CutPath != "" {
		text += fmt.Sprintf("; cut an unsynced tail of %d bytes (%d readable records) off %s at offset %d",
			r.Log.CutBytes, r.Log.CutRecords, r.Log.CutPath, r.Log.CutOffset)
	}
	return text
}

// sink takes what a start reads, in its order: the records of the store and the keys' ends in the checkpoint, the log's records.
type sink struct {
	restore, ends, record func(b []byte) error
}

// reading is what a start has read.
type reading struct {
	checkpoint     checkpointHeader // the zero one if there is none
	records, bytes int64            // of the checkpoint
	log            *wal.Replayed
	superseded     bool // older checkpoints or segments are still there
}

// sources are the files that a start reads.
type sources struct {
	checkpoint      uint64 // number of the newest one, 0 = none
	checkpointBytes int64
	segment         uint64 // the first of the log
	logBytes        int64
	superseded      bool // older checkpoints are still there
}

func (p *place) sources() (s sources, err error) {
	numbers, _, err := listCheckpoints(p.fs, p.path(checkpointName))
	if err != nil {
		return s, err
	}
	if n := len(numbers); n > 0 {
		s.checkpoint, s.superseded = numbers[n-1], n > 1
		info, err := p.fs.Stat(p.path(checkpointName, checkpointFile(s.checkpoint)))
		if err != nil {
			return s, fmt.Errorf("kvserver: %w", err)
		}
		s.checkpointBytes = info.Size()
	}
	if s.segment, err = firstSegment(p.fs, p.path(walName), s.checkpoint); err != nil {
		return s, err
	}
	s.logBytes, err = logBytes(p.fs, p.path(walName), s.segment)
	return s, err
}

// read passes everything that a start uses to s and decides whether it may be used: the newest checkpoint, and the log from the
// segment that it names. end is where the log has to end; nil if that is not known. It changes nothing.
func (p *place) read(o *Options, l *loading, end *wal.End, s sink) (r reading, err error) {
	src, err := p.sources()
	if err != nil {
		return r, err
	}
	if src.checkpoint > 0 {
		going := newProgress(o, l, "reading the checkpoint", src.checkpointBytes)
		path := p.path(checkpointName, checkpointFile(src.checkpoint))
		r.checkpoint, r.records, r.bytes, err = p.readCheckpoint(path, src.checkpoint, func(kind byte, payload []byte) error {
			if err := going.add(frameHeader + len(payload)); err != nil {
				return err
			}
			switch kind {
			case frameStore:
				return s.restore(payload)
			case frameEnds:
				return s.ends(payload)
			}
			return fmt.Errorf("unknown kind %d", kind)
		})
		if err != nil {
			return r, err
		}
		going.tell(src.checkpointBytes)
	}
	going := newProgress(o, l, "replaying the log", src.logBytes)
	r.log, err = wal.Replay(p.path(walName), wal.Options{
		FS: p.fs, Policy: o.WALPolicy, SegmentBytes: o.SegmentBytes, SyncEvery: o.SyncEvery, Logf: o.Logf,
		Identity: wal.Identity(p.identity), FirstSegment: src.segment, FirstID: r.checkpoint.segment,
	}, func(payload []byte) error {
		if err := going.add(wal.RecordOverhead + len(payload)); err != nil {
			return err
		}
		return s.record(payload)
	})
	if err == nil {
		going.tell(src.logBytes)
	}
	if err == nil && end != nil {
		err = r.log.CheckEnd(*end)
	}
	r.superseded = err == nil && (src.superseded || r.log.Superseded())
	return r, err
}

// verify reads what a start uses as a start does, and keeps nothing of it.
func (p *place) verify(o *Options, l *loading, end *wal.End) error {
	var first []byte // record of the store
	values := file.NewSalvager(p.fs, p.dir, file.Identity(p.identity))
	r, err := p.read(o, l, end, sink{
		restore: func(rec []byte) error {
			if first == nil {
				first = slices.Clone(rec)
			}
			if p.mode == storage.File {
				return values.Refers(rec)
			}
			return storage.CheckRecord(p.mode, rec)
		},
		ends: checkEntries, record: checkEntries,
	})
	if err = errors.Join(err, values.Close()); err != nil {
		return err
	}
	if r.superseded {
		if err := p.checkReplacement(r.checkpoint.number); err != nil {
			return err
		}
	}
	if p.mode != storage.LSM {
		return nil
	}
	return p.inspectTables(first)
}

// inspectTables says why the lsm mode's tables are not those that belong to the log and to a checkpoint with that record, nil = none.
func (p *place) inspectTables(rec []byte) error {
	segment, err := lsm.Inspect(p.fs, p.dir, lsm.Identity(p.identity), rec)
	if err != nil {
		return err
	}
	newest := "nothing"
	if names, err := segmentNames(p.fs, p.path(walName)); err != nil {
		return err
	} else if len(names) > 0 {
		newest = names[len(names)-1]
	}
	if segment > 0 && (newest == "nothing" || segmentFile(segment) > newest) {
		return &wal.CorruptionError{Path: p.path(lsmName), Err: fmt.Errorf(
			"the tables hold what was logged before %s, and the log ends with %s: they are not of the same time; put the right ones there", segmentFile(segment), newest)}
	}
	return nil
}

// checkReplacement reads what the newest checkpoint refers to, for what it has replaced is about to go.
func (p *place) checkReplacement(number uint64) error {
	switch p.mode {
	case storage.File:
		reports, err := p.checkCheckpoint(number, true)
		for _, r := range reports {
			err = errors.Join(err, damageOf(r))
		}
		return err
	case storage.LSM:
		_, err := lsm.Check(p.fs, p.dir, lsm.Identity(p.identity), nil)
		return err
	}
	return nil // it has been read
}

// recover opens store and log: the newest checkpoint, then the log from the segment that the checkpoint names. Nothing in the
// directory is changed, but for what a store adds to its own files, before all of it has been read and found good. A file or lsm
// store changes its files as it is filled; so for these everything is read twice.
func (srv *Server) recover() (err error) {
	o, p, progress := &srv.opts, srv.place, &srv.progress
	end, err := p.readClean()
	if err != nil {
		return errors.Join(err, p.otherDamage(progress)) // or that would show only after a repair of this
	}
	src, err := p.sources()
	if err != nil {
		return err
	}
	progress.done.Store(0)
	progress.total.Store(src.checkpointBytes + src.logBytes)
	onDisk := p.mode == storage.File || p.mode == storage.LSM
	if onDisk {
		progress.total.Store(2 * (src.checkpointBytes + src.logBytes))
		if err := p.verify(o, progress, end); err != nil {
			return err
		}
		if err := srv.space.makeRoom(); err != nil {
			return err
		}
	}
	var log atomic.Pointer[wal.Log] // nil until the log is replayed
	store, err := storage.Open(o.Mode, storage.Options{
		FS: o.FS, Dir: o.Dir, Identity: p.identity, Segment: srv.checkpoints.segment.Load,
		Codec: o.Codec, Level: o.Level, BucketEntries: o.BucketEntries, Logf: o.Logf,
		BeforeWait: srv.beforeWait,
		BeforeFlush: func() error {
			if l := log.Load(); l != nil {
				return l.Sync()
			}
			return nil // syncNewest has done so, and nothing is appended yet
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
	}()
	srv.db.setStore(store)
	if err := syncNewest(o.FS, p.path(walName)); err != nil {
		return err
	}
	lanes := newReplayer(srv.db, replayLanes(o.Mode))
	r, err := p.read(o, progress, end, sink{
		restore: store.Restore,
		ends:    func(payload []byte) error { return entry.Decode(payload, srv.db.applyFn) },
		record:  lanes.record,
	})
	if rerr := lanes.close(); err == nil {
		err = rerr
	}
	if err == nil && !onDisk {
		err = srv.space.makeRoom()
	}
	if err != nil {
		return err
	}
	if err := progress.goesOn(); err != nil {
		return err
	}
	l, err := p.begin(&r)
	if err != nil {
		return err
	}
	srv.db.log = l
	log.Store(l)
	if err := store.Recovered(); err != nil {
		return errors.Join(err, l.Close())
	}
	srv.replayed = Replayed{r.records, r.bytes, r.log.Recovery, time.Since(srv.started)}
	return nil
}

// begin makes the first changes of a start, which has read everything.
func (p *place) begin(r *reading) (*wal.Log, error) {
	if err := removeClean(p.fs, p.dir); err != nil {
		return nil, err
	}
	if err := writePID(p.fs, p.dir); err != nil {
		return nil, err
	}
	_, incomplete, err := listCheckpoints(p.fs, p.path(checkpointName))
	if err != nil {
		return nil, err
	}
	for _, name := range incomplete {
		if err := p.fs.Remove(p.path(checkpointName, name)); err != nil {
			return nil, fmt.Errorf("kvserver: remove an unfinished checkpoint: %w", err)
		}
	}
	return r.log.Open()
}

// noteIgnored notes the files that nothing will use.
func (p *place) noteIgnored(logf func(format string, args ...any)) error {
	paths, err := Ignored(p.fs, p.dir)
	for _, path := range paths {
		logf("kvserver: %s is ignored: that is no name that kvserver gives to a file", path)
	}
	return err
}

// otherDamage reads the newest checkpoint and the log, changes nothing, and returns what is wrong with them.
func (p *place) otherDamage(l *loading) error {
	numbers, _, err := listCheckpoints(p.fs, p.path(checkpointName))
	errs := []error{err}
	if n := len(numbers); n > 0 {
		newest := numbers[n-1]
		_, _, _, err := p.readCheckpoint(p.path(checkpointName, checkpointFile(newest)), newest, func(byte, []byte) error { return l.goesOn() })
		errs = append(errs, err)
	}
	reports, err := p.checkLog(numbers, nil, l.goesOn)
	for _, r := range reports {
		errs = append(errs, damageOf(r))
	}
	return errors.Join(append(errs, err)...)
}

// syncNewest syncs the newest segment of the log, the only one that may not be on the device yet. What is replayed from it
// can reach a store's own files, and those must never be ahead of the log.
func syncNewest(fs vfs.FS, dir string) error {
	names, err := segmentNames(fs, dir)
	if err != nil || len(names) == 0 {
		return err
	}
	f, err := fs.OpenReadWrite(fs.PathJoin(dir, names[len(names)-1]), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("kvserver: sync the log before its replay: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("kvserver: sync the log before its replay: %w", err)
	}
	return nil
}

// logBytes returns the size of the log from a segment on.
func logBytes(fs vfs.FS, dir string, first uint64) (total int64, err error) {
	names, err := segmentNames(fs, dir)
	for _, name := range names {
		if name < segmentFile(first) {
			continue
		}
		info, err := fs.Stat(fs.PathJoin(dir, name))
		if err != nil {
			return 0, fmt.Errorf("kvserver: %w", err)
		}
		total += info.Size()
	}
	return total, err
}

// firstSegment returns where the replay begins: where the checkpoint says, and without one at the first segment that was
// ever written, if there is a log at all.
func firstSegment(fs vfs.FS, dir string, checkpoint uint64) (uint64, error) {
	if checkpoint > 0 {
		return checkpoint, nil
	}
	names, err := segmentNames(fs, dir)
	if err != nil {
		return 0, err
	}
	if len(names) == 0 {
		return 0, &wal.CorruptionError{Path: fs.PathJoin(dir, segmentFile(1)), Err: fmt.Errorf("%w: a data directory has one from the beginning, and there is no other", wal.ErrMissing)}
	}
	if names[0] != segmentFile(1) {
		return 0, &wal.CorruptionError{Path: fs.PathJoin(dir, names[0]), Err: errors.New("the log begins here, and the checkpoint that it was written over is missing")}
	}
	return 1, nil
}

// beforeWait takes a command that is about to wait for the device out of its event loop.
func (srv *Server) beforeWait() (done func()) {
	if !srv.loops.beforeWait() {
		return func() {}
	}
	return srv.db.deviceRead()
}
