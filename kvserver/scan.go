package kvserver

import (
	"errors"
	"hash/maphash"
	"math/bits"
	"strconv"

	"kvmark/kvserver/resp"
	"kvmark/wal"
)

// A cursor of SCAN is a place among the partitions of the store. A big partition is handed out in slices, by a hash of its
// keys; how many, is settled when the scan gets to it and goes with the cursor:
//
//	63         58 57          22 21         0
//	+-------------+-------------+-----------+
//	| log2 slices | slice       | partition |
//	+-------------+-------------+-----------+
//
// 0 is the beginning and the end. A key that is there from the beginning to the end of a scan is in one reply at least: its
// partition and its hash do not change. Cursors mean nothing to another process.
type cursor uint64

const (
	partitionBits = 22
	sliceBits     = 36
	// scanSlice is how many keys a slice has at least, when there are more of them: a smaller one would have the partition
	// walked through more often than its keys are worth.
	scanSlice = 256
)

func (c cursor) partition() int { return int(c & (1<<partitionBits - 1)) }
func (c cursor) slice() uint64  { return uint64(c) >> partitionBits & (1<<sliceBits - 1) }
func (c cursor) log2() uint     { return uint(c >> (partitionBits + sliceBits)) }

func newCursor(log2 uint, slice uint64, partition int) cursor {
	return cursor(uint64(log2)<<(partitionBits+sliceBits) | slice<<partitionBits | uint64(partition))
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
	if err != nil || at.partition() >= s.db.store.Shards() || at.log2() > sliceBits || at.slice() >= 1<<at.log2() {
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
	s.replyKeys(func(found *keyList) error {
		found.header = true
		seen := int64(0)
		for seen < count {
			if at == newCursor(0, 0, at.partition()) {
				at = newCursor(s.slices(count), 0, at.partition())
			}
			mask, slice := uint64(1)<<at.log2()-1, at.slice()
			err := s.keysOf(at.partition(), func(key []byte) bool {
				if mask > 0 && maphash.Bytes(s.db.seed, key)>>32&mask != slice {
					return false
				}
				seen++
				return wanted && (pattern == nil || glob(pattern, key, false))
			}, found)
			if err != nil {
				return err
			}
			switch {
			case slice < mask:
				at = newCursor(at.log2(), slice+1, at.partition())
			case at.partition()+1 < s.db.store.Shards():
				at = newCursor(0, 0, at.partition()+1)
			default:
				found.next = 0
				s.addStaged(func(key []byte) bool { return wanted && (pattern == nil || glob(pattern, key, false)) }, found)
				return nil
			}
		}
		found.next = at
		return nil
	})
}

// slices returns into how many slices, as a power of two, to divide a partition for replies of about count keys.
func (s *session) slices(count int64) uint {
	perPartition := s.db.store.Count() / int64(s.db.store.Shards())
	return min(uint(bits.Len64(uint64(perPartition/max(count, scanSlice)))), sliceBits)
}

// keyList gathers the bulk strings of a reply.
type keyList struct {
	out    []byte
	n      int
	limit  int // bytes of out
	header bool
	next   cursor
}

// replyKeys replies with what fill finds, and for SCAN with the cursor in front.
func (s *session) replyKeys(fill func(*keyList) error) {
	found := keyList{limit: s.srv.opts.MaxReply}
	if err := fill(&found); err != nil {
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
	if s.staged == nil {
		return s.db.keys(partition, pick, found)
	}
	return s.db.keys(partition, func(key []byte) bool { return !s.staged.hides(key) && pick(key) }, found)
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

// keys appends the keys of a partition of the store that have not come to their end and that pick picks. It stops when the
// list is full. Keys that a restart would not know are an error, as for those who read them.
func (d *db) keys(partition int, pick func(key []byte) bool, found *keyList) error {
	err := d.store.Keys(partition, func(key []byte) error {
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
	})
	if err == errFull {
		return nil
	}
	return err
}

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
