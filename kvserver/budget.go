package kvserver

import (
	"fmt"

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

// holdAll counts what the session holds now. It reports false if the budget has no room for it; then it counts as before.
func (s *session) holdAll() bool {
	want := int64(len(s.out)+s.parser.Size()) + s.pending.Load()
	if want <= freeBytes {
		want = 0
	}
	more := want - s.held
	if more == 0 {
		return true
	}
	if total := s.srv.buffered.Add(more); more > 0 && total > s.srv.opts.MaxBuffered {
		s.srv.buffered.Add(-more)
		s.srv.overBudget.Add(1)
		return false
	}
	s.held += more
	return true
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
		text = fmt.Sprintf("ERR reply of %d bytes; the limit is %d (--max-reply)", size-s.start, s.srv.opts.MaxReply)
	}
	s.out = append([]byte(nil), s.out[:s.start]...) // the big array goes now
	s.errors.add(1)
	if c != nil && c.flags&write != 0 {
		s.closeAfterReply()
		return
	}
	s.out = resp.AppendError(s.out, text)
}

// release gives back what a session that has ended held.
func (s *session) release() {
	s.srv.buffered.Add(-s.held)
	s.held = 0
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
