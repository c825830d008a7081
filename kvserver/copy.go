package kvserver

import (
	"math"

	"kvmark/kvserver/resp"
	"kvmark/wal/entry"
)

// copyCommand is COPY source destination [DB 0] [REPLACE].
func copyCommand(s *session, args [][]byte) {
	replace := false
	for i := 3; i < len(args); i++ {
		switch {
		case is(args[i], "replace"):
			replace = true
		case is(args[i], "db") && i+1 < len(args):
			i++
			switch v, ok := resp.ParseInt(args[i]); {
			case !ok:
				s.fail(errInteger)
				return
			case v < math.MinInt32 || v > math.MaxInt32:
				s.fail(errSelect)
				return
			case v != 0:
				s.fail(errNoDB)
				return
			}
		default:
			s.fail(errSyntax)
			return
		}
	}
	from, to := args[1], args[2]
	if string(from) == string(to) {
		s.fail("ERR source and destination objects are the same")
		return
	}
	s.lockBoth(from, to)
	defer s.locks.unlock()
	found, ok := s.old(from)
	if !ok {
		return
	}
	if found && !replace {
		_, taken, ok := s.length(to)
		if !ok {
			return
		}
		found = !taken
	}
	if !found {
		s.integer(0)
		return
	}
	s.begin()
	s.add(s.moved(from, to))
	if s.write() {
		s.integer(1)
	}
}

func (s *session) lockBoth(a, b []byte) {
	s.locks.add(a)
	s.locks.add(b)
	s.locks.lock()
}

// moved returns the entry that gives a key the value of another, which is s.value, and its end.
func (s *session) moved(from, to []byte) entry.Entry {
	e := entry.Entry{Op: entry.Set, Key: to, Value: s.value, ExpireAt: s.endOf(from)}
	if e.ExpireAt != 0 {
		e.Op = entry.SetExpire
	}
	return e
}

func renameCommand(s *session, args [][]byte) {
	if s.rename(args[1], args[2], false) {
		s.ok()
	}
}

func renamenxCommand(s *session, args [][]byte) {
	done := s.rename(args[1], args[2], true)
	if len(s.out) == s.start {
		s.boolean(done)
	}
}

// rename gives a key's value and end to another key, all in one record of the log. It reports false where it did not, or has replied
// with the error.
func (s *session) rename(from, to []byte, ifMissing bool) (done bool) {
	s.lockBoth(from, to)
	defer s.locks.unlock()
	found, ok := s.old(from)
	if !ok {
		return false
	}
	if !found {
		s.fail("ERR no such key")
		return false
	}
	if string(from) == string(to) {
		return !ifMissing
	}
	if ifMissing {
		if _, taken, ok := s.length(to); !ok || taken {
			return false
		}
	}
	s.begin()
	s.add(s.moved(from, to))
	s.add(entry.Entry{Op: entry.Delete, Key: from})
	return s.write()
}
