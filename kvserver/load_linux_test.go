package kvserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/kvserver/resp"
	"kvmark/storage"
	"kvmark/wal"
)

// TestManyConnections holds many connections, a tenth of them at work, while others come and go in a storm, vanish in the middle of
// a command, send a byte now and then, or never read what they asked for. All the others are served, and the server's memory stays
// bounded.
func TestManyConnections(t *testing.T) {
	held := times(t, "KVMARK_CONNECTIONS", 2000, 10_000)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// The server is a process of its own, so each side has one descriptor for each connection.
	if room := int(min(limit.Cur, 1<<20)) - 1200; room < held {
		if room < 500 {
			t.Skipf("SKIPPED: only %d file descriptors; raise the limit (ulimit -n) to %d", limit.Cur, held+1200)
		}
		t.Logf("ONLY %d CONNECTIONS: the limit is %d file descriptors (ulimit -n), %d are needed for %d", room, limit.Cur, held+1200, held)
		held = room
	}
	for _, path := range paths() {
		t.Run(string(path), func(t *testing.T) {
			cmd, addr := startToKill(t, t.TempDir(), storage.Memory, wal.OS, path)
			defer func() { _ = cmd.Wait() }()
			defer cmd.Process.Kill()
			watcher := dial(t, addr)
			if err := watcher.nc.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			watcher.want(ok, "CONFIG", "SET", "maxclients", strconv.Itoa(held+1000))
			before := infoNumber(t, watcher, "used_memory_rss")

			conns := make([]*client, held)
			var wg sync.WaitGroup
			for part := range 20 {
				wg.Go(func() {
					for i := part; i < held; i += 20 {
						nc, err := net.Dial("tcp", addr)
						if err != nil {
							t.Errorf("connection %d: %v", i, err)
							return
						}
						_ = nc.SetDeadline(time.Now().Add(3 * time.Minute))
						conns[i] = &client{t: t, nc: nc}
					}
				})
			}
			wg.Wait()
			defer func() {
				for _, c := range conns {
					if c != nil {
						c.nc.Close()
					}
				}
			}()
			if t.Failed() {
				return
			}
			stop := make(chan struct{})
			var bad sync.WaitGroup
			bad.Go(func() { // a storm
				for {
					select {
					case <-stop:
						return
					default:
					}
					if nc, err := net.Dial("tcp", addr); err == nil {
						nc.Close()
					}
				}
			})
			bad.Go(func() { // clients that vanish in the middle of a value
				for {
					select {
					case <-stop:
						return
					default:
					}
					if nc, err := net.Dial("tcp", addr); err == nil {
						_, _ = io.WriteString(nc, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50000000\r\n"+strings.Repeat("x", 100_000))
						_ = nc.(*net.TCPConn).SetLinger(0) // a reset
						nc.Close()
					}
				}
			})
			watcher.want(ok, "SET", "big", strings.Repeat("v", 1<<20))
			for range 4 { // clients that never read
				nc, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_ = nc.SetWriteDeadline(time.Now().Add(time.Minute))
				_, _ = nc.Write([]byte(strings.Repeat("GET big\r\n", 1000)))
			}
			for i := range 50 { // clients that send a byte now and then
				nc, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_, _ = io.WriteString(nc, "*3\r\n$3\r\nSET\r\n"[:1+i%13])
			}
			for part := range 10 { // those at work, a tenth of all
				wg.Go(func() {
					for round := range 5 {
						for i := part; i < held/10; i += 10 {
							key, value := fmt.Sprint("key", i), fmt.Sprint(round)
							conns[10*i].want(ok, "SET", key, value)
							conns[10*i].want(fmt.Sprintf("$%d\r\n%s\r\n", len(value), value), "GET", key)
						}
					}
				})
			}
			wg.Wait()
			rss := infoNumber(t, watcher, "used_memory_rss")
			close(stop)
			bad.Wait()
			if n := infoNumber(t, watcher, "connected_clients"); n < int64(held) {
				t.Errorf("%d clients are connected, want %d at least", n, held)
			}
			for i := 0; i < held; i += 97 { // the idle ones are still there
				conns[i].want("+PONG\r\n", "PING")
			}
			t.Logf("%d connections held, %d at work: resident memory %d MiB, %d MiB before; peak %d MiB",
				held, held/10, rss>>20, before>>20, infoNumber(t, watcher, "rss_peak_bytes")>>20)
			if most := int64(192<<20) + int64(held)*(40<<10); rss > most && !raceEnabled {
				t.Errorf("%d bytes are resident, want %d at most", rss, most)
			}
		})
	}
}

// infoNumber reads a field of INFO.
func infoNumber(t *testing.T, c *client, field string) int64 {
	t.Helper()
	text, err := c.do("INFO")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(text, "\r\n"+field+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseInt(value, 10, 64)
	if !found || err != nil {
		t.Fatalf("INFO has %s as %q", field, value)
	}
	return n
}

// TestAFullDisk fills a file system of a few MiB, with the log, with a checkpoint, and with value files. Nothing crashes, errors
// are clear, reads go on, and after some space is free and a restart everything acknowledged is there.
func TestAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can mount a small file system")
	}
	for _, mode := range storage.Modes() {
		for _, checkpoints := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/checkpoints=%v", mode, checkpoints), func(t *testing.T) {
				dir := t.TempDir()
				if err := syscall.Mount("kvmark", dir, "tmpfs", 0, "size=12m,mode=0700"); err != nil {
					t.Skipf("SKIPPED: mount a tmpfs: %v", err)
				}
				defer func() {
					if err := syscall.Unmount(dir, 0); err != nil {
						t.Errorf("unmount: %v", err)
					}
				}()
				ballast := dir + "/lost+found" // what a data directory may hold besides
				if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); err != nil {
					t.Fatal(err)
				}
				o := Options{FS: vfs.Default, Dir: dir, Mode: mode, WALPolicy: wal.OS, SegmentBytes: 1 << 20, CheckpointBytes: -1}
				srv, err := Open(o)
				if err != nil {
					t.Fatal(err)
				}
				s := newSession(srv, 1)
				do := func(args ...string) string {
					s.run(resp.AppendCommand(nil, args...))
					s.commit()
					out := string(s.out)
					s.sent()
					return out
				}
				value := func(i int) string { return strings.Repeat(fmt.Sprintf("%08d", i), 1000) }
				acked, refused := map[string]int{}, ""
				for i := 0; refused == "" && i < 4000; i++ {
					key := fmt.Sprint("k", i%400)
					got := do("SET", key, value(i))
					switch {
					case got == ok:
						acked[key] = i
					case strings.HasPrefix(got, "-IOERR ") && strings.Contains(got, "no space left on device"):
						refused = key
					default:
						t.Fatalf("SET: got %q", got)
					}
					if checkpoints && i%100 == 99 {
						if err := srv.Checkpoint(); err != nil && !errors.Is(err, syscall.ENOSPC) && srv.db.failed.Load() == nil {
							t.Fatalf("checkpoint: %v", err)
						}
					}
				}
				if refused == "" {
					// Checkpoints let the log go faster than it grows: fill the rest of the disk by other means.
					if !checkpoints {
						t.Fatal("the disk never became full")
					}
				}
				for key, i := range acked {
					want := fmt.Sprintf("$%d\r\n%s\r\n", len(value(i)), value(i))
					if got := do("GET", key); got != want && !(key == refused && strings.HasPrefix(got, "-IOERR ")) {
						t.Fatalf("on a full disk, GET %s: got %.60q", key, got)
					}
				}
				if refused != "" {
					if got := do("SET", "more", "v"); !strings.HasPrefix(got, "-IOERR ") {
						t.Errorf("a write after the error: %q", got)
					}
				}
				_ = srv.Shutdown(background()) // it cannot write the end of the log either
				if err := os.Remove(ballast); err != nil {
					t.Fatal(err)
				}
				if srv, err = Open(o); err != nil {
					t.Fatalf("no start after space was freed: %v", err)
				}
				defer srv.Shutdown(background())
				s = newSession(srv, 2)
				for key, i := range acked {
					want := fmt.Sprintf("$%d\r\n%s\r\n", len(value(i)), value(i))
					if got := do("GET", key); got != want && key != refused {
						t.Fatalf("after a restart, GET %s: got %.60q", key, got)
					}
				}
				if got := do("SET", "more", "v"); got != ok {
					t.Errorf("after a restart, SET: %q", got)
				}
				if err := srv.Checkpoint(); err != nil {
					t.Errorf("after a restart, a checkpoint: %v", err)
				}
			})
		}
	}
}
