package file

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// reclaimer rewrites files that are mostly dead. Its goroutine is started by
// Recovered and ended by Close.
//
// For each record of such a file that the index still points to, it appends a
// copy and then moves the index entry, only if it is still the old one:
//
//	writer                          reclaimer
//	                                finds key at P1, appends its copy at P2
//	appends a new value at P3
//	index: key -> P3
//	                                index: key is not at P1 any more: P2 is dead
//
// The file is left as it is until no checkpoint refers to it.
type reclaimer struct {
	stop    chan struct{}
	once    sync.Once
	running sync.WaitGroup

	files  atomic.Int64 // rewritten
	copied atomic.Int64 // bytes
}

var errStopped = errors.New("stopped")

// dead notes that the record at loc is not referred to any more.
func (t *files) dead(loc location, keyLen int) {
	f := t.get(loc.pos.file())
	if f == nil {
		return
	}
	live := f.liveBytes.Add(-recordBytes(keyLen, int(loc.valueLen)))
	f.live.Add(-1)
	if t.worthIt(f, live) {
		t.wakeReclaimer()
	}
}

func (t *files) wakeReclaimer() {
	select {
	case t.wake <- struct{}{}:
	default: // it has been told, and will look
	}
}

// worthIt says whether so much of the file is dead that it is to be rewritten.
func (t *files) worthIt(f *valueFile, live int64) bool {
	return f.sealed.Load() && !f.given.Load() &&
		float64(live) <= float64(f.size.Load()-headerBytes)*(1-t.deadShare)
}

func (r *reclaimer) start(s *Store) {
	r.running.Go(func() {
		for {
			s.rewriteDead()
			select {
			case <-r.stop:
				return
			case <-s.files.wake:
			}
		}
	})
}

func (r *reclaimer) close() {
	r.once.Do(func() { close(r.stop) })
	r.running.Wait()
}

// rewriteDead rewrites every file for which it is worth it, and removes the
// files that nobody needs.
func (s *Store) rewriteDead() {
	all := s.files.all()
	for _, number := range slices.Sorted(maps.Keys(all)) {
		f := all[number]
		if number >= position(s.w.flushed.Load()).file() || !s.files.worthIt(f, f.liveBytes.Load()) {
			continue
		}
		// Whatever comes of it, once is enough: nothing in it comes back to
		// life, and what could not be read today cannot be read tomorrow.
		f.given.Store(true)
		if f.live.Load() > 0 {
			err := s.rewrite(f)
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				s.o.Logf("reclaiming %s stopped, the file is kept: %v", f.path, err)
				continue
			}
		}
		s.reclaim.files.Add(1)
	}
	// A checkpoint removes files, too, when it is done.
	if s.checkpoint.TryLock() {
		defer s.checkpoint.Unlock()
		if err := s.removeUnreferencedLocked(); err != nil {
			s.o.Logf("reclaiming: %v", err)
		}
	}
}

// rewrite copies what is alive in f to the newest file.
func (s *Store) rewrite(f *valueFile) error {
	return Scan(s.o.FS, f.path, s.o.Identity, f.number, func(offset int64, key, value []byte) error {
		select {
		case <-s.reclaim.stop:
			return errStopped
		default:
		}
		here := at(f.number, offset)
		old, ok := s.index.get(key)
		if !ok || old.pos != here {
			return nil
		}
		// That the record agrees with itself is not enough: only what the index knows was stored gets a new checksum.
		if int(old.valueLen) != len(value) || old.crc != checksum(s.seed, f.number, uint32(offset), key, value) {
			return &DamageError{f.path, offset, errors.New("the record is not the one that was stored there")}
		}
		loc, err := s.w.append(key, value)
		if err != nil {
			return err
		}
		if !s.index.move(key, old, loc) {
			s.files.dead(loc, len(key))
			return nil
		}
		s.reclaim.copied.Add(recordBytes(len(key), len(value)))
		s.files.dead(old, len(key))
		return nil
	})
}
