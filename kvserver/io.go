package kvserver

import (
	"fmt"
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
}

// link moves the bytes of a connection. Its methods may be called from any goroutine, also when it has ended.
type link interface {
	// finish ends the connection when it has answered what has been read.
	finish()
	// abort ends the connection at once.
	abort()
	// deliver sends what the session's mailbox holds. It does not wait.
	deliver()
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
		return now-writing > slow
	}
	return idle > 0 && now-c.active.Load() > idle
}

const (
	// readBuffer is how much a connection holds for what it reads while nobody sends much.
	readBuffer = 4 << 10
	// lingerBytes and lingerTime bound what is still read, and thrown away, of a client that broke the protocol: closing a
	// socket with unread input makes the system discard the last reply if it has not yet been delivered.
	lingerBytes = 1 << 20
	lingerTime  = time.Second
)

// input holds what a connection has read and not yet run.
type input struct {
	buf   []byte // buf[:have] is that
	have  int
	small int // for how many rounds in a row a smaller buf would have done
}

// space returns where to read to, at least one byte. need is the length that the command on its way has announced.
func (in *input) space(need int) []byte {
	if in.have == len(in.buf) {
		in.resize(grown(in.have, need))
	}
	return in.buf[in.have:]
}

// grown returns the size of the buffer that follows a full one of n bytes: at least half as much again, so that n bytes are
// copied O(n) times in all; at most twice as much, whatever has been announced; in between, what the argument needs.
func grown(n, need int) int { return max(readBuffer, n+n/2, min(need, 2*n)) }

func (in *input) resize(n int) {
	buf := make([]byte, n)
	copy(buf, in.buf[:in.have])
	in.buf, in.small = buf, 0
}

// add puts bytes behind those that are there.
func (in *input) add(b []byte) {
	for len(b) > 0 {
		n := copy(in.space(len(b)), b)
		in.have += n
		b = b[n:]
	}
}

// bytes returns all there is.
func (in *input) bytes() []byte { return in.buf[:in.have] }

// drop takes n bytes off the front. A buffer that was needed once, for something big, is let go: after a while, or at once if
// many idle connections that keep such a one would be too much.
func (in *input) drop(n int) {
	held := in.have
	in.have = copy(in.buf, in.buf[n:in.have])
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
