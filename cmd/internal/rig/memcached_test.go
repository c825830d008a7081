package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kvmark/client"
	"kvmark/client/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemcachedRepliesAreTold(t *testing.T) {
	long := strings.Repeat("x", maxMemcachedLine)
	tests := []struct {
		name  string
		in    string
		line  string
		value string // "-": none
		n     int    // 0: not all there
		err   string
	}{
		{"a line", "STORED\r\n", "STORED", "-", 8, ""},
		{"a line and the next", "EN\r\nEN\r\n", "EN", "-", 4, ""},
		{"an empty line", "\r\n", "", "-", 2, ""},
		{"a value", "VA 5\r\nhello\r\n", "VA 5", "hello", 13, ""},
		{"an empty value", "VA 0\r\n\r\n", "VA 0", "", 8, ""},
		{"a value that holds line ends", "VA 6\r\n\r\nEN\r\n\r\nEN\r\n", "VA 6", "\r\nEN\r\n", 14, ""},
		{"nothing yet", "", "", "-", 0, ""},
		{"a line without its end", "STORED\r", "", "-", 0, ""},
		{"a value without its end", "VA 5\r\nhello\r", "", "-", 0, ""},
		{"a large value of which little is there", "VA 1073741824\r\nhello", "", "-", 0, ""},
		{"a line that ends in half", "STORED\n", "", "-", 0, `not a reply: "STORED`},
		{"half an end alone", "\n", "", "-", 0, "not a reply"},
		{"a line that does not end", long, "", "-", 0, "not a reply"},
		{"a line that ends too late", long + "\r\n", "", "-", 0, "not a reply"},
		{"a value longer than its size", "VA 4\r\nhello\r\n", "", "-", 0, "does not end where its size says"},
		{"a value of no size", "VA \r\n", "", "-", 0, "not the size of a value"},
		{"a size with a sign", "VA +5\r\nhello\r\n", "", "-", 0, "not the size of a value"},
		{"a negative size", "VA -1\r\n\r\n", "", "-", 0, "not the size of a value"},
		{"a size and flags that were not asked for", "VA 5 t0\r\nhello\r\n", "", "-", 0, "not the size of a value"},
		{"a size above memcached's own limit", "VA 1073741825\r\n", "", "-", 0, "not the size of a value"},
		{"a size beyond all numbers", "VA 99999999999999999999\r\n", "", "-", 0, "not the size of a value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, n, err := parseMemcached([]byte(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || n != 0 {
					t.Fatalf("%d bytes, error %v; want one with %q", n, err, tt.err)
				}
				return
			}
			value := "-"
			if r.value != nil {
				value = string(r.value)
			}
			if err != nil || n != tt.n || string(r.line) != tt.line || value != tt.value {
				t.Errorf("line %q, value %q, %d bytes, %v; want %q, %q, %d", r.line, value, n, err, tt.line, tt.value, tt.n)
			}
		})
	}
}

// What is a reply is its own text again, and is told only once it is all there, whatever comes behind it.
func FuzzParseMemcached(f *testing.F) {
	for _, seed := range []string{"STORED\r\n", "VA 5\r\nhello\r\nEN\r\n", "VA 0\r\n\r\n", "VA 5 t0\r\n", "\n", "VA 1073741825\r\n", "VA 05\r\nhello\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, n, err := parseMemcached(in)
		if err != nil {
			if n != 0 {
				t.Fatalf("%d bytes beside the error %v", n, err)
			}
			return
		}
		if n == 0 {
			return
		}
		text := string(r.line) + "\r\n"
		if r.value != nil {
			text += string(r.value) + "\r\n"
		}
		if n > len(in) || text != string(in[:n]) {
			t.Fatalf("%q is told as %q, %d bytes", in, text, n)
		}
		again, m, err := parseMemcached(in[:n:n])
		if err != nil || m != n || !bytes.Equal(again.value, r.value) {
			t.Fatalf("alone it is %d bytes, %v", m, err)
		}
		for cut := range min(n, 5000) {
			if _, m, err := parseMemcached(in[:cut]); m != 0 || err != nil {
				t.Fatalf("%d of its %d bytes are told as %d, %v", cut, n, m, err)
			}
		}
	})
}

// answering returns a connection to what answers every batch with reply, in pieces that end at the cuts.
func answering(t *testing.T, reply string, cuts ...int) *memcachedConn {
	t.Helper()
	var pieces [][]byte
	from := 0
	for _, to := range append(cuts, len(reply)) {
		pieces = append(pieces, []byte(reply[from:to]))
		from = to
	}
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		in := make([]byte, 4096)
		for {
			if _, err := theirs.Read(in); err != nil {
				return
			}
			for _, piece := range pieces {
				if _, err := theirs.Write(piece); err != nil {
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		ours.Close()
		<-done
	})
	return &memcachedConn{client.NewWire(ours, "memcached.test:11211")}
}

func TestMemcachedRepliesMayBeSplitAnywhere(t *testing.T) {
	const reply = "VERSION 1.6.18\r\nSTORED\r\nVA 7\r\nva\r\nlue\r\nEN\r\nVA 0\r\n\r\n"
	key, value := []byte("key"), []byte("value")
	for first := 1; first < len(reply)-1; first++ {
		for _, second := range []int{first + 1, (first + len(reply)) / 2} {
			c := answering(t, reply, first, second)
			c.QueuePing()
			c.QueueSet(key, value)
			c.QueueGet(key)
			c.QueueGet(key)
			c.QueueGet(key)
			err := errors.Join(c.Ask(), c.ReceivePing(), c.ReceiveSet())
			if err != nil {
				t.Fatalf("cut at %d and %d: %v", first, second, err)
			}
			for _, want := range []string{"va\r\nlue true", " false", " true"} {
				v, found, err := c.ReceiveGet()
				if got := fmt.Sprintf("%s %v", v, found); err != nil || got != want {
					t.Fatalf("cut at %d and %d: %q, %v; want %q", first, second, got, err, want)
				}
			}
		}
	}
}

func TestMemcachedRepliesThatAreNotDueAreErrors(t *testing.T) {
	ping := func(c *memcachedConn) error {
		c.QueuePing()
		return errors.Join(c.Ask(), c.ReceivePing())
	}
	set := func(c *memcachedConn) error {
		c.QueueSet([]byte("k"), []byte("v"))
		return errors.Join(c.Ask(), c.ReceiveSet())
	}
	get := func(c *memcachedConn) error {
		c.QueueGet([]byte("k"))
		if err := c.Ask(); err != nil {
			return err
		}
		_, found, err := c.ReceiveGet()
		if found {
			t.Error("a value was found beside an error")
		}
		return err
	}
	stats := func(c *memcachedConn) error {
		_, err := c.CPU()
		return err
	}
	tests := []struct {
		name  string
		call  func(*memcachedConn) error
		reply string
		err   string
		kind  any
	}{
		{"no memory for a Set", set, "SERVER_ERROR out of memory storing object\r\n", `answers "SERVER_ERROR out of memory storing object"`, new(*client.ServerError)},
		{"a key that is too long", get, "CLIENT_ERROR bad command line format\r\n", "bad command line format", new(*client.ServerError)},
		{"an unknown command", get, "ERROR\r\n", `answers "ERROR"`, new(*client.ServerError)},
		{"a Set that was not done", set, "NOT_STORED\r\n", `"NOT_STORED" where STORED is due`, new(*client.ReplyError)},
		{"a Set's reply to a Get", get, "STORED\r\n", `"STORED" where VA or EN is due`, new(*client.ReplyError)},
		{"a value to a ping", ping, "VA 1\r\nx\r\n", `"VA 1" where VERSION is due`, new(*client.ReplyError)},
		{"a pong to a ping", ping, "+PONG\r\n", "where VERSION is due", new(*client.ReplyError)},
		{"another's reply to stats", stats, "STAT pid 1\r\nSTORED\r\n", "where STAT or END is due", new(*client.ReplyError)},
		{"no protocol", get, "\n", "memcached at memcached.test:11211: not a reply", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.call(answering(t, tt.reply))
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want one with %q", err, tt.err)
			}
			if tt.kind != nil && !errors.As(err, tt.kind) {
				t.Errorf("error %T, want %T", err, tt.kind)
			}
		})
	}
}

func TestMemcachedRequestsAndRepliesAllocateNothing(t *testing.T) {
	const depth = 4
	c := answering(t, strings.Repeat("STORED\r\nVA 5\r\nhello\r\nVERSION 1.6.18\r\n", depth))
	key, value := []byte("key"), []byte("hello")
	allocs := testing.AllocsPerRun(200, func() {
		for range depth {
			c.QueueSet(key, value)
			c.QueueGet(key)
			c.QueuePing()
		}
		if err := c.Ask(); err != nil {
			t.Fatal(err)
		}
		for range depth {
			if err := c.ReceiveSet(); err != nil {
				t.Fatal(err)
			}
			if v, found, err := c.ReceiveGet(); err != nil || !found || !bytes.Equal(v, value) {
				t.Fatalf("%q, %v, %v", v, found, err)
			}
			if err := c.ReceivePing(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

// start starts a server of those that may be missing.
func start(t *testing.T, name string) *Server {
	t.Helper()
	spec := Spec{Name: name, Sync: "interval"}
	program, _ := spec.split()
	if program != "memcached" {
		program += "-server"
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("no %s here", program)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	s, err := Start(ctx, spec)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestOtherServersAreDrivenAndTellOfThemselves(t *testing.T) {
	for _, name := range []string{"memcached", "memcached:threads=3:disable-cas", "redis", "redis:io-threads=2", "valkey"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, name)
			work := workload.Config{Seed: 1, Workers: 3, Keys: 100, ValueSize: workload.Size{Min: 1, Max: 3000}}
			if err := s.Connect(t.Context(), work, 2); err != nil {
				t.Fatal(err)
			}
			if err := s.Fill(work.Keys); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Keys(); err != nil || n != 300 {
				t.Errorf("%d keys, %v; want 300", n, err)
			}
			before, err := s.CPU()
			if err != nil || before <= 0 {
				t.Errorf("%v s of CPU time, %v", before, err)
			}
			for _, op := range []string{"ping", "set", "get"} {
				for _, depth := range []int{1, 64} {
					if ops, seconds, err := s.Drive(op, depth, 20*time.Millisecond); err != nil || ops == 0 || seconds <= 0 {
						t.Errorf("%s, %d in flight: %d in %v s, %v", op, depth, ops, seconds, err)
					}
				}
			}
			if after, err := s.CPU(); err != nil || after <= before {
				t.Errorf("%v s of CPU time before, %v after, %v", before, after, err)
			}
			if n, err := s.Keys(); err != nil || n != 300 {
				t.Errorf("%d keys, %v; want 300", n, err)
			}
			threads := map[string]float64{"memcached": 1, "memcached:threads=3:disable-cas": 3}[name]
			if info, err := s.Info(); err != nil || info["threads"] != threads {
				t.Errorf("%v threads, %v; want %v", info["threads"], err, threads)
			}
		})
	}
}

func TestMemcachedWithoutRoomRefusesASetAndDrivesNothingOut(t *testing.T) {
	s := start(t, "memcached:memory-limit=2")
	work := workload.Config{Seed: 1, Workers: 1, Keys: 1000, ValueSize: workload.Size{Min: 20_000, Max: 20_000}}
	if err := s.Connect(t.Context(), work, 0); err != nil {
		t.Fatal(err)
	}
	var refused *client.ServerError
	if err := s.Fill(work.Keys); !errors.As(err, &refused) || !strings.Contains(refused.Text, "out of memory") {
		t.Errorf("error %v, want the server's that it is out of memory", err)
	}
	if info, err := s.Info(); err != nil || info["evictions"] != 0 || info["curr_items"] == 0 {
		t.Errorf("%v keys were driven out of %v, %v; want none", info["evictions"], info["curr_items"], err)
	}
}

func TestAServerThatIsNotInstalledIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for name, program := range map[string]string{"memcached": `"memcached"`, "redis": `"redis-server"`, "valkey": `"valkey-server"`} {
		_, err := Start(t.Context(), Spec{Name: name, Sync: "interval"})
		if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: error %v, want that %s is not found", name, err, program)
		}
	}
}

func TestOnlyMemcachedHasNoLog(t *testing.T) {
	for name, want := range map[string]bool{"memory": true, "lsm:io=loop": true, "redis": true, "valkey": true, "memcached": false, "memcached:threads=4": false} {
		if got := (Spec{Name: name}).HasLog(); got != want {
			t.Errorf("%s: a log %v, want %v", name, got, want)
		}
	}
}
