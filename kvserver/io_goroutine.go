package kvserver

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// conn moves the bytes of one session: a goroutine that reads what there is, runs it, and writes the replies.
type conn struct {
	srv     *Server
	nc      net.Conn
	session *session
	since   time.Time

	// For the goroutine that closes stuck connections, in ticks: when something was read last, and since when a write
	// has been under way (plus one; 0 = none is). A deadline for every operation would cost more.
	active, writing atomic.Int64
}

// readBuffer is how much a connection holds for what it reads while nobody sends much.
const readBuffer = 4 << 10

func newConn(srv *Server, nc net.Conn, id int64) *conn {
	c := &conn{srv: srv, nc: nc, session: newSession(srv, id), since: time.Now()}
	c.active.Store(srv.ticks.Load())
	return c
}

// interrupt ends the wait for more input.
func (c *conn) interrupt() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// serve runs until the client is gone or has to go.
func (c *conn) serve() {
	s := c.session
	buf := make([]byte, readBuffer)
	have := 0  // bytes in buf that are not yet a command
	small := 0 // for how many reads in a row a smaller buffer would have done
	for {
		n, err := c.nc.Read(buf[have:])
		c.active.Store(c.srv.ticks.Load())
		s.input.add(uint64(n))
		have += n
		used := 0
		for more := n > 0; more; {
			var k int
			k, more = s.run(buf[used:have])
			used += k
			if !c.reply() {
				return
			}
		}
		if s.broken {
			c.drain()
		}
		if s.closing || err != nil {
			return
		}
		copy(buf, buf[used:have])
		have -= used
		switch {
		case have == len(buf):
			buf = append(make([]byte, 0, grown(have, s.parser.Need())), buf...)
			buf = buf[:cap(buf)]
		case len(buf) > readBuffer && have+n < len(buf)/4:
			if small++; small == 64 {
				buf = append(make([]byte, 0, max(readBuffer, len(buf)/4)), buf[:have]...)
				buf, small = buf[:cap(buf)], 0
			}
		default:
			small = 0
		}
	}
}

// grown returns the size of the buffer that follows a full one of n bytes: at least half as much again, so that n bytes are
// copied O(n) times in all; at most twice as much, whatever has been announced; in between, what the argument needs.
func grown(n, need int) int { return max(n+n/2, min(need, 2*n)) }

// reply waits until the replies may leave and sends them. It reports false when the client is gone.
func (c *conn) reply() bool {
	s := c.session
	s.commit()
	if len(s.out) == 0 {
		return true
	}
	c.writing.Store(c.srv.ticks.Load() + 1)
	n, err := c.nc.Write(s.out)
	c.writing.Store(0)
	s.output.add(uint64(n))
	s.sent()
	return err == nil
}

// drain gives the last reply a chance to arrive: closing a socket with unread input makes the system discard what it has
// not yet delivered.
func (c *conn) drain() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c.nc, 1<<20)
}
