package kvserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/kvserver/resp"
	"kvmark/storage"
	"kvmark/wal"
)

// nopConn is a connection that leads nowhere.
type nopConn struct{ net.Conn }

func (nopConn) Close() error                    { return nil }
func (nopConn) RemoteAddr() net.Addr            { return &net.TCPAddr{} }
func (nopConn) LocalAddr() net.Addr             { return &net.TCPAddr{} }
func (nopConn) SetReadDeadline(time.Time) error { return nil }

func TestOptionsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    Options
		want string
	}{
		{"nothing", Options{}, "no data directory given"},
		{"no mode", Options{Dir: "/d"}, `unknown mode ""`},
		{"an unknown mode", Options{Dir: "/d", Mode: "disk"}, `unknown mode "disk"`},
		{"an unknown policy", Options{Dir: "/d", Mode: storage.Memory, WALPolicy: 9}, "unknown policy 9"},
		{"negative clients", Options{Dir: "/d", Mode: storage.Memory, MaxClients: -1}, "max clients is -1"},
		{"a negative value", Options{Dir: "/d", Mode: storage.Memory, MaxValue: -1}, "max value is -1"},
		{"a value as large as a command", Options{Dir: "/d", Mode: storage.Memory, MaxValue: maxCommandBytes}, "at most"},
		{"a key larger than a value", Options{Dir: "/d", Mode: storage.Memory, MaxKey: 2, MaxValue: 1}, "must not exceed"},
		{"an unknown io", Options{Dir: "/d", Mode: storage.Memory, IO: "threads"}, `unknown io "threads"`},
		{"negative loops", Options{Dir: "/d", Mode: storage.Memory, Loops: -1}, "number of loops is -1"},
		{"a negative timeout", Options{Dir: "/d", Mode: storage.Memory, IdleTimeout: -1}, "idle timeout is -1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.FS = vfs.NewMem()
			srv, err := Open(tc.o)
			if err == nil {
				shutdown(t, srv)
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %q, want it to say %q", err, tc.want)
			}
		})
	}
}

func TestManyClientsSeeTheirOwnWrites(t *testing.T) { onEachPath(t, testManyClientsSeeTheirOwnWrites) }

func testManyClientsSeeTheirOwnWrites(t *testing.T, path IO) {
	addr := listen(t, open(t, Options{IO: path, WALPolicy: wal.OS}))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			c := dial(t, addr)
			for i := range 200 {
				key, value := fmt.Sprintf("k%d-%d", w, i%10), fmt.Sprint(i)
				c.want(ok, "SET", key, value)
				c.want(fmt.Sprintf("$%d\r\n%s\r\n", len(value), value), "GET", key)
				if i%50 == 0 {
					c.want(ok, "MSET", "shared", value, key, value)
				}
				if i%20 == 0 {
					if _, err := c.do("INFO"); err != nil {
						t.Error(err)
					}
					if _, err := c.do("CLIENT", "LIST"); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	c := dial(t, addr)
	c.want(":81\r\n", "DBSIZE")
	c.want(ok, "FLUSHALL")
	c.want(":0\r\n", "DBSIZE")
}

// MSET writes one value to two keys; a reader of both in one command must never see two values.
func TestMGETSeesAllOrNothingOfAnMSET(t *testing.T) {
	srv := open(t, Options{})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		c := speak(t, srv)
		for i := range 2000 {
			c.want(fmt.Sprintf("MSET a %d b %d", i, i), ok)
		}
	})
	c := speak(t, srv)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		got := c.do("MGET a b")
		half := strings.TrimPrefix(got, "*2\r\n")
		if half[:len(half)/2] != half[len(half)/2:] {
			t.Fatalf("two values: %q", got)
		}
	}
	wg.Wait()
}

func TestBigValuesAndDeepPipelines(t *testing.T) { onEachPath(t, testBigValuesAndDeepPipelines) }

func testBigValuesAndDeepPipelines(t *testing.T, path IO) {
	c := dial(t, listen(t, open(t, Options{IO: path, WALPolicy: wal.OS})))
	big := strings.Repeat("0123456789abcdef", 1<<16)
	c.want(ok, "SET", "big", big)
	c.want(fmt.Sprintf("$%d\r\n%s\r\n", len(big), big), "GET", "big")
	c.want("+PONG\r\n", "PING")

	const n = 20_000
	var in []byte
	for i := range n {
		in = resp.AppendCommand(in, "SET", fmt.Sprint(i%100), fmt.Sprint(i))
		in = resp.AppendCommand(in, "GET", fmt.Sprint(i%100))
	}
	go func() { _, _ = c.nc.Write(in) }() // ends with the connection
	for i := range n {
		if got, err := c.read(); err != nil || got != ok {
			t.Fatalf("SET %d: %q, %v", i, got, err)
		}
		v := fmt.Sprint(i)
		if got, err := c.read(); err != nil || got != fmt.Sprintf("$%d\r\n%s\r\n", len(v), v) {
			t.Fatalf("GET %d: %q, %v", i, got, err)
		}
	}
}

// A buffer that grew by what is needed next, one byte for a line or a small argument, would be copied for each of them.
func TestTheReadBufferGrowsByAFactor(t *testing.T) { onEachPath(t, testTheReadBufferGrowsByAFactor) }

func testTheReadBufferGrowsByAFactor(t *testing.T, path IO) {
	for _, tc := range []struct{ n, need, want int }{
		{4096, 0, 6144},
		{4096, 4097, 6144},
		{4096, 7000, 7000},
		{4096, 1 << 30, 8192},
		{5000, 1 << 30, 8192},
		{32 << 20, 64<<20 + 33, 64<<20 + 33},
	} {
		if got := grown(tc.n, tc.need); got != tc.want {
			t.Errorf("grown(%d, %d) = %d, want %d", tc.n, tc.need, got, tc.want)
		}
	}
	srv := open(t, Options{IO: path})
	c := dial(t, listen(t, srv))
	var args []string
	for i := range 100_000 {
		args = append(args, fmt.Sprint(i))
	}
	c.want(ok, append([]string{"MSET"}, args...)...)
	c.want(":50000\r\n", append([]string{"DEL"}, args...)...)
}

func TestMaxClients(t *testing.T) { onEachPath(t, testMaxClients) }

func testMaxClients(t *testing.T, path IO) {
	srv := open(t, Options{IO: path, MaxClients: 2})
	addr := listen(t, srv)
	a, b := dial(t, addr), dial(t, addr)
	a.want("+PONG\r\n", "PING")
	b.want("+PONG\r\n", "PING")
	c := dial(t, addr)
	if got, err := c.read(); got != "-ERR max number of clients reached\r\n" {
		t.Fatalf("the third got %q, %v", got, err)
	}
	if got, err := c.read(); err == nil {
		t.Fatalf("the third goes on: %q", got)
	}
	a.want(ok, "QUIT")
	if _, err := a.read(); !errors.Is(err, io.EOF) {
		t.Fatalf("QUIT: %v, want EOF", err)
	}
	// The place is free when the server has forgotten the connection, which nothing tells: ask until it is.
	for deadline := time.Now().Add(10 * time.Second); ; {
		d := dial(t, addr)
		if got, _ := d.do("PING"); got == "+PONG\r\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a client that left stays taken")
		}
	}
	if info, _ := b.do("INFO", "clients"); !strings.Contains(info, "\r\nconnected_clients:2\r\n") || strings.Contains(info, "rejected_connections:0") {
		t.Errorf("INFO says %q", info)
	}
}

func TestAProtocolErrorReachesAClientThatGoesOnSending(t *testing.T) {
	onEachPath(t, testAProtocolErrorReachesAClientThatGoesOnSending)
}

func testAProtocolErrorReachesAClientThatGoesOnSending(t *testing.T, path IO) {
	addr := listen(t, open(t, Options{IO: path}))
	c := dial(t, addr)
	if _, err := c.nc.Write(append([]byte("*1\r\n$-5\r\n"), make([]byte, 1<<18)...)); err != nil {
		t.Fatal(err)
	}
	if got, err := c.read(); got != "-ERR Protocol error: invalid bulk length\r\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := c.read(); err == nil {
		t.Error("the connection goes on")
	}
	dial(t, addr).want("+PONG\r\n", "PING") // the others do
}

func TestShutdownAnswersWhatWasRead(t *testing.T) { onEachPath(t, testShutdownAnswersWhatWasRead) }

func testShutdownAnswersWhatWasRead(t *testing.T, path IO) {
	srv := open(t, Options{IO: path, WALPolicy: wal.OS})
	addr := listen(t, srv)
	c := dial(t, addr)
	c.want(ok, "SET", "k", "v")
	idle := dial(t, addr)
	idle.want("+PONG\r\n", "PING")
	// All of this arrives in one piece, so SHUTDOWN is read along with what is before it.
	in := resp.AppendCommand(nil, "SET", "k", "w")
	in = resp.AppendCommand(in, "GET", "k")
	in = resp.AppendCommand(in, "SHUTDOWN")
	if _, err := c.nc.Write(in); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{ok, "$1\r\nw\r\n"} {
		if got, err := c.read(); got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if _, err := c.read(); !errors.Is(err, io.EOF) {
		t.Errorf("after SHUTDOWN: %v, want EOF", err)
	}
	if _, err := idle.read(); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection: %v, want EOF", err)
	}
	shutdown(t, srv)
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("connections are still accepted")
	}
	c = nil
	again := open(t, Options{IO: path, FS: srv.opts.FS})
	speak(t, again).want("GET k", "$1\r\nw\r\n")
}

// A client that sends commands and takes no replies must not keep the server from ending.
func TestShutdownDoesNotWaitForAClientThatReadsNothing(t *testing.T) {
	onEachPath(t, testShutdownDoesNotWaitForAClientThatReadsNothing)
}

func testShutdownDoesNotWaitForAClientThatReadsNothing(t *testing.T, path IO) {
	srv := open(t, Options{IO: path})
	addr := listen(t, srv)
	c := dial(t, addr)
	c.want(ok, "SET", "k", strings.Repeat("v", 1<<20))
	in := resp.AppendCommand(nil, "GET", "k")
	for range 100 {
		if _, err := c.nc.Write(in); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.read(); err != nil { // it is in the middle of the replies
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := srv.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestStuckConnectionsAreClosed(t *testing.T) { onEachPath(t, testStuckConnectionsAreClosed) }

func testStuckConnectionsAreClosed(t *testing.T, path IO) {
	srv := open(t, Options{IO: path, IdleTimeout: tick, WriteTimeout: tick})
	addr := listen(t, srv)
	slow := dial(t, addr)
	slow.want(ok, "SET", "k", strings.Repeat("v", 1<<20))
	idle := dial(t, addr)
	idle.want("+PONG\r\n", "PING")
	in := resp.AppendCommand(nil, "GET", "k")
	for range 100 {
		if _, err := slow.nc.Write(in); err != nil {
			break // closed already
		}
	}
	if _, err := idle.read(); err == nil {
		t.Error("the idle connection got a reply to nothing")
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		srv.mu.Lock()
		n := len(srv.conns)
		srv.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are still there", n)
		}
	}
}

func TestKeysThatHaveEndedAreRemoved(t *testing.T) {
	fs := vfs.NewMem()
	srv := open(t, Options{FS: fs})
	c := speak(t, srv)
	for i := range 100 {
		c.want(fmt.Sprintf("SET short%d v PX 1", i), ok)
		c.want(fmt.Sprintf("SET long%d v EX 1000", i), ok)
	}
	for deadline := time.Now().Add(10 * time.Second); srv.db.store.Count() > 100; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d keys are left", srv.db.store.Count())
		}
	}
	c.want("GET long1", "$1\r\nv\r\n")
	if got := c.do("INFO keyspace"); !strings.Contains(got, "db0:keys=100,expires=100,") {
		t.Errorf("INFO says %q", got)
	}
	shutdown(t, srv)
	again := open(t, Options{FS: fs})
	c = speak(t, again)
	c.want("DBSIZE", ":100\r\n")
	if got := c.do("TTL long7"); got < ":900\r\n" && got != ":1000\r\n" {
		t.Errorf("TTL long7: %q", got)
	}
}

func TestGlob(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "abc", true},
		{"a*", "abc", true},
		{"*c", "abc", true},
		{"a*c", "abxc", true},
		{"a*c", "abxd", false},
		{"?", "a", true},
		{"?", "", false},
		{"a?c", "abc", true},
		{"[ab]", "b", true},
		{"[ab]", "c", false},
		{"[^ab]", "c", true},
		{"[a-c]x", "bx", true},
		{"[c-a]", "b", true},
		{"[a-", "a", true},
		{"\\*", "*", true},
		{"\\*", "a", false},
		{"\\", "\\", true},
		{"[\\]]", "]", true},
		{"ab", "AB", true},
		{"[a-c]", "B", true},
		{"**a**", "xax", true},
		{"[", "a", false},
		{strings.Repeat("*a", 30) + "b", strings.Repeat("a", 200), false},
	} {
		if got := glob([]byte(tc.pattern), []byte(tc.s), true); got != tc.want {
			t.Errorf("glob(%q, %q) = %v", tc.pattern, tc.s, got)
		}
	}
	if glob([]byte("ab"), []byte("AB"), false) {
		t.Error("case counts without fold")
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("a*[b-d]?\\x", "abcd")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		glob([]byte(pattern), []byte(s), true)
		if !glob([]byte("*"+s[:0]), []byte(s), false) {
			t.Fatalf("* does not match %q", s)
		}
	})
}

// FuzzSession sends any bytes, whole and in pieces: the replies must be well-formed and the same.
func FuzzSession(f *testing.F) {
	f.Add(script(), uint16(7))
	f.Add([]byte("HELLO 3\r\nGET x\r\nINFO\r\nCLIENT LIST\r\nCOMMAND DOCS\r\n"), uint16(3))
	f.Add([]byte("SET k v EX 10 GET\r\nMGET k k\r\n*3\r\n$3\r\nDEL\r\n$1\r\nk\r\n$1\r\nk\r\n"), uint16(1))
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		srv := open(t, Options{MaxValue: 1 << 12, MaxKey: 1 << 8, MaxArgs: 64})
		c := speak(t, srv)
		at := int(cut) % (len(in) + 1)
		out := append(c.send(in[:at]), c.send(in[at:])...)
		var p resp.ReplyParser
		for len(out) > 0 {
			_, n, err := p.Next(out)
			if err != nil || n == 0 {
				t.Fatalf("the replies end with %.100q: %v", out, err)
			}
			out = out[n:]
		}
		if err := srv.db.failed.Load(); err != nil {
			t.Fatal(err.err)
		}
	})
}
