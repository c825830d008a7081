package kvserver

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"kvmark/kvserver/resp"
)

// freeBytes is what a connection may hold of commands that have not run and of replies that wait to be sent without asking, and its
// mailbox as well. Whatever is more comes out of a budget that all connections share, so that no number of slow clients with big
// values makes the server run out of memory. What counts is the memory of the buffers, not the bytes in them:
//
//	commands that have arrived in part, or wait   the buffer, which is at most twice as big as what has arrived
//	replies that wait                             the buffer
//	messages for a subscriber                     the arrays, none of which grows
//	commands queued by MULTI                      their bytes and the notes on them
//
// Together these are at most --max-buffered + 2 * freeBytes * max clients. The process takes more: the data; what the commands that
// run just now make (a SET of n bytes has them once more in the record for the log); and what has been let go of and not been
// collected yet, of which there is about a quarter of the budget when more than half of it is in use (see letGo).
const freeBytes = 64 << 10

const errBudget = "ERR too many bytes in flight: the commands and replies of all connections together exceed the server's --max-buffered"

const errAhead = "ERR too many commands sent without taking their replies: %d bytes of them wait, and --max-buffered has no room for more; read while you write"

// notCounted is what session.held is of a connection that has been cut off, or has ended.
const notCounted = -1

// holdAll counts what the session holds now. It reports false if the budget has no room for it; then it counts as before.
func (s *session) holdAll() bool { return s.hold(cap(s.out), len(s.in.buf), false) }

// holdMore counts more bytes of a reply before it is made, and returns why it cannot be, or "".
func (s *session) holdMore(more int) string {
	switch size := len(s.out) - s.start + more; {
	case size > s.srv.opts.MaxReply:
		return replyTooLong(size, s.srv.opts.MaxReply)
	case !s.hold(len(s.out)+more, len(s.in.buf), false):
		return errBudget
	}
	return ""
}

// hold is holdAll for buffers of other sizes. What is read ahead is counted only if there is room at once and for others, too.
func (s *session) hold(out, in int, ahead bool) bool {
	in = max(in, int(s.pending.Load()))
	want := int64(out+in+s.parser.Size()) + s.transactionBytes()
	want = max(0, want-freeBytes)
	old := s.held.Load()
	switch {
	case old == want || old == notCounted:
		return true
	case want < old:
		s.srv.letGo(old - want)
	case ahead:
		if int64(in) > max(freeBytes, s.srv.opts.MaxBuffered/shares) || !s.srv.fits(want-old) {
			return false
		}
	case !s.srv.reserve(want - old):
		return false
	}
	if !s.held.CompareAndSwap(old, want) { // just cut off
		s.srv.buffered.Add(old - want)
	}
	return true
}

// shares is the part of the budget that one connection may have for commands that wait because it takes no replies: an eighth.
const shares = 8

// makeRoom sees to it that something can be read behind what has been. It reports false if the budget has no room for it.
func (s *session) makeRoom(ahead bool) bool {
	in := &s.in
	if in.room() {
		return true
	}
	n := grown(in.have, s.parser.Need())
	if !s.hold(cap(s.out), n, ahead) {
		return false
	}
	s.srv.garbage.Add(int64(len(in.buf)))
	in.resize(n)
	return true
}

// refuse ends the connection with an error, and lets go at once of what it has sent, so that others get the memory.
func (s *session) refuse(text string) {
	start := len(s.out)
	s.out = resp.AppendError(s.out, text)
	s.closing, s.broken = true, true
	s.in, s.parser = input{}, resp.Parser{}
	s.pending.Store(0)
	s.partial.Store(0)
	s.holdAll() // less than before, so there is room
	s.countError(start)
}

// refuseAhead is refuse for a client that takes no replies.
func (s *session) refuseAhead() { s.refuse(fmt.Sprintf(errAhead, s.in.have)) }

// noteAhead notes that bytes have been read while replies wait. That they are no command yet is not the client's fault.
func (s *session) noteAhead(n int) {
	s.in.have += n
	s.input.add(uint64(n))
	s.pending.Store(int64(s.in.have))
	s.partial.Store(0)
	s.conn.active.Store(s.srv.ticks.Load())
}

// fits takes so many bytes, which may be negative, out of the budget, or reports that there are too few.
func (srv *Server) fits(more int64) bool {
	if total := srv.buffered.Add(more); more <= 0 || total <= srv.opts.MaxBuffered {
		return true
	}
	srv.buffered.Add(-more)
	return false
}

// reserve is fits that makes room if need be: those go whose clients do not take what they have asked for.
func (srv *Server) reserve(more int64) bool {
	if srv.fits(more) || srv.cutOffSlow(more) && srv.fits(more) {
		return true
	}
	srv.overBudget.Add(1)
	return false
}

// letGo gives bytes back. The collector would come to the arrays when the heap is GOGC percent bigger than what was live: with much of
// the budget in use, that may be as much again as the budget. So then it is told earlier.
func (srv *Server) letGo(n int64) {
	held, most := srv.buffered.Add(-n)+n, srv.opts.MaxBuffered
	if srv.garbage.Add(n) > most/4 && held > most/2 && srv.collecting.CompareAndSwap(false, true) {
		srv.garbage.Store(0)
		srv.background.Go(func() {
			runtime.GC()
			srv.collecting.Store(false)
		})
	}
}

// stalled is for how long a client may take nothing of its reply while others need the memory.
const stalled = 500 * time.Millisecond

// cutOffSlow ends connections whose clients take nothing, those with the biggest replies first, until need bytes and an eighth of
// the budget are free. It looks once a tick at most, for it looks at all of them.
func (srv *Server) cutOffSlow(need int64) bool {
	// Without waiting: a publisher holds other locks.
	if now := srv.ticks.Load(); srv.lastCutOff.Load() > now || !srv.mu.TryLock() {
		return false
	}
	defer srv.mu.Unlock()
	now := srv.ticks.Load()
	srv.lastCutOff.Store(now + 1)
	var slow []*conn
	for _, c := range srv.conns {
		if since := c.writing.Load(); since > 0 && now+1-since >= int64(stalled/tick) && c.session.held.Load() > 0 {
			slow = append(slow, c)
		}
	}
	slices.SortFunc(slow, func(a, b *conn) int { return cmp.Compare(b.session.held.Load(), a.session.held.Load()) })
	enough := srv.opts.MaxBuffered - max(need, srv.opts.MaxBuffered/8)
	n := 0
	for ; n < len(slow) && srv.buffered.Load() > enough; n++ {
		slow[n].session.release()
		slow[n].link.abort()
	}
	if n > 0 {
		srv.pubsub.cutOff.Add(uint64(n))
		srv.opts.Logf("kvserver: cut off %d connections that take none of their replies: together with the others' they exceed --max-buffered", n)
	}
	return n > 0
}

// givenBack is how much the connections must have held, and let go of, for the memory to be given back to the system at once
// and not when the collector comes to it.
const givenBack = 64 << 20

// giveBack is called once a second.
func (srv *Server) giveBack() {
	held := srv.buffered.Load()
	srv.mostBuffered = max(srv.mostBuffered, held)
	if srv.mostBuffered < givenBack || held > srv.mostBuffered/4 || !srv.givingBack.CompareAndSwap(false, true) {
		return
	}
	srv.mostBuffered = held
	srv.background.Go(func() {
		debug.FreeOSMemory()
		srv.givingBack.Store(false)
	})
}

// holdReply takes a big reply out of the budget. If there is no room for it, a command that only read fails, and one that
// wrote loses its connection instead of its reply: an error would say that nothing was done.
func (s *session) holdReply(c *command) {
	size := len(s.out)
	if size-s.start <= s.srv.opts.MaxReply && s.holdAll() {
		return
	}
	text := errBudget
	if size-s.start > s.srv.opts.MaxReply {
		text = replyTooLong(size-s.start, s.srv.opts.MaxReply)
	}
	s.out = append([]byte(nil), s.out[:s.start]...) // the big array goes now
	s.errors.add(1)
	if c != nil && c.flags&write != 0 {
		s.closeAfterReply()
		return
	}
	s.out = resp.AppendError(s.out, text)
}

// trimAfter is for how long a connection keeps big buffers while it has nothing to do.
const trimAfter = time.Second

// trim lets go of the buffers, unless they are in use.
func (s *session) trim() {
	if len(s.out) > 0 || s.in.have > 0 {
		return
	}
	s.in, s.out, s.payload, s.value = input{}, nil, nil, nil
	s.holdAll() // less than before, so there is room
}

// release gives back what a session held that has ended, or is about to be.
func (s *session) release() {
	if old := s.held.Swap(notCounted); old > 0 {
		s.srv.letGo(old)
	}
}

// mute is what CLIENT REPLY has asked for.
type mute uint8

const (
	replyOn   mute = iota
	replyOff       // no reply to anything
	replySkip      // none to the command that runs
	replyNext      // none to the command that runs and the one behind it
)

// hush takes the reply of the command that ran back.
func (s *session) hush() {
	s.out = s.out[:s.start]
	s.wait = 0
	switch s.mute {
	case replyNext:
		s.mute = replySkip
	case replySkip:
		s.mute = replyOn
	}
}
