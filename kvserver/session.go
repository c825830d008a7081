package kvserver

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"kvmark/kvserver/resp"
	"kvmark/storage/nowait"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// flushAt is the size of the replies at which a pipeline is interrupted to send them.
const flushAt = 64 << 10

// session is one client's conversation without its socket: bytes of commands go in, bytes of replies come out. Whoever
// moves the bytes calls run with what has arrived, then commit, then sends out and calls sent. One goroutine at a time.
type session struct {
	srv *Server
	db  *db
	id  int64

	in     input // what has been read and not run, unless it is in the loop's buffer
	parser resp.Parser
	proto  resp.Proto
	authed bool
	// closing says that the connection ends once out is sent; broken, that it has been refused and the client may be in the
	// middle of a command, so what it still sends is to be drained for the reply to reach it.
	closing, broken bool

	// out holds the replies that wait to be sent. No reply leaves before the log has what it tells of: waits says, for
	// each reply that tells of something in the log, where it is and what it waits for, and pos is the highest of them.
	out   []byte
	waits []wait
	pos   wal.Pos

	// State of the command that runs.
	start   int     // where its reply begins in out
	wait    wal.Pos // what its reply waits for
	header  int     // length of the last bulk header, as a guess at the next
	locks   locks
	again   bool // it has not run, because it would have waited
	payload []byte
	entries int // changes in payload
	value   []byte

	loading bool // when run was called last, the data were not there yet

	ahead int      // commands to come whose keys have been foreseen
	keys  [][]byte // see run

	unrun int           // bytes of the command that runs and of what came behind it
	clock time.Duration // since the server's start, when lap was called last

	small int // for how many sends in a row a smaller out would have done

	mute  mute          // CLIENT REPLY
	delay time.Duration // see rest

	failures int // to authenticate

	tx           *transaction // since MULTI; nil = none
	staged       *staged      // while EXEC runs the commands
	watches      []string     // keys
	watchedBytes int64        // that they count
	track        *tracked     // nil = no tracking
	pushes       []byte       // messages for the client that the running command caused

	conn *conn // whose session this is; nil in tests
	subs subscriptions

	shared
}

// wait is a reply, out[start:end], and the position that it waits for.
type wait struct {
	start, end int
	pos        wal.Pos
}

// shared is the part of a session that others read. Only its session writes to it.
type shared struct {
	counters
	name    atomic.Pointer[string] // set by the client; nil = none
	library atomic.Pointer[[2]string]
	last    atomic.Int32 // index of the last command, 1-based; 0 = none
	resp3   atomic.Bool
	pending atomic.Int64 // bytes read that are not yet a command
	held    atomic.Int64 // bytes that count in the server's budget, or notCounted; whoever cuts the connection off sets it, too
	partial atomic.Int64 // tick since which they wait for the rest, plus one; 0 = there are none
	trusted atomic.Bool  // authenticated

	subscribed, psubscribed atomic.Int32 // channels and patterns that it listens to

	mailbox  atomic.Pointer[mailbox] // nil: it has never listened
	dirty    atomic.Bool             // a watched key has changed; set by whoever changed it
	over     atomic.Bool             // the connection has ended
	multi    atomic.Int32            // commands queued, plus one; 0 = no transaction
	redirect atomic.Int64            // see redirection

	queuedMemory atomic.Int64 // bytes of those commands
}

func newSession(srv *Server, id int64) *session {
	s := &session{srv: srv, db: srv.db, id: id, loading: srv.loading.Load(), header: len("$10\r\n")}
	s.locks.d, s.locks.session = srv.db, s
	s.redirect.Store(-1)
	s.counters.commands = make([]commandCounters, len(srv.commands.all))
	s.reset()
	return s
}

// reset brings the session into the state of a new connection.
func (s *session) reset() {
	s.proto = resp.RESP2
	s.resp3.Store(false)
	s.name.Store(nil)
	if s.mute != replySkip { // which hushes the reply to RESET as well
		s.mute = replyOn
	}
	s.discard()
	s.trackOff()
	s.leaveAll()
	s.collect()
	s.setAuthed(s.srv.opts.Password == "")
}

// rest returns how long the replies in out have to wait before they leave, and forgets it: somebody guesses passwords, or
// asked for it (DEBUG SLEEP). Whoever moves the bytes does so once before they are sent, without keeping others waiting.
func (s *session) rest() time.Duration {
	d := s.delay
	s.delay = 0
	return d
}

// setAuthed sets what the client may do, and how much it may ask to be listened to before it has said who it is.
func (s *session) setAuthed(ok bool) {
	s.authed = ok
	s.trusted.Store(ok)
	limits := resp.Limits{MaxArgs: s.srv.opts.MaxArgs, MaxBulk: s.srv.opts.MaxValue, MaxCommand: maxCommandBytes}
	if !ok {
		limits.MaxArgs, limits.MaxBulk, limits.Unauthenticated = 10, 16<<10, true
	}
	s.parser.SetLimits(limits)
}

// run executes the complete commands at the start of in and returns how many bytes they took. more says that it stopped
// before the end because enough replies have gathered: send them and call again. The command at in[n] may be one that could
// not run without waiting; then again is set.
func (s *session) run(in []byte) (n int, more bool) {
	s.lap()
	if s.loading {
		s.loading = s.srv.loading.Load()
	}
	for !s.closing {
		if len(s.out) >= flushAt || s.delay > 0 {
			return n, true
		}
		if s.ahead == 0 {
			s.keys = s.db.warm(s.foresee(s.keys, in[n:]))
		}
		args, k, err := s.parser.Next(in[n:])
		if err != nil {
			s.refuse("ERR " + err.Error())
			return n, false
		}
		if k == 0 {
			break
		}
		s.unrun = len(in) - n
		n += k
		s.ahead--
		if len(args) > 0 {
			if s.execute(args); s.again {
				return n - k, true
			}
			s.srv.slow.command()
		}
	}
	s.keep(len(in)-n, n > 0)
	return n, false
}

// foresee appends to keys what the next commands in in ask for. A pipeline is foreseen in pieces, so that what is brought into
// the processor's cache for a command is still there when it runs.
func (s *session) foresee(keys [][]byte, in []byte) [][]byte {
	const most = 16
	n := most
	if !s.loading && s.db.warmer != nil {
		keys, n = resp.Keys(keys, in, most)
	}
	s.ahead = max(n, 1)
	return keys
}

// keep notes how many bytes wait for the rest of their command, and whether they are the first of it.
func (s *session) keep(pending int, first bool) {
	s.pending.Store(int64(pending))
	switch {
	case pending == 0:
		if s.partial.Load() != 0 {
			s.partial.Store(0)
		}
	case first || s.partial.Load() == 0:
		s.partial.Store(s.srv.ticks.Load() + 1)
	}
	if s.closing {
		s.pending.Store(0) // nobody will look at them
	}
	if !s.holdAll() {
		s.refuse(errBudget)
	}
}

// execute runs one command and notes what its reply waits for.
func (s *session) execute(args [][]byte) {
	s.start, s.wait, s.again = len(s.out), 0, false
	c := s.find(args)
	if c != nil {
		s.dispatch(c, args)
	}
	if s.again {
		s.out = s.out[:s.start]
		return
	}
	if s.track != nil {
		s.endCaching(c)
	}
	if s.mute != replyOn {
		s.hush()
	}
	if n := len(s.out) - s.start; n > freeBytes {
		if n > longBytes && !s.db.big.Load() {
			s.db.big.Store(true)
		}
		s.holdReply(c)
	}
	if s.wait > 0 {
		if len(s.out) > s.start {
			s.waits = append(s.waits, wait{s.start, len(s.out), s.wait})
		}
		s.pos = max(s.pos, s.wait)
	}
	if len(s.pushes) > 0 {
		s.sendPushes()
	}
}

// find returns the row of a command, or replies that there is none.
func (s *session) find(args [][]byte) *command {
	c := s.srv.commands.lookup(args[0])
	if c == nil {
		if !s.speaksHTTP(args[0]) {
			s.unknown(args)
		}
		return nil
	}
	if c.parts == nil || len(args) == 1 {
		return c
	}
	part := c.part(args[1])
	if part == nil {
		s.unknownPart(c, args[1])
	}
	return part
}

// dispatch runs a command, or queues it for EXEC.
func (s *session) dispatch(c *command, args [][]byte) {
	if text := s.refusal(c, args); text != "" {
		s.reject(c, text)
		return
	}
	s.last.Store(int32(c.index + 1))
	if s.tx != nil && c.flags&immediate == 0 {
		s.queue(c, args)
		return
	}
	s.call(c, args)
}

// lap returns the time since the last call. One reading of the clock for each command of a pipeline is enough.
func (s *session) lap() time.Duration {
	now := time.Since(s.srv.started)
	took := now - s.clock
	s.clock = now
	return took
}

// call runs a command and counts it.
func (s *session) call(c *command, args [][]byte) {
	if s.track != nil {
		s.trackReads(c, args)
	}
	if s.locks.leave != nil && c.long != nil && c.long(s, args) {
		s.locks.leave()
	}
	s.locks.repeatable = c.flags&repeatable != 0 && s.staged == nil && !s.locks.patient
	if c.run(s, args); s.again {
		return
	}
	took := s.lap()
	if took >= s.srv.slowCommands.from.Load() {
		s.noteSlow(c, args, took)
	}
	count := &s.counters.commands[c.index]
	count.calls.add(1)
	s.counters.calls.add(1)
	count.nanos.add(uint64(took))
	if len(s.out) > s.start && s.out[s.start] == resp.Error {
		count.failed.add(1)
		s.countError(s.start)
	}
}

// refusal returns why a command is not run at all, or "".
func (s *session) refusal(c *command, args [][]byte) string {
	switch {
	case !c.takes(len(args)):
		return "ERR wrong number of arguments for '" + c.name + "' command"
	case !s.authed && c.flags&noAuth == 0:
		return "NOAUTH Authentication required."
	case s.tx != nil && c.flags&noMulti != 0:
		return "ERR Command not allowed inside a transaction"
	case c.flags&listening == 0 && s.listens():
		return errListens(c)
	case s.loading && c.flags&whileLoading == 0:
		return "LOADING Redis is loading the dataset in memory"
	}
	for key := range c.keys(args) {
		if len(key) > s.srv.opts.MaxKey {
			return keyTooLong(len(key), s.srv.opts.MaxKey)
		}
	}
	return ""
}

// commit waits until the log has everything that the replies in out tell of. If that fails, the replies that tell of
// something the log does not have are replaced by the error.
func (s *session) commit() {
	if s.pos == 0 {
		return
	}
	if err := s.db.commit(s.pos); err != nil {
		s.disavow(err)
	}
	s.waits = s.waits[:0]
	s.pos = 0
}

// committed reports whether commit would return at once.
func (s *session) committed() bool { return s.pos == 0 || s.db.log.Reached(s.pos) }

// disavow replaces the replies whose position did not reach the policy's level.
func (s *session) disavow(err error) {
	var out []byte
	sent := 0
	for _, w := range s.waits {
		if s.db.log.Commit(w.pos) == nil {
			continue
		}
		out = append(out, s.out[sent:w.start]...)
		out = resp.AppendError(out, "IOERR "+err.Error())
		sent = w.end
		s.errors.add(1)
		s.srv.errorCounts.add([]byte("-IOERR "))
	}
	s.out = append(out, s.out[sent:]...)
}

// sent empties out. An array that was needed once, for something big, is let go: at once if it is so big that it counts, after
// a while otherwise.
func (s *session) sent() {
	const keep, patience = 4 << 10, 64
	if cap(s.out) <= keep || len(s.out) > cap(s.out)/4 {
		s.small = 0
	} else {
		s.small++
	}
	if s.closing || s.small == patience || max(cap(s.out), cap(s.payload), cap(s.value)) > 4*freeBytes {
		s.out, s.payload, s.value, s.waits, s.small = nil, nil, nil, nil, 0
	}
	s.out = s.out[:0]
	if s.held.Load() > 0 {
		s.holdAll() // less than before, so there is room
	}
}

// fail makes the error text the whole reply of the command.
func (s *session) fail(text string) {
	s.out = resp.AppendError(s.out[:s.start], strings.TrimRight(text, "\r\n"))
}

// ioError makes an error of the log or the store the whole reply of the command.
func (s *session) ioError(err error) {
	if s.staged == nil { // else there may be other replies that wait
		s.wait = 0
	}
	s.again = errors.Is(err, nowait.ErrWouldWait)
	s.fail("IOERR " + err.Error())
}

func (s *session) ok() { s.out = append(s.out, "+OK\r\n"...) }

func (s *session) integer(v int64) { s.out = resp.AppendInt(s.out, v) }

func (s *session) null() { s.out = resp.AppendNull(s.out, s.proto) }

// begin starts a group of entries, which one record of the log will hold.
func (s *session) begin() { s.payload, s.entries = s.payload[:0], 0 }

func (s *session) add(e entry.Entry) {
	s.payload = entry.Append(s.payload, e)
	if s.entries++; e.Op == entry.Clear {
		s.entries++ // it changes many keys
	}
}

// write logs and applies the group. It reports false after having replied with the error. REQUIRES: s.locks are locked.
func (s *session) write() bool {
	if s.staged != nil {
		return s.stage()
	}
	pos, err := s.db.write(&s.locks, s.payload, s.entries > 1)
	if err != nil {
		s.ioError(err)
		return false
	}
	s.wait = max(s.wait, pos)
	return true
}

// appendValue appends the value of a key as a bulk string, or nothing if there is none. On an error it has replied.
func (s *session) appendValue(key []byte) (found, ok bool) {
	// The value is read right into out, behind a header of the length that the last one had: usually the right one.
	const room = "$9223372036854775807\r\n"
	start := len(s.out)
	s.out = append(s.out, room[:s.header]...)
	out, found, err := s.get(s.out, key)
	s.out = out
	if err != nil {
		s.ioError(err)
		return false, false
	}
	if !found {
		s.out = s.out[:start]
		return false, true
	}
	var buf [len(room)]byte
	value := start + s.header
	header := resp.AppendBulkHeader(buf[:0], len(s.out)-value)
	if d := len(header) - s.header; d != 0 {
		s.out = append(s.out, room[:max(d, 0)]...) // grows if it must
		n := len(s.out) - max(d, 0) - value
		copy(s.out[value+d:], s.out[value:value+n])
		s.out = s.out[:value+d+n]
		s.header = len(header)
	}
	copy(s.out[start:], header)
	s.out = append(s.out, '\r', '\n')
	return true, true
}

// closeAfterReply ends the connection once the replies are sent.
func (s *session) closeAfterReply() { s.closing = true }
