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
		{"a tick", 20 * time.Millisecond, 0, 0, 0},
		{"late among others", 200 * time.Millisecond, 0, 0, 0},
		{"late, but at work", 2 * time.Second, time.Second, 0, 0},
		{"stopped", 520 * time.Millisecond, time.Millisecond, 0, 500 * time.Millisecond},
		{"suspended, while the clock stood still", 20 * time.Millisecond, 0, time.Minute, time.Minute},
	} {
		p := &pauses{last: tickReading{at: t0}}
		p.look(tickReading{t0.Add(tt.since), tt.asleep, tt.cpu, true})
		var got time.Duration
		for _, one := range p.list {
			got += one.length
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
	for _, ms := range []int{20, 540, 30, 550} {
		p.look(tickReading{at: t0.Add(time.Duration(ms) * time.Millisecond), cpuKnown: true})
	}
	if len(p.list) != 1 || p.list[0].length != 500*time.Millisecond {
		t.Errorf("%v, want one pause of 500ms", p.list)
	}
}

// A client that is stopped within its window does not say that the server stood still.
func TestAStoppedClientDoesNotBlameTheServer(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("KVMARK_LOAD_STOPPED"); dir != "" { // we are that client
		c := config(t, loadtest.Behaviour{})
		c.Duration, c.Dir, c.Ops = 2500*time.Millisecond, dir, []string{"set"}
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
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "KVMARK_LOAD_STOPPED="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	var cell result.Cell
	text := ""
	chunk := make([]byte, 1<<20)
	for stopped := false; ; {
		n, err := out.Read(chunk)
		text += string(chunk[:n])
		if !stopped && strings.Contains(text, "measuring") {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(700 * time.Millisecond) // this is what is tested
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
	if cell.Valid || !slices.Contains(failed(cell), "client_ran") {
		t.Errorf("valid %v: %+v", cell.Valid, cell.Checks)
	}
	for _, row := range cell.Series {
		if strings.Contains(row.Cause, "server stood still") {
			t.Errorf("second %v: %s", row.T, row.Cause)
		}
	}
}
