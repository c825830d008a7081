package kvserver

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/kvserver/resp"
	"kvmark/storage"
	"kvmark/storage/nowait"
)

// coldFS is a file system with values that are never in memory, on a device that answers when the test lets it.
type coldFS struct {
	vfs.FS
	device *device
}

type device struct {
	asked chan struct{}                 // one for each read that waits
	gate  atomic.Pointer[chan struct{}] // reads wait until it is closed; nil: they do not
}

type coldFile struct {
	vfs.File
	device *device
}

func (fs coldFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".val") && !strings.HasSuffix(name, ".sst") {
		return f, err
	}
	return coldFile{f, fs.device}, nil
}

func (f coldFile) ReadAtNoWait([]byte, int64) (int, error) { return 0, nowait.ErrWouldWait }

func (f coldFile) ReadAt(p []byte, off int64) (int, error) {
	if gate := f.device.gate.Load(); gate != nil {
		f.device.asked <- struct{}{}
		<-*gate
	}
	return f.File.ReadAt(p, off)
}

// cold opens a server with n values of 4 KiB that are on the device.
func cold(t *testing.T, path IO, n int) (*Server, *device) {
	d := &device{asked: make(chan struct{}, 1000)}
	srv := open(t, Options{IO: path, Loops: 1, Mode: storage.File, FS: coldFS{vfs.NewMem(), d}, CheckpointBytes: -1})
	c := speak(t, srv)
	for i := range n {
		c.send(resp.AppendCommand(nil, "SET", fmt.Sprint("k", i), strings.Repeat(fmt.Sprint(i%10), 4096)))
	}
	for i := 0; i < 300; i++ { // what pushes them out of the write buffers
		c.send(resp.AppendCommand(nil, "SET", "filler", strings.Repeat("f", 8<<10)))
	}
	return srv, d
}

func coldValue(i int) string { return "$4096\r\n" + strings.Repeat(fmt.Sprint(i%10), 4096) + "\r\n" }

// Reads of the device are under way for many connections at once, and all others are served meanwhile.
func TestReadsOfTheDeviceHoldNobodyUp(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		const n = 20
		srv, d := cold(t, path, n)
		addr := listen(t, srv)
		other := dial(t, addr)
		other.want(coldValue(3), "GET", "k3") // the file is open from here on
		gate := make(chan struct{})
		d.gate.Store(&gate)
		clients := make([]*client, n)
		for i := range clients {
			clients[i] = dial(t, addr)
			in := resp.AppendCommand(nil, "PING")
			in = resp.AppendCommand(in, "GET", fmt.Sprint("k", i))
			in = resp.AppendCommand(in, "ECHO", fmt.Sprint(i))
			in = resp.AppendCommand(in, "GET", fmt.Sprint("k", i+1))
			if _, err := clients[i].nc.Write(in); err != nil {
				t.Fatal(err)
			}
		}
		for range n {
			<-d.asked
			other.want("+PONG\r\n", "PING")
			other.want(ok, "SET", "new", "v")
			other.want("$1\r\nv\r\n", "GET", "new")
		}
		close(gate)
		for i, c := range clients {
			last := coldValue(i + 1)
			if i == n-1 {
				last = null
			}
			for _, want := range []string{"+PONG\r\n", coldValue(i), fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i), last} {
				if got, err := c.read(); err != nil || got != want {
					t.Fatalf("client %d: got %.20q, %v; want %.20q", i, got, err, want)
				}
			}
		}
		if info, _ := other.do("INFO", "commandstats"); !strings.Contains(info, fmt.Sprintf("cmdstat_get:calls=%d,", 2*n+1+n)) {
			t.Errorf("each Get counts once, however often it was tried: %s", info)
		}
	})
}

// The same of lsm, whose reads of the device begin inside of Pebble.
func TestReadsOfTheDeviceByLSMHoldNobodyUp(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		d := &device{asked: make(chan struct{}, 1000)}
		srv := open(t, Options{IO: path, Loops: 1, Mode: storage.LSM, FS: coldFS{vfs.NewMem(), d}, CheckpointBytes: -1})
		addr := listen(t, srv)
		other := dial(t, addr)
		other.want(ok, "SET", "k", "v")
		if _, err := srv.db.store.Checkpoint(func([]byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		d.gate.Store(&gate)
		c := dial(t, addr)
		if _, err := c.nc.Write([]byte("GET k\r\n")); err != nil {
			t.Fatal(err)
		}
		<-d.asked
		for range 10 {
			other.want("+PONG\r\n", "PING")
		}
		close(gate)
		if got, err := c.read(); err != nil || got != "$1\r\nv\r\n" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// Every command that reads a value does without holding up others, also those that wait for its locks.
func TestCommandsThatReadTheDeviceUnderLocksHoldUpOnlyTheirKeys(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		for _, tc := range []struct{ in, want string }{
			{"GET k1", coldValue(1)},
			{"MGET k1 none", "*2\r\n" + coldValue(1) + null},
			{"GETDEL k1", coldValue(1)},
			{"APPEND k1 x", ":4097\r\n"},
			{"INCR k1", "-" + errInteger + "\r\n"},
			{"SET k1 v GET", coldValue(1)},
		} {
			t.Run(tc.in, func(t *testing.T) {
				srv, d := cold(t, path, 2)
				addr := listen(t, srv)
				reader, writer, other := dial(t, addr), dial(t, addr), dial(t, addr)
				other.want(coldValue(0), "GET", "k0")
				gate := make(chan struct{})
				d.gate.Store(&gate)
				if _, err := reader.nc.Write([]byte(tc.in + "\r\n")); err != nil {
					t.Fatal(err)
				}
				<-d.asked
				if _, err := writer.nc.Write([]byte("SET k1 new\r\n")); err != nil {
					t.Fatal(err)
				}
				for range 20 {
					other.want("+PONG\r\n", "PING")
				}
				close(gate)
				if got, err := reader.read(); err != nil || got != tc.want {
					t.Errorf("got %.30q, %v", got, err)
				}
				if got, err := writer.read(); err != nil || got != ok {
					t.Errorf("the writer got %q, %v", got, err)
				}
			})
		}
	})
}

// A damaged value, or one whose read fails, is an error to the one who asks for it.
func TestAFailedReadOfTheDeviceIsAnError(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv, _ := cold(t, path, 1)
		c := dial(t, listen(t, srv))
		c.want(coldValue(0), "GET", "k0")
		fs := srv.opts.FS
		names, err := fs.List("/data/values")
		if err != nil {
			t.Fatal(err)
		}
		f, err := fs.OpenReadWrite("/data/values/"+names[0], vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("zzz"), 100); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if got, err := c.do("GET", "k0"); err != nil || !strings.HasPrefix(got, "-IOERR ") {
			t.Errorf("got %.50q, %v", got, err)
		}
		c.want("+PONG\r\n", "PING")
	})
}

// holdUp is a server that can be made to hold up commands at some point of theirs.
type holdUp struct {
	*Server
	clock atomic.Pointer[chan struct{}] // who looks at the clock waits until it is closed
}

func (h *holdUp) byClock() (release func()) {
	gate := make(chan struct{})
	h.clock.Store(&gate)
	return func() { h.clock.Store(nil); close(gate) }
}

func (h *holdUp) byStripe() (release func()) {
	mu := &h.db.stripe([]byte("timed")).mu
	mu.Lock()
	return mu.Unlock
}

func (h *holdUp) byServer() (release func()) {
	h.mu.Lock()
	return h.mu.Unlock
}

func (h *holdUp) byAudience() (release func()) {
	h.pubsub.mu.RLock()
	mu := &h.pubsub.channels["c"].mu
	h.pubsub.mu.RUnlock()
	mu.Lock()
	return mu.Unlock
}

// While a command takes its time, wherever it spends it, others are served.
func TestLongCommandsLeaveRoomForOthers(t *testing.T) {
	many := func(command string) string { return command + strings.Repeat(" timed", 100) }
	for _, tc := range []struct {
		name, in string
		hold     func(*holdUp) (release func())
	}{
		{"KEYS", "KEYS *", (*holdUp).byClock},
		{"SCAN", "SCAN 0 COUNT 1000000", (*holdUp).byClock},
		{"MGET", many("MGET"), (*holdUp).byClock},
		{"MGET of a big value", "MGET k1 big", (*holdUp).byClock},
		{"GET of a big value", "GET big", (*holdUp).byClock},
		{"GETRANGE of a big value", "GETRANGE big 0 1", (*holdUp).byClock},
		{"EXISTS", many("EXISTS"), (*holdUp).byClock},
		{"DEL", many("DEL"), (*holdUp).byClock},
		{"UNLINK", many("UNLINK"), (*holdUp).byClock},
		{"a key that is locked", "DEL timed", (*holdUp).byStripe},
		{"FLUSHALL", "FLUSHALL", (*holdUp).byStripe},
		{"MSET", "MSET" + strings.Repeat(" timed v", 50), (*holdUp).byStripe},
		{"INFO", "INFO", (*holdUp).byServer},
		{"CLIENT LIST", "CLIENT LIST", (*holdUp).byServer},
		{"CLIENT KILL", "CLIENT KILL ID 12345", (*holdUp).byServer},
		{"PUBLISH", "PUBLISH c " + strings.Repeat("m", 20<<10), (*holdUp).byAudience},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onEachPath(t, func(t *testing.T, path IO) {
				h := new(holdUp)
				h.Server = open(t, Options{IO: path, Loops: 1, now: func() int64 {
					if gate := h.clock.Load(); gate != nil {
						<-*gate
					}
					return time.Now().UnixMilli()
				}})
				addr := listen(t, h.Server)
				long, other := dial(t, addr), dial(t, addr)
				for i := range 2 * longEntries {
					other.want(ok, "SET", fmt.Sprint("k", i), "v")
				}
				for range longClients {
					dial(t, addr).want("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
				}
				other.want(ok, "SET", "timed", "v", "EX", "1000")
				other.want(ok, "SET", "big", strings.Repeat("v", longBytes+1), "EX", "1000")
				release := tc.hold(h)
				if _, err := long.nc.Write([]byte(tc.in + "\r\n")); err != nil {
					t.Fatal(err)
				}
				for range 50 {
					other.want("+PONG\r\n", "PING")
				}
				release()
				if got, err := long.read(); err != nil || got == "" {
					t.Errorf("got %.50q, %v", got, err)
				}
				other.want("+PONG\r\n", "PING")
			})
		})
	}
}

// A reply that would be too long is refused before the values are read, by the sum of their lengths.
func TestAnMGETThatIsTooLongIsRefusedBeforeItIsBuilt(t *testing.T) {
	const n, size, limit = 2000, 100_000, 16 << 20
	for _, mode := range []storage.Mode{storage.Memory, storage.File} {
		c := speak(t, open(t, Options{Mode: mode, MaxReply: limit}))
		c.send(resp.AppendCommand(nil, "SET", "k", strings.Repeat("v", size)))
		args := []string{"MGET"}
		for range n {
			args = append(args, "k")
		}
		in := resp.AppendCommand(nil, args...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := string(c.send(in))
		runtime.ReadMemStats(&after)
		if !strings.HasPrefix(got, "-ERR reply of 200") || !strings.Contains(got, "(--max-reply)") {
			t.Errorf("%s: got %.100q", mode, got)
		}
		if built := after.TotalAlloc - before.TotalAlloc; built > limit/4 {
			t.Errorf("%s: %d bytes were allocated to refuse a reply", mode, built)
		}
	}
}

// A message that no subscriber can get is refused to the one who publishes it.
func TestAMessageThatIsTooBigForEverySubscriberIsRefused(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path, MaxMailbox: 100 << 10}))
		listener, patterns, publisher := dial(t, addr), dial(t, addr), dial(t, addr)
		big := strings.Repeat("m", 200<<10)
		publisher.want(":0\r\n", "PUBLISH", "c", big)
		listener.want("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
		patterns.want("*3\r\n$10\r\npsubscribe\r\n$1\r\np\r\n:1\r\n", "PSUBSCRIBE", "p")
		for _, channel := range []string{"c", "p"} {
			got, err := publisher.do("PUBLISH", channel, big)
			if want := "-ERR message of 204835 bytes; at most 102400 may wait for a subscriber (--max-mailbox)\r\n"; got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		}
		publisher.want(":1\r\n", "PUBLISH", "c", "small")
		if got, err := listener.read(); err != nil || got != "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nsmall\r\n" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// Many connections whose commands leave the loop, and those whose do not, get what they asked for.
func TestLeavingTheLoopUnderLoad(t *testing.T) {
	srv, _ := cold(t, DefaultIO, 50)
	addr := listen(t, srv)
	var running sync.WaitGroup
	for w := range 16 {
		c := dial(t, addr)
		running.Go(func() {
			for i := range 100 {
				var in []byte
				k := (w*7 + i) % 50
				in = resp.AppendCommand(in, "GET", fmt.Sprint("k", k))
				in = resp.AppendCommand(in, "SET", fmt.Sprint("w", w), fmt.Sprint(i))
				in = resp.AppendCommand(in, "MGET", fmt.Sprint("k", k), fmt.Sprint("w", w))
				if _, err := c.nc.Write(in); err != nil {
					t.Error(err)
					return
				}
				number := fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i)
				for _, want := range []string{coldValue(k), ok, "*2\r\n" + coldValue(k) + number} {
					if got, err := c.read(); err != nil || got != want {
						t.Errorf("got %.40q, %v; want %.40q", got, err, want)
						return
					}
				}
				if i%10 == 9 { // one that goes while its command is away
					gone := dial(t, addr)
					_, _ = gone.nc.Write(resp.AppendCommand(nil, "MGET", "k1", "k2"))
					_ = gone.nc.Close()
				}
			}
		})
	}
	running.Wait()
}
