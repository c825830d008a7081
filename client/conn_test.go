package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"kvmark/kvserver/resp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers each connection with talk, and returns their address. The test ends when talk has, for all of them.
func serve(t testing.TB, talk func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, talk)
	return l.Addr().String()
}

func serveOn(t testing.TB, l net.Listener, talk func(net.Conn)) {
	var talking sync.WaitGroup
	talking.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			talking.Go(func() {
				defer c.Close()
				talk(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		talking.Wait()
	})
}

func dial(t testing.TB, addr string, o Options) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// canned answers whatever comes first with a fixed text, and closes.
func canned(t testing.TB, reply string) string {
	return serve(t, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			return
		}
		io.WriteString(c, reply)
	})
}

func TestRepliesAreToldApart(t *testing.T) {
	set := func(c *Conn) (string, error) { return "stored", c.Set([]byte("k"), []byte("v")) }
	get := func(c *Conn) (string, error) {
		v, found, err := c.Get([]byte("k"))
		return fmt.Sprintf("%s %v", v, found), err
	}
	tests := []struct {
		name  string
		call  func(*Conn) (string, error)
		reply string
		want  string
		err   string // part of it; it names the address too
		kind  any    // type of the error
	}{
		{"a Set", set, "+OK\r\n", "stored", "", nil},
		{"a value", get, "$5\r\nhello\r\n", "hello true", "", nil},
		{"an empty value", get, "$0\r\n\r\n", " true", "", nil},
		{"no value", get, "$-1\r\n", " false", "", nil},
		{"no value in RESP3", get, "_\r\n", " false", "", nil},
		{"an error to a Set", set, "-OOM no memory\r\n", "", `answers "OOM no memory"`, new(*ServerError)},
		{"an error to a Get", get, "-ERR no\r\n", "", `answers "ERR no"`, new(*ServerError)},
		{"QUEUED to a Set", set, "+QUEUED\r\n", "", `+"QUEUED" where +OK is due`, new(*ReplyError)},
		{"a value to a Set", set, "$2\r\nOK\r\n", "", `where +OK is due`, new(*ReplyError)},
		{"a number to a Get", get, ":1\r\n", "", `:1 where a string or null is due`, new(*ReplyError)},
		{"OK to a Get", get, "+OK\r\n", "", "where a string or null is due", new(*ReplyError)},
		{"half a reply", get, "$5\r\nhel", "", "server closed the connection", nil},
		{"no reply", get, "", "", "server closed the connection", nil},
		{"no protocol", get, "HTTP/1.1 400 Bad Request\r\n\r\n", "", "not a reply", new(resp.ProtocolError)},
		{"a value without its end", get, "$2\r\nabcd\r\n", "", "", new(resp.ProtocolError)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addr := canned(t, tt.reply)
			got, err := tt.call(dial(t, addr, Options{}))
			if tt.want != "" {
				if err != nil || got != tt.want {
					t.Errorf("got %q, %v; want %q", got, err, tt.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), addr) {
				t.Fatalf("error %v, want one with %q and %s", err, tt.err, addr)
			}
			if tt.kind != nil && !errors.As(err, tt.kind) {
				t.Errorf("error %T, want %T", err, tt.kind)
			}
		})
	}
}

func TestAReplyMayArriveInPiecesOfAnySize(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		value := bytes.Repeat([]byte("x"), rapid.IntRange(0, 40_000).Draw(rt, "length"))
		piece := rapid.IntRange(1, 30_000).Draw(rt, "piece")
		if len(value) > 2000 {
			piece += 500
		}
		const replies = 3
		addr := serve(t, func(c net.Conn) {
			var out []byte
			for range replies {
				out = resp.AppendBulk(out, value)
			}
			if _, err := c.Read(make([]byte, 4096)); err != nil {
				return
			}
			for len(out) > 0 {
				n := min(piece, len(out))
				if _, err := c.Write(out[:n]); err != nil {
					return
				}
				out = out[n:]
			}
			io.Copy(io.Discard, c)
		})
		c, err := Dial(context.Background(), addr, Options{})
		if err != nil {
			rt.Fatal(err)
		}
		defer c.Close()
		for range replies {
			c.QueueGet([]byte("k"))
		}
		if err := c.Flush(); err != nil {
			rt.Fatal(err)
		}
		for range replies {
			got, found, err := c.ReceiveGet()
			if err != nil || !found || !bytes.Equal(got, value) {
				rt.Fatalf("got %d bytes, %v, %v; want %d", len(got), found, err, len(value))
			}
		}
	})
}

func TestADeadlineEndsAWaitAndSaysSo(t *testing.T) {
	addr := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	c := dial(t, addr, Options{})
	c.SetDeadline(time.Now().Add(10 * time.Millisecond))
	_, _, err := c.Get([]byte("k"))
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "no reply in time") {
		t.Errorf("error %v, want a deadline's", err)
	}
}

func TestCloseWakesABlockedCall(t *testing.T) {
	asked := make(chan struct{})
	addr := serve(t, func(c net.Conn) {
		c.Read(make([]byte, 100))
		close(asked)
		io.Copy(io.Discard, c)
	})
	c := dial(t, addr, Options{})
	go func() {
		<-asked
		c.Close()
	}()
	if _, _, err := c.Get([]byte("k")); err == nil {
		t.Error("no error")
	}
}

func TestDialSignsInBeforeAnythingElse(t *testing.T) {
	got := make(chan string, 10)
	addr := serve(t, func(c net.Conn) {
		var p resp.Parser
		var in []byte
		chunk := make([]byte, 4096)
		for {
			k, err := c.Read(chunk)
			if err != nil {
				return
			}
			in = append(in, chunk[:k]...)
			for {
				args, n, err := p.Next(in)
				if err != nil || n == 0 {
					break
				}
				got <- string(bytes.Join(args, []byte(" ")))
				io.WriteString(c, "+OK\r\n")
				in = in[n:]
			}
		}
	})
	c := dial(t, addr, Options{Password: "s3 cret", Name: "worker-1"})
	if err := c.Set([]byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"AUTH s3 cret", "CLIENT SETNAME worker-1", "SET k v"} {
		if sent := <-got; sent != want {
			t.Errorf("sent %q, want %q", sent, want)
		}
	}
}

// A wrong password that still gave a QPS was a bug of redis-benchmark (redis#5854).
func TestDialFails(t *testing.T) {
	t.Run("with a wrong password", func(t *testing.T) {
		_, err := Dial(t.Context(), canned(t, "-WRONGPASS invalid\r\n"), Options{Password: "x"})
		if !errors.As(err, new(*ServerError)) {
			t.Errorf("error %v, want the server's", err)
		}
	})
	t.Run("where nobody listens", func(t *testing.T) {
		l, _ := net.Listen("tcp", "127.0.0.1:0")
		addr := l.Addr().String()
		l.Close()
		if _, err := Dial(t.Context(), addr, Options{}); err == nil || !strings.Contains(err.Error(), addr) {
			t.Errorf("error %v, want one with %s", err, addr)
		}
	})
	t.Run("when nobody answers in time", func(t *testing.T) {
		addr := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
		if _, err := Dial(t.Context(), addr, Options{Password: "x", Timeout: 20 * time.Millisecond}); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("error %v, want a deadline's", err)
		}
	})
	t.Run("when its context ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		addr := serve(t, func(c net.Conn) {
			c.Read(make([]byte, 100))
			cancel()
			io.Copy(io.Discard, c)
		})
		if _, err := Dial(ctx, addr, Options{Password: "x", Timeout: time.Minute}); err == nil {
			t.Error("no error")
		}
	})
}

func TestSetAndGetAllocateNothing(t *testing.T) {
	const depth = 4
	addr := serve(t, func(c net.Conn) {
		var p resp.Parser
		in, out := make([]byte, 0, 64<<10), make([]byte, 0, 64<<10)
		for {
			k, err := c.Read(in[len(in):cap(in)])
			if err != nil {
				return
			}
			in, out = in[:len(in)+k], out[:0]
			rest := in
			for {
				args, n, err := p.Next(rest)
				if err != nil || n == 0 {
					break
				}
				rest = rest[n:]
				if len(args) == 3 {
					out = append(out, "+OK\r\n"...)
				} else {
					out = append(out, "$5\r\nhello\r\n"...)
				}
			}
			in = in[:copy(in[:cap(in)], rest)]
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
	c := dial(t, addr, Options{})
	key, value := []byte("key"), []byte("hello")
	allocs := testing.AllocsPerRun(500, func() {
		if err := c.Set(key, value); err != nil {
			t.Error(err)
		}
		if v, _, err := c.Get(key); err != nil || !bytes.Equal(v, value) {
			t.Errorf("%q, %v", v, err)
		}
		for range depth {
			c.QueueGet(key)
		}
		if err := c.Flush(); err != nil {
			t.Error(err)
		}
		for range depth {
			if _, _, err := c.ReceiveGet(); err != nil {
				t.Error(err)
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

func TestAReplyTooLargeIsRefusedBeforeItArrives(t *testing.T) {
	addr := canned(t, "$1000000\r\n")
	c := dial(t, addr, Options{MaxReply: 1000})
	if _, _, err := c.Get([]byte("k")); !errors.As(err, new(resp.ProtocolError)) {
		t.Errorf("error %v, want a protocol error", err)
	}
	if cap(c.in) > readBuffer {
		t.Errorf("%d bytes were set aside on a promise", cap(c.in))
	}
}

func TestAgainstRedis(t *testing.T) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server here")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(), "--requirepass", "pw")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	var c *Conn
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) { // it tells nobody when it is ready
		if c, err = Dial(t.Context(), addr, Options{Password: "pw", Name: "kvmark"}); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer c.Close()
	big := bytes.Repeat([]byte("\x00\r\n+"), 500_000)
	if err := c.Set([]byte("k\r\n"), big); err != nil {
		t.Fatal(err)
	}
	if v, found, err := c.Get([]byte("k\r\n")); err != nil || !found || !bytes.Equal(v, big) {
		t.Errorf("%d bytes, %v, %v", len(v), found, err)
	}
	if _, found, err := c.Get([]byte("other")); err != nil || found {
		t.Errorf("found %v, %v", found, err)
	}
	if r, err := c.Do("DBSIZE"); err != nil || r.Int != 1 {
		t.Errorf("DBSIZE %d, %v", r.Int, err)
	}
	if _, err := c.Do("LPUSH", "k\r\n", "x"); !errors.As(err, new(*ServerError)) {
		t.Errorf("error %v, want WRONGTYPE", err)
	}
	if _, err := Dial(t.Context(), addr, Options{Password: "wrong"}); !errors.As(err, new(*ServerError)) {
		t.Errorf("error %v, want the server's refusal", err)
	}
}

// A batch that does not fit into the socket at once goes out while the server takes it in, and what came for it is all there.
func TestABatchLargerThanTheSocketIsSentWhole(t *testing.T) {
	for _, size := range []int{100, 30_000, 60_000, 300_000} {
		value := bytes.Repeat([]byte("v"), size)
		got := make(chan []byte, 1)
		addr := serve(t, func(c net.Conn) {
			c.(*net.TCPConn).SetReadBuffer(4 << 10)
			var p resp.Parser
			var in []byte
			chunk := make([]byte, 1000)
			for {
				k, err := c.Read(chunk)
				if err != nil {
					return
				}
				in = append(in, chunk[:k]...)
				if args, n, err := p.Next(in); err == nil && n > 0 {
					got <- bytes.Clone(args[2])
					io.WriteString(c, "+OK\r\n")
				}
			}
		})
		c := dial(t, addr, Options{})
		c.conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
		if err := c.Set([]byte("k"), value); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if v := <-got; !bytes.Equal(v, value) {
			t.Errorf("%d bytes arrive of %d", len(v), size)
		}
		c.Close()
	}
}

// What a server says before it is asked, such as that it has no room, is read as the reply.
func TestWhatIsThereBeforeTheRequestIsRead(t *testing.T) {
	said := make(chan struct{})
	addr := serve(t, func(c net.Conn) {
		io.WriteString(c, "-ERR max number of clients reached\r\n")
		close(said)
	})
	c := dial(t, addr, Options{})
	<-said
	var refused *ServerError
	if err := c.Set([]byte("k"), []byte("v")); !errors.As(err, &refused) || !strings.Contains(refused.Text, "max number") {
		t.Errorf("error %v, want the server's", err)
	}
}

func TestAnEmptyBatchWaitsForNothing(t *testing.T) {
	addr := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	if err := dial(t, addr, Options{}).Ask(); err != nil {
		t.Error(err)
	}
}

func TestAskWithRepliesStillDueSendsAndDoesNotWait(t *testing.T) {
	addr := serve(t, func(c net.Conn) {
		buf := make([]byte, 4096)
		c.Read(buf)
		io.WriteString(c, "+OK\r\n+OK\r\n") // to both, before the second is asked
		for n := 0; n < len("*1\r\n$4\r\nPING\r\n"); {
			k, err := c.Read(buf)
			if err != nil {
				return
			}
			n += k
		}
		io.Copy(io.Discard, c)
	})
	c := dial(t, addr, Options{})
	if err := c.Set([]byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	c.QueuePing()
	if err := c.Ask(); err != nil {
		t.Fatal(err)
	}
	if err := c.ReceiveSet(); err != nil {
		t.Fatal(err)
	}
}

// A server stops reading while its replies are not taken. A client that writes its whole batch first then waits for the
// server, and the server for the client.
func TestADeepBatchIsReadWhileItIsWritten(t *testing.T) {
	const requests = 500
	value := bytes.Repeat([]byte("v"), 32<<10)
	addr := serve(t, func(c net.Conn) { // one request, one reply, nothing between
		var parser resp.Parser
		var in []byte
		chunk := make([]byte, 16<<10)
		for {
			args, n, err := parser.Next(in)
			if err != nil {
				return
			}
			if n == 0 {
				k, err := c.Read(chunk)
				if err != nil {
					return
				}
				in = append(in, chunk[:k]...)
				continue
			}
			reply := []byte("+OK\r\n")
			if string(args[0]) == "GET" {
				reply = resp.AppendBulk(nil, value)
			}
			in = in[n:]
			if _, err := c.Write(reply); err != nil {
				return
			}
		}
	})
	c := dial(t, addr, Options{})
	for range 2 {
		for range requests {
			c.QueueSet([]byte("k"), value)
			c.QueueGet([]byte("k"))
		}
		if err := c.Ask(); err != nil {
			t.Fatal(err)
		}
		for i := range requests {
			err := c.ReceiveSet()
			if err == nil {
				_, _, err = c.ReceiveGet()
			}
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
	}
}
