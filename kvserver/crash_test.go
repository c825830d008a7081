package kvserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"kvmark/storage"
	"kvmark/wal"
)

// The environment of a test binary that is to be a server and nothing else.
const (
	crashDirEnv    = "KVSERVER_TEST_DIR"
	crashModeEnv   = "KVSERVER_TEST_MODE"
	crashPolicyEnv = "KVSERVER_TEST_POLICY"
)

// serveToBeKilled is the other process of the crash tests. It ends only by being killed.
func serveToBeKilled(dir string) {
	policy, err := wal.ParsePolicy(os.Getenv(crashPolicyEnv))
	if err != nil {
		panic(err)
	}
	// Small files and checkpoints at every opportunity, so that a kill may hit any of their steps.
	srv, err := Open(Options{Dir: dir, Mode: storage.Mode(os.Getenv(crashModeEnv)), WALPolicy: policy, SegmentBytes: 64 << 10, CheckpointBytes: 128 << 10})
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
func startToKill(t *testing.T, dir string, mode storage.Mode, policy wal.Policy) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), crashDirEnv+"="+dir, crashModeEnv+"="+string(mode), crashPolicyEnv+"="+policy.String())
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

// Writers count upwards, each in keys of its own, while the server is killed. After a restart every key must hold at least
// the value that was acknowledged last, and at most the one that was sent last. Buffered may lose the end of the history,
// never its middle: what is there must be a prefix of what each writer did, in the order in which it did it.
func TestKillingTheServerLosesNothingAcknowledged(t *testing.T) {
	const writers, keys = 8, 16
	rounds := 2
	if os.Getenv("KVMARK_LONG") != "" {
		rounds = 20
	}
	for _, mode := range storage.Modes() {
		for _, policy := range []wal.Policy{wal.Buffered, wal.OS, wal.Interval, wal.Always} {
			t.Run(fmt.Sprintf("%s/%s", mode, policy), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "data")
				var sent, acked [writers]int // how many writes of each
				for range rounds {
					cmd, addr := startToKill(t, dir, mode, policy)
					var wg sync.WaitGroup
					enough := make(chan struct{}, writers)
					for w := range writers {
						wg.Go(func() {
							c := dial(t, addr)
							for n := 0; ; n++ {
								i := sent[w]
								sent[w]++
								got, err := c.do("SET", fmt.Sprintf("w%d-%d", w, i%keys), strconv.Itoa(i))
								if err != nil {
									return // killed
								}
								if got != ok {
									t.Errorf("writer %d: %q", w, got)
									return
								}
								acked[w] = i + 1
								if n == 150 {
									enough <- struct{}{}
								}
							}
						})
					}
					for range writers {
						<-enough
					}
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
					wg.Wait()
					_ = cmd.Wait()

					srv, err := Open(Options{Dir: dir, Mode: mode, WALPolicy: policy, CheckpointBytes: -1})
					if err != nil {
						t.Fatal(err)
					}
					c := speak(t, srv)
					for w := range writers {
						last := -1 // the newest write of this writer that is there
						for k := range keys {
							if v, ok := number(c.do(fmt.Sprintf("GET w%d-%d", w, k))); ok {
								last = max(last, v)
							}
						}
						if last >= sent[w] || policy != wal.Buffered && last < acked[w]-1 {
							t.Errorf("writer %d: the newest write is %d; %d were sent, %d acknowledged", w, last, sent[w], acked[w])
						}
						for i := max(0, last-keys+1); i <= last; i++ {
							if v, _ := number(c.do(fmt.Sprintf("GET w%d-%d", w, i%keys))); v != i {
								t.Errorf("writer %d: write %d is there, but key %d holds %d instead of %d", w, last, i%keys, v, i)
							}
						}
						sent[w] = last + 1 // go on from what is there
						acked[w] = last + 1
					}
					shutdown(t, srv)
				}
			})
		}
	}
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
