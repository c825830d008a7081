package kvserver

import (
	"slices"
	"sync"
	"sync/atomic"

	"kvmark/wal/entry"
)

// observers are told of the keys that writes change: clients that WATCH them, and those that keep copies of values (see
// tracking). While there are none a write costs one load more.
type observers struct {
	count    atomic.Int64 // watched keys and tracking clients
	tracking *tracking

	mu      sync.Mutex
	watched map[string][]watcher
}

// watcher is a session that watches a key.
type watcher struct {
	*session
	existed bool // when it began to
}

// changed tells of a record that has been applied. by is the session that wrote it, nil for the server itself.
// REQUIRES: the stripes of its keys are locked.
func (o *observers) changed(by *session, payload []byte) {
	o.mu.Lock()
	if len(o.watched) > 0 {
		_ = entry.Decode(payload, o.touch) // it has been applied, so it can be decoded
	}
	o.mu.Unlock()
	o.tracking.changed(by, payload)
}

// touch makes the transactions of those who watch a key fail. What comes to its end, or is cleared, while it was not there
// when watching began has not changed.
func (o *observers) touch(e entry.Entry) error {
	if e.Op == entry.Clear {
		for _, list := range o.watched {
			for _, w := range list {
				if w.existed {
					w.dirty.Store(true)
				}
			}
		}
		return nil
	}
	for _, w := range o.watched[string(e.Key)] {
		if w.existed || e.Op != entry.Delete {
			w.dirty.Store(true)
		}
	}
	return nil
}

// watchCommand is WATCH key [key ...].
func watchCommand(s *session, args [][]byte) {
	if s.tx != nil {
		s.fail("ERR WATCH inside MULTI is not allowed")
		return
	}
	for _, key := range args[1:] {
		if slices.Contains(s.watches, string(key)) {
			continue
		}
		s.watchedBytes += int64(queuedBytes + len(key))
		if !s.holdAll() {
			s.watchedBytes -= int64(queuedBytes + len(key))
			s.fail(errBudget)
			return
		}
		if !s.watch(key) {
			return
		}
	}
	s.ok()
}

func (s *session) watch(key []byte) bool {
	s.locks.add(key)
	s.locks.lock()
	defer s.locks.unlock()
	found := true // as far as is known while the data are being loaded
	if !s.loading {
		var ok bool
		if _, found, ok = s.length(key); !ok {
			return false
		}
	}
	o := s.db.observers
	o.count.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched[string(key)] = append(o.watched[string(key)], watcher{s, found})
	s.watches = append(s.watches, string(key))
	return true
}

func unwatchCommand(s *session, _ [][]byte) {
	s.unwatch()
	s.ok()
}

// unwatch forgets what is watched.
func (s *session) unwatch() {
	if len(s.watches) > 0 {
		o := s.db.observers
		o.mu.Lock()
		for _, key := range s.watches {
			list := slices.DeleteFunc(o.watched[key], func(w watcher) bool { return w.session == s })
			if o.watched[key] = list; len(list) == 0 {
				delete(o.watched, key)
			}
		}
		o.mu.Unlock()
		o.count.Add(-int64(len(s.watches)))
	}
	s.watches, s.watchedBytes = nil, 0
	s.dirty.Store(false)
}

// watchedChanged reports whether a watched key has changed, or has come to its end. REQUIRES: they are locked.
func (s *session) watchedChanged() bool {
	if s.dirty.Load() {
		return true
	}
	o := s.db.observers
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range s.watches {
		i := slices.IndexFunc(o.watched[key], func(w watcher) bool { return w.session == s })
		if o.watched[key][i].existed && s.db.expired(s.db.stripe([]byte(key)), []byte(key)) {
			return true
		}
	}
	return false
}
