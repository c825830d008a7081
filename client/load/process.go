package load

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvmark/client"
)

// server is a kvserver that we started. It leads its own process group, so that a Ctrl-C at the terminal reaches us
// alone, and dies with us however we end (see processAttributes). Or it is a [Target], of which we know the address, and
// what follows is empty; done is never closed.
type server struct {
	foreign        bool
	user, password string
	tls            client.TLS
	path           string
	runID          string
	addr           string
	pid            int

	cmd    *exec.Cmd
	stdout firstLine
	stderr tail
	done   chan struct{} // closed when the process has ended and err is set
	err    error

	silent atomic.Bool // it has let us wait for as long as we may: from now on we wait for little
}

// patience is how long to wait for this server.
func (s *server) patience(usual time.Duration) time.Duration {
	if s.silent.Load() {
		return min(cutGrace, usual)
	}
	return usual
}

// ready is the line that a kvserver prints when it accepts connections; part of its contract.
type ready struct {
	Ready bool   `json:"ready"`
	Addr  string `json:"addr"`
	PID   int    `json:"pid"`
	Mode  string `json:"mode"`
	Go    string `json:"go"`
	RunID string `json:"run_id"`
}

// startServer starts a server on dir and waits until it accepts connections.
func (r *runner) startServer(ctx context.Context, mode, dir string) (*server, error) {
	runID := rand.Text()
	args := r.serverArgs(mode, dir, runID)
	s := &server{path: r.Server, runID: runID, cmd: exec.Command(r.Server, args...), done: make(chan struct{})}
	s.stdout.got = make(chan struct{})
	s.cmd.Env = append(environ(), r.ServerEnv...)
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
	s.cmd.WaitDelay = time.Second // should something the server started keep its pipes open
	s.cmd.SysProcAttr = processAttributes()
	if err := s.launch(r.ServerCPUs); err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Server, err)
	}
	go func() { // ends with the process
		select {
		case <-r.Kill:
			s.kill()
		case <-s.done:
		}
	}()
	err := s.awaitReady(ctx, r, mode)
	if err != nil {
		s.kill()
		s.ended(r.Patience)
		return nil, fmt.Errorf("%s %s: %w%s", r.Server, strings.Join(args, " "), err, s.lastWords())
	}
	return s, nil
}

// serverArgs is the command line of a server, which takes every flag once, and those of serialize in that mode alone.
func (c Config) serverArgs(mode, dir, runID string) []string {
	args := []string{"serve", "--mode", mode, "--dir", dir, "--addr", "127.0.0.1:0", "--wal-sync", c.WALSync, "--run-id", runID}
	if !slices.ContainsFunc(c.ServerArgs, func(a string) bool { return strings.HasPrefix(a, "--max-clients=") }) {
		args = append(args, "--max-clients", strconv.Itoa(max(10_000, c.Workload.Workers+100)))
	}
	if c.IO != "" {
		args = append(args, "--io", c.IO)
	}
	if mode == "serialize" {
		args = append(args, "--codec", c.Codec, "--bucket-entries", strconv.Itoa(c.BucketEntries))
		if c.Level != nil {
			args = append(args, "--level", strconv.Itoa(*c.Level))
		}
	}
	return append(args, c.ServerArgs...)
}

// passwordEnv is where a kvserver looks for the password that its clients must give; part of its contract.
const passwordEnv = "KVMARK_PASSWORD"

// runtimeVariables are what the runtime of a Go program obeys and what changes its numbers.
var runtimeVariables = []string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"}

// ServerGODEBUG is where a program that was started with GODEBUG, and has started itself again without, keeps it for servers: see
// [RuntimeEnv]. A running program can not take back such as gctrace=1, which is meant for the server.
const ServerGODEBUG = "KVMARK_SERVER_GODEBUG"

// RuntimeEnv is what this process's environment says to the runtime of a Go program, and so to servers, as far as nothing else is asked.
func RuntimeEnv() []string {
	var env []string
	for _, name := range runtimeVariables {
		value := os.Getenv(name)
		if name == "GODEBUG" && value == "" {
			value = os.Getenv(ServerGODEBUG)
		}
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// environ is this process's environment without what would lock us out of our own server, and without what the configuration
// says: see [Config.ServerEnv].
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == passwordEnv || name == ServerGODEBUG || slices.Contains(runtimeVariables, name)
	})
}

// launch starts the process on a thread of its own and keeps the thread until the process has ended: on Linux the
// signal that ends an orphaned child is sent when the thread that started it ends, not the process. A child inherits the
// CPUs of that thread.
func (s *server) launch(cpus CPUs) error {
	started := make(chan error, 1)
	go func() { // ends when the process has ended
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cpus.onThread(s.cmd.Start)
		started <- err
		if err != nil {
			return
		}
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	return <-started
}

func (s *server) awaitReady(ctx context.Context, r *runner, mode string) error {
	timeout := time.NewTimer(r.Patience)
	defer timeout.Stop()
	select {
	case <-s.stdout.got:
	case <-s.done:
		return fmt.Errorf("ended before it was ready (%s)", s.exit())
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return fmt.Errorf("not ready within %v", r.Patience)
	}
	line := s.stdout.line
	var got ready
	if err := json.Unmarshal(line, &got); err != nil || !got.Ready {
		return fmt.Errorf("the first line it printed is %.200q, want its JSON ready line: is this a kvserver?", line)
	}
	switch {
	case got.RunID != s.runID:
		return fmt.Errorf("its run id is %q, ours is %q: is this another server?", got.RunID, s.runID)
	case got.PID != s.cmd.Process.Pid:
		return fmt.Errorf("the server that is ready has pid %d, our child has %d: a wrapper must exec the server", got.PID, s.cmd.Process.Pid)
	case got.Mode != mode:
		return fmt.Errorf("it is in mode %q, want %q", got.Mode, mode)
	}
	s.addr, s.pid = got.Addr, got.PID
	return nil
}

// dead reports whether the process has ended.
func (s *server) dead() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// exit says how the process ended. REQUIRES: done is closed.
func (s *server) exit() string {
	if s.err != nil {
		return s.err.Error()
	}
	return "exit status 0"
}

// lastWords is what the process last wrote to stderr, as the end of a message.
func (s *server) lastWords() string {
	if words := s.stderr.String(); words != "" {
		return "; its last words:\n" + words
	}
	return "; it wrote nothing to stderr"
}

// stop asks the server to end, and makes it.
func (s *server) stop(r *runner) error {
	if s.dead() {
		return fmt.Errorf("the server ended by itself (%s)%s", s.exit(), s.lastWords())
	}
	s.terminate()
	within := s.patience(r.Patience)
	if s.ended(within) {
		if s.err != nil {
			return fmt.Errorf("the server, asked to stop, ended with %s%s", s.exit(), s.lastWords())
		}
		return nil
	}
	s.kill()
	if !s.ended(r.Patience) {
		return fmt.Errorf("the server (pid %d) did not stop within %v and could not be killed%s", s.pid, within, s.lastWords())
	}
	return fmt.Errorf("the server did not stop within %v and was killed%s", within, s.lastWords())
}

// ended waits for the process to end, and reports whether it did.
func (s *server) ended(within time.Duration) bool {
	if s.foreign { // nobody would tell us
		return false
	}
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case <-s.done:
		return true
	case <-timeout.C:
		return false
	}
}

// firstLine keeps the first line written to it and drops the rest.
type firstLine struct {
	line []byte
	got  chan struct{} // closed once line is complete
	have bool
}

const maxReadyLine = 64 << 10

func (f *firstLine) Write(b []byte) (int, error) {
	if f.have {
		return len(b), nil
	}
	before, _, found := bytes.Cut(b, []byte("\n"))
	f.line = append(f.line, before...)
	if found || len(f.line) > maxReadyLine {
		f.have = true
		close(f.got)
	}
	return len(b), nil
}

// tail keeps the last lines written to it.
type tail struct {
	mu    sync.Mutex
	buf   []byte
	crash []byte // how the report of a crash begins, behind which the stacks of thousands of goroutines may follow
}

const (
	tailBytes  = 8 << 10
	tailLines  = 15
	crashBytes = 1 << 10
	crashLines = 8
)

// crashBegins is how the runtime begins to report a crash.
var crashBegins = regexp.MustCompile(`(?m)^(panic|fatal error|SIG[A-Z]+): `)

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if t.crash == nil {
		if at := crashBegins.FindIndex(t.buf); at != nil {
			t.crash = slices.Clone(t.buf[at[0]:])
		}
	} else if len(t.crash) < crashBytes {
		t.crash = append(t.crash, b...)
	}
	t.crash = t.crash[:min(len(t.crash), crashBytes)]
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.buf)), "\n")
	if crash := strings.Split(strings.TrimSpace(string(t.crash)), "\n"); len(t.crash) > 0 && len(lines) > tailLines {
		return strings.Join(crash[:min(len(crash), crashLines)], "\n")
	}
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
