package kvserver

import (
	"errors"
	"runtime"
	"strconv"

	"kvmark/kvserver/resp"
	"kvmark/storage"
	"kvmark/wal"
)

// A cursor of SCAN is a partition of the store and a position in it (see storage.Store):
//
//	63     53 52                  8 7          0
//	+--------+---------------------+-----------+
//	|   0    | position            | partition |
//	+--------+---------------------+-----------+
//
// 0 is the beginning and the end. A cursor is below 2^53, which is as far as the numbers of JavaScript are whole. A key that is
// there from the beginning to the end of a scan is in one reply at least. In lsm mode a cursor that is thousands of calls old
// goes back to the beginning of its partition. Cursors mean nothing to another process.
type cursor uint64

const (
	partitionBits = 8
	cursorBits    = partitionBits + storage.ScanBits
)

// What one SCAN does at most, whatever COUNT it names: go on from a partition while it has seen fewer keys than scanMost, and
// its reply has fewer bytes than scanReply. It asks a partition for scanLeast keys at a time or more, because most modes walk
// the whole of one to find some of its keys.
const (
	scanLeast = 256
	scanMost  = 10_000
	scanReply = 1 << 20
)

func (c cursor) partition() int   { return int(c & (1<<partitionBits - 1)) }
func (c cursor) position() uint64 { return uint64(c) >> partitionBits }

func newCursor(position uint64, partition int) cursor {
	return cursor(position<<partitionBits | uint64(partition))
}

// keysCommand is KEYS pattern.
func keysCommand(s *session, args [][]byte) {
	all := string(args[1]) == "*"
	s.replyKeys(func(found *keyList) error {
		for p := range s.db.store.Shards() {
			if err := s.keysOf(p, func(key []byte) bool { return all || glob(args[1], key, false) }, found); err != nil {
				return err
			}
		}
		s.addStaged(func(key []byte) bool { return all || glob(args[1], key, false) }, found)
		return nil
	})
}

// scanCommand is SCAN cursor [MATCH pattern] [COUNT n] [TYPE type].
func scanCommand(s *session, args [][]byte) {
	n, err := strconv.ParseUint(string(args[1]), 10, 64)
	at := cursor(n)
	if err != nil || n >= 1<<cursorBits || at.partition() >= s.db.store.Shards() {
		s.fail("ERR invalid cursor")
		return
	}
	count, wanted := int64(10), true
	var pattern []byte
	for i := 2; i < len(args); i += 2 {
		switch next := i+1 < len(args); {
		case is(args[i], "match") && next:
			if pattern = args[i+1]; string(pattern) == "*" {
				pattern = nil
			}
		case is(args[i], "count") && next:
			v, ok := resp.ParseInt(args[i+1])
			if !ok {
				s.fail(errInteger)
				return
			}
			if count = v; count < 1 {
				s.fail(errSyntax)
				return
			}
		case is(args[i], "type") && next:
			wanted = is(args[i+1], "string") // there is no other
		default:
			s.fail(errSyntax)
			return
		}
	}
	s.replyKeys(func(found *keyList) (err error) {
		found.header = true
		pick := func(key []byte) bool { return wanted && (pattern == nil || glob(pattern, key, false)) }
		found.next, err = s.db.scan(at, int(min(count, scanMost)), s.unstaged(pick), found)
		if found.next == 0 && err == nil {
			s.addStaged(pick, found)
		}
		return err
	})
}

// scan appends about count keys from a cursor on, but for those that pick does not pick, and returns the next cursor.
func (d *db) scan(at cursor, count int, pick func(key []byte) bool, found *keyList) (next cursor, err error) {
	for seen, least := 0, scanLeast; seen < count && len(found.out) < scanReply; {
		before := *found
		position, err := d.store.Scan(at.partition(), at.position(), max(count-seen, least), func(key []byte) error {
			seen++
			return d.list(key, pick, found)
		})
		if err == errFull && before.n > 0 {
			*found = before
			return at, nil
		}
		if err == errFull && least > 1 {
			*found, seen, count, least = before, 0, 1, least/2
			continue
		}
		if err != nil {
			return at, err
		}
		switch partition := at.partition(); {
		case position > 0:
			at = newCursor(position, partition)
		case partition+1 < d.store.Shards():
			at = newCursor(0, partition+1)
		default:
			return 0, nil
		}
	}
	return at, nil
}

// keyList gathers the bulk strings of a reply.
type keyList struct {
	out    []byte
	n      int
	seen   int // keys, also those that are not picked
	limit  int // bytes of out
	header bool
	next   cursor
}

// replyKeys replies with what fill finds, and for SCAN with the cursor in front.
func (s *session) replyKeys(fill func(*keyList) error) {
	found := keyList{limit: s.srv.opts.MaxReply}
	if err := fill(&found); err != nil && err != errFull {
		s.ioError(err)
		return
	}
	if len(found.out) > found.limit {
		s.fail("ERR the reply exceeds the limit of " + strconv.Itoa(found.limit) + " bytes (--max-reply); use SCAN")
		return
	}
	s.wait = max(s.wait, s.db.newest()) // a change is in its stripe's position before it is in the store
	if found.header {
		s.out = resp.AppendArray(s.out, 2)
		s.out = resp.AppendBulk(s.out, strconv.FormatUint(uint64(found.next), 10))
	}
	s.out = resp.AppendArray(s.out, found.n)
	s.out = append(s.out, found.out...)
}

// keysOf is db.keys as the running command sees them, but for the keys that a transaction has added.
func (s *session) keysOf(partition int, pick func(key []byte) bool, found *keyList) error {
	return s.db.keys(partition, s.unstaged(pick), found)
}

// unstaged is pick without the keys that a transaction has changed.
func (s *session) unstaged(pick func(key []byte) bool) func(key []byte) bool {
	if s.staged == nil {
		return pick
	}
	return func(key []byte) bool { return !s.staged.hides(key) && pick(key) }
}

// addStaged appends the keys that a transaction has added.
func (s *session) addStaged(pick func(key []byte) bool, found *keyList) {
	s.staged.each(s.db.now(), func(key []byte) {
		if pick(key) {
			found.add(key)
		}
	})
}

// add appends a key and reports whether the list is full.
func (l *keyList) add(key []byte) (full bool) {
	l.n++
	l.out = resp.AppendBulk(l.out, key)
	return len(l.out) > l.limit
}

// keys appends the keys of a partition of the store that pick picks. It stops when the list is full.
func (d *db) keys(partition int, pick func(key []byte) bool, found *keyList) error {
	err := d.store.Keys(partition, func(key []byte) error { return d.list(key, pick, found) })
	if err == errFull {
		return nil
	}
	return err
}

// list appends a key that pick picks, if it has not come to its end, or returns errFull. Keys that a restart would not know are
// an error, as for those who read them.
func (d *db) list(key []byte, pick func(key []byte) bool, found *keyList) error {
	if found.seen++; found.seen%yieldEvery == 0 {
		runtime.Gosched()
	}
	st := d.stripe(key)
	if !pick(key) || d.expired(st, key) {
		return nil
	}
	if _, err := d.visible(st, key); err != nil {
		return err
	}
	if found.add(key) {
		return errFull
	}
	return nil
}

// yieldEvery is after how many keys a walk lets other goroutines run, of which there may be more than processors.
const yieldEvery = 1024

// errFull ends a scan whose list is full.
var errFull = errors.New("the list is full")

// newest returns a position that covers every change that the store shows.
func (d *db) newest() (pos wal.Pos) {
	if d.failed.Load() != nil {
		return 0
	}
	for i := range d.stripes {
		pos = max(pos, wal.Pos(d.stripes[i].pos.Load())&^applying)
	}
	return pos
}
