package kvserver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
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

// progressEvery is the time between two lines on a replay that takes long.
const progressEvery = 5 * time.Second

// recover opens store and log: the newest checkpoint, then the log from the segment that the checkpoint names.
func (srv *Server) recover() (err error) {
	o := &srv.opts
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
	walDir := o.FS.PathJoin(o.Dir, walName)
	if err := syncNewest(o.FS, walDir); err != nil {
		return err
	}
	first, err := srv.restoreCheckpoint()
	if err != nil {
		return err
	}
	r := &srv.replayed
	next, records := srv.started.Add(progressEvery), int64(0)
	l, rec, err := wal.Open(walDir, wal.Options{
		FS: o.FS, Policy: o.WALPolicy, SegmentBytes: o.SegmentBytes, SyncEvery: o.SyncEvery, FirstSegment: first, Logf: o.Logf,
	}, func(payload []byte) error {
		if records++; records%1024 == 0 {
			if now := time.Now(); now.After(next) {
				next = now.Add(progressEvery)
				o.Logf("kvserver: replaying the log: %d records in %.0f s", records, now.Sub(srv.started).Seconds())
			}
		}
		return entry.Decode(payload, srv.db.applyFn)
	})
	if err != nil {
		return err
	}
	srv.db.log = l
	log.Store(l)
	if err := store.Recovered(); err != nil {
		return errors.Join(err, l.Close())
	}
	r.Log, r.Duration = rec, time.Since(srv.started)
	return nil
}

// syncNewest syncs the newest segment of the log, the only one that may not be on the device yet. What is replayed from it
// can reach a store's own files, and those must never be ahead of the log.
func syncNewest(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".wal") })
	if len(names) == 0 {
		return nil
	}
	f, err := fs.OpenReadWrite(fs.PathJoin(dir, slices.Max(names)), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("kvserver: sync the log before its replay: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("kvserver: sync the log before its replay: %w", err)
	}
	return nil
}
