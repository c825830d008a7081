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
	buf   chunks
	known bool  // a publisher has seen, or will see, to it that the link hears of buf
	over  bool  // nothing is put in any more: it overflowed, or the session has ended
	held  int64 // bytes that count in the budget of all connections, beyond the first freeBytes

	// For links that several goroutines write to, one at a time: busy is held by the one that does. The session's own holds
	// it from before it runs commands until its replies have left, so that no message overtakes them.
	busy bool
	idle sync.Cond // busy has become false
	away int       // bytes of the array that has been taken out and is on its way
}

// chunks is a queue of bytes in arrays that never grow: no memory is held twice while they are copied, and none is left to the
// collector by each doubling. A big message has an array of its size. Small ones share one, the next twice as big as the last.
type chunks struct {
	all  [][]byte
	size int    // bytes of memory that the arrays take
	idle []byte // an empty one, for the next
}

const leastChunk, mostChunk = 512, 32 << 10

// more returns by how much size grows if so many bytes are added.
func (c *chunks) more(n int) int {
	last := 0
	if k := len(c.all); k > 0 {
		if last = cap(c.all[k-1]); last-len(c.all[k-1]) >= n {
			return 0
		}
	} else if cap(c.idle) >= n {
		return cap(c.idle)
	}
	return max(n, min(2*last, mostChunk), leastChunk)
}

// add appends a message with another first byte.
func (c *chunks) add(first byte, message []byte) {
	if size := c.more(len(message)); size > 0 {
		chunk := c.idle
		if c.idle = nil; cap(chunk) != size {
			chunk = make([]byte, 0, size)
		}
		c.all = append(c.all, chunk)
		c.size += size
	}
	last := &c.all[len(c.all)-1]
	*last = append(append(*last, first), message[1:]...)
}

// next takes the oldest bytes out; nil = there are none.
func (c *chunks) next() (chunk []byte) {
	if len(c.all) == 0 {
		return nil
	}
	chunk, c.all[0] = c.all[0], nil
	if len(c.all) == 1 {
		c.all = c.all[:0] // its room is used again
	} else {
		c.all = c.all[1:]
	}
	c.size -= cap(chunk)
	return chunk
}

// reuse lets an array be used again that next has returned, unless it is a big one.
func (c *chunks) reuse(chunk []byte) {
	if cap(chunk) <= mostChunk && cap(chunk) >= cap(c.idle) {
		c.idle = chunk[:0]
	}
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
	if !b.hold(b.away + b.buf.size + b.buf.more(len(message))) {
		b.slow.Store(true)
		b.srv.pubsub.cutOff.Add(1)
		b.closeLocked()
		return true
	}
	b.buf.add(firstByte(b.proto), message)
	known := b.known
	b.known = true
	return !known
}

// hold counts the memory that the mailbox takes in the budget of all connections, except for the first freeBytes, and reports
// whether it may have so much.
func (b *mailbox) hold(size int) bool {
	want := max(0, int64(size)-freeBytes)
	if want <= b.held {
		return true
	}
	if size > b.srv.opts.MaxMailbox || !b.srv.reserve(want-b.held) {
		return false
	}
	b.held = want
	return true
}

// take moves everything behind dst, or only the oldest of it, which costs no copy if dst is empty: then that may be exchanged
// for another array. What is put in from now on is in proto.
func (b *mailbox) take(dst []byte, proto resp.Proto, everything bool) (out []byte, got bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known, b.proto = false, proto
	for chunk := b.buf.next(); chunk != nil; chunk = b.buf.next() {
		got = true
		if len(dst) == 0 {
			dst, chunk = chunk, dst
		} else {
			dst = append(dst, chunk...)
		}
		b.buf.reuse(chunk)
		if !everything {
			break
		}
	}
	if got {
		b.releaseLocked()
	}
	return dst, got
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
	b.over, b.buf = true, chunks{}
	b.releaseLocked()
}

// releaseLocked gives back what is not needed any more of what hold counted.
func (b *mailbox) releaseLocked() {
	if want := max(0, int64(b.away+b.buf.size)-freeBytes); want < b.held {
		b.srv.letGo(b.held - want)
		b.held = want
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
	chunk := b.buf.next()
	if !b.over {
		b.buf.reuse(last)
	}
	if b.away = cap(chunk); chunk == nil {
		b.busy = false
		b.idle.Broadcast()
	}
	b.releaseLocked()
	return chunk
}
