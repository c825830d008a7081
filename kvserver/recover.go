package kvserver

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
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

// recover opens store and log: the newest checkpoint, then the log from the segment that the checkpoint names.
func (srv *Server) recover() (err error) {
	o := &srv.opts
	found, err := checkClean(o.FS, o.Dir)
	if err != nil {
		return errors.Join(err, otherDamage(o)) // or that would show only after a repair of this
	}
	if found {
		if err := removeClean(o.FS, o.Dir); err != nil {
			return err
		}
	}
	var log atomic.Pointer[wal.Log] // nil until the log is replayed
	store, err := storage.Open(o.Mode, storage.Options{
		FS: o.FS, Dir: o.Dir, Codec: o.Codec, Level: o.Level, BucketEntries: o.BucketEntries, Logf: o.Logf,
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
	srv.db = newDB(store)
	srv.db.logf = o.Logf
	walDir := o.FS.PathJoin(o.Dir, walName)
	if err := syncNewest(o.FS, walDir); err != nil {
		return err
	}
	first, err := srv.restoreCheckpoint()
	if err != nil {
		return err
	}
	if first, err = firstSegment(o.FS, walDir, first); err != nil {
		return err
	}
	total, err := logBytes(o.FS, walDir, first)
	if err != nil {
		return err
	}
	p := newProgress(o, "replaying the log", total)
	r := newReplayer(srv.db, replayLanes(o.Mode))
	l, rec, err := wal.Open(walDir, wal.Options{
		FS: o.FS, Policy: o.WALPolicy, SegmentBytes: o.SegmentBytes, SyncEvery: o.SyncEvery, FirstSegment: first, Logf: o.Logf,
	}, func(payload []byte) error {
		if err := p.add(len(payload)); err != nil {
			return err
		}
		return r.record(payload)
	})
	if rerr := r.close(); rerr != nil {
		if err == nil {
			err = errors.Join(rerr, l.Close())
		} else {
			err = rerr
		}
	}
	if err != nil {
		return err
	}
	srv.db.log = l
	log.Store(l)
	if err := store.Recovered(); err != nil {
		return errors.Join(err, l.Close())
	}
	srv.replayed.Log, srv.replayed.Duration = rec, time.Since(srv.started)
	return nil
}

// otherDamage reads the newest checkpoint and the log, changes nothing, and returns what is wrong with them.
func otherDamage(o *Options) error {
	going := func() error {
		select {
		case <-o.Cancel:
			return ErrServerClosed
		default:
			return nil
		}
	}
	dir := o.FS.PathJoin(o.Dir, checkpointName)
	numbers, _, err := listCheckpoints(o.FS, dir)
	errs := []error{err}
	if n := len(numbers); n > 0 {
		_, _, err := readCheckpoint(o.FS, o.FS.PathJoin(dir, checkpointFile(numbers[n-1])), func(byte, []byte) error { return going() })
		errs = append(errs, err)
	}
	reports, err := checkLog(o.FS, o.Dir, numbers, going)
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
	if err != nil || len(names) == 0 {
		return 0, err
	}
	if names[0] != segmentFile(1) {
		return 0, &wal.CorruptionError{Path: fs.PathJoin(dir, names[0]), Err: errors.New("the log begins here, and the checkpoint that it was written over is missing")}
	}
	return 1, nil
}
