package kvserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvmark/kvserver/resp"
	"kvmark/storage"
	"kvmark/wal"
)

// The environment of a test binary that is to be a server and nothing else.
const (
	crashDirEnv    = "KVSERVER_TEST_DIR"
	crashModeEnv   = "KVSERVER_TEST_MODE"
	crashPolicyEnv = "KVSERVER_TEST_POLICY"
	crashIOEnv     = "KVSERVER_TEST_IO"
)

// serveToBeKilled is the other process of the crash tests. It ends only by being killed.
func serveToBeKilled(dir string) {
	policy, err := wal.ParsePolicy(os.Getenv(crashPolicyEnv))
	if err != nil {
		panic(err)
	}
	// Small files and checkpoints at every opportunity, so that a kill may hit any of their steps.
	srv, err := Open(Options{Dir: dir, Mode: storage.Mode(os.Getenv(crashModeEnv)), IO: IO(os.Getenv(crashIOEnv)), WALPolicy: policy, SegmentBytes: 64 << 10, CheckpointBytes: 128 << 10})
	if err != nil {
		panic(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(ln.Addr().String())
	panic(srv.Serve(context.Background(), ln))
}

// startToKill starts a server process and returns it with its address.
func startToKill(t *testing.T, dir string, mode storage.Mode, policy wal.Policy, path IO) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), crashDirEnv+"="+dir, crashModeEnv+"="+string(mode), crashPolicyEnv+"="+policy.String(), crashIOEnv+"="+string(path))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var addr string
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&addr); err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	return cmd, addr
}

// Writers count upwards, each in keys of its own, readers look at them, and a client has one checkpoint made after the other,
// while the server is killed. After a restart every key must hold at least the value that was acknowledged last, or that a
// reader saw, and at most the one that was sent last. Buffered may lose the end of the history, never its middle: what is
// there must be a prefix of what each writer did, in the order in which it did it.
func TestKillingTheServerLosesNothingAcknowledged(t *testing.T) {
	rounds := times(t, "KVMARK_CRASH", 2, 13) // 13 * 16 = 208
	var killed, written, lost, checkpoints atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d kills, %d checkpoints begun; of %d acknowledged writes %d are lost", killed.Load(), checkpoints.Load(), written.Load(), lost.Load())
	})
	for _, mode := range storage.Modes() {
		for _, policy := range []wal.Policy{wal.Buffered, wal.OS, wal.Interval, wal.Always} {
			t.Run(fmt.Sprintf("%s/%s", mode, policy), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
				c := &crowd{t: t, policy: policy}
				dir := filepath.Join(t.TempDir(), "data")
				for round := range rounds {
					cmd, addr := startToKill(t, dir, mode, policy, paths()[round%len(paths())])
					killed.Add(1)
					checkpoints.Add(c.untilKilled(cmd, addr, 50+rng.IntN(300)))
					for w := range c.acked {
						written.Add(c.acked[w].Load() - c.from[w])
					}
					srv, err := Open(Options{Dir: dir, Mode: mode, WALPolicy: policy, CheckpointBytes: -1})
					if err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
					lost.Add(c.check(speak(t, srv)))
					shutdown(t, srv)
				}
			})
		}
	}
}

const crowdWriters, crowdReaders, crowdKeys = 8, 2, 16

// crowd is the clients of a server that is to be killed.
type crowd struct {
	t      *testing.T
	policy wal.Policy

	from              [crowdWriters]int64        // where each went on after the last kill
	sent, acked, seen [crowdWriters]atomic.Int64 // how many writes of each; seen: how many the newest one that was read makes
}

// untilKilled loads the server until every writer has had so many writes acknowledged, and kills it.
func (c *crowd) untilKilled(cmd *exec.Cmd, addr string, writes int) (checkpoints int64) {
	t := c.t
	var wg sync.WaitGroup
	enough := make(chan struct{}, crowdWriters)
	for w := range crowdWriters {
		conn := dial(t, addr)
		long(conn)
		c.from[w] = c.sent[w].Load()
		wg.Go(func() {
			for n := 0; ; n++ {
				i := c.sent[w].Add(1) - 1
				got, err := conn.do("SET", fmt.Sprintf("w%d-%d", w, i%crowdKeys), strconv.FormatInt(i, 10))
				if err != nil {
					if n <= writes {
						t.Errorf("writer %d: %v", w, err)
						enough <- struct{}{}
					}
					return // killed
				}
				if got != ok {
					t.Errorf("writer %d: %q", w, got)
				}
				c.acked[w].Store(i + 1)
				if n == writes {
					enough <- struct{}{}
				}
			}
		})
	}
	for r := range crowdReaders {
		conn := dial(t, addr)
		long(conn)
		wg.Go(func() {
			for n := r; ; n++ {
				w, k := n%crowdWriters, n/crowdWriters%crowdKeys
				before := c.acked[w].Load() // those must be visible
				got, err := conn.do("GET", fmt.Sprintf("w%d-%d", w, k))
				if err != nil {
					return // killed
				}
				v, there := number(got)
				i := int64(v)
				// The newest acknowledged write to this key.
				want := before - 1 - (before-1-int64(k)+crowdKeys)%crowdKeys
				if there && (i%crowdKeys != int64(k) || i < want || i >= c.sent[w].Load()) || !there && want >= 0 {
					t.Errorf("reader: key %d of writer %d is %q; %d writes were acknowledged", k, w, got, before)
				}
				if there {
					for old := c.seen[w].Load(); old < i+1 && !c.seen[w].CompareAndSwap(old, i+1); old = c.seen[w].Load() {
					}
				}
			}
		})
	}
	conn := dial(t, addr)
	long(conn)
	wg.Go(func() {
		for {
			got, err := conn.do("BGSAVE")
			if err != nil {
				return // killed
			}
			if strings.HasPrefix(got, "+") {
				checkpoints++
			}
		}
	})
	for range crowdWriters {
		<-enough
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	_ = cmd.Wait()
	return checkpoints
}

// check compares what is there after a restart, and returns how many acknowledged writes are not.
func (c *crowd) check(s *speaker) (lost int64) {
	for w := range crowdWriters {
		last := int64(-1) // the newest write of this writer that is there
		for k := range crowdKeys {
			if v, ok := number(s.do(fmt.Sprintf("GET w%d-%d", w, k))); ok {
				last = max(last, int64(v))
			}
		}
		sent, acked := c.sent[w].Load(), max(c.acked[w].Load(), c.seen[w].Load())
		if last >= sent {
			c.t.Errorf("writer %d: write %d is there, but only %d were sent", w, last, sent)
		}
		if c.policy != wal.Buffered && last < acked-1 {
			c.t.Errorf("writer %d: the newest write is %d; %d were acknowledged or read", w, last, acked)
			lost += acked - 1 - last
		}
		for i := max(0, last-crowdKeys+1); i <= last; i++ {
			if v, _ := number(s.do(fmt.Sprintf("GET w%d-%d", w, i%crowdKeys))); int64(v) != i {
				c.t.Errorf("writer %d: write %d is there, but key %d holds %d instead of %d", w, last, i%crowdKeys, v, i)
			}
		}
		for _, n := range []*atomic.Int64{&c.sent[w], &c.acked[w], &c.seen[w]} { // go on from what is there
			n.Store(last + 1)
		}
	}
	return lost
}

// number reads a bulk reply as a number.
func number(reply string) (int, bool) {
	lines := strings.Split(reply, "\r\n")
	if len(lines) < 2 {
		return -1, false
	}
	v, err := strconv.Atoi(lines[1])
	if err != nil {
		return -1, false
	}
	return v, true
}

// Clients change all keys of a group of their own in one transaction after the other, each by another way, while the server is
// killed. After a restart each group must be as one of its transactions left it: the last acknowledged one, or one that was under
// way; with Buffered an older one, too. Never between two.
func TestKillingTheServerSplitsNoTransaction(t *testing.T) {
	rounds := times(t, "KVMARK_CRASH", 1, 13)
	var killed, committed, split atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d kills; of %d acknowledged transactions %d are lost or split", killed.Load(), committed.Load(), split.Load())
	})
	for _, mode := range storage.Modes() {
		for _, policy := range []wal.Policy{wal.Buffered, wal.OS, wal.Interval, wal.Always} {
			t.Run(fmt.Sprintf("%s/%s", mode, policy), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "data")
				var sent, acked [crowdWriters]int64
				for round := range rounds {
					cmd, addr := startToKill(t, dir, mode, policy, paths()[round%len(paths())])
					transactionsUntilKilled(t, cmd, addr, 30+rand.IntN(100), &sent, &acked)
					killed.Add(1)
					srv, err := Open(Options{Dir: dir, Mode: mode, WALPolicy: policy, CheckpointBytes: -1})
					if err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
					s := speak(t, srv)
					for w := range crowdWriters {
						committed.Add(acked[w])
						found := groupOf(s, w)
						last := found[0]
						for _, v := range found {
							if v != last {
								t.Errorf("group %d is split: %v", w, found)
								split.Add(1)
								break
							}
						}
						if last > sent[w] || policy != wal.Buffered && last < acked[w] {
							t.Errorf("group %d is at %d; %d were sent, %d acknowledged", w, last, sent[w], acked[w])
							split.Add(1)
						}
						sent[w], acked[w] = last, last
					}
					shutdown(t, srv)
				}
			})
		}
	}
}

// groupKeys is how many keys a transaction of the crash test changes: enough for a record of several kilobytes.
const groupKeys = 24

// groupOf returns the number that each key of a group holds.
func groupOf(s *speaker, w int) (found [groupKeys]int64) {
	for k := range found {
		text := strings.Split(s.do(fmt.Sprintf("GET g%d-%d", w, k)), "\r\n")
		if len(text) > 1 {
			found[k], _ = strconv.ParseInt(strings.TrimLeft(text[1], "0"), 10, 64)
		}
	}
	return found
}

// transactionsUntilKilled runs transactions, each of which brings its group from one number to the next, and kills the server when every
// client has had so many of them acknowledged.
func transactionsUntilKilled(t *testing.T, cmd *exec.Cmd, addr string, enough int, sent, acked *[crowdWriters]int64) {
	var wg sync.WaitGroup
	done := make(chan struct{}, crowdWriters)
	for w := range crowdWriters {
		conn := dial(t, addr)
		long(conn)
		wg.Go(func() {
			for n := 0; ; n++ {
				next := sent[w] + 1
				sent[w] = next
				in := resp.AppendCommand(nil, "MULTI")
				for k := range groupKeys {
					key, value := fmt.Sprintf("g%d-%d", w, k), fmt.Sprintf("%0128d", next)
					switch k % 3 {
					case 0:
						in = resp.AppendCommand(in, "SET", key, value)
					case 1:
						in = resp.AppendCommand(in, "DEL", key)
						in = resp.AppendCommand(in, "APPEND", key, value)
					default:
						in = resp.AppendCommand(in, "SET", key+"-new", value, "EX", "1000")
						in = resp.AppendCommand(in, "RENAME", key+"-new", key)
					}
				}
				in = resp.AppendCommand(in, "EXEC")
				_, err := conn.nc.Write(in)
				reply := ""
				for err == nil && !strings.HasPrefix(reply, "*") {
					if reply, err = conn.read(); err == nil && strings.HasPrefix(reply, "-") {
						t.Errorf("client %d: %q", w, reply)
					}
				}
				if err != nil {
					if n <= enough {
						t.Errorf("client %d: %v", w, err)
						done <- struct{}{}
					}
					return // killed
				}
				acked[w] = next
				if n == enough {
					done <- struct{}{}
				}
			}
		})
	}
	for range crowdWriters {
		<-done
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	_ = cmd.Wait()
}

// long gives a client as long as it may take on a machine that does a lot else, under the race detector too.
func long(c *client) {
	if err := c.nc.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		c.t.Fatal(err)
	}
}
