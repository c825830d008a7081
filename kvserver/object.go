package kvserver

import (
	"math/rand/v2"

	"kvmark/kvserver/resp"
)

func objectParts() []command {
	part := func(name, summary string, run func(*session, [][]byte)) command {
		return command{name: name, arity: 3, flags: readonly, firstKey: 2, lastKey: 2, keyStep: 1, group: "generic", summary: summary, run: run}
	}
	return []command{
		part("encoding", "Returns what Redis would call the encoding of a value just set.", objectEncoding),
		part("freq", "Is refused: nothing counts accesses.", objectFreq),
		part("idletime", "Returns 0: nothing remembers accesses.", objectIdletime),
		part("refcount", "Returns 1: nothing is shared.", objectRefcount),
	}
}

// objectEncoding is OBJECT ENCODING key. The server keeps values its own way; clients that ask want to know a number from a text.
func objectEncoding(s *session, args [][]byte) {
	const embedded = 44 // bytes
	found, ok := s.old(args[2])
	if !ok {
		return
	}
	kind := "raw"
	if _, number := resp.ParseInt(s.value); number {
		kind = "int"
	} else if len(s.value) <= embedded {
		kind = "embstr"
	}
	if !found {
		s.null()
		return
	}
	s.out = resp.AppendBulk(s.out, kind)
}

func objectIdletime(s *session, args [][]byte) { s.ofKey(args[2], 0) }
func objectRefcount(s *session, args [][]byte) { s.ofKey(args[2], 1) }

// ofKey replies with a number if there is such a key.
func (s *session) ofKey(key []byte, v int64) {
	switch _, found, ok := s.length(key); {
	case !ok:
	case !found:
		s.null()
	default:
		s.integer(v)
	}
}

func objectFreq(s *session, args [][]byte) {
	if _, found, ok := s.length(args[2]); ok && found {
		s.fail("ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.")
	} else if ok {
		s.null()
	}
}

// touchCommand is EXISTS: there is nothing to remember.
func touchCommand(s *session, args [][]byte) { existsCommand(s, args) }

// randomkeyCommand is RANDOMKEY. From a partition of the store that is picked at random comes a key that is picked among the first
// mostSampled; the next partition has its turn if there is none.
func randomkeyCommand(s *session, _ [][]byte) {
	const mostSampled = 1000
	var picked []byte
	seen := 0
	take := func(key []byte) {
		if seen++; rand.IntN(seen) == 0 {
			picked = append(picked[:0], key...)
		}
	}
	s.staged.each(s.db.now(), take)
	n := s.db.store.Shards()
	first := rand.IntN(n)
	for i := 0; i < n && seen == 0; i++ {
		err := s.db.store.Keys((first+i)%n, func(key []byte) error {
			if !s.staged.hides(key) && !s.db.expired(s.db.stripe(key), key) {
				take(key)
			}
			if seen == mostSampled {
				return errFull
			}
			return nil
		})
		if err != nil && err != errFull {
			s.ioError(err)
			return
		}
	}
	s.wait = max(s.wait, s.db.newest())
	if seen == 0 {
		s.null()
		return
	}
	s.out = resp.AppendBulk(s.out, picked)
}
