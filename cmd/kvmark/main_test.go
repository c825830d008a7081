package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/urfave/cli/v2"
	"go.uber.org/goleak"

	"kvmark/client/load"
	"kvmark/client/load/loadtest"
	"kvmark/client/result"
)

const asKvmark = "KVMARK_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asKvmark) != "" { // this is kvmark; what it starts is the server
		os.Unsetenv(asKvmark)
		main()
	}
	loadtest.Main()
	goleak.VerifyTestMain(m)
}

// kvmark runs the program in an empty directory.
func kvmark(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"kvmark"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestCommandLinesThatCannotWorkAreUsageErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("file", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ args, want string }{
		{"", "no command"},
		{"bench", `unknown command "bench"`},
		{"--fast", "-fast"},
		{"run --fast", "-fast"},
		{"run now", `"now"`},
		{"run now --keys 5", `"now"`},
		{"run --duration 0", "duration 0s"},
		{"run --duration 0s", "duration 0s"},
		{"run --duration -1s", "duration -1s"},
		{"run --duration 60", `"60": want a time with its unit, such as 5s`},
		{"run --repeat 9223372036854775807", "want 1..1000"},
		{"run --workers 5000", "want 1..1024"},
		{"run --workers 70000", "want 1..1024"},
		{"run --value-size=", "--value-size is empty"},
		{"run --distribution=", "--distribution is empty"},
		{"run --server=", "--server is empty"},
		{"run --out=", "--out is empty"},
		{"compare --out=", "--out is empty"},
		{"report --html= x", "--html is empty"},
		{"run --distribution zipf:", "not a number"},
		{"run --value-size 1TiB", `unknown unit "TiB": use B, KiB or MiB`},
		{"run --value-size -1", `value size "-1": want at least 1 byte`},
		{"run --workers 1024 --keys 1000000 --value-size 64MiB", "1024000000 keys (1024 workers x 1000000 keys) with values of 67108864 bytes take at least"},
		{"run --modes file --workers 64 --keys 100000 --value-size 1MiB", "of disk in mode file"},
		{"compare --vary GOGC=50,100 --workers 1024 --keys 1000000 --value-size 64MiB", "use fewer --keys"},
		{"run --warmup=-1s", "warmup -1s"},
		{"run --workers 0", "workers 0"},
		{"run --workers -1", "workers -1"},
		{"run --workers many", `"many"`},
		{"run --keys 0", "keys 0"},
		{"run --keys 99999999999999999999", "99999999999999999999"},
		{"run --repeat 0", "repeat 0"},
		{"run --pipeline 0", "pipeline 0"},
		{"run --seed -1", `"-1"`},
		{"run --modes disk", `mode "disk" is unknown`},
		{"run --modes memory,memory", "named twice"},
		{"run --modes ,", `--modes ",": an entry is empty`},
		{"run --modes memory,", `--modes "memory,": an entry is empty`},
		{"run --duration 1ns", "duration 1ns: want 50ms or more"},
		{"run --duration 49ms", "duration 49ms"},
		{"run --rate nan", `rate "nan"`},
		{"run --rate 1e99", `rate "1e99": want 0 < requests a second <= 10000000`},
		{"run --rate ramp:1:0", `rate "ramp:1:0"`},
		{"chat --duration 1ns", "duration 1ns: want 50ms or more"},
		{"conns --interval 1ns", "interval 1ns: want 1ms or more"},
		{"conns --connections 5,", `--connections "5,": an entry is empty`},
		{"conns --rate 5,,6", `--rate "5,,6": an entry is empty`},
		{"conns --rate nan", `rate "nan"`},
		{"run --wal-sync never", `wal-sync "never"`},
		{"run --codec rar", `codec "rar"`},
		{"run --modes memory --codec zstd", "--codec has no effect"},
		{"run --modes file --level 3", "--level has no effect"},
		{"run --bucket-entries 0", "--bucket-entries is 0; it must be at least 1"},
		{"run --value-size 0", `value size "0"`},
		{"run --value-size 9-8", "9-8"},
		{"run --compressibility 0.5", "classic"},
		{"run --value-size 9 --compressibility 2", "compressibility 2"},
		{"run --distribution gauss", `distribution "gauss"`},
		{"run --mix 1", `mix "1"`},
		{"run --format xml", `format "xml"`},
		{"run --dir nowhere", "--dir nowhere"},
		{"run --dir file", "--dir file"},
		{"run --rate fast", `rate "fast"`},
		{"run --rate -5", `rate "-5"`},
		{"run --rate ramp:5", "ramp:FROM:TO"},
		{"run --arrivals poisson", "--arrivals has no effect"},
		{"run --rate 5 --arrivals bursty", `arrivals "bursty"`},
		{"run --find-rate", "without --slo"},
		{"run --slo p99<2ms", "without --find-rate"},
		{"run --find-rate --slo fast", `slo "fast"`},
		{"run --find-rate --slo p99<2ms --rate 5", "exclude each other"},
		{"run --score best", `score "best"`},
		{"run --score trimmed", "--repeat 3"},
		{"run --score last3 --repeat 3", "--repeat 4"},
		{"run --allow-data", "without --target"},
		{"run --target localhost:6379", "redis://"},
		{"run --target redis://h --modes memory", "--modes is about servers that kvmark starts"},
		{"run --target redis://h --server x", "--server is about"},
		{"run --modes memory --cold", "mode file"},
		{"run --value-size lognormal:5", "SIGMA"},
		{"replay", "one result.json"},
		{"explain nonsense", `"nonsense"`},
		{"report --diff a", "two results"},
		{"report --html a --format csv b", "use one"},
		{"run --keys", "-keys"},
		{"report", "path of a result.json"},
		{"report --format xml x", `format "xml"`},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := kvmark(t, strings.Fields(tt.args)...)
			if code != exitUsage {
				t.Errorf("exit %d, want %d", code, exitUsage)
			}
			if stdout != "" {
				t.Errorf("%q on stdout", stdout)
			}
			if !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("stderr %q, want one line with %q", stderr, tt.want)
			}
		})
	}
	if files, _ := os.ReadDir("."); len(files) != 1 {
		t.Errorf("%v was made", files)
	}
}

func TestHelpIsData(t *testing.T) {
	for _, args := range []string{"--help", "run --help", "report -h"} {
		code, stdout, stderr := kvmark(t, strings.Fields(args)...)
		if code != exitGood || !strings.Contains(stdout, "USAGE") || stderr != "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

// serverIs makes this test binary a server of that behaviour, and returns the flags of a short run against it.
func serverIs(t *testing.T, b loadtest.Behaviour) []string {
	t.Helper()
	name, value, _ := strings.Cut(loadtest.Env(b), "=")
	t.Setenv(name, value)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // a program built with -race sleeps for a second when it ends
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"run", "--server", self, "--duration", "100ms", "--warmup", "10ms", "--keys", "50", "--workers", "2", "--modes", "memory", "--seed", "7", "--dir", t.TempDir(),
	}
}

// sound reports whether a run ended well, or but for checks that a machine too busy for a test's short windows fails.
func sound(t *testing.T, code int, dir string) bool {
	t.Helper()
	if code != exitInvalid {
		return code == exitGood
	}
	f, err := result.Read(filepath.Join(dir, resultName))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Cells {
		for _, check := range c.Checks {
			if !check.Pass && !slices.Contains([]string{"window_long_enough", "littles_law", "stalled"}, check.Name) {
				return false
			}
		}
	}
	return true
}

func TestARunPrintsTheTableAndSavesTheResult(t *testing.T) {
	args := serverIs(t, loadtest.Behaviour{})
	t.Chdir(t.TempDir())
	code, stdout, stderr := kvmark(t, args...)
	for _, want := range []string{"built with " + runtime.Version(), "WAL + key & value in memory\n", "\n  Set ", "\n  Get ", "VALID", "seed 7"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in %s", want, stdout)
		}
	}
	files, _ := filepath.Glob("results/*/result.json")
	if len(files) != 1 || !strings.Contains(stderr, files[0]) {
		t.Fatalf("results %v; stderr %s", files, stderr)
	}
	if !sound(t, code, filepath.Dir(files[0])) {
		t.Errorf("exit %d: %s%s", code, stderr, stdout)
	}
	f, err := result.Read(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Cells) != 2 || f.Valid() != (code == exitGood) || f.Plan.Seed != 7 || f.Plan.Keys != 50 || f.Env.Server.Go != runtime.Version() || f.Interrupted {
		t.Errorf("result %+v", f)
	}
	t.Run("report prints the same", func(t *testing.T) {
		code, again, stderr := kvmark(t, "report", files[0])
		if code != exitGood || again != stdout {
			t.Errorf("exit %d, stderr %s, stdout:\n%s\nwant:\n%s", code, stderr, again, stdout)
		}
	})
	t.Run("report takes flags behind its arguments", func(t *testing.T) {
		code, got, _ := kvmark(t, "report", files[0], "--format", "json")
		want, err := os.ReadFile(files[0])
		if code != exitGood || err != nil || got != string(want) {
			t.Errorf("exit %d, %v: not the file", code, err)
		}
	})
	t.Run("report of a file that is none", func(t *testing.T) {
		if code, _, stderr := kvmark(t, "report", "nothing.json"); code != exitFailed || !strings.Contains(stderr, "nothing.json") {
			t.Errorf("exit %d, stderr %s", code, stderr)
		}
	})
}

func TestJSONOutputIsTheResultFile(t *testing.T) {
	args := serverIs(t, loadtest.Behaviour{})
	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := kvmark(t, append(args, "--format", "json", "--out", out)...)
	want, err := os.ReadFile(filepath.Join(out, "result.json"))
	if err != nil || !sound(t, code, out) || stdout != string(want) {
		t.Errorf("exit %d, %v, %s: stdout is not the file", code, err, stderr)
	}
	t.Run("a result is not overwritten", func(t *testing.T) {
		code, _, stderr := kvmark(t, append(args, "--out", out)...)
		if code != exitUsage || !strings.Contains(stderr, "already holds") {
			t.Errorf("exit %d, stderr %s", code, stderr)
		}
	})
}

func TestAnInvalidRunIsShownSavedAndExits3(t *testing.T) {
	for _, lie := range []loadtest.Lie{loadtest.WrongValue, loadtest.Die} {
		t.Run(string(lie), func(t *testing.T) {
			args := serverIs(t, loadtest.Behaviour{Lie: lie, After: 5})
			out := t.TempDir()
			code, stdout, stderr := kvmark(t, append(args, "--out", out)...)
			if code != exitInvalid || !strings.Contains(stdout, "INVALID") {
				t.Errorf("exit %d, stdout %s, stderr %s", code, stdout, stderr)
			}
			if f, err := result.Read(filepath.Join(out, "result.json")); err != nil || f.Valid() {
				t.Errorf("result valid, or %v", err)
			}
		})
	}
}

func TestARunThatCannotStartExits1(t *testing.T) {
	t.Run("the server does not start", func(t *testing.T) {
		args := serverIs(t, loadtest.Behaviour{Lie: loadtest.NoStart})
		code, stdout, stderr := kvmark(t, append(args, "--out", t.TempDir())...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, "no start today") {
			t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	})
	t.Run("there is no such server", func(t *testing.T) {
		code, _, stderr := kvmark(t, "run", "--server", "/no/such/kvserver", "--out", t.TempDir())
		if code != exitFailed || !strings.Contains(stderr, "/no/such/kvserver") {
			t.Errorf("exit %d, stderr %q", code, stderr)
		}
	})
	t.Run("no server can be found", func(t *testing.T) {
		t.Chdir(t.TempDir())
		t.Setenv("PATH", "")
		code, _, stderr := kvmark(t, "run", "--out", t.TempDir())
		if code != exitFailed || !strings.Contains(stderr, "in PATH") || !strings.Contains(stderr, "--server") {
			t.Errorf("exit %d, stderr %q", code, stderr)
		}
	})
}

// lines passes on what is written to it and wakes those who wait for a text.
type lines struct {
	mu   sync.Mutex
	cond *sync.Cond
	text strings.Builder
	over bool
}

func newLines() *lines {
	l := new(lines)
	l.cond = sync.NewCond(&l.mu)
	return l
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.cond.Broadcast()
	return l.text.Write(b)
}

func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.cond.Broadcast()
}

// await returns whether text appears before the end.
func (l *lines) await(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !strings.Contains(l.text.String(), text) {
		if l.over {
			return false
		}
		l.cond.Wait()
	}
	return true
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestSignals(t *testing.T) {
	tests := []struct {
		name    string
		server  loadtest.Behaviour
		signals []os.Signal
		touched bool // the first signal waits for the first Set
		cells   int
	}{
		{"Ctrl-C while the server starts", loadtest.Behaviour{Lie: loadtest.Mute}, []os.Signal{os.Interrupt}, false, 0},
		{"Ctrl-C in the window", loadtest.Behaviour{}, []os.Signal{os.Interrupt}, true, 1},
		{"the terminal is closed", loadtest.Behaviour{}, []os.Signal{syscall.SIGHUP}, true, 1},
		{"SIGQUIT in the window", loadtest.Behaviour{}, []os.Signal{syscall.SIGQUIT}, true, 1},
		{"SIGTERM in the window", loadtest.Behaviour{}, []os.Signal{syscall.SIGTERM}, true, 1},
		{"Ctrl-C twice at a server that hangs", loadtest.Behaviour{Lie: loadtest.Silence, After: 5}, []os.Signal{os.Interrupt, os.Interrupt}, true, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.signals[0] == syscall.SIGHUP && signal.Ignored(syscall.SIGHUP) {
				t.Skip("these tests run under nohup, which kvmark respects")
			}
			touch := filepath.Join(t.TempDir(), "touch")
			tt.server.Touch = touch
			args := serverIs(t, tt.server)
			out, data := t.TempDir(), t.TempDir()
			args = append(args, "--duration", "50s", "--warmup", "0s", "--out", out, "--dir", data)
			cmd := exec.Command(args[2], args...)
			cmd.Env = append(os.Environ(), asKvmark+"=1")
			stdout, stderr := new(bytes.Buffer), newLines()
			cmd.Stdout, cmd.Stderr = stdout, stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { // ends with the process, which the deadline of the test bounds
				defer stderr.end()
				cmd.Wait()
			}()
			if !stderr.await("measurements of") {
				t.Fatalf("ended: %s", stderr)
			}
			for deadline := time.Now().Add(20 * time.Second); tt.touched; time.Sleep(time.Millisecond) {
				if _, err := os.Stat(touch); err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("no Set within 20 s")
				}
			}
			for i, s := range tt.signals {
				if i > 0 && !stderr.await("once more kills") {
					t.Fatalf("ended: %s", stderr)
				}
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			stderr.await("\x00") // never comes: wait for the end
			if code := cmd.ProcessState.ExitCode(); code != exitInvalid {
				t.Errorf("exit %d, want %d: %s", code, exitInvalid, stderr)
			}
			if !strings.Contains(stdout.String(), "INTERRUPTED") {
				t.Errorf("stdout %s", stdout)
			}
			f, err := result.Read(filepath.Join(out, "result.json"))
			if err != nil || !f.Interrupted || len(f.Cells) != tt.cells {
				t.Errorf("result %+v, %v", f, err)
			}
			if left, _ := os.ReadDir(data); len(left) != 0 {
				t.Errorf("%v is left", left)
			}
			if runtime.GOOS == "linux" && running(t, data) {
				t.Error("the server is left")
			}
		})
	}
}

// running reports whether a process has text in its command line.
func running(t *testing.T, text string) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatalf("no processes in /proc: %v", err)
	}
	return slices.ContainsFunc(files, func(f string) bool {
		b, err := os.ReadFile(f)
		return err == nil && strings.Contains(string(b), text)
	})
}

func TestFlagsFirst(t *testing.T) {
	app := &cli.App{Commands: []*cli.Command{{Name: "c", Flags: []cli.Flag{&cli.StringFlag{Name: "s"}, &cli.BoolFlag{Name: "b"}}}}}
	tests := []struct{ in, want string }{
		{"x", "x"},
		{"x c", "x c"},
		{"x c a b", "x c -- a b"},
		{"x c a --s v b", "x c --s v -- a b"},
		{"x c a --s=v b --b c", "x c --s=v --b -- a b c"},
		{"x c a -- --s b", "x c -- a --s b"},
		{"x c a -", "x c -- a -"},
		{"x c --s", "x c --s --"},
		{"x c a --s v --help", "x c --help"},
		{"x c -h", "x c --help"},
		{"x other a --s v", "x other a --s v"},
	}
	for _, tt := range tests {
		if got := strings.Join(flagsFirst(app, strings.Fields(tt.in)), " "); got != tt.want {
			t.Errorf("%q becomes %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestProgressKeepsToItsPlace(t *testing.T) {
	p := load.Progress{
		Mode: "serialize", Op: "get", Stage: "measure", Repeat: 2, Rounds: 3, Elapsed: 12 * time.Second, Total: time.Minute,
		OK: 123456, QPS: 10288.4, P99: 812 * time.Microsecond,
	}
	const line = "2/3 serialize get: measure 12/60 s, 123456 replies, 10288 QPS, p99 812 us"
	var b bytes.Buffer
	terminal := &display{w: &b, width: func() int { return 40 }}
	terminal.progress(p)
	terminal.progress(p)
	terminal.note("ready %d", 1)
	terminal.clear()
	if want := strings.Repeat("\r\x1b[K"+line[:39], 2) + "\r\x1b[Kkvmark: ready 1\n"; b.String() != want {
		t.Errorf("terminal gets %q, want %q", b.String(), want)
	}

	b.Reset()
	plain := newDisplay(&b)
	plain.progress(p) // not yet five seconds
	plain.last = plain.last.Add(-plainEvery)
	plain.progress(p)
	plain.progress(p)
	plain.clear()
	if want := "kvmark: " + line + "\n"; b.String() != want {
		t.Errorf("a file gets %q, want %q", b.String(), want)
	}
}

func TestDefaultResultPathsNeverCollide(t *testing.T) {
	t.Chdir(t.TempDir())
	now := time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	for _, want := range []string{"20261130T010203Z", "20261130T010203Z-2", "20261130T010203Z-3"} {
		path, err := resultPath("", now)
		if err != nil || path != filepath.Join("results", want, "result.json") {
			t.Errorf("path %s, %v; want %s", path, err, want)
		}
	}
}

func TestServerIsLookedForBesideAndInPath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("kvserver", []byte("#!/bin/sh\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	note := func(string, ...any) {}
	for _, given := range []string{"", "./kvserver", filepath.Join(dir, "kvserver")} {
		path, err := findServer(context.Background(), given, note)
		if err != nil || path != filepath.Join(dir, "kvserver") {
			t.Errorf("--server %q: %s, %v", given, path, err)
		}
	}
	if _, err := findServer(context.Background(), dir, note); err == nil {
		t.Error("a directory is taken for a server")
	}
}

// A directory in which nothing can be made stands for a full disk.
func TestAnOutWithoutRoomIsToldBeforeTheMeasurement(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	for _, command := range []string{"run --out /proc", "compare --vary GOGC=50,100 --out /proc", "chat --out /proc", "conns --out /proc"} {
		code, stdout, stderr := kvmark(t, append(strings.Fields(command), "--server", "/no/such/kvserver")...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, "--out /proc: a result could not be saved there") {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", command, code, stdout, stderr)
		}
	}
}

func TestWhatIsMadeForResultsIsRemovedWhenItCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b")
	if err := makeOut(deep); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(deep); err != nil || len(files) != 0 {
		t.Errorf("%v, %v: the trial is left", files, err)
	}
	if err := makeOut(filepath.Join(deep, strings.Repeat("x", 10), strings.Repeat("y", 300))); err == nil { // no name is so long
		t.Error("want an error")
	}
	if files, err := os.ReadDir(deep); err != nil || len(files) != 0 {
		t.Errorf("%v, %v: a directory is left", files, err)
	}
}

func TestATMPDIRThatIsNoDirectoryIsNamed(t *testing.T) {
	t.Setenv("TMPDIR", "/no/such/place")
	for _, command := range []string{"run", "compare --vary GOGC=50,100", "chat", "conns"} {
		code, _, stderr := kvmark(t, strings.Fields(command)...)
		if code != exitUsage || !strings.Contains(stderr, "/no/such/place") || !strings.Contains(stderr, "TMPDIR") {
			t.Errorf("%s: exit %d, stderr %q", command, code, stderr)
		}
	}
}

func TestAPageIsNotWrittenOverAnythingElse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	in := filepath.Join(dir, resultName)
	if err := (&result.File{Command: "run", Started: time.Now(), Plan: load.Default().Plan()}).Write(in); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, want string }{ // want "": it is written
		{"a new file", filepath.Join(dir, "new.html"), ""},
		{"a page, again", filepath.Join(dir, "new.html"), ""},
		{"a page in other letters", write("small.html", "<!doctype HTML><p>"), ""},
		{"an empty file", write("empty", ""), ""},
		{"a text", write("notes.txt", "do not lose me"), "is no page of HTML"},
		{"a short text", write("short.txt", "x"), "is no page of HTML"},
		{"the result", in, "is one of the results to show"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, _ := os.ReadFile(tt.path)
			code, _, stderr := kvmark(t, "report", "--html", tt.path, dir)
			after, err := os.ReadFile(tt.path)
			switch {
			case tt.want == "" && (code != exitGood || err != nil || !bytes.HasPrefix(after, []byte("<!DOCTYPE html"))):
				t.Errorf("exit %d, stderr %q, %v, %.40q", code, stderr, err, after)
			case tt.want != "" && (code != exitUsage || !strings.Contains(stderr, tt.want) || !bytes.Equal(before, after)):
				t.Errorf("exit %d, stderr %q, then %.40q", code, stderr, after)
			}
		})
	}
}

func TestExplainHasAPageForEveryCheckAndWarning(t *testing.T) {
	_, list, _ := kvmark(t, "explain")
	for _, e := range result.Explanations() {
		if !strings.Contains(list, e.Code) {
			t.Errorf("%s is not in the list", e.Code)
		}
		if code, page, _ := kvmark(t, "explain", e.Code); code != exitGood || !strings.Contains(page, e.Why) || !strings.Contains(page, e.Do) {
			t.Errorf("%s: exit %d, %s", e.Code, code, page)
		}
	}
	// Every check that a run makes.
	args := serverIs(t, loadtest.Behaviour{})
	out := t.TempDir()
	kvmark(t, append(args, "--out", out)...)
	f, err := result.Read(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Cells {
		for _, check := range c.Checks {
			if code, _, stderr := kvmark(t, "explain", check.Name); code != exitGood {
				t.Errorf("check %s: %s", check.Name, stderr)
			}
		}
	}
}

func TestReplayRestoresWhatTheRuntimeWasTold(t *testing.T) {
	args := serverIs(t, loadtest.Behaviour{})
	read := func(dir string) *result.File {
		t.Helper()
		f, err := result.Read(filepath.Join(dir, "result.json"))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := t.TempDir()
	t.Setenv("GOGC", "400")
	t.Setenv("GODEBUG", "madvdontneed=1")
	kvmark(t, append(args, "--out", first)...)
	f := read(first)
	if want := []string{"GOGC=400", "GODEBUG=madvdontneed=1"}; !slices.Equal(f.Plan.ServerEnv, want) || f.Cells[0].Server.GOGC != "400" {
		t.Fatalf("the plan has %q, the server GOGC %s", f.Plan.ServerEnv, f.Cells[0].Server.GOGC)
	}
	t.Setenv("GOGC", "50")
	t.Setenv("GOMEMLIMIT", "1GiB")
	for _, tt := range []struct {
		name   string
		change func(*result.File)
		want   string // in a warning
	}{
		{"as it was", func(*result.File) {}, ""},
		{"a result without the environment", func(f *result.File) { f.Plan.ServerEnv = nil }, ""},
		{"another machine", func(f *result.File) { f.Env.Host.CPU = "a faster one" }, "the CPU: a faster one then"},
		{"another toolchain", func(f *result.File) { f.Env.Server.Go = "go1.1" }, "the server's toolchain: go1.1 then"},
		{"another binary", func(f *result.File) { f.Env.Binary.SHA256 = "0123" }, "the server's binary, SHA-256: 0123 then"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, old, out := read(first), filepath.Join(t.TempDir(), "result.json"), t.TempDir()
			tt.change(f)
			if err := f.Write(old); err != nil {
				t.Fatal(err)
			}
			_, _, stderr := kvmark(t, "replay", old, "--out", out)
			again := read(out)
			if got := again.Cells[0].Server; got.GOGC != "400" {
				t.Errorf("the server has GOGC %s, want 400: %s", got.GOGC, stderr)
			}
			var said []string
			for _, w := range again.Warnings {
				if w.Code == "replay-differs" {
					said = append(said, w.Detail)
				}
			}
			if all := strings.Join(said, "; "); !strings.Contains(all, tt.want) || tt.want == "" && strings.Contains(all, "the server") {
				t.Errorf("warnings %q, want %q", said, tt.want)
			}
		})
	}
}

func TestReplayMeasuresTheSamePlanAndDiffSaysSo(t *testing.T) {
	args := serverIs(t, loadtest.Behaviour{})
	first, second := t.TempDir(), t.TempDir()
	if code, _, stderr := kvmark(t, append(args, "--mix", "1:3", "--value-size", "20-40", "--out", first)...); !sound(t, code, first) {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	one, two := filepath.Join(first, "result.json"), filepath.Join(second, "result.json")
	if code, _, stderr := kvmark(t, "replay", one, "--out", second); !sound(t, code, second) {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	code, diff, stderr := kvmark(t, "report", "--diff", one, two)
	if code != exitGood || !strings.Contains(diff, "plan and environment are the same") || !strings.Contains(diff, "memory mix qps") {
		t.Errorf("exit %d, %s%s", code, diff, stderr)
	}
	t.Run("a result of something else", func(t *testing.T) {
		f, err := result.Read(one)
		if err != nil {
			t.Fatal(err)
		}
		f.Command = "compare"
		other := filepath.Join(t.TempDir(), "result.json")
		if err := f.Write(other); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := kvmark(t, "replay", other); code != exitFailed || !strings.Contains(stderr, `"compare"`) {
			t.Errorf("exit %d, %s", code, stderr)
		}
	})
	t.Run("as a page", func(t *testing.T) {
		page := filepath.Join(t.TempDir(), "report.html")
		if code, _, stderr := kvmark(t, "report", one, two, "--html", page); code != exitGood {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		b, err := os.ReadFile(page)
		if err != nil || !bytes.Contains(b, []byte("<svg")) || bytes.Contains(b, []byte("<script")) || bytes.Contains(b, []byte("http://")) || bytes.Contains(b, []byte("https://")) {
			t.Errorf("%v, %d bytes", err, len(b))
		}
	})
}

func TestAnOpenLoopShowsBothLatencies(t *testing.T) {
	args := serverIs(t, loadtest.Behaviour{})
	code, stdout, stderr := kvmark(t, append(args, "--rate", "1000", "--arrivals", "poisson", "--duration", "200ms", "--out", t.TempDir())...)
	if code != exitGood && code != exitInvalid { // a busy machine sends late, which is invalid, but shown
		t.Errorf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{"open loop at 1000 requests a second, poisson arrivals", "response time, from when a request was due", "sent late by"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in %s", want, stdout)
		}
	}
}
