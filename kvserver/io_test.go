package kvserver

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/kvserver/resp"
	"kvmark/storage"
	"kvmark/wal"
)

func TestUnknownIOIsRefused(t *testing.T) {
	if _, err := ParseIO("threads"); err == nil || !strings.Contains(err.Error(), "goroutine or loop") {
		t.Errorf("got %v, want the names that exist", err)
	}
	for _, path := range paths() {
		if got, err := ParseIO(string(path)); got != path || err != nil {
			t.Errorf("ParseIO(%s) = %q, %v", path, got, err)
		}
	}
}

func TestInfoNamesTheIO(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		c := dial(t, listen(t, open(t, Options{IO: path})))
		if info, err := c.do("INFO", "server"); !strings.Contains(info, "\r\nio:"+string(path)+"\r\n") {
			t.Errorf("got %q, %v", info, err)
		}
	})
}

// However the bytes of commands arrive, the replies are the same.
func TestCommandsMayArriveInPieces(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path, WALPolicy: wal.OS}))
		in := resp.AppendCommand(nil, "SET", "k", strings.Repeat("v", 200))
		in = append(in, "GET k\r\nECHO 'a b'\r\n"...)
		in = resp.AppendCommand(in, "STRLEN", "k")
		want := ok + "$200\r\n" + strings.Repeat("v", 200) + "\r\n$3\r\na b\r\n:200\r\n"
		for _, size := range []int{1, 2, 7, 100, len(in)} {
			c := dial(t, addr)
			if err := c.nc.(*net.TCPConn).SetNoDelay(true); err != nil {
				t.Fatal(err)
			}
			for rest := in; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err := c.nc.Write(rest[:min(size, len(rest))]); err != nil {
					t.Fatal(err)
				}
			}
			var got bytes.Buffer
			for range 4 {
				reply, err := c.read()
				if err != nil {
					t.Fatalf("pieces of %d: %v after %q", size, err, got.String())
				}
				got.WriteString(reply)
			}
			if got.String() != want {
				t.Errorf("pieces of %d: got %q, want %q", size, got.String(), want)
			}
		}
	})
}

// The replies fill the socket long before the client reads the first. It gets all of them, in order, and others are served
// meanwhile.
func TestASlowReaderGetsEverythingAndHoldsUpNobody(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path, Loops: 1}))
		slow, other := dial(t, addr), dial(t, addr)
		value := strings.Repeat("v", 100_000)
		slow.want(ok, "SET", "k", value)
		const n = 300
		var in []byte
		for i := range n {
			in = resp.AppendCommand(in, "GET", "k")
			in = resp.AppendCommand(in, "ECHO", fmt.Sprint(i))
		}
		go func() { _, _ = slow.nc.Write(in) }() // ends with the connection
		first, err := slow.read()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			other.want(fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i), "ECHO", fmt.Sprint(i))
		}
		want := "$100000\r\n" + value + "\r\n"
		for i := range n {
			if i > 0 {
				if first, err = slow.read(); err != nil {
					t.Fatal(err)
				}
			}
			if first != want {
				t.Fatalf("reply %d is %d bytes, want %d", i, len(first), len(want))
			}
			if got, err := slow.read(); err != nil || got != fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i) {
				t.Fatalf("echo %d: %q, %v", i, got, err)
			}
		}
	})
}

// A client may end its side at once behind the last command.
func TestAHalfClosedConnectionIsAnswered(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path, WALPolicy: wal.OS}))
		for i := range 50 {
			c := dial(t, addr)
			in := bytes.Repeat(resp.AppendCommand(nil, "SET", "k", fmt.Sprint(i)), 1+i*10)
			if _, err := c.nc.Write(in); err != nil {
				t.Fatal(err)
			}
			if err := c.nc.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			for n := range 1 + i*10 {
				if got, err := c.read(); err != nil || got != ok {
					t.Fatalf("reply %d: %q, %v", n, got, err)
				}
			}
			if got, err := c.read(); err == nil {
				t.Fatalf("after the last reply: %q", got)
			}
		}
	})
}

// One connection that sends without end must not keep another from being served.
func TestADeepPipelineLeavesRoomForOthers(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path, Loops: 1}))
		deep, other := dial(t, addr), dial(t, addr)
		in := bytes.Repeat([]byte("PING\r\n"), 20_000)
		var running sync.WaitGroup
		stop := make(chan struct{})
		running.Go(func() {
			for {
				select {
				case <-stop:
					_ = deep.nc.Close()
					return
				default:
				}
				if _, err := deep.nc.Write(in); err != nil {
					return
				}
			}
		})
		running.Go(func() {
			buf := make([]byte, 1<<16)
			for {
				if _, err := deep.nc.Read(buf); err != nil {
					return
				}
			}
		})
		for range 200 {
			other.want("+PONG\r\n", "PING")
		}
		close(stop)
		running.Wait()
	})
}

// With many connections on one loop under the policy that makes them wait for the device, everyone sees its own writes, and
// a connection that goes away while it waits disturbs nobody.
func TestManyWriteAndLeaveWhileTheLogSyncs(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		for _, mode := range []storage.Mode{storage.Memory, storage.File} {
			srv := open(t, Options{IO: path, Mode: mode, WALPolicy: wal.Always})
			addr := listen(t, srv)
			var running sync.WaitGroup
			for w := range 16 {
				running.Go(func() {
					for i := range 30 {
						c := dial(t, addr)
						key := fmt.Sprintf("k%d", w)
						c.want(ok, "SET", key, fmt.Sprint(i))
						c.want(fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i), "GET", key)
						if _, err := c.nc.Write(resp.AppendCommand(nil, "SET", "gone", key)); err != nil {
							t.Error(err)
						}
						_ = c.nc.Close()
					}
				})
			}
			running.Wait()
			c := dial(t, addr)
			c.want(":1\r\n", "EXISTS", "k7")
			for deadline := time.Now().Add(10 * time.Second); ; { // until the others are forgotten
				srv.mu.Lock()
				n := len(srv.conns)
				srv.mu.Unlock()
				if n == 1 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d connections are left", n)
				}
			}
		}
	})
}

func TestMoreConnectionsThanATurnTakes(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path, Loops: 2, WALPolicy: wal.OS})
		addr := listen(t, srv)
		clients := make([]*client, 400)
		for i := range clients {
			clients[i] = dial(t, addr)
		}
		for round := range 3 {
			for i, c := range clients {
				if _, err := c.nc.Write(resp.AppendCommand(nil, "SET", fmt.Sprint(i), fmt.Sprint(round))); err != nil {
					t.Fatal(err)
				}
			}
			for i, c := range clients {
				if got, err := c.read(); got != ok {
					t.Fatalf("client %d: %q, %v", i, got, err)
				}
			}
		}
		clients[0].want(":400\r\n", "DBSIZE")
		if list, err := clients[1].do("CLIENT", "LIST"); strings.Count(list, "id=") != len(clients) {
			t.Errorf("CLIENT LIST has %d lines, %v; want %d", strings.Count(list, "id="), err, len(clients))
		}
	})
}

// gatedFS holds up the syncs of the log while there is a gate.
type gatedFS struct {
	vfs.FS
	gate *atomic.Pointer[chan struct{}]
}

type gatedFile struct {
	vfs.File
	gate *atomic.Pointer[chan struct{}]
}

func (fs gatedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, c, opts...)
	if err != nil || !strings.HasSuffix(name, ".wal") {
		return f, err
	}
	return gatedFile{f, fs.gate}, nil
}

func (f gatedFile) SyncData() error {
	if gate := f.gate.Load(); gate != nil {
		<-*gate
	}
	return f.File.SyncData()
}

// A device that does not answer holds up those who write, and nobody else. Whoever reads what they wrote waits with them.
func TestADeviceThatHangsHoldsUpOnlyWriters(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		gate := new(atomic.Pointer[chan struct{}])
		srv := open(t, Options{IO: path, Loops: 1, FS: gatedFS{vfs.NewMem(), gate}, WALPolicy: wal.Always})
		addr := listen(t, srv)
		key := "new" // of another stripe than the one that is read
		for srv.db.index([]byte(key)) == srv.db.index([]byte("old")) {
			key += "er"
		}
		writers := make([]*client, 4)
		for i := range writers {
			writers[i] = dial(t, addr)
			writers[i].want(ok, "SET", "old", "v")
		}
		reader := dial(t, addr)
		for round := range 3 {
			closed := make(chan struct{})
			gate.Store(&closed)
			for i, w := range writers {
				if _, err := w.nc.Write(resp.AppendCommand(nil, "SET", key, fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
				for range 10 {
					reader.want("+PONG\r\n", "PING")
					reader.want("$1\r\nv\r\n", "GET", "old")
				}
			}
			late := dial(t, addr) // new ones are taken on meanwhile
			late.want("+PONG\r\n", "PING")
			if _, err := late.nc.Write(resp.AppendCommand(nil, "EXISTS", key)); err != nil {
				t.Fatal(err)
			}
			reader.want("+PONG\r\n", "PING")
			gate.Store(nil)
			close(closed)
			for _, w := range writers {
				if got, err := w.read(); got != ok {
					t.Errorf("round %d: %q, %v", round, got, err)
				}
			}
			if got, err := late.read(); got != ":1\r\n" {
				t.Errorf("round %d: %q, %v", round, got, err)
			}
		}
	})
}
