package kvserver

import (
	"bytes"
	"context"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/kvserver/resp"
	"kvmark/storage"
)

// open opens a server on a file system in memory, unless the options name another, and shuts it down with the test.
func open(t testing.TB, o Options) *Server {
	t.Helper()
	if o.FS == nil {
		o.FS = vfs.NewMem()
	}
	if o.Dir == "" {
		o.Dir = "/data"
	}
	if o.Mode == "" {
		o.Mode = storage.Memory
	}
	srv, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutdown(t, srv) })
	return srv
}

func shutdown(t testing.TB, srv *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil && srv.db.failed.Load() == nil && srv.db.log.Err() == nil {
		t.Errorf("shutdown: %v", err)
	}
}

// speaker drives a session without a socket, the way a connection does.
type speaker struct {
	t testing.TB
	s *session
	n []byte // not yet a command
}

func speak(t testing.TB, srv *Server) *speaker {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.lastID++
	return &speaker{t: t, s: newSession(srv, srv.lastID)}
}

// send hands over bytes and returns those that are replied.
func (c *speaker) send(in []byte) []byte {
	c.n = append(c.n, in...)
	var out []byte
	for more := true; more; {
		var k int
		k, more = c.s.run(c.n)
		c.n = c.n[k:]
		c.s.commit()
		c.s.rest()
		out = append(out, c.s.out...)
		c.s.sent()
	}
	return out
}

// do runs a line and returns the reply as it is on the wire.
func (c *speaker) do(line string) string { return string(c.send([]byte(line + "\r\n"))) }

// want runs a line and checks the reply.
func (c *speaker) want(line, reply string) {
	c.t.Helper()
	if got := c.do(line); got != reply {
		c.t.Errorf("%s\n got %q\nwant %q", line, got, reply)
	}
}

// listen serves on a free port of the loopback and returns the address. Serve has returned when the test is over.
func listen(t testing.TB, srv *Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(context.Background(), ln) }()
	t.Cleanup(func() {
		shutdown(t, srv)
		if err := <-done; err != ErrServerClosed {
			t.Errorf("Serve returned %v, want ErrServerClosed", err)
		}
	})
	return ln.Addr().String()
}

// onEachPath runs a test once for each way in which the bytes of connections are moved.
func onEachPath(t *testing.T, test func(t *testing.T, path IO)) {
	for _, path := range paths() {
		t.Run("io="+string(path), func(t *testing.T) { test(t, path) })
	}
}

func paths() []IO {
	if runtime.GOOS == "linux" {
		return []IO{Goroutine, Loop}
	}
	return []IO{Goroutine}
}

// client is a connection over TCP.
type client struct {
	t      testing.TB
	nc     net.Conn
	parser resp.ReplyParser
	buf    []byte
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{t: t, nc: nc}
}

// read returns the next reply as it is on the wire, or the error that ended the connection.
func (c *client) read() (string, error) {
	chunk := make([]byte, 4096)
	for {
		_, n, err := c.parser.Next(c.buf)
		if err != nil {
			return "", err
		}
		if n > 0 {
			reply := string(c.buf[:n])
			c.buf = bytes.Clone(c.buf[n:])
			return reply, nil
		}
		k, err := c.nc.Read(chunk)
		c.buf = append(c.buf, chunk[:k]...)
		if k == 0 && err != nil {
			return "", err
		}
	}
}

func (c *client) do(args ...string) (string, error) {
	if _, err := c.nc.Write(resp.AppendCommand(nil, args...)); err != nil {
		return "", err
	}
	return c.read()
}

func (c *client) want(reply string, args ...string) {
	c.t.Helper()
	if got, err := c.do(args...); err != nil || got != reply {
		c.t.Errorf("%q: got %q, %v; want %q", args, got, err, reply)
	}
}

// times returns how often a test repeats itself: as the environment variable says, else long with KVMARK_LONG, else short.
// With -short it is a quarter of short, at least once; a stride, whose long form is the smaller number, is five times as wide.
func times(t testing.TB, env string, short, long int) int {
	t.Helper()
	if text := os.Getenv(env); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s is no positive number", env, text)
		}
		return n
	}
	if os.Getenv("KVMARK_LONG") != "" {
		return long
	}
	switch {
	case !testing.Short():
		return short
	case long < short:
		return 5 * short
	}
	return max(1, short/4)
}

// background is the context of a Shutdown that may take as long as it takes.
func background() context.Context { return context.Background() }
