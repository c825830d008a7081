package kvserver

import (
	"sync"
	"sync/atomic"

	"kvmark/kvserver/resp"
)

// mailbox holds the messages that others have published for a session and that wait to be sent.
type mailbox struct {
	srv  *Server
	slow atomic.Bool // it overflowed

	mu    sync.Mutex
	proto resp.Proto // of what is put in
	buf   []byte
	known bool  // a publisher has seen, or will see, to it that the link hears of buf
	over  bool  // nothing is put in any more: it overflowed, or the session has ended
	held  int64 // bytes that count in the budget of all connections

	// For links that several goroutines write to, one at a time: busy is held by the one that does. The session's own holds
	// it from before it runs commands until its replies have left, so that no message overtakes them.
	busy  bool
	idle  sync.Cond // busy has become false
	away  int       // bytes that have been taken out and are on their way
	spare []byte
}

// newMailbox returns the mailbox of a session that runs a command.
func newMailbox(srv *Server, proto resp.Proto) *mailbox {
	b := &mailbox{srv: srv, proto: proto, busy: true}
	b.idle.L = &b.mu
	return b
}

// put appends a message, given as RESP3 has it, and reports whether the caller is to let the session's link know.
func (b *mailbox) put(message []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return false
	}
	if !b.hold(b.away + len(b.buf) + len(message)) {
		b.slow.Store(true)
		b.srv.pubsub.cutOff.Add(1)
		b.closeLocked()
		return true
	}
	b.buf = append(b.buf, firstByte(b.proto))
	b.buf = append(b.buf, message[1:]...)
	known := b.known
	b.known = true
	return !known
}

// hold counts so many bytes in the budget of all connections, in steps of freeBytes, and reports whether the mailbox may
// have them.
func (b *mailbox) hold(size int) bool {
	more := int64(size) - b.held
	if more <= freeBytes {
		return true
	}
	if size > b.srv.opts.MaxMailbox {
		return false
	}
	if !b.srv.reserve(more) {
		return false
	}
	b.held = int64(size)
	return true
}

// take moves everything behind dst, which may be exchanged for another array. What is put in from now on is in proto.
func (b *mailbox) take(dst []byte, proto resp.Proto) (all []byte, got bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known, b.proto = false, proto
	if len(b.buf) == 0 {
		return dst, false
	}
	if len(dst) == 0 {
		dst, b.buf = b.buf, dst
	} else {
		dst = append(dst, b.buf...)
		b.buf = kept(b.buf)
	}
	b.releaseLocked()
	return dst, true
}

// kept empties an array, or lets it go if it is so big that it counts.
func kept(buf []byte) []byte {
	if cap(buf) > freeBytes {
		return nil
	}
	return buf[:0]
}

// close throws away what is left and what is still to come, and ends whatever waits for busy.
func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closeLocked()
	b.busy = false
	b.idle.Broadcast()
}

// lose is close by the one who is busy and cannot write what he has taken out.
func (b *mailbox) lose() {
	b.mu.Lock()
	b.away = 0
	b.mu.Unlock()
	b.close()
}

func (b *mailbox) closeLocked() {
	b.over, b.buf, b.spare = true, nil, nil
	b.releaseLocked()
}

// releaseLocked gives back what is not needed any more of what hold counted.
func (b *mailbox) releaseLocked() {
	if b.held > 0 && b.away+len(b.buf) <= freeBytes {
		b.srv.buffered.Add(-b.held)
		b.held = 0
	}
}

// claim waits until nobody writes, and makes the caller the one who may.
func (b *mailbox) claim() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.busy && !b.over {
		b.idle.Wait()
	}
	b.busy = true
}

// try is claim without waiting. Whoever is busy will look at the mailbox again before it is not.
func (b *mailbox) try() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy || b.over {
		return false
	}
	b.busy = true
	return true
}

// next takes out what is to be written next; last is what was before, which has been written. When there is nothing, the
// caller is not busy any more. REQUIRES: the caller is.
func (b *mailbox) next(last []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known, b.away = false, 0
	if b.over || len(b.buf) == 0 {
		b.releaseLocked()
		b.busy = false
		b.idle.Broadcast()
		if !b.over {
			b.spare = kept(last)
		}
		return nil
	}
	chunk := b.buf
	if b.buf = kept(last); b.buf == nil {
		b.buf, b.spare = b.spare, nil
	}
	b.away = len(chunk)
	b.releaseLocked()
	return chunk
}
