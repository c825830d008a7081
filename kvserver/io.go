package kvserver

import (
	"fmt"
	"math/bits"
	"net"
	"runtime"
	"sync/atomic"
	"time"
)

// IO names how the bytes of connections are moved. Parser, commands and replies are the same.
type IO string

const (
	// Goroutine gives each connection a goroutine that reads, runs and writes: plain Go on every system.
	Goroutine IO = "goroutine"
	// Loop serves many connections with one goroutine, which shares the system calls of a wake-up among all that are
	// ready. It needs Linux, and serves TCP and Unix sockets: connections with TLS get a goroutine.
	Loop IO = "loop"
)

// ParseIO is the inverse of the conversion to string.
func ParseIO(s string) (IO, error) {
	switch io := IO(s); io {
	case Goroutine, Loop:
		return io, nil
	}
	return "", fmt.Errorf("kvserver: unknown io %q (use %s or %s)", s, Goroutine, Loop)
}

// loopCount returns how many loops n stands for.
func loopCount(n int) int {
	if n == 0 {
		return max(1, runtime.GOMAXPROCS(0)/2)
	}
	return n
}

// conn is what the server knows of one connection.
type conn struct {
	srv           *Server
	session       *session
	since         time.Time
	local, remote net.Addr
	link          link

	// For the goroutine that closes stuck connections, in ticks: when something was read last; since when a write has
	// been under way (plus one; 0 = none is); when the connection has to be over (0 = open). A deadline of the system for
	// every operation would cost more.
	active, writing, over atomic.Int64

	// full says that the client takes no replies, and that no more is read of what it sends meanwhile: it has sent too much.
	full atomic.Bool
}

// link moves the bytes of a connection. Its methods may be called from any goroutine, also when it has ended.
type link interface {
	// finish ends the connection when it has answered what has been read.
	finish()
	// abort ends the connection at once.
	abort()
	// deliver sends what the session's mailbox holds. It does not wait.
	deliver()
	// refuse throws away what a client sends that takes no replies. It is told when it takes them.
	refuse()
}

func newConn(srv *Server, nc net.Conn, id int64) *conn {
	c := &conn{srv: srv, session: newSession(srv, id), since: time.Now(), local: nc.LocalAddr(), remote: remoteAddr(nc)}
	c.session.conn = c
	c.active.Store(srv.ticks.Load())
	return c
}

// remoteAddr is the address of a client. At a Unix socket it has none of its own, and goes by that of the socket.
func remoteAddr(nc net.Conn) net.Addr {
	if local, ok := nc.LocalAddr().(*net.UnixAddr); ok {
		return &net.UnixAddr{Name: local.Name + ":0", Net: local.Net}
	}
	return nc.RemoteAddr()
}

// stuck reports whether the connection has sent or taken nothing for longer than idle or slow; idle 0 = no limit.
func (c *conn) stuck(now, idle, slow int64) bool {
	if over := c.over.Load(); over > 0 {
		return now >= over
	}
	if writing := c.writing.Load(); writing > 0 {
		return now-max(writing, c.active.Load()) > slow
	}
	return idle > 0 && now-c.active.Load() > idle
}

const (
	// readBuffer is how much a connection holds for what it reads while little arrives.
	readBuffer = 4 << 10
	// lingerTime bounds for how long it is still read, and thrown away, what a client sends that has been refused: closing a
	// socket with unread input makes the system discard the last reply if it has not yet been delivered.
	lingerTime = 5 * time.Second
)

// input holds what a connection has read and not yet run. Its session counts the memory, and lets it grow (see makeRoom).
type input struct {
	buf   []byte // buf[from:from+have] is that
	from  int
	have  int
	small int // for how many rounds in a row a smaller buf would have done
}

// space returns where to read to. It is empty if the buffer is full.
func (in *input) space() []byte { return in.buf[in.from+in.have:] }

// bytes returns all there is.
func (in *input) bytes() []byte { return in.buf[in.from : in.from+in.have] }

// room moves what there is to the front if that makes much room behind it, and reports whether there is some.
func (in *input) room() bool {
	if len(in.space()) == 0 && in.from > 0 && in.from >= len(in.buf)/4 {
		copy(in.buf, in.bytes())
		in.from = 0
	}
	return len(in.space()) > 0
}

// grown returns the size of the buffer that follows a full one of n bytes. What has been announced (need) is given no memory
// before about half of it has arrived; n bytes are copied O(n) times in all.
func grown(n, need int) int {
	if double := 1 << bits.Len(uint(n)); need > double+n/2 { // what is a little more is not worth one more copy
		return max(readBuffer, double)
	}
	return max(readBuffer, n+n/2, need)
}

func (in *input) resize(n int) {
	buf := make([]byte, n)
	copy(buf, in.bytes())
	in.buf, in.from, in.small = buf, 0, 0
}

// add puts bytes behind those that are there. REQUIRES: they are part of one read, so that they need not be counted.
func (in *input) add(b []byte) {
	if len(in.space()) < len(b) {
		in.resize(max(readBuffer, in.have+len(b)))
	}
	in.have += copy(in.space(), b)
}

// drop takes n bytes off the front. A buffer that was needed once, for something big, is let go: after a while, or at once if
// many idle connections that keep such a one would be too much.
func (in *input) drop(n int) {
	if n == 0 {
		return // the buffer is as big as what is on its way
	}
	held := in.have
	in.from, in.have = in.from+n, in.have-n
	if in.have <= in.from { // otherwise the copies would take longer than the commands that they make room for
		copy(in.buf, in.bytes())
		in.from = 0
	}
	const patience, keep = 64, 4 * freeBytes
	if len(in.buf) > keep && in.have < len(in.buf)/4 {
		in.resize(max(readBuffer, 2*in.have))
		return
	}
	if len(in.buf) <= readBuffer || held >= len(in.buf)/4 {
		in.small = 0
	} else if in.small++; in.small == patience {
		in.resize(max(readBuffer, len(in.buf)/4))
	}
}
