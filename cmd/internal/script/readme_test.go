package script

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestReadme executes every command that README.md and the pages in testdata/docs show, in order, as it stands there but for the length of the measurements.
// `make test` is what runs this test. redis-cli and redis-benchmark are used where they are installed.
func TestReadme(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "testdata", "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages beside README.md: %v, %v", pages, err)
	}
	var commands []string
	for _, path := range append([]string{filepath.Join(root, "README.md")}, pages...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		commands = append(commands, readmeCommands(string(text))...)
	}
	source, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	if len(commands) < 10 {
		t.Fatalf("found only %d commands in README.md", len(commands))
	}
	port := freePort(t)
	all := t
	for i, line := range commands {
		t.Run(line, func(t *testing.T) {
			words := strings.Fields(line)
			for _, w := range words {
				if strings.HasPrefix(w, "redis-") || strings.HasPrefix(w, "benchstat") {
					if _, err := exec.LookPath(w); err != nil {
						t.Skipf("%s is not installed", w)
					}
				}
			}
			if line == "make test" {
				return
			}
			short := shorter(line, port)
			if strings.Contains(line, "kvmark compare") {
				short += " --source " + source
			}
			if strings.HasPrefix(line, "bin/kvserver") {
				cmd := exec.Command("sh", "-c", "exec "+short)
				cmd.Dir = dir
				serve(t, all, cmd)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", short)
			cmd.Dir = dir
			switch {
			case strings.HasPrefix(line, "make"):
				cmd.Dir = source
				cmd.Args[2] += " RUNFLAGS='--warmup 100ms --keys 200 --out " + filepath.Join(dir, strconv.Itoa(i)) + "'"
			case strings.Contains(line, "testdata/"):
				cmd.Dir = source
				cmd.Args[2] = strings.ReplaceAll(short, "bin/", bin+"/")
			case strings.Contains(line, "go build"): // from the source, into the test's own bin
				if version, _, ok := strings.Cut(line, " "); ok && !canRun(ctx, version) {
					t.Skipf("%s cannot be had on this machine", version)
				}
				cmd.Dir = source
				cmd.Args[2] = strings.ReplaceAll(short, "bin/", bin+"/")
			}
			out, err := cmd.CombinedOutput()
			if tooNoisy(err, out) {
				t.Logf("%s: the machine is too busy for so short a measurement\n%s", cmd.Args[2], out)
			} else if err != nil {
				t.Errorf("%s: %v\n%s", cmd.Args[2], err, out)
			}
		})
	}
}

var (
	fence    = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	duration = regexp.MustCompile(`(DURATION=|--duration )[0-9]+m?s`)
	rounds   = regexp.MustCompile(`--rounds [0-9]+`)
)

// readmeCommands are the lines of the shell blocks.
func readmeCommands(text string) (lines []string) {
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// tooNoisy reports whether a measurement ran and failed only checks that a busy machine can fail.
func tooNoisy(err error, out []byte) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 && !bytes.Contains(out, []byte("Error 3")) {
		return false
	}
	serious := regexp.MustCompile(`books_|keys_proven|hit_ratio|wrong_values|errors|server_exit|gomaxprocs_same`)
	return !serious.Match(out)
}

// canRun reports whether the go command runs with a setting such as GOTOOLCHAIN=go1.27.3, fetching the toolchain if it must.
func canRun(ctx context.Context, setting string) bool {
	cmd := exec.CommandContext(ctx, "go", "version")
	cmd.Env = append(os.Environ(), setting)
	return cmd.Run() == nil
}

// shorter is the command with tiny measurements and the given port.
func shorter(line, port string) string {
	line = duration.ReplaceAllString(line, "${1}1s")
	line = rounds.ReplaceAllString(line, "--rounds 2")
	if strings.HasPrefix(line, "make run") && !strings.Contains(line, "DURATION=") {
		line += " DURATION=1s"
	}
	if strings.Contains(line, "bin/kvmark run") || strings.Contains(line, "bin/kvmark compare") {
		line += " --warmup 100ms --keys 200"
	}
	return strings.ReplaceAll(line, "7379", port)
}

// serve starts a server for the commands that follow. It must end well when they are done.
func serve(t, all *testing.T, cmd *exec.Cmd) {
	t.Helper()
	ready := &lineWatch{want: `"ready":true`, seen: make(chan struct{})}
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = ready, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	all.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // gone already if redis-cli could shut it down
		select {
		case err := <-ended:
			if err != nil {
				all.Errorf("kvserver: %v\n%s", err, stderr.Bytes())
			}
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			all.Error("kvserver does not end")
		}
	})
	select {
	case <-ready.seen:
	case <-time.After(30 * time.Second):
		t.Fatal("kvserver is not ready in 30 s")
	}
}

// lineWatch closes seen when what is written contains want.
type lineWatch struct {
	want string
	text []byte
	seen chan struct{}
	once sync.Once
}

func (w *lineWatch) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	if bytes.Contains(w.text, []byte(w.want)) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
