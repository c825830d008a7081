package load

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"go.uber.org/goleak"

	"kvmark/client"
	"kvmark/client/load/loadtest"
	"kvmark/client/result"
	"kvmark/client/workload"
	"kvmark/kvserver/resp"
)

func TestMain(m *testing.M) {
	loadtest.Main()
	goleak.VerifyTestMain(m)
}

// config is a short run against a loadtest server.
func config(t *testing.T, b loadtest.Behaviour) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.Modes = []string{"memory"}
	c.Workload = workload.Config{Seed: 1, Workers: 3, Keys: 200}
	c.Duration = 100 * time.Millisecond
	c.Warmup = 0
	// A program built with -race sleeps for a second when it ends.
	c.Server, c.ServerEnv = self, []string{loadtest.Env(b), "GORACE=atexit_sleep_ms=0"}
	c.Dir = t.TempDir()
	c.Logf = t.Logf
	c.tick = 20 * time.Millisecond
	return c
}

func run(t *testing.T, ctx context.Context, c Config) Outcome {
	t.Helper()
	out, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("%s was left behind", left[0].Name())
	}
	return out
}

func failed(c result.Cell) []string {
	var names []string
	for _, check := range c.Checks {
		if !check.Pass {
			names = append(names, check.Name)
		}
	}
	return names
}

// unsound lists the failed checks but those that a machine too busy for a test's short windows fails.
func unsound(c result.Cell) []string {
	return slices.DeleteFunc(failed(c), func(name string) bool {
		return slices.Contains([]string{"window_long_enough", "littles_law", "stalled", "asked_rate", "send_lateness", "client_delay", "client_ran", "client_tail"}, name)
	})
}

func TestAnHonestServerGivesValidCellsAndExactBooks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		ops    string
	}{
		{"one request in flight", func(*Config) {}, "set get"},
		{"a warm-up before each window", func(c *Config) { c.Warmup = 30 * time.Millisecond }, "set get"},
		{"a pipeline", func(c *Config) { c.Pipeline = 7 }, "set get"},
		{"a mix", func(c *Config) { c.Workload.Mix = workload.Mix{Sets: 1, Gets: 2} }, "mix"},
		{"a mix in a pipeline of few keys", func(c *Config) {
			c.Workload.Mix, c.Pipeline, c.Workload.Keys = workload.Mix{Sets: 1, Gets: 1}, 9, 6
		}, "mix"},
		{"Gets alone", func(c *Config) { c.Ops = []string{"get"} }, "get"},
		{"sized values in a hot set", func(c *Config) {
			c.Workload.ValueSize, c.Workload.Compressibility = workload.Size{Min: 1, Max: 3000}, 0.5
			c.Workload.Distribution, _ = workload.ParseDistribution("hotset:0.1:0.9")
		}, "set get"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			journal := filepath.Join(t.TempDir(), "journal")
			c := config(t, loadtest.Behaviour{Journal: journal})
			tt.change(&c)
			out := run(t, t.Context(), c)
			var ops []string
			var windows []int64 // commands that the server must have seen within each window
			for _, cell := range out.Cells {
				ops = append(ops, cell.Op)
				if len(unsound(cell)) > 0 {
					t.Errorf("%s is invalid: %+v", cell.Op, cell.Checks)
				}
				if got := *cell.QPS * cell.Seconds; math.Abs(got-float64(cell.OK)) > 0.5 {
					t.Errorf("%s: QPS %v x %v s is not %d", cell.Op, *cell.QPS, cell.Seconds, cell.OK)
				}
				if most := int64(c.Workload.Workers * c.Pipeline); cell.Late > most {
					t.Errorf("%s: %d late, at most %d were in flight", cell.Op, cell.Late, most)
				}
				if cell.Sets+cell.Gets != cell.OK {
					t.Errorf("%s: %d Sets and %d Gets are not %d", cell.Op, cell.Sets, cell.Gets, cell.OK)
				}
				if cell.OK == 0 {
					t.Skip("the machine is too busy")
				}
				if h, err := hdr.Decode([]byte(cell.Histogram)); err != nil || h.TotalCount() != cell.OK {
					t.Errorf("%s: histogram holds %d, %v; want %d", cell.Op, h.TotalCount(), err, cell.OK)
				}
				sum := int64(0)
				for _, row := range cell.Series {
					sum += row.OK
				}
				if sum != cell.OK {
					t.Errorf("%s: the rows hold %d, want %d", cell.Op, sum, cell.OK)
				}
				if want := c.Duration.Seconds(); cell.Seconds != want {
					t.Errorf("%s: window of %v s, want %v", cell.Op, cell.Seconds, want)
				}
				checkServerColumns(t, cell)
				windows = append(windows, cell.OK+cell.Late)
			}
			if got := strings.Join(ops, " "); got != tt.ops {
				t.Errorf("measured %q, want %q", got, tt.ops)
			}
			if got := windowsOf(t, journal); fmt.Sprint(got) != fmt.Sprint(windows) {
				t.Errorf("the server saw %v commands in the windows, the cells say %v", got, windows)
			}
		})
	}
}

// The loadtest server's counters move by known steps.
func checkServerColumns(t *testing.T, c result.Cell) {
	t.Helper()
	near := func(name string, got *float64, want float64) {
		if got == nil || math.Abs(*got-want) > 0.01*want {
			t.Errorf("%s: %s is %v, want about %v", c.Op, name, *got, want)
		}
	}
	near("CPU", c.Server.CPUPerOp, 4)
	near("user CPU", c.Server.CPUUserPerOp, 3)
	near("bytes", c.Server.AllocBytesOp, 64)
	near("objects", c.Server.AllocObjectsOp, 2)
	near("RSS", c.Server.RSSPeakBytes, 12_345_678)
	if c.Server.GCCycles == nil {
		t.Errorf("%s: no GC cycles", c.Op)
	} else if *c.Server.GCCycles == 0 && c.Server.GCCPUShare != nil {
		t.Errorf("%s: a GC share of %v without a cycle", c.Op, *c.Server.GCCPUShare)
	} else if *c.Server.GCCycles > 0 {
		near("GC share", c.Server.GCCPUShare, 0.1)
	}
	if c.Client.CeilingQPS == nil {
		t.Logf("%s: no ceiling: not one PING was answered in its slices", c.Op)
	}
}

// windowsOf reads from the server's own journal how many Sets and Gets lay between the two INFOs around each window:
// the first after a CONFIG RESETSTAT, and the next.
func windowsOf(t *testing.T, journal string) []int64 {
	t.Helper()
	b, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	var all []int64
	state := ""
	for line := range strings.Lines(string(b)) {
		var name string
		var n int64
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			t.Fatalf("journal: %q", line)
		}
		switch {
		case name == "config":
			state = "reset"
		case name == "info" && state == "reset":
			state = "window"
			all = append(all, 0)
		case name == "info":
			state = ""
		case state == "window" && (name == "set" || name == "get"):
			all[len(all)-1] += n
		case state == "window":
			t.Errorf("%q within a window", line)
		}
	}
	return all
}

// Warm-up requests leaked into other tools' totals, histograms or clocks (YCSB#422, sysbench#167). Here the server is
// fast until the window opens and slow from then on, so a single leaked request would be too fast for the window, or one
// too many.
func TestNothingOfTheWarmUpIsInTheWindow(t *testing.T) {
	t.Parallel()
	const step = 3 * time.Millisecond
	c := config(t, loadtest.Behaviour{Step: step})
	c.Warmup, c.Ops = 30*time.Millisecond, []string{"set"}
	cell := run(t, t.Context(), c).Cells[0]
	if least := cell.LatencyUS.Min; least == nil || *least < float64(step.Microseconds())*0.999 { // 3 digits
		t.Errorf("a reply took %v us, none can take less than %v", *least, step)
	}
	if most := int64(c.Workload.Workers) * int64(c.Duration/step); cell.OK == 0 || cell.OK > most {
		t.Errorf("%d replies, at most %d are possible", cell.OK, most)
	}
	for _, row := range cell.Series {
		if row.P50US == nil || *row.P50US < float64(step.Microseconds())*0.99 { // 2 digits
			t.Errorf("row %v has a median of %v us", row.T, row.P50US)
		}
	}
}

// Each lie must be caught, by the check that is there for it. The last op measured carries the failures.
func TestALyingServerIsCaughtByTheRightCheck(t *testing.T) {
	tests := []struct {
		lie    loadtest.Lie
		op     string // the op measured while it lies
		want   string // these checks fail, at least
		detail string // part of some failed check's detail
	}{
		{loadtest.DropReply, "set", "errors", "no reply in time"},
		{loadtest.Refuse, "set", "errors", `answers "ERR not today"`},
		{loadtest.Refuse, "get", "errors", `answers "ERR not today"`},
		{loadtest.WrongKind, "set", "errors", "answers :1 where +OK is due"},
		{loadtest.WrongKind, "get", "errors", "answers :1 where a string or null is due"},
		{loadtest.Reset, "set", "errors", "server closed the connection"},
		{loadtest.Reset, "get", "errors", "server closed the connection"},
		{loadtest.Silence, "get", "errors completed", "no reply in time"},
		{loadtest.WrongValue, "get", "wrong_values", "1 in the window"},
		{loadtest.OtherValue, "get", "wrong_values", "1 in the window"},
		{loadtest.Miss, "get", "hit_ratio", "Gets found their key"},
		{loadtest.Lose, "set", "keys_proven", "DBSIZE"},
		{loadtest.Twice, "set", "protocol", `sent "+OK\r\n`},
		{loadtest.TwiceOnce, "set", "protocol", `sent "+OK\r\n"`},
		{loadtest.Miscount, "set", "books_commands", "server executed"},
		{loadtest.Miscount, "get", "books_commands", "server executed"},
		{loadtest.MiscountWAL, "set", "books_wal", "log grew by"},
		{loadtest.MiscountWAL, "get", "books_wal", "0 Sets acknowledged, log grew by 1"},
		{loadtest.Procs, "set", "gomaxprocs_same", "server"},
		{loadtest.Die, "set", "completed", "out of luck"},
		{loadtest.Die, "get", "completed", "exit status 7"},
		{loadtest.BadExit, "set", "server_exit", "could not sync"},
		{loadtest.IgnoreSIGTERM, "set", "server_exit", "did not stop within"},
	}
	for _, tt := range tests {
		t.Run(string(tt.lie)+" "+tt.op, func(t *testing.T) {
			t.Parallel()
			c := config(t, loadtest.Behaviour{Lie: tt.lie, After: 20})
			if tt.op == "get" {
				// The fill is one Set for each key: the lie must begin behind it, or be about Gets.
				c.Workload.Keys = 5
			}
			c.Ops = []string{tt.op}
			if waits := []loadtest.Lie{loadtest.DropReply, loadtest.Silence, loadtest.IgnoreSIGTERM}; slices.Contains(waits, tt.lie) {
				c.Patience = 1500 * time.Millisecond
			}
			out := run(t, t.Context(), c)
			if len(out.Cells) != 1 {
				t.Fatalf("%d cells, want 1", len(out.Cells))
			}
			cell := out.Cells[0]
			names := failed(cell)
			if slices.Contains(names, "window_long_enough") && cell.OK > 0 && cell.OK < 50 && len(unsound(cell)) == 0 {
				t.Skip("the machine is too busy: the lie was not due yet")
			}
			if cell.Valid || len(names) == 0 {
				t.Fatalf("valid: %+v", cell.Checks)
			}
			for want := range strings.FieldsSeq(tt.want) {
				if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+want+" ") {
					t.Errorf("failed checks %v, want %s too", names, want)
				}
			}
			if details := fmt.Sprint(cell.Checks); !strings.Contains(details, tt.detail) {
				t.Errorf("no check says %q: %s", tt.detail, details)
			}
			if cell.OK > 0 && (cell.QPS == nil || *cell.QPS*cell.Seconds > float64(cell.OK)+0.5) {
				t.Errorf("QPS %v counts more than the %d right replies in %v s", cell.QPS, cell.OK, cell.Seconds)
			}
		})
	}
}

// What was right once is not right for ever.
func TestALostOverwriteAndAStaleReadAreWrongValues(t *testing.T) {
	for _, size := range []workload.Size{{}, {Min: 100, Max: 100}} {
		for _, lie := range []loadtest.Lie{loadtest.LoseOverwrites, loadtest.Stale} {
			c := config(t, loadtest.Behaviour{Lie: lie, After: 20})
			c.Workload.Keys, c.Workload.ValueSize = 5, size
			cell := run(t, t.Context(), c).Cells[1]
			if cell.Valid || !slices.Contains(failed(cell), "wrong_values") || !strings.Contains(cell.FirstError, "Sets before the last one") {
				t.Errorf("%s, values of %v: valid %v, %s: %+v", lie, size, cell.Valid, cell.FirstError, cell.Checks)
			}
		}
	}
}

// A Set that failed may have been executed or not: no value of its key is wrong until the next one is acknowledged.
func TestASetThatFailedLeavesTheValueOpen(t *testing.T) {
	c := config(t, loadtest.Behaviour{Lie: loadtest.Refuse, After: 20})
	c.Workload.Keys, c.Workload.Mix, c.Pipeline = 5, workload.Mix{Sets: 1, Gets: 1}, 5
	cell := run(t, t.Context(), c).Cells[0]
	if cell.Wrong != 0 || cell.Errors == 0 {
		t.Errorf("%d wrong, %d errors: %s", cell.Wrong, cell.Errors, cell.FirstError)
	}
	c = config(t, loadtest.Behaviour{Lie: loadtest.Reset, After: 200})
	c.Workload.Keys, c.Pipeline = 5, 5
	for _, cell := range run(t, t.Context(), c).Cells {
		if cell.Wrong != 0 {
			t.Errorf("%d wrong: %s", cell.Wrong, cell.FirstError)
		}
	}
}

func TestAServerThatOnlySeemsOddIsValid(t *testing.T) {
	t.Parallel()
	c := config(t, loadtest.Behaviour{Lie: loadtest.Trickle})
	for _, cell := range run(t, t.Context(), c).Cells {
		if len(unsound(cell)) > 0 {
			t.Errorf("%s: %+v", cell.Op, cell.Checks)
		}
	}
}

func TestAServerThatDoesNotStartAsOursIsAnError(t *testing.T) {
	tests := []struct {
		lie  loadtest.Lie
		want string
	}{
		{loadtest.NoStart, "no start today"},
		{loadtest.Garbage, "is this a kvserver"},
		{loadtest.Mute, "not ready within"},
		{loadtest.OtherRunID, "is this another server"},
		{loadtest.OtherInfo, "is not the server we started"},
		{loadtest.NotEmpty, "already holds 1 keys"},
	}
	for _, tt := range tests {
		t.Run(string(tt.lie), func(t *testing.T) {
			t.Parallel()
			c := config(t, loadtest.Behaviour{Lie: tt.lie})
			if tt.lie == loadtest.Mute {
				c.Patience = time.Second
			}
			out, err := Run(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if len(out.Cells) != 0 {
				t.Errorf("%d cells", len(out.Cells))
			}
		})
	}
	t.Run("no such file", func(t *testing.T) {
		c := config(t, loadtest.Behaviour{})
		c.Server = filepath.Join(t.TempDir(), "kvserver")
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), c.Server) {
			t.Errorf("error %v, want one with the path", err)
		}
	})
}

func TestADeathIsNoEndOfTheRun(t *testing.T) {
	t.Parallel()
	c := config(t, loadtest.Behaviour{Lie: loadtest.Die, After: 20})
	c.Modes = []string{"memory", "file"}
	out := run(t, t.Context(), c)
	var got []string
	for _, cell := range out.Cells {
		got = append(got, cell.Mode+" "+cell.Op)
	}
	if want := "memory set, memory get, file set, file get"; strings.Join(got, ", ") != want {
		t.Fatalf("cells of %v, want %s: a Get that cannot be measured is shown as that", got, want)
	}
	if details := fmt.Sprint(out.Cells[1].Checks); !strings.Contains(details, "not measured: the server was lost in set") {
		t.Errorf("the Get says %s", details)
	}
	for _, cell := range out.Cells {
		if cell.Valid {
			t.Errorf("%s is valid", cell.Mode)
		}
	}
}

func TestADeathDuringTheFillIsAnInvalidCell(t *testing.T) {
	t.Parallel()
	c := config(t, loadtest.Behaviour{Lie: loadtest.Die, After: 20})
	c.Ops = []string{"get"}
	out := run(t, t.Context(), c)
	if len(out.Cells) != 1 || out.Cells[0].Valid || !strings.Contains(fmt.Sprint(out.Cells[0].Checks), "out of luck") {
		t.Errorf("cells %+v, want one that says how the server died", out.Cells)
	}
}

func TestRepeatsGoInTurnOverTheModes(t *testing.T) {
	t.Parallel()
	c := config(t, loadtest.Behaviour{})
	c.Modes, c.Repeat, c.Ops = []string{"memory", "lsm"}, 2, []string{"set"}
	var got []string
	pids := map[int]bool{}
	for _, cell := range run(t, t.Context(), c).Cells {
		got = append(got, fmt.Sprint(cell.Mode, cell.Repeat))
		pids[cell.Server.PID] = true
	}
	if want := "memory1 lsm1 memory2 lsm2"; strings.Join(got, " ") != want {
		t.Errorf("measured %v, want %s", got, want)
	}
	if len(pids) != 4 {
		t.Errorf("%d servers, want a fresh one each", len(pids))
	}
}

// An interruption in any stage ends the run, keeps what was measured, and leaves neither directory nor server: the
// goroutine that waits for the server would be seen as a leak.
func TestInterruption(t *testing.T) {
	for _, stage := range []string{"start", "set measure", "get fill", "get measure", "set warm-up"} {
		for _, hard := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s hard=%v", stage, hard), func(t *testing.T) {
				t.Parallel()
				c := config(t, loadtest.Behaviour{Delay: time.Millisecond})
				c.Duration, c.Patience = 4*time.Second, 8*time.Second
				switch {
				case strings.HasPrefix(stage, "get"):
					c.Ops = []string{"get"}
					c.Workload.Keys = 100
					if stage == "get fill" {
						c.Workload.Keys = 100_000
					}
				case stage == "set warm-up":
					c.Warmup = 8 * time.Second
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				kill := make(chan struct{})
				c.Kill = kill
				c.Progress = func(p Progress) {
					if strings.TrimSpace(p.Op+" "+p.Stage) != stage {
						return
					}
					if hard && ctx.Err() == nil {
						close(kill)
					}
					cancel()
				}
				out := run(t, ctx, c)
				if !out.Interrupted {
					t.Error("not marked as interrupted")
				}
				measured := strings.HasSuffix(stage, "measure")
				if want := map[bool]int{true: 1}[measured]; len(out.Cells) != want {
					t.Fatalf("%d cells, want %d", len(out.Cells), want)
				}
				if measured {
					cell := out.Cells[0]
					if names := failed(cell); cell.Valid || names[0] != "completed" {
						t.Errorf("failed checks %v, want completed first", names)
					}
					// The cut may leave a window that is too short; the books must balance all the same.
					names := slices.DeleteFunc(failed(cell), func(name string) bool {
						return name == "window_long_enough" || name == "stalled" || name == "littles_law"
					})
					if !hard && len(names) != 1 {
						t.Errorf("failed checks %v", names)
					}
					if cell.Seconds >= 4 || cell.OK > 0 && *cell.QPS*cell.Seconds > float64(cell.OK)+0.5 {
						t.Errorf("%v s, %v QPS for %d replies", cell.Seconds, *cell.QPS, cell.OK)
					}
				}
			})
		}
	}
}

func TestADeadParentTakesTheServerAlong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs a signal at the parent's death")
	}
	if dir := os.Getenv("KVMARK_LOAD_PARENT"); dir != "" { // we are that parent
		c := config(t, loadtest.Behaviour{})
		c.Duration, c.Dir = time.Minute, dir
		c.Progress = func(p Progress) {
			if p.Stage == "measure" {
				if self, err := os.FindProcess(os.Getpid()); err == nil {
					_ = self.Kill()
				}
			}
		}
		_, err := Run(t.Context(), c)
		t.Fatalf("still alive: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	parent := exec.Command(self, "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), "KVMARK_LOAD_PARENT="+dir)
	parent.WaitDelay = 5 * time.Second
	out, err := parent.CombinedOutput()
	if status, ok := parent.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the parent ended with %v: %s", err, out)
	}
	if left, _ := os.ReadDir(dir); len(left) == 0 {
		t.Fatal("the parent had started no server")
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if !mentioned(t, dir) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the server outlives its parent")
		}
	}
}

// mentioned reports whether a process runs with text in its command line.
func mentioned(t *testing.T, text string) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatalf("no processes in /proc: %v", err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), text) {
			return true
		}
	}
	return false
}

func TestWorkersAllocateNothingPerRequest(t *testing.T) {
	for _, k := range []kind{sets, gets, mixed, pings} {
		for _, depth := range []int{1, 16} {
			w := idleWorker(t, depth)
			p := openPhase(k, depth)
			const runs = 300
			allocs := testing.AllocsPerRun(runs, func() {
				if _, err := w.exchange(p, time.Since(p.t0), 0); err != nil {
					t.Error(err)
				}
			})
			if w.t.ok != int64((runs+1)*depth) { // and one to warm up
				t.Errorf("kind %d: %d right, want %d", k, w.t.ok, (runs+1)*depth)
			}
			if allocs != 0 {
				t.Errorf("kind %d, depth %d: %v allocations a batch, want 0", k, depth, allocs)
			}
		}
	}
}

// idleWorker is a worker whose server, in this process, allocates nothing either: it answers from what it was told
// before, each request known by its first byte behind the header.
func idleWorker(t *testing.T, depth int) *worker {
	t.Helper()
	c := workload.Config{Workers: 1, Keys: 1, Mix: workload.Mix{Sets: 1, Gets: 1}}
	gen, err := c.New(0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	value := resp.AppendBulk(nil, gen.AppendValue(nil, 0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var parser resp.Parser
		in, out := make([]byte, 0, 64<<10), make([]byte, 0, 64<<10)
		for {
			n, err := conn.Read(in[len(in):cap(in)])
			if err != nil {
				return
			}
			in, out = in[:len(in)+n], out[:0]
			rest := in
			for {
				args, n, err := parser.Next(rest)
				if err != nil || n == 0 {
					break
				}
				switch rest = rest[n:]; string(args[0]) {
				case "SET":
					value = resp.AppendBulk(value[:0], args[2])
					out = append(out, "+OK\r\n"...)
				case "GET":
					out = append(out, value...)
				default:
					out = append(out, "+PONG\r\n"...)
				}
			}
			in = in[:copy(in[:cap(in)], rest)]
			if _, err := conn.Write(out); err != nil {
				return
			}
		}
	}()
	conn, err := client.Dial(t.Context(), l.Addr().String(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		l.Close()
		<-done
	})
	w := &worker{gen: gen, conn: conn, written: newBitmap(1), last: newGenerations(1), timing: newTiming(32, false), second: newRowHistogram()}
	w.pieces.reset(piecesOf(time.Minute))
	if _, err := w.exchange(openPhase(mixed, 32), 0, 0); err != nil { // grow its buffers
		t.Fatal(err)
	}
	w.timing, w.t = newTiming(depth, false), tally{}
	return w
}

// openPhase is a phase of one worker whose window has just opened and does not close.
func openPhase(k kind, depth int) *phase {
	p := &phase{kind: k, depth: depth, t0: time.Now(), series: newSeries(1, time.Second)}
	p.end.Store(int64(time.Hour))
	return p
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no modes", func(c *Config) { c.Modes = nil }, "no modes"},
		{"an unknown mode", func(c *Config) { c.Modes = []string{"disk"} }, `mode "disk" is unknown`},
		{"a mode twice", func(c *Config) { c.Modes = []string{"lsm", "lsm"} }, "named twice"},
		{"an unknown op", func(c *Config) { c.Ops = []string{"del"} }, `op "del"`},
		{"a mix without ratio", func(c *Config) { c.Ops = []string{"mix"} }, "ratio"},
		{"no duration", func(c *Config) { c.Duration = 0 }, "duration 0s"},
		{"a negative duration", func(c *Config) { c.Duration = -time.Second }, "duration -1s"},
		{"a negative warm-up", func(c *Config) { c.Warmup = -1 }, "warmup -1ns"},
		{"a repeat beyond counting", func(c *Config) { c.Repeat = math.MaxInt }, "want 1..1000"},
		{"a duration beyond counting", func(c *Config) { c.Duration = math.MaxInt64 }, "at most 168h"},
		{"no repeat", func(c *Config) { c.Repeat = 0 }, "repeat 0"},
		{"no pipeline", func(c *Config) { c.Pipeline = 0 }, "pipeline 0"},
		{"a pipeline that could block itself", func(c *Config) { c.Pipeline = 5000 }, "pipeline 5000"},
		{"a batch beyond memory", func(c *Config) {
			c.Pipeline, c.Workload.ValueSize = 1024, workload.Size{Min: 4 << 20, Max: 4 << 20}
		}, "pipeline 1024 x values of 4194304 bytes = 4096 MiB in one batch"},
		{"endless patience", func(c *Config) { c.Patience = time.Hour }, "patience 1h"},
		{"empty buckets", func(c *Config) { c.Modes, c.BucketEntries = []string{"serialize"}, 0 }, "--bucket-entries is 0"},
		{"no server", func(c *Config) { c.Server = "" }, "no server"},
		{"an unknown policy", func(c *Config) { c.WALSync = "never" }, `wal-sync "never"`},
		{"an unknown codec", func(c *Config) { c.Codec = "rar" }, `codec "rar"`},
		{"many more workers", func(c *Config) { c.Workload.Workers = 1 << 20 }, "workers 1048576: want 1..1024"},
		{"no workers", func(c *Config) { c.Workload.Workers = 0 }, "workers 0: want 1..1024"},
		{"more workers than histograms", func(c *Config) { c.Workload.Workers = 5000 }, "workers 5000: want 1..1024"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := config(t, loadtest.Behaviour{})
			tt.change(&c)
			if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
