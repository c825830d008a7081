package kvserver

import (
	"fmt"
	"slices"
	"strings"

	"kvmark/kvserver/resp"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// transaction is what a client has sent since MULTI.
//
// EXEC locks the stripes of all keys that its commands name, or all stripes for a command that may touch any key, and of the
// watched keys. The commands then run one after the other on a view of the data in which their own changes are staged; in the
// end everything staged goes to the log as one record and is applied, as the changes of an MSET are. So after a crash either all
// of it is there or nothing, no other client sees a part of it, and where the log refuses the record nothing has happened.
type transaction struct {
	commands []queued
	bytes    int64 // that the queue holds
	failed   bool  // a command was refused: EXEC does nothing
}

// queued is a command that waits for EXEC.
type queued struct {
	*command
	args [][]byte
}

// queuedBytes is what a command and each of its arguments count beside their bytes.
const queuedBytes, argumentBytes = 64, 24

const (
	errExecAbort  = "EXECABORT Transaction discarded because of previous errors."
	errExecFailed = "EXECABORT Transaction discarded because of: "
)

func multiCommand(s *session, _ [][]byte) {
	if s.tx != nil {
		s.fail("ERR MULTI calls can not be nested")
		return
	}
	s.tx = &transaction{}
	s.multi.Store(1)
	s.ok()
}

func discardCommand(s *session, _ [][]byte) {
	if s.tx == nil {
		s.fail("ERR DISCARD without MULTI")
		return
	}
	s.discard()
	s.ok()
}

// discard ends the transaction and forgets what is watched.
func (s *session) discard() {
	s.tx = nil
	s.multi.Store(0)
	s.queuedMemory.Store(0)
	s.unwatch()
}

// queue keeps a command for EXEC.
func (s *session) queue(c *command, args [][]byte) {
	size, n := int64(queuedBytes+argumentBytes*len(args)), 0
	for _, a := range args {
		n += len(a)
	}
	t := s.tx
	t.bytes += size + int64(n)
	if !s.holdAll() {
		t.bytes -= size + int64(n)
		s.reject(c, errBudget)
		return
	}
	q := queued{c, make([][]byte, len(args))}
	buf := make([]byte, 0, n)
	for i, a := range args {
		start := len(buf)
		buf = append(buf, a...)
		q.args[i] = buf[start:len(buf):len(buf)]
	}
	t.commands = append(t.commands, q)
	s.multi.Store(int32(len(t.commands) + 1))
	s.queuedMemory.Store(t.bytes)
	s.out = append(s.out, "+QUEUED\r\n"...)
}

// reject replies to a command that is not run, and makes EXEC do nothing.
func (s *session) reject(c *command, text string) {
	switch {
	case c.name == "exec":
		s.discard()
		text = errExecFailed + strings.TrimPrefix(text, "ERR ")
	case s.tx != nil:
		s.tx.failed = true
	}
	s.fail(text)
	s.counters.commands[c.index].rejected.add(1)
	s.countError(s.start)
}

func execCommand(s *session, _ [][]byte) {
	t := s.tx
	switch {
	case t == nil:
		s.fail("ERR EXEC without MULTI")
		return
	case t.failed:
		s.discard()
		s.fail(errExecAbort)
		return
	}
	for _, q := range t.commands {
		if q.flags&allKeys != 0 {
			s.locks.addAll()
			break
		}
		for key := range q.keys(q.args) {
			s.locks.add(key)
		}
	}
	for _, w := range s.watches {
		s.locks.add([]byte(w))
	}
	s.locks.lock()
	s.locks.pinned = true
	defer func() {
		s.locks.pinned = false
		s.locks.unlock()
	}()
	changed := s.watchedChanged()
	s.discard()
	if changed {
		s.out = resp.AppendNullArray(s.out, s.proto)
		return
	}
	s.exec(t)
}

// exec runs the commands of a transaction. REQUIRES: s.locks hold all that they need.
func (s *session) exec(t *transaction) {
	start := s.start
	s.staged = &staged{queued: t.bytes}
	s.out = resp.AppendArray(s.out, len(t.commands))
	for _, q := range t.commands {
		s.start = len(s.out)
		s.call(q.command, q.args)
		if len(s.out)-start > s.srv.opts.MaxReply {
			s.staged.refused = replyTooLong(len(s.out)-start, s.srv.opts.MaxReply)
		}
		if s.staged.refused != "" {
			break
		}
	}
	s.start = start
	st := s.staged
	s.staged = nil
	if st.refused != "" {
		s.fail(st.refused)
		return
	}
	if len(st.payload) == 0 {
		return
	}
	pos, err := s.db.write(&s.locks, st.payload, true)
	if err != nil {
		s.ioError(err)
		return
	}
	s.wait = max(s.wait, pos)
}

// staged is what a transaction has changed and not yet written.
type staged struct {
	payload []byte // the entries so far
	queued  int64  // bytes of the commands
	cleared bool   // no key of the store counts
	keys    map[string]stagedKey
	refused string // why the transaction as a whole cannot be done
}

// stagedKey is a key as the transaction has left it.
type stagedKey struct {
	there, stored bool // stored: with the value that the store has
	value         []byte
	end           int64
}

// add notes one change. Its bytes must not change any more.
func (t *staged) add(e entry.Entry) error {
	if t.keys == nil {
		t.keys = map[string]stagedKey{}
	}
	switch e.Op {
	case entry.Clear:
		t.cleared = true
		clear(t.keys)
	case entry.Set, entry.SetExpire:
		t.keys[string(e.Key)] = stagedKey{there: true, value: e.Value, end: e.ExpireAt}
	case entry.Delete:
		t.keys[string(e.Key)] = stagedKey{}
	case entry.Expire, entry.Persist:
		k, known := t.keys[string(e.Key)]
		if !known {
			k = stagedKey{there: true, stored: true}
		}
		k.end = e.ExpireAt
		t.keys[string(e.Key)] = k
	default:
		return fmt.Errorf("unknown operation %d", e.Op)
	}
	return nil
}

// find returns what the transaction made of a key; known is false if it has not touched it.
func (t *staged) find(key []byte, now int64) (k stagedKey, known bool) {
	k, known = t.keys[string(key)]
	if known && k.end != 0 && k.end <= now {
		return stagedKey{}, true
	}
	return k, known || t.cleared
}

// stage keeps the group of entries until EXEC writes all of them. It reports false after having replied with the error.
func (s *session) stage() bool {
	t := s.staged
	start := len(t.payload)
	t.payload = append(t.payload, s.payload...)
	if err := entry.Decode(t.payload[start:], t.add); err != nil {
		s.ioError(err)
		return false
	}
	switch {
	case len(t.payload) > wal.MaxRecord:
		t.refused = fmt.Sprintf("ERR the transaction changes more than %d bytes, the limit of a record of the log", wal.MaxRecord)
	case !s.holdAll():
		t.refused = errBudget
	default:
		return true
	}
	s.fail(t.refused)
	return false
}

// transactionBytes is what a transaction and watched keys hold.
func (s *session) transactionBytes() int64 {
	n := s.watchedBytes
	if s.tx != nil {
		n += s.tx.bytes
	}
	if s.staged != nil {
		n += s.staged.queued + int64(len(s.staged.payload))
	}
	return n
}

// get appends the value of a key as the running command sees it.
func (s *session) get(dst, key []byte) (val []byte, found bool, err error) {
	if s.staged != nil {
		if k, known := s.staged.find(key, s.db.now()); known && !k.stored {
			return append(dst, k.value...), k.there, nil
		}
	}
	val, found, pos, err := s.db.get(dst, key, &s.locks)
	s.wait = max(s.wait, pos)
	return val, found, err
}

// length returns the length of a value, or replies with the error and returns ok = false.
func (s *session) length(key []byte) (n int, found, ok bool) {
	if s.staged != nil {
		if k, known := s.staged.find(key, s.db.now()); known && !k.stored {
			return len(k.value), k.there, true
		}
	}
	n, found, pos, err := s.db.valueLen(key, &s.locks)
	if err != nil {
		s.ioError(err)
		return 0, false, false
	}
	s.wait = max(s.wait, pos)
	return n, found, true
}

// endOf returns when a key ends; 0 = never, or there is no such key.
func (s *session) endOf(key []byte) int64 {
	if s.staged != nil {
		if k, known := s.staged.find(key, s.db.now()); known {
			return k.end
		}
	}
	st := s.db.stripe(key)
	if end := st.end(key); end > s.db.now() {
		return end
	}
	return 0
}

// size returns the number of keys.
func (s *session) size() (int64, error) {
	n := s.db.store.Count()
	t := s.staged
	if t == nil {
		return n, nil
	}
	if t.cleared {
		n = 0
	}
	for key, k := range t.keys {
		if k.there {
			n++
		}
		if t.cleared {
			continue
		}
		_, stored, err := s.db.store.ValueLen([]byte(key))
		if err != nil {
			return 0, err
		}
		if stored {
			n--
		}
	}
	return n, nil
}

// hides reports whether the store's key of that name does not count, or is among those that the transaction adds itself.
func (t *staged) hides(key []byte) bool {
	if t == nil {
		return false
	}
	_, known := t.keys[string(key)]
	return known || t.cleared
}

// each calls fn with the keys that are there because of the transaction.
func (t *staged) each(now int64, fn func(key []byte)) {
	if t == nil {
		return
	}
	names := make([]string, 0, len(t.keys))
	for name, k := range t.keys {
		if k.there && (k.end == 0 || k.end > now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fn([]byte(name))
	}
}
