package kvserver

import (
	"cmp"
	"runtime/debug"
	"slices"
	"time"

	"kvmark/kvserver/resp"
)

// freeBytes is what a connection may hold of half-arrived commands and of replies that wait to be sent without asking.
// Whatever is more comes out of a budget that all connections share, so that no number of slow clients with big values makes
// the server run out of memory: it holds at most
//
//	max clients * (a few times freeBytes)  +  a few times the budget
//
// where the factor covers that a buffer grows by copying and that its garbage takes a while to be collected.
const freeBytes = 64 << 10

const errBudget = "ERR too many bytes in flight: the commands and replies of all connections together exceed the server's --max-buffered"

// notCounted is what session.held is of a connection that has been cut off, or has ended.
const notCounted = -1

// holdAll counts what the session holds now. It reports false if the budget has no room for it; then it counts as before.
func (s *session) holdAll() bool { return s.hold(cap(s.out)) }

// holdMore counts more bytes of a reply before it is made, and returns why it cannot be, or "".
func (s *session) holdMore(more int) string {
	switch size := len(s.out) - s.start + more; {
	case size > s.srv.opts.MaxReply:
		return replyTooLong(size, s.srv.opts.MaxReply)
	case !s.hold(len(s.out) + more):
		return errBudget
	}
	return ""
}

// hold is holdAll for replies of a number of bytes.
func (s *session) hold(out int) bool {
	want := int64(out+s.parser.Size()) + s.pending.Load() + s.transactionBytes()
	if want <= freeBytes {
		want = 0
	}
	old := s.held.Load()
	if old == want || old == notCounted {
		return true
	}
	if !s.srv.reserve(want - old) {
		return false
	}
	if !s.held.CompareAndSwap(old, want) { // just cut off
		s.srv.buffered.Add(old - want)
	}
	return true
}

// reserve takes so many bytes, which may be negative, out of the budget. If there are too few, those go whose clients do not take
// what they have asked for; if there are still too few then, it reports false.
func (srv *Server) reserve(more int64) bool {
	fits := func() bool {
		if total := srv.buffered.Add(more); more <= 0 || total <= srv.opts.MaxBuffered {
			return true
		}
		srv.buffered.Add(-more)
		return false
	}
	if fits() || srv.cutOffSlow(more) && fits() {
		return true
	}
	srv.overBudget.Add(1)
	return false
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

// release gives back what a session held that has ended, or is about to be.
func (s *session) release() {
	if old := s.held.Swap(notCounted); old > 0 {
		s.srv.buffered.Add(-old)
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
