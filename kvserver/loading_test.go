package kvserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"kvmark/kvserver/resp"
	"kvmark/storage"
)

const loadingReply = "-LOADING Redis is loading the dataset in memory\r\n"

// loader is a server whose Load waits in the middle of the log.
type loader struct {
	*Server
	t       testing.TB
	fs      vfs.FS // without the gate
	gate    chan struct{}
	opened  sync.Once
	loaded  chan struct{} // closed when Load has returned
	loadErr error
}

// loggedKeys is how many records the log has, in three segments or more.
const loggedKeys = 10_000

// loadUpTo serves a directory with a log, and returns when Load is about to open a segment of it.
func loadUpTo(t *testing.T, segment string, o Options) (l *loader, addr string) {
	t.Helper()
	mem := vfs.NewMem()
	o.Dir, o.FS, o.SegmentBytes, o.CheckpointBytes = "/data", mem, 100<<10, -1
	if o.Mode == "" {
		o.Mode = storage.Memory
	}
	password := o.Password
	o.Password = ""
	srv := open(t, o)
	o.Password = password
	var sets []byte
	for i := range loggedKeys {
		sets = resp.AppendCommand(sets, "SET", fmt.Sprint("key", i), fmt.Sprint("value", i))
	}
	speak(t, srv).send(sets)
	shutdown(t, srv)

	l = &loader{t: t, fs: mem, gate: make(chan struct{}), loaded: make(chan struct{})}
	waits := make(chan struct{})
	var reached sync.Once
	o.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpOpen && strings.HasSuffix(op.Path, segment) {
			reached.Do(func() { close(waits) })
			<-l.gate
		}
		return nil
	}))
	var err error
	if l.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	addr = listen(t, l.Server)
	go func() { // ends with the test, which shuts the server down
		defer close(l.loaded)
		l.loadErr = l.Load()
	}()
	t.Cleanup(l.goOn) // before the shutdown, which waits for Load
	select {
	case <-waits:
	case <-l.loaded:
		t.Fatalf("Load has returned %v, and has not read %s", l.loadErr, segment)
	}
	return l, addr
}

// goOn lets Load read on.
func (l *loader) goOn() { l.opened.Do(func() { close(l.gate) }) }

// end lets Load read on and returns what it returns.
func (l *loader) end() error {
	l.goOn()
	<-l.loaded
	return l.loadErr
}

func TestWhileTheDataAreLoadedClientsHearSo(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		for _, mode := range storage.Modes() {
			t.Run(string(mode), func(t *testing.T) {
				l, addr := loadUpTo(t, "2.wal", Options{IO: path, Mode: mode, MaxClients: 3})
				c := dial(t, addr)
				for range 2 {
					c.want(loadingReply, "PING")
					c.want(loadingReply, "GET", "key1")
				}
				// Several at once, as those who pipeline send them.
				second := dial(t, addr)
				for _, c := range []*client{c, second} {
					if _, err := c.nc.Write([]byte("GET key1\r\nMGET key1 key2\r\nECHO x\r\nSET key1 w\r\nDBSIZE\r\n")); err != nil {
						t.Fatal(err)
					}
				}
				for _, c := range []*client{c, second} {
					for _, want := range []string{loadingReply, loadingReply, "$1\r\nx\r\n", loadingReply, loadingReply} {
						if got, err := c.read(); err != nil || got != want {
							t.Errorf("a pipeline: got %q, %v, want %q", got, err, want)
						}
					}
				}
				c.want(ok, "WATCH", "key1")
				c.want(ok, "CONFIG", "SET", "maxclients", "2", "min-free", "1")
				third := dial(t, addr)
				if got, err := third.read(); err != nil || got != "-ERR max number of clients reached\r\n" {
					t.Errorf("a client too many: %q, %v", got, err)
				}
				info, err := c.do("INFO", "everything")
				if err != nil {
					t.Fatal(err)
				}
				for field, want := range map[string]string{
					"loading": "1", "async_loading": "0", "connected_clients": "2", "rejected_connections": "1", "keys": "0",
					"loading_start_time": `\d{10}`, "loading_total_bytes": `\d{6,7}`, "loading_loaded_bytes": `\d{5,6}`, "loading_loaded_perc": `\d\d?\.\d\d`, "loading_eta_seconds": `\d+`,
				} {
					if !regexp.MustCompile(`\r\n` + field + ":" + want + `\r\n`).MatchString(info) {
						t.Errorf("INFO has no %s:%s\n%s", field, want, info)
					}
				}
				if done, total := field(t, info, "loading_loaded_bytes"), field(t, info, "loading_total_bytes"); done >= total || done < 64<<10 {
					t.Errorf("%d of %d bytes are loaded, and one segment of several is", done, total)
				}

				if err := l.end(); err != nil {
					t.Fatal(err)
				}
				c.want("+PONG\r\n", "PING")
				c.want("$6\r\nvalue1\r\n", "GET", "key1")
				c.want(fmt.Sprintf(":%d\r\n", loggedKeys), "DBSIZE")
				second.want(ok, "SET", "key1", "w")
				c.want(ok, "MULTI")
				c.want("+QUEUED\r\n", "GET", "key1")
				c.want(nullArray, "EXEC") // what it has watched has been changed
				if info, err = c.do("INFO", "persistence"); err != nil || !strings.Contains(info, "\r\nloading:0\r\n") || strings.Contains(info, "loading_") {
					t.Errorf("when all is loaded: %v, %s", err, info)
				}
				if done, total := l.progress.done.Load(), l.progress.total.Load(); done != total {
					t.Errorf("%d bytes have been read of %d", done, total)
				}
			})
		}
	})
}

// field returns the number that a field of INFO has.
func field(t *testing.T, info, name string) int64 {
	t.Helper()
	_, rest, _ := strings.Cut(info, "\r\n"+name+":")
	text, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return n
}

func TestWhileTheDataAreLoadedThePasswordIsAskedFor(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		l, addr := loadUpTo(t, "2.wal", Options{IO: path, Password: "secret"})
		c := dial(t, addr)
		c.want("-NOAUTH Authentication required.\r\n", "PING")
		c.want("-NOAUTH Authentication required.\r\n", "INFO")
		c.want(ok, "AUTH", "secret")
		c.want(loadingReply, "PING")
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
		c.want("+PONG\r\n", "PING")
	})
}

// A server that is told to end while it loads does not read on, leaves every file as it was, and closes its connections.
func TestTheEndWhileTheDataAreLoaded(t *testing.T) {
	tell := map[string]func(l *loader, c *client){
		"a signal": func(l *loader, c *client) { l.stop() },
		"SHUTDOWN": func(l *loader, c *client) { _, _ = c.do("SHUTDOWN") },
	}
	onEachPath(t, func(t *testing.T, path IO) {
		for how, tell := range tell {
			t.Run(how, func(t *testing.T) {
				l, addr := loadUpTo(t, "1.wal", Options{IO: path})
				before := tree(t, l.fs, "/data")
				c := dial(t, addr)
				c.want(loadingReply, "PING")
				tell(l, c)
				if _, err := c.read(); err == nil {
					t.Error("the connection goes on")
				}
				if err := l.end(); !errors.Is(err, ErrServerClosed) {
					t.Errorf("Load returned %v", err)
				}
				if err := l.Shutdown(background()); err != nil {
					t.Errorf("Shutdown returned %v", err)
				}
				if done := l.progress.done.Load(); done > 100<<10 {
					t.Errorf("%d bytes more have been read", done)
				}
				if after := tree(t, l.fs, "/data"); !maps.Equal(after, before) {
					t.Errorf("there is\n%q\nand there was\n%q", after, before)
				}
				speak(t, open(t, Options{FS: l.fs})).want("DBSIZE", fmt.Sprintf(":%d\r\n", loggedKeys))
			})
		}
	})
}

// tree returns the files below a directory and their contents.
func tree(t *testing.T, fs vfs.FS, dir string) map[string]string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if info, err := fs.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			maps.Copy(all, tree(t, fs, path))
			continue
		}
		all[path] = string(readFile(t, fs, path))
	}
	return all
}

// A start that fails when clients are connected closes their connections, and its error is the one that it has without clients.
func TestAStartThatFailsWithClients(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		l, addr := loadUpTo(t, "1.wal", Options{IO: path})
		log := readFile(t, l.fs, "/data/wal/0000000002.wal")
		log[len(log)/2] ^= 1
		writeFile(t, l.fs, "/data/wal/0000000002.wal", log)
		c := dial(t, addr)
		c.want(loadingReply, "PING")
		if err := l.end(); !IsDamage(err) {
			t.Errorf("Load returned %v", err)
		}
		c.want(loadingReply, "PING")
		if err := l.Shutdown(background()); err != nil {
			t.Errorf("Shutdown returned %v", err)
		}
		if _, err := c.read(); err == nil {
			t.Error("the connection goes on")
		}
		if nc, err := net.Dial("tcp", addr); err == nil {
			nc.Close()
			t.Error("connections are accepted")
		}
	})
}

func TestAServerThatNeverLoadsIsShutDown(t *testing.T) {
	srv, err := New(Options{FS: vfs.NewMem(), Dir: "/data", Mode: storage.Memory})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := srv.Load(); !errors.Is(err, ErrServerClosed) {
		t.Errorf("Load after Shutdown returned %v", err)
	}
}

// What is sent to a redis-server and to ours while they load their data is answered by the same bytes.
func TestRepliesWhileLoadingAreThoseOfRedis(t *testing.T) {
	const many = 500_000
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "appendonly.aof"), []byte(strings.Repeat("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", many)), 0o600); err != nil {
		t.Fatal(err)
	}
	connect := startRedis(t, "--appendonly", "yes", "--dir", dir, "--key-load-delay", "10")
	_, addr := loadUpTo(t, "2.wal", Options{})
	theirs, ours := connect(), dial(t, addr)
	lines := strings.Split(strings.TrimSpace(`
PING
PING x y
GET k
GET
FOO
SET k v
ECHO x
SELECT 0
SELECT 1x
CLIENT GETNAME
CLIENT SETNAME me
CLIENT GETNAME
CLIENT BOGUS
CLIENT TRACKING ON
CLIENT TRACKING OFF
CLIENT REPLY SKIP
PING
CONFIG GET save
CONFIG GET
COMMAND INFO nothing
COMMAND LIST FILTERBY PATTERN multi
MULTI
GET k
EXEC
MULTI
ECHO a
EXEC
MULTI
PING
DISCARD
WATCH a
MULTI
ROLE
EXEC
WATCH a
UNWATCH
PUBLISH a b
PUBSUB NUMPAT
PUBSUB CHANNELS
SLOWLOG HELP
MEMORY USAGE k
OBJECT HELP
OBJECT ENCODING k
BGSAVE
DBSIZE
KEYS *
SCAN 0
RANDOMKEY
FLUSHALL
WAIT 0 0
RENAME a b
ROLE
LATENCY RESET
SHUTDOWN ABORT
SHUTDOWN NOSAVE SAVE
DEBUG
SUBSCRIBE a
PING
GET k
UNSUBSCRIBE a
RESET
AUTH x
HELLO 4
PING
QUIT`), "\n")
	sent := strings.ReplaceAll(strings.Join(lines, "\n")+"\n", "\n", "\r\n")
	for _, c := range []*client{theirs, ours} {
		if _, err := c.nc.Write([]byte(sent)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; ; i++ {
		want, rerr := theirs.read()
		got, err := ours.read()
		if rerr != nil && err != nil {
			break
		}
		if got != want || rerr != nil || err != nil {
			t.Fatalf("reply %d\n ours %q, %v\nredis %q, %v", i, got, err, want, rerr)
		}
	}
	still := connect()
	still.want(loadingReply, "PING")
}
