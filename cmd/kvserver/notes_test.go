package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// program prepares the program as a process of its own.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	return cmd
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// full returns a pipe that takes nothing more.
func full(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w = pipe(t)
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		chunk := make([]byte, 4096)
		for err == nil {
			_, err = syscall.Write(int(fd), chunk) // which does not wait: the runtime has made it so
		}
	}); err != nil {
		t.Fatal(err)
	}
	return r, w
}

// noisy makes a server write a note for each of the lines it is sent: writes are refused, and taken again.
func noisy(n int) (lines []string) {
	for i := range n {
		lines = append(lines, "CONFIG SET min-free "+strconv.Itoa(i%2<<60))
	}
	return lines
}

func TestAServerOutlivesTheReadersOfItsOutput(t *testing.T) {
	for _, tc := range []struct {
		name string
		pipe func(t *testing.T) (r, w *os.File)
		gone bool
	}{
		{"that have gone", pipe, true},
		{"that do not read", full, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, stdout := pipe(t)
			r, stderr := tc.pipe(t)
			if tc.gone {
				r.Close()
			}
			dir := t.TempDir()
			cmd := program("--dir", dir, "--addr", "127.0.0.1:0", "--wal-sync", "buffered")
			cmd.Stdout, cmd.Stderr = stdout, stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }()
			var up ready
			if err := json.NewDecoder(out).Decode(&up); err != nil {
				t.Fatal(err)
			}
			for range 100 { // more than fits into the pipe and the buffer
				for i, got := range do(t, up.Addr, 200, noisy(200)...) {
					if got != "+OK" {
						t.Fatalf("line %d: %q", i, got)
					}
				}
			}
			if got := do(t, up.Addr, 3, "CONFIG SET min-free 0", "SET k v", "PING"); got[1] != "+OK" || got[2] != "+PONG" {
				t.Errorf("got %q", got)
			}
			dropped := 0
			for _, line := range do(t, up.Addr, 30, append([]string{"INFO stats"}, slices.Repeat([]string{"PING"}, 30)...)...) {
				_, _ = fmt.Sscanf(line, "notes_dropped:%d", &dropped)
			}
			if dropped == 0 {
				t.Error("INFO says that no note was dropped")
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v, want exit 0", err)
			}
			srv := start(t, "--dir", dir, "--addr", "127.0.0.1:0")
			if got := do(t, srv.ready.Addr, 2, "GET k"); got[1] != "v" {
				t.Errorf("after the end: %q", got)
			}
			srv.stop(t)
		})
	}
}

// The ready line is for those who read it, and the server is for its clients.
func TestAServerServesWithoutAReaderOfItsReadyLine(t *testing.T) {
	r, stdout := pipe(t)
	r.Close()
	port := freePort(t)
	cmd := program("--dir", t.TempDir(), "--addr", port)
	notes, stderr := pipe(t)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	stderr.Close()
	text := make([]byte, 0, 4096)
	for !bytes.Contains(text, []byte("the ready line is lost")) {
		n, err := notes.Read(text[len(text):cap(text)])
		if text = text[:len(text)+n]; err != nil {
			t.Fatalf("%v after %s", err, text)
		}
	}
	if got := do(t, port, 1, "PING"); got[0] != "+PONG" {
		t.Errorf("got %q", got)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, want exit 0", err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	srv := start(t, "--dir", t.TempDir(), "--addr", "127.0.0.1:0")
	defer srv.stop(t)
	return srv.ready.Addr
}

func TestARepairGoesOnWithoutAReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	srv := start(t, "--dir", dir, "--addr", "127.0.0.1:0", "--segment-bytes", "4KiB", "--checkpoint-bytes", "0")
	value := strings.Repeat("v", 1000)
	for i := range 20 {
		do(t, srv.ready.Addr, 1, fmt.Sprintf("SET key:%d %s", i, value))
	}
	srv.stop(t)
	segments, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(segments) < 4 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	for _, path := range segments[:4] {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[bytes.Index(data, []byte("vvvv"))] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, stdout := pipe(t)
	r.Close()
	cmd := program("repair", dir)
	cmd.Stdout = stdout
	if err := cmd.Run(); err != nil {
		t.Errorf("repair: %v", err)
	}
	if code, out, stderr := invoke(t, "check", dir); code != 0 {
		t.Errorf("check after the repair: exit %d, %s %s", code, out, stderr)
	}
}

// stalled is a writer that takes nothing until it is told to.
type stalled struct {
	mu  sync.Mutex
	got bytes.Buffer
}

func (s *stalled) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

func TestNotesAreWrittenInOrderOrCounted(t *testing.T) {
	var w stalled
	w.mu.Lock()
	n := newNotes(&w)
	line := strings.Repeat("x", 999) + "\n"
	const lines = 3000
	for range lines {
		if k, err := io.WriteString(n, line); k != len(line) || err != nil {
			t.Fatalf("got %d, %v", k, err)
		}
	}
	w.mu.Unlock()
	n.close()
	written := uint64(strings.Count(w.got.String(), line))
	if written+n.Dropped() != lines || written < notesBytes/1000 || n.Dropped() == 0 {
		t.Errorf("%d lines are written and %d dropped, of %d", written, n.Dropped(), lines)
	}
}

// A process that may not write long files says so, and reads.
func TestALimitOfFilesIsNamed(t *testing.T) {
	for _, mode := range []string{"memory", "file", "lsm"} {
		t.Run(mode, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			srv := start(t, "--mode", mode, "--dir", dir, "--addr", "127.0.0.1:0")
			do(t, srv.ready.Addr, 1, "SET k v")
			srv.stop(t)
			cmd, r, stderr := startProcess(t, "ulimit -f 500", "--mode", mode, "--dir", dir, "--addr", "127.0.0.1:0")
			got := do(t, r.Addr, 3, "SET k w", "GET k")
			if !strings.HasPrefix(got[0], "-IOERR ") || !strings.Contains(got[0], "ulimit -f") || got[2] != "v" {
				t.Errorf("got %q", got)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v, want exit 0; %s", err, stderr)
			}
		})
	}
}
