package load

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvmark/client/load/loadtest"
	"kvmark/client/result"
)

func TestAPauseIsToldFromAWaitAndFromWork(t *testing.T) {
	t0 := time.Now()
	for _, tt := range []struct {
		name               string
		since, cpu, asleep time.Duration
		want               time.Duration
	}{
		{"a tick", 10 * time.Millisecond, 0, 0, 0},
		{"late among others", 25 * time.Millisecond, 0, 0, 0},
		{"late, but at work", 2 * time.Second, time.Second, 0, 0},
		{"stopped for a moment", 110 * time.Millisecond, 10 * time.Millisecond, 0, 100 * time.Millisecond},
		{"stopped", 510 * time.Millisecond, time.Millisecond, 0, 500 * time.Millisecond},
		{"suspended, while the clock stood still", 10 * time.Millisecond, 0, time.Minute, time.Minute},
	} {
		p := &pauses{last: tickReading{at: t0}}
		p.look(tickReading{t0.Add(tt.since), tt.asleep, tt.cpu, true})
		var got time.Duration
		for _, one := range p.list {
			got += one.end.Sub(one.start) + one.asleep
		}
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Two goroutines read; one may be stopped between its reading and handing it in.
func TestAPauseIsCountedOnce(t *testing.T) {
	t0 := time.Now()
	p := &pauses{last: tickReading{at: t0}}
	for _, ms := range []int{10, 520, 20, 530} {
		p.look(tickReading{at: t0.Add(time.Duration(ms) * time.Millisecond), cpuKnown: true})
	}
	if len(p.list) != 1 || p.list[0].end.Sub(p.list[0].start) != 500*time.Millisecond {
		t.Errorf("%v, want one pause of 500ms", p.list)
	}
}

func TestHowLongAClientMayStandStill(t *testing.T) {
	for _, tt := range []struct {
		pauses []time.Duration
		window time.Duration
		want   bool
	}{
		{nil, 50 * time.Millisecond, true},
		{[]time.Duration{90 * time.Millisecond, 90 * time.Millisecond}, time.Second, true}, // a busy machine
		{[]time.Duration{110 * time.Millisecond}, time.Second, false},
		{[]time.Duration{110 * time.Millisecond}, 5 * time.Second, true},
		{[]time.Duration{110 * time.Millisecond, 30 * time.Millisecond, 150 * time.Millisecond}, 5 * time.Second, false},
		{[]time.Duration{300 * time.Millisecond}, time.Minute, false},
	} {
		begin := time.Now()
		at := begin
		p := &pauses{last: tickReading{at: begin.Add(time.Hour)}}
		for _, d := range tt.pauses {
			p.list = append(p.list, pause{start: at, end: at.Add(d)})
			at = at.Add(d + time.Millisecond)
		}
		checkPauses(p.between(begin, begin.Add(time.Minute)), tt.window, func(name string, pass bool, format string, args ...any) {
			if name != "client_ran" || pass != tt.want {
				t.Errorf("%v in a window of %v: %s %v: %s", tt.pauses, tt.window, name, pass, fmt.Sprintf(format, args...))
			}
		})
	}
}

// stoppedClient runs a test of that name, which is to measure, as a process of its own that is stopped for a while in its window,
// and returns its cell.
func stoppedClient(t *testing.T, length time.Duration, env ...string) (cell result.Cell) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestMeasureToBeStopped$")
	cmd.Env = append(append(os.Environ(), env...), "KVMARK_LOAD_STOPPED="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	text := ""
	chunk := make([]byte, 1<<20)
	for stopped := false; ; {
		n, err := out.Read(chunk)
		text += string(chunk[:n])
		if !stopped && strings.Contains(text, "measuring") {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(length) // this is what is tested
			_ = cmd.Process.Signal(syscall.SIGCONT)
		}
		if err != nil {
			break
		}
	}
	_, line, _ := strings.Cut(text, "cell ")
	line, _, _ = strings.Cut(line, "\n")
	if err := json.Unmarshal([]byte(line), &cell); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return cell
}

// TestMeasureToBeStopped is the client of stoppedClient.
func TestMeasureToBeStopped(t *testing.T) {
	dir := os.Getenv("KVMARK_LOAD_STOPPED")
	if dir == "" {
		t.Skip("this is no test by itself")
	}
	c := config(t, loadtest.Behaviour{})
	c.Duration, c.Dir, c.Ops = 2500*time.Millisecond, dir, []string{"set"}
	if s := os.Getenv("KVMARK_LOAD_RATE"); s != "" {
		var err error
		if c.Rate, err = ParseRate(s); err != nil {
			t.Fatal(err)
		}
	}
	said := false
	c.Progress = func(p Progress) {
		if p.Stage == "measure" && p.Elapsed > 100*time.Millisecond && !said {
			said = true
			fmt.Println("measuring")
		}
	}
	out, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(out.Cells[0])
	fmt.Printf("cell %s\n", b)
}

// A client that is stopped within its window does not say that the server stood still.
func TestAStoppedClientDoesNotBlameTheServer(t *testing.T) {
	t.Parallel()
	cell := stoppedClient(t, 700*time.Millisecond)
	if cell.Valid || !slices.Contains(failed(cell), "client_ran") {
		t.Errorf("valid %v: %+v", cell.Valid, cell.Checks)
	}
	for _, row := range cell.Series {
		if strings.Contains(row.Cause, "server stood still") {
			t.Errorf("second %v: %s", row.T, row.Cause)
		}
	}
}

// A moment is 4 % of the window and hides in it, but it is the tail of the response time.
func TestAClientStoppedForAMomentIsTheTailOfOpenLoop(t *testing.T) {
	t.Parallel()
	cell := stoppedClient(t, 110*time.Millisecond, "KVMARK_LOAD_RATE=1000")
	if cell.Valid || !slices.Contains(failed(cell), "client_tail") || cell.Client.Bound != "client" {
		t.Errorf("valid %v, bound by %q, response %v us at p99: %+v", cell.Valid, cell.Client.Bound, deref(cell.Pace.ResponseUS.P99), cell.Checks)
	}
	for _, row := range cell.Series {
		if strings.Contains(row.Cause, "server stood still") {
			t.Errorf("second %v: %s", row.T, row.Cause)
		}
	}
}
