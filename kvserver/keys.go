package kvserver

import (
	"math"

	"kvmark/kvserver/resp"
	"kvmark/wal/entry"
)

// delCommand deletes the keys that exist, all in one record of the log; nothing is logged for the others.
func delCommand(s *session, args [][]byte) {
	for _, key := range args[1:] {
		s.locks.add(key)
	}
	s.locks.lock()
	defer s.locks.unlock()
	s.begin()
	deleted := int64(0)
	var again map[string]bool // a key that is named twice is deleted once
	if len(args) > 2 {
		again = make(map[string]bool, len(args)-1)
	}
	for _, key := range args[1:] {
		_, found, ok := s.length(key)
		if !ok {
			return
		}
		if found && !again[string(key)] {
			if again != nil {
				again[string(key)] = true
			}
			s.add(entry.Entry{Op: entry.Delete, Key: key})
			deleted++
		}
	}
	if deleted > 0 && !s.write() {
		return
	}
	s.integer(deleted)
}

func existsCommand(s *session, args [][]byte) {
	n := int64(0)
	for _, key := range args[1:] {
		_, found, ok := s.length(key)
		if !ok {
			return
		}
		s.looked(found)
		if found {
			n++
		}
	}
	s.integer(n)
}

func expireCommand(s *session, args [][]byte) {
	s.expire(args, 1000, s.db.now(), "expire")
}

func pexpireCommand(s *session, args [][]byte) {
	s.expire(args, 1, s.db.now(), "pexpire")
}
func expireatCommand(s *session, args [][]byte)  { s.expire(args, 1000, 0, "expireat") }
func pexpireatCommand(s *session, args [][]byte) { s.expire(args, 1, 0, "pexpireat") }

// expire sets a key's end, which is base plus the amount. One that has passed deletes the key.
func (s *session) expire(args [][]byte, unit, base int64, command string) {
	var o expireOptions
	if !s.parseExpire(args[3:], &o) {
		return
	}
	v, ok := resp.ParseInt(args[2])
	if !ok {
		s.fail(errInteger)
		return
	}
	if v > math.MaxInt64/unit || v < math.MinInt64/unit || v > 0 && v*unit > math.MaxInt64-base {
		s.fail("ERR invalid expire time in '" + command + "' command")
		return
	}
	key, at := args[1], v*unit+base
	s.locks.add(key)
	s.locks.lock()
	defer s.locks.unlock()
	_, found, ok := s.length(key)
	if !ok {
		return
	}
	if !found || !o.allows(s.endOf(key), at) {
		s.integer(0)
		return
	}
	s.begin()
	if at <= s.db.now() {
		s.add(entry.Entry{Op: entry.Delete, Key: key})
	} else {
		s.add(entry.Entry{Op: entry.Expire, Key: key, ExpireAt: at})
	}
	if s.write() {
		s.integer(1)
	}
}

// expireOptions are the conditions that may follow EXPIRE key time.
type expireOptions struct{ ifNone, ifSome, ifLater, ifEarlier bool }

func (s *session) parseExpire(args [][]byte, o *expireOptions) bool {
	for _, a := range args {
		switch {
		case is(a, "nx"):
			o.ifNone = true
		case is(a, "xx"):
			o.ifSome = true
		case is(a, "gt"):
			o.ifLater = true
		case is(a, "lt"):
			o.ifEarlier = true
		default:
			s.fail("ERR Unsupported option " + shown(a, 128))
			return false
		}
	}
	if o.ifNone && (o.ifSome || o.ifLater || o.ifEarlier) {
		s.fail("ERR NX and XX, GT or LT options at the same time are not compatible")
		return false
	}
	if o.ifLater && o.ifEarlier {
		s.fail("ERR GT and LT options at the same time are not compatible")
		return false
	}
	return true
}

// allows reports whether a key's end, 0 = never, may be replaced.
func (o expireOptions) allows(end, at int64) bool {
	switch {
	case o.ifNone && end != 0, o.ifSome && end == 0:
		return false
	case o.ifLater && (end == 0 || at <= end), o.ifEarlier && end != 0 && at >= end:
		return false
	}
	return true
}

func ttlCommand(s *session, args [][]byte)  { s.ttl(args[1], 1000) }
func pttlCommand(s *session, args [][]byte) { s.ttl(args[1], 1) }

// ttl replies with the rest of a key's time.
func (s *session) ttl(key []byte, unit int64) {
	s.timed(key, func(end int64) int64 { return rounded(max(0, end-s.db.now()), unit) })
}

// rounded is ms in units, also where the sum is beyond int64.
func rounded(ms, unit int64) int64 { return int64((uint64(ms) + uint64(unit)/2) / uint64(unit)) }

func expiretimeCommand(s *session, args [][]byte)  { s.expiretime(args[1], 1000) }
func pexpiretimeCommand(s *session, args [][]byte) { s.expiretime(args[1], 1) }

// expiretime replies with the time at which a key ends.
func (s *session) expiretime(key []byte, unit int64) {
	s.timed(key, func(end int64) int64 { return rounded(end, unit) })
}

// timed replies with what say makes of the end of a key: -1 for a key without an end, -2 for no key.
func (s *session) timed(key []byte, say func(end int64) int64) {
	_, found, ok := s.length(key)
	if !ok {
		return
	}
	s.looked(found)
	end := s.endOf(key)
	switch {
	case !found:
		s.integer(-2)
	case end == 0:
		s.integer(-1)
	default:
		s.integer(say(end))
	}
}

func persistCommand(s *session, args [][]byte) {
	key := args[1]
	s.locks.add(key)
	s.locks.lock()
	defer s.locks.unlock()
	_, found, ok := s.length(key)
	if !ok {
		return
	}
	if !found || s.endOf(key) == 0 {
		s.integer(0)
		return
	}
	s.begin()
	s.add(entry.Entry{Op: entry.Persist, Key: key})
	if s.write() {
		s.integer(1)
	}
}

// typeCommand is TYPE key: there are only strings.
func typeCommand(s *session, args [][]byte) {
	_, found, ok := s.length(args[1])
	if !ok {
		return
	}
	s.looked(found)
	if found {
		s.out = resp.AppendSimple(s.out, "string")
	} else {
		s.out = resp.AppendSimple(s.out, "none")
	}
}

func memoryParts() []command {
	return []command{
		{name: "usage", arity: -3, flags: readonly, firstKey: 2, lastKey: 2, keyStep: 1, group: "server", summary: "Estimates the memory usage of a key.", run: memoryUsage},
	}
}

// memoryUsage is MEMORY USAGE key [SAMPLES n]: the bytes of the key, of its value and of what finds it. Modes that
// compress values or keep them elsewhere need less memory for them; INFO has the sums.
func memoryUsage(s *session, args [][]byte) {
	for i := 3; i < len(args); i += 2 {
		if !is(args[i], "samples") || i+1 == len(args) {
			s.fail(errSyntax)
			return
		}
		switch v, ok := resp.ParseInt(args[i+1]); {
		case !ok:
			s.fail(errInteger)
			return
		case v < 0:
			s.fail(errSyntax)
			return
		}
	}
	n, found, ok := s.length(args[2])
	switch {
	case !ok:
	case !found:
		s.null()
	default:
		st := s.db.store.Stats()
		s.integer(int64(len(args[2])) + int64(n) + st.IndexBytes/max(1, st.Keys))
	}
}

func dbsizeCommand(s *session, _ [][]byte) {
	n, err := s.size()
	if err != nil {
		s.ioError(err)
		return
	}
	s.integer(n)
}

func flushCommand(s *session, args [][]byte) {
	if len(args) > 2 || len(args) == 2 && !is(args[1], "sync") && !is(args[1], "async") {
		s.fail(errSyntax)
		return
	}
	s.locks.addAll()
	s.locks.lock()
	defer s.locks.unlock()
	s.begin()
	s.add(entry.Entry{Op: entry.Clear})
	if s.write() {
		s.ok()
	}
}
