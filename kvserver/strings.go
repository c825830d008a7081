package kvserver

import (
	"math"
	"slices"
	"strconv"

	"kvmark/kvserver/resp"
	"kvmark/wal/entry"
)

// setOptions are what may follow SET key value, or GETEX key.
type setOptions struct {
	ifMissing, ifThere bool
	get, keepEnd       bool
	persist            bool

	timed      []byte // the amount that follows EX, PX, EXAT or PXAT
	how        string // which of them it was; the same may come again
	unit, base int64
	end        int64 // unix ms; 0 = none
}

// parse reads the options of SET, or of GETEX, or replies with the error and returns false. What the amount of time is worth
// is for expiry to say.
func (o *setOptions) parse(s *session, args [][]byte, getex bool) bool {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case is(a, "nx") && !o.ifThere && !getex:
			o.ifMissing = true
		case is(a, "xx") && !o.ifMissing && !getex:
			o.ifThere = true
		case is(a, "get") && !getex:
			o.get = true
		case is(a, "keepttl") && o.how == "" && !getex:
			o.keepEnd = true
		case is(a, "persist") && o.how == "" && getex:
			o.persist = true
		case i+1 < len(args) && o.amount(s, a, args[i+1]):
			i++
		default:
			s.fail(errSyntax)
			return false
		}
	}
	return true
}

// amount takes one of the options that are followed by a time, unless another one forbids it.
func (o *setOptions) amount(s *session, name, value []byte) bool {
	unit, base, how := int64(1), int64(0), ""
	switch {
	case is(name, "ex"):
		how, unit, base = "ex", 1000, s.db.now()
	case is(name, "px"):
		how, base = "px", s.db.now()
	case is(name, "exat"):
		how, unit = "exat", 1000
	case is(name, "pxat"):
		how = "pxat"
	default:
		return false
	}
	if o.keepEnd || o.persist || o.how != "" && o.how != how {
		return false
	}
	o.how, o.unit, o.base, o.timed = how, unit, base, value
	return true
}

// expiry makes an end of the amount, if there is one, or replies with the error and returns false.
func (o *setOptions) expiry(s *session, command string) (ok bool) {
	if o.timed == nil {
		return true
	}
	o.end, ok = s.end(o.timed, o.unit, o.base, command)
	return ok
}

// end reads an amount of time that must be positive and returns when it ends, or replies with the error.
func (s *session) end(amount []byte, unit, base int64, command string) (at int64, ok bool) {
	v, ok := resp.ParseInt(amount)
	if !ok {
		s.fail(errInteger)
		return 0, false
	}
	if v <= 0 || v > (math.MaxInt64-base)/unit {
		s.fail("ERR invalid expire time in '" + command + "' command")
		return 0, false
	}
	return v*unit + base, true
}

func setCommand(s *session, args [][]byte) {
	var o setOptions
	if o.parse(s, args[3:], false) && o.expiry(s, "set") {
		s.set(args[1], args[2], o)
	}
}

// set does what all commands do that set one value. It replies like SET.
func (s *session) set(key, value []byte, o setOptions) (done bool) {
	s.locks.add(key)
	s.locks.lock()
	defer s.locks.unlock()
	found := false
	if o.get {
		var ok bool
		if found, ok = s.appendValue(key); !ok {
			return false
		}
		if !found {
			s.null()
		}
		s.looked(found)
	} else if o.ifMissing || o.ifThere {
		var ok bool
		if _, found, ok = s.length(key); !ok {
			return false
		}
	}
	if o.ifMissing && found || o.ifThere && !found {
		if !o.get {
			s.null()
		}
		return false
	}
	e := entry.Entry{Op: entry.Set, Key: key, Value: value, ExpireAt: o.end}
	if o.keepEnd {
		e.ExpireAt = s.endOf(key)
	}
	if e.ExpireAt != 0 {
		e.Op = entry.SetExpire
	}
	s.begin()
	s.add(e)
	if !s.write() {
		return false
	}
	if !o.get {
		s.ok()
	}
	return true
}

// setnxCommand is SET NX with numbers for replies.
func setnxCommand(s *session, args [][]byte) {
	done := s.set(args[1], args[2], setOptions{ifMissing: true})
	if s.out[s.start] == resp.Error {
		return
	}
	s.out = s.out[:s.start]
	s.boolean(done)
}

func setexCommand(s *session, args [][]byte) {
	if at, ok := s.end(args[2], 1000, s.db.now(), "setex"); ok {
		s.set(args[1], args[3], setOptions{end: at})
	}
}

func psetexCommand(s *session, args [][]byte) {
	if at, ok := s.end(args[2], 1, s.db.now(), "psetex"); ok {
		s.set(args[1], args[3], setOptions{end: at})
	}
}

func getCommand(s *session, args [][]byte) {
	found, ok := s.appendValue(args[1])
	if !ok {
		return
	}
	if !found {
		s.null()
	}
	s.looked(found)
}

// looked counts a lookup of a key.
func (s *session) looked(found bool) {
	if found {
		s.hits.add(1)
	} else {
		s.misses.add(1)
	}
}

func getdelCommand(s *session, args [][]byte) {
	s.locks.add(args[1])
	s.locks.lock()
	defer s.locks.unlock()
	found, ok := s.appendValue(args[1])
	if !ok {
		return
	}
	s.looked(found)
	if !found {
		s.null()
		return
	}
	s.begin()
	s.add(entry.Entry{Op: entry.Delete, Key: args[1]})
	s.write()
}

// getexCommand is GETEX key [EX s | PX ms | EXAT time | PXAT time | PERSIST].
func getexCommand(s *session, args [][]byte) {
	var o setOptions
	if !o.parse(s, args[2:], true) {
		return
	}
	key := args[1]
	s.locks.add(key)
	s.locks.lock()
	defer s.locks.unlock()
	found, ok := s.appendValue(key)
	if !ok {
		return
	}
	s.looked(found)
	if !found {
		s.null()
		return
	}
	if !o.expiry(s, "getex") {
		return
	}
	s.begin()
	switch {
	case o.timed != nil && o.end <= s.db.now():
		s.add(entry.Entry{Op: entry.Delete, Key: key})
	case o.timed != nil:
		s.add(entry.Entry{Op: entry.Expire, Key: key, ExpireAt: o.end})
	case o.persist && s.endOf(key) != 0:
		s.add(entry.Entry{Op: entry.Persist, Key: key})
	default:
		return
	}
	s.write()
}

// getsetCommand is SET with GET, the old way.
func getsetCommand(s *session, args [][]byte) { s.set(args[1], args[2], setOptions{get: true}) }

// mgetCommand holds the locks of its keys, so that it sees all or nothing of an MSET.
func mgetCommand(s *session, args [][]byte) {
	for _, key := range args[1:] {
		s.locks.add(key)
	}
	s.locks.lock()
	defer s.locks.unlock()
	s.out = resp.AppendArray(s.out, len(args)-1)
	checked := false
	for i, key := range args[1:] {
		if !checked && len(s.out)-s.start > freeBytes {
			if checked = true; !s.mayBuild(args[1+i:]) {
				return
			}
		}
		found, ok := s.appendValue(key)
		if !ok {
			return
		}
		if !found {
			s.null()
		}
		s.looked(found)
	}
}

// mayBuild reports whether the values of keys may follow what there is of a reply that has turned out to be big, or replies with
// the error: it is better to look at all lengths once than to read the values in vain.
func (s *session) mayBuild(keys [][]byte) bool {
	size := len(s.out) - s.start
	for _, key := range keys {
		n, _, ok := s.length(key)
		if !ok {
			return false
		}
		size += n + len("$\r\n\r\n") + len(strconv.Itoa(n))
	}
	if text := s.holdMore(size - (len(s.out) - s.start)); text != "" {
		s.fail(text)
		return false
	}
	s.out = slices.Grow(s.out, size-(len(s.out)-s.start))
	return true
}

func msetCommand(s *session, args [][]byte) {
	if len(args)%2 == 0 {
		s.fail("ERR wrong number of arguments for 'mset' command")
		return
	}
	s.begin()
	for i := 1; i < len(args); i += 2 {
		s.locks.add(args[i])
		s.add(entry.Entry{Op: entry.Set, Key: args[i], Value: args[i+1]})
	}
	s.locks.lock()
	defer s.locks.unlock()
	if s.write() {
		s.ok()
	}
}

// msetnxCommand is MSET if none of the keys exists.
func msetnxCommand(s *session, args [][]byte) {
	if len(args)%2 == 0 {
		s.fail("ERR wrong number of arguments for 'msetnx' command")
		return
	}
	for i := 1; i < len(args); i += 2 {
		s.locks.add(args[i])
	}
	s.locks.lock()
	defer s.locks.unlock()
	s.begin()
	for i := 1; i < len(args); i += 2 {
		_, found, ok := s.length(args[i])
		if !ok {
			return
		}
		if found {
			s.integer(0)
			return
		}
		s.add(entry.Entry{Op: entry.Set, Key: args[i], Value: args[i+1]})
	}
	if s.write() {
		s.integer(1)
	}
}

func strlenCommand(s *session, args [][]byte) {
	n, found, ok := s.length(args[1])
	if !ok {
		return
	}
	s.looked(found)
	s.integer(int64(n))
}

func (s *session) boolean(b bool) {
	if b {
		s.integer(1)
	} else {
		s.integer(0)
	}
}

// old reads the value of a key into s.value, or replies with the error and returns ok = false.
func (s *session) old(key []byte) (found, ok bool) {
	var err error
	if s.value, found, err = s.get(s.value[:0], key); err != nil {
		s.ioError(err)
		return false, false
	}
	return found, true
}

// replace logs value as the new one of a key that keeps its end. REQUIRES: s.locks hold the key's.
func (s *session) replace(key, value []byte) bool {
	e := entry.Entry{Op: entry.Set, Key: key, Value: value, ExpireAt: s.endOf(key)}
	if e.ExpireAt != 0 {
		e.Op = entry.SetExpire
	}
	s.begin()
	s.add(e)
	return s.write()
}

func incrCommand(s *session, args [][]byte) { s.increment(args[1], 1) }
func decrCommand(s *session, args [][]byte) { s.increment(args[1], -1) }

func incrbyCommand(s *session, args [][]byte) {
	by, ok := resp.ParseInt(args[2])
	if !ok {
		s.fail(errInteger)
		return
	}
	s.increment(args[1], by)
}

func decrbyCommand(s *session, args [][]byte) {
	by, ok := resp.ParseInt(args[2])
	switch {
	case !ok:
		s.fail(errInteger)
	case by == math.MinInt64:
		s.fail("ERR decrement would overflow")
	default:
		s.increment(args[1], -by)
	}
}

// increment adds to a number, 0 where there is none. The log gets the sum.
func (s *session) increment(key []byte, by int64) {
	s.locks.add(key)
	s.locks.lock()
	defer s.locks.unlock()
	found, ok := s.old(key)
	if !ok {
		return
	}
	v := int64(0)
	if found {
		if v, ok = resp.ParseInt(s.value); !ok {
			s.fail(errInteger)
			return
		}
	}
	if by < 0 && v < math.MinInt64-by || by > 0 && v > math.MaxInt64-by {
		s.fail("ERR increment or decrement would overflow")
		return
	}
	v += by
	s.value = strconv.AppendInt(s.value[:0], v, 10)
	if s.replace(key, s.value) {
		s.integer(v)
	}
}

// appendCommand is APPEND key value. The log gets the whole new value.
func appendCommand(s *session, args [][]byte) {
	key := args[1]
	s.locks.add(key)
	s.locks.lock()
	defer s.locks.unlock()
	if _, ok := s.old(key); !ok {
		return
	}
	if len(s.value) > s.srv.opts.MaxValue-len(args[2]) {
		s.fail(valueTooLong(len(s.value)+len(args[2]), s.srv.opts.MaxValue))
		return
	}
	s.value = append(s.value, args[2]...)
	if s.replace(key, s.value) {
		s.integer(int64(len(s.value)))
	}
}
