package main

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"kvmark/client/experiment"
	"kvmark/client/load/loadtest"
	"kvmark/client/result"
)

// comparison returns the flags of a short compare against this test binary.
func comparison(t *testing.T, b loadtest.Behaviour) []string {
	t.Helper()
	server := serverIs(t, b)[2]
	return []string{
		"compare", "--server", server, "--vary", "GOGC=50,100", "--modes", "memory", "--rounds", "2", "--duration", "52ms", "--warmup", "0s",
		"--keys", "50", "--workers", "2", "--seed", "7", "--dir", t.TempDir(),
	}
}

func TestCompareCommandLinesThatCannotWork(t *testing.T) {
	t.Chdir(t.TempDir())
	tests := []struct{ args, want string }{
		{"compare", "nothing to compare"},
		{"compare now", `"now"`},
		{"compare --vary GOGC", "want NAME=VALUE"},
		{"compare --vary GOGC=abc,5", "silently"},
		{"compare --vary GOGC=50", "nothing to compare"},
		{"compare --vary GOMEMLIMIT=64,128MiB", "no unit"},
		{"compare --vary mode=memory,file --modes file", "--modes and --vary mode"},
		{"compare --vary GOGC=50,100 --rounds 0", "rounds 0"},
		{"compare --vary GOGC=50,100 --until 1", "percentage such as"},
		{"compare --vary GOGC=50,100 --until 0%", "percentage such as"},
		{"compare --vary GOGC=50,100 --margin 2%x", "percentage such as"},
		{"compare --vary GOGC=50,100 --fail-on qps>3%", "--fail-on"},
		{"compare --vary GOGC=50,100 --fail-on speed<-3%", "unknown metric"},
		{"compare --vary GOGC=50,100 --metrics speed", `metric "speed"`},
		{"compare --vary GOGC=50,100 --slices 9s", "at most half"},
		{"compare --vary GOGC=50,100 --budget -1s", "budget -1s"},
		{"compare --vary GOGC=50,100 --format xml", `format "xml"`},
		{"compare --vary GOGC=50,100 --dir nowhere", "--dir nowhere"},
		{"compare --vary-client GOGC=5,6", "only its toolchain"},
		{"compare --plan nowhere.toml", "--plan nowhere.toml"},
		{"compare --vary keys=100,200 --keys 50", "--keys and --vary keys contradict each other"},
		{"compare --vary server=./a,./b --server ./c", "--server and --vary server contradict each other"},
		{"compare --vary GOGC=100,0100", `"100" and "0100" are the same value`},
		{"compare --vary keys=100,200 --modes memory,", "an entry is empty"},
		{"compare --vary keys=100,200 --duration 1ms", "duration 1ms: want 50ms or more"},
	}
	for _, tt := range tests {
		code, stdout, stderr := kvmark(t, strings.Fields(tt.args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q, want %q", tt.args, code, stdout, stderr, tt.want)
		}
	}
	if files, _ := os.ReadDir("."); len(files) != 0 {
		t.Errorf("%v was made", files)
	}
}

func TestCompareSavesAndPrintsWhatItFound(t *testing.T) {
	out := ""
	var args []string
	var code int
	var stdout, stderr string
	for _, window := range []string{"52ms", "200ms", "1s"} { // longer ones where a machine that is busy spoils the short
		out = filepath.Join(t.TempDir(), "out")
		args = append(comparison(t, loadtest.Behaviour{}), "--duration", window, "--out", out)
		if code, stdout, stderr = kvmark(t, args...); code != exitInvalid || !sound(t, code, out) {
			break
		}
	}
	switch {
	case code == exitInvalid && sound(t, code, out):
		t.Skipf("this machine is too busy for windows of a second: %s", stderr)
	case code != exitGood:
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{"memory/set", "GOGC=50 (A/A)", "verdicts", "what memory buys", "how far to trust this", "seed 7"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	f, err := result.Read(filepath.Join(out, "result.json"))
	if err != nil || f.Command != "compare" || len(f.Cells) != 2*3*2 || len(f.Comparisons) != 4 || f.Interrupted {
		t.Errorf("%v, %d cells, %+v", err, len(f.Cells), f.Comparisons)
	}
	for _, name := range []string{"bench.txt", "report.html", "journal.jsonl"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("again, it measures nothing and prints in other forms", func(t *testing.T) {
		for format, want := range map[string]string{"json": `"schema": "kvmark/1"`, "csv": "round,order,mode", "markdown": "### memory/set", "bench": "BenchmarkKvmark/mode=memory/op=set/gogc=50/control=A_A "} {
			code, stdout, stderr := kvmark(t, append(args, "--format", format)...)
			if code != exitGood || !strings.Contains(stdout, want) || !strings.Contains(stderr, "going on with 6 samples") {
				t.Errorf("%s: exit %d, no %q in\n%.500s\n%s", format, code, want, stdout, stderr)
			}
		}
	})
	t.Run("report prints the comparison's own report", func(t *testing.T) {
		for _, format := range []string{"table", "csv", "markdown", "bench"} {
			_, first, _ := kvmark(t, append(args, "--format", format)...)
			code, again, stderr := kvmark(t, "report", out, "--format", format)
			if code != exitGood || again != first {
				t.Errorf("%s: exit %d, %s; compare printed\n%s\nreport prints\n%s", format, code, stderr, first, again)
			}
		}
		for _, want := range []string{"95 % CI", "within rounds", "in short: server CPU us/op"} {
			if !strings.Contains(stdout, want) && f.Comparisons[0].Ratio != nil && f.Comparisons[0].CILow != nil || !strings.Contains(stdout, "within rounds") {
				t.Errorf("no %q in\n%s", want, stdout)
			}
		}
		page := filepath.Join(t.TempDir(), "page.html")
		if code, _, stderr := kvmark(t, "report", out, "--html", page); code != exitGood {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		last := 0
		for _, want := range []string{"memory/set", "GOGC=50 (A/A)", "verdicts", "what memory buys", "how far to trust this", "in short: QPS"} {
			at := strings.Index(string(b)[last:], template.HTMLEscapeString(want))
			if at < 0 {
				t.Errorf("the page has no %q behind the one before it", want)
			}
			last += max(0, at)
		}
	})
	t.Run("a result whose parts do not fit is refused", func(t *testing.T) {
		broken, path := *f, filepath.Join(t.TempDir(), "result.json")
		broken.Cells = broken.Cells[1:]
		if err := broken.Write(path); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := kvmark(t, "report", path); code != exitFailed || !strings.Contains(stderr, "11 cells for 6 samples of 2 operations") {
			t.Errorf("exit %d: %s", code, stderr)
		}
	})
	t.Run("another experiment is refused", func(t *testing.T) {
		code, _, stderr := kvmark(t, append(args, "--keys", "51")...)
		if code != exitFailed || !strings.Contains(stderr, "another experiment") {
			t.Errorf("exit %d: %s", code, stderr)
		}
	})
	t.Run("what is not proven does not fail", func(t *testing.T) {
		code, _, stderr := kvmark(t, append(args, "--fail-on", "qps<-3%")...)
		if code != exitGood || !strings.Contains(stderr, "--fail-on qps<-3%: inconclusive") {
			t.Errorf("exit %d: %s", code, stderr)
		}
	})
}

func TestServersSideBySideShareTheMachine(t *testing.T) {
	c := experiment.DefaultConfig()
	c.Factors = []experiment.Factor{{Name: "GOGC", Values: []string{"50", "100"}}}
	c.Load.Modes = []string{"memory"}
	c.Load.Workload.Workers, c.Load.Workload.Keys = 10, 1_000_000
	alone := result.Room{Memory: 1 << 30, Disk: 1 << 40}
	if err := checkSizes(c, alone); err != nil {
		t.Errorf("one at a time: %v", err)
	}
	c.Slices = time.Second
	if err := checkSizes(c, alone); err == nil || !strings.Contains(err.Error(), "4 servers live side by side") {
		t.Errorf("two and two controls at a time: %v", err)
	}
	if err := checkSizes(c, result.Room{Memory: 4 << 30, Disk: 4 << 40}); err != nil {
		t.Errorf("four times the memory: %v", err)
	}
	c.Slices, c.Factors = 0, []experiment.Factor{{Name: "keys", Values: []string{"1000", "100000000"}}}
	if err := checkSizes(c, alone); err == nil || !strings.Contains(err.Error(), "1000000000 keys") {
		t.Errorf("keys that are varied: %v", err)
	}
}

func TestCompareWithoutAValidSampleExits3(t *testing.T) {
	code, stdout, stderr := kvmark(t, append(comparison(t, loadtest.Behaviour{Lie: loadtest.WrongValue, After: 5}), "--rounds", "1", "--out", t.TempDir())...)
	if code != exitInvalid || !strings.Contains(stdout, "INVALID and are not used") || !strings.Contains(stderr, "wrong_values") {
		t.Errorf("exit %d: %s\n%s", code, stdout, stderr)
	}
}

func TestCompareIsInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	touch := filepath.Join(t.TempDir(), "touch")
	out, data := t.TempDir(), t.TempDir()
	args := append(comparison(t, loadtest.Behaviour{Touch: touch}), "--duration", "50s", "--out", out, "--dir", data)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[2], args...)
	cmd.Env = append(os.Environ(), asKvmark+"=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for { // until the first sample is being filled; the deadline of the process bounds it
		if _, err := os.Stat(touch); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitInvalid {
		t.Errorf("%v: %s", err, &stderr)
	}
	if !strings.Contains(stdout.String(), "INTERRUPTED") || !strings.Contains(stderr.String(), "to go on: the same command with --out "+out) {
		t.Errorf("stdout %s\nstderr %s", &stdout, &stderr)
	}
	if f, err := result.Read(filepath.Join(out, "result.json")); err != nil || !f.Interrupted {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(data); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	if runtime.GOOS == "linux" && running(t, data) {
		t.Error("a server is left")
	}
}

func TestCompareSampleMeasuresATask(t *testing.T) {
	// What --vary-client runs, without another toolchain: the task comes on stdin.
	args := comparison(t, loadtest.Behaviour{})
	task := `{"cell":{"variant":1,"mode":"memory"},"layout":0,"ops":["set","get"],"options":{"mode":"memory","duration":52000000,"repeat":1,"pipeline":1,"server":"` +
		args[2] + `","wal_sync":"interval","codec":"deflate","bucket_entries":8,"dir":"","seed":3,"workers":2,"keys":50,"value_size":"classic","distribution":"uniform"}}`
	cmd := exec.CommandContext(t.Context(), args[2], "compare", "--sample")
	cmd.Env = append(os.Environ(), asKvmark+"=1")
	cmd.Stdin = strings.NewReader(task)
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), `"client":"`+runtime.Version()+`"`) || !strings.Contains(string(out), `"variant":1`) {
		t.Errorf("%v: %.300s", err, out)
	}
}

// The command lines of the help, and of the README, can be copied.
func TestRecipesOfCompareAreCommandLines(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	recipes := 0
	for line := range strings.Lines(compareCommand().Description + "\n" + string(readme)) {
		line, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "bin/"), "kvmark compare --")
		if !ok {
			continue
		}
		recipes++
		line, _, _ = strings.Cut(line, " #")
		c := compareCommand()
		c.Action = func(c *cli.Context) error {
			_, err := compareOptions(c)
			return err
		}
		app := &cli.App{Commands: []*cli.Command{c}, ExitErrHandler: func(*cli.Context, error) {}}
		args := append([]string{"kvmark", "compare"}, strings.Fields(strings.ReplaceAll("--"+line, "'", ""))...)
		if err := app.Run(args); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if recipes < 4 {
		t.Errorf("only %d recipes", recipes)
	}
}

func TestABudgetThatHoldsNoRoundIsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	code, _, stderr := kvmark(t, "compare", "--vary", "GOGC=50,100", "--modes", "memory", "--duration", "1m", "--warmup", "0s", "--budget", "5s", "--out", "o")
	if code != exitUsage || !strings.Contains(stderr, "budget 5s: one round takes at least 6m") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if files, _ := os.ReadDir("."); len(files) != 0 {
		t.Errorf("%v was made", files)
	}
}

func TestOneResultDirectoryTakesOneResult(t *testing.T) {
	args := append(serverIs(t, loadtest.Behaviour{}), "--duration", "1s")
	out := filepath.Join(t.TempDir(), "out")
	var codes [3]int
	var words [3]string
	var wait sync.WaitGroup
	for i := range codes {
		wait.Go(func() { codes[i], _, words[i] = kvmark(t, append(slices.Clone(args), "--out", out)...) })
	}
	wait.Wait()
	saved, refused := 0, 0
	for i, code := range codes {
		switch {
		case code == exitUsage && strings.Contains(words[i], "--out "+out):
			refused++
		case code == exitGood || code == exitInvalid:
			saved++
		}
	}
	if saved != 1 || refused != 2 {
		t.Errorf("%d saved, %d refused: %v %q", saved, refused, codes, words)
	}
	if files, err := os.ReadDir(out); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestARefusedCommandLeavesNoDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", "")
	for _, command := range []string{"run", "chat", "conns", "compare --vary GOGC=50,100"} {
		for _, out := range []string{"", " --out o/p"} {
			code, _, stderr := kvmark(t, strings.Fields(command+out+" --server /no/such/kvserver")...)
			files, _ := os.ReadDir(".")
			for _, f := range files {
				if inner, _ := os.ReadDir(f.Name()); f.Name() != "o" || len(inner) != 0 {
					t.Errorf("%s%s: %s with %v is left", command, out, f.Name(), inner)
				}
			}
			if code == exitGood {
				t.Errorf("%s: exit %d: %s", command, code, stderr)
			}
		}
	}
}

func TestAPlanOfOneRoundHasOneRound(t *testing.T) {
	c := experiment.DefaultConfig()
	c.Factors, c.Load.Modes, c.Rounds = []experiment.Factor{{Name: "GOGC", Values: []string{"50", "100"}}}, []string{"memory"}, 1
	if words := planWords(c); !strings.Contains(words, "a round is 3 samples") || !strings.Contains(words, "; 1 round, at least") {
		t.Error(words)
	}
	if c.Rounds = 2; !strings.Contains(planWords(c), "; 2 rounds, at least") {
		t.Error(planWords(c))
	}
	_, round := c.Round()
	if c.Rounds, c.Budget = 0, round*3/2; !strings.Contains(planWords(c), "at most 1 round in") {
		t.Error(planWords(c))
	}
}
