package load

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvmark/client/result"
)

func TestAStoppedServerIsSeen(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	until := func(want bool) {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if stopped, known := processStopped(cmd.Process.Pid); known && stopped == want {
				return
			}
		}
		t.Fatalf("the process never was stopped: %v", want)
	}
	done := make(chan struct{})
	begin := time.Now()
	seen := (&server{pid: cmd.Process.Pid, done: make(chan struct{})}).followStops(begin, done)
	until(false)
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	until(true)
	from := time.Since(begin)
	time.Sleep(4 * stopTick) // how long it is stopped
	to := time.Since(begin)
	_ = cmd.Process.Signal(syscall.SIGCONT)
	until(false)
	close(done)
	got := seen()
	if !got.known || len(got.list) != 1 || got.list[0].to < to || got.list[0].from < from-stopTick {
		t.Errorf("stopped from %v to %v, seen %+v", from, to, got)
	}
}

// The counters of a server that was stopped while an fsync was on its way hold the stop as the time of the fsync.
func TestAStoppedServerDidNotWaitForFsync(t *testing.T) {
	n := result.Number
	rows := func(info float64) []result.Row {
		rows, samples := make([]result.Row, 9), make([]*result.ServerRow, 9)
		for i := range rows {
			rows[i] = result.Row{T: float64(i), Seconds: 1, OK: 1000, QPS: n(1000), P99US: n(500), MaxUS: n(600)}
			samples[i] = &result.ServerRow{WALSyncs: n(1), WALSyncUS: n(2000), InfoUS: n(300)}
		}
		rows[4].QPS, rows[4].MaxUS, samples[4].WALSyncUS, samples[4].InfoUS = n(300), n(700_000), n(700_000), n(info)
		join(rows, samples)
		return rows
	}
	for _, tt := range []struct {
		name string
		s    stops
		info float64
		want string
	}{
		{"stopped", stops{known: true, list: []stop{{4200 * time.Millisecond, 4900 * time.Millisecond}}}, 700_000, "stopped by a signal (state T) for about 0.70 s"},
		{"not stopped", stops{known: true}, 700_000, "fsync: 1 took 700 ms"},
		{"stopped in another second", stops{known: true, list: []stop{{2100 * time.Millisecond, 2200 * time.Millisecond}}}, 700_000, "fsync: 1 took 700 ms"},
		{"not known, INFO late too", stops{}, 700_000, "the server stood still, INFO too took 0.70 s"},
		{"not known, INFO answered", stops{}, 400, "fsync: 1 took 700 ms"},
	} {
		r := rows(tt.info)
		tt.s.explain(r)
		if !strings.HasPrefix(strings.TrimPrefix(r[4].Cause, "the server's process was "), tt.want) {
			t.Errorf("%s: %s", tt.name, r[4].Cause)
		}
		for i := range r {
			if i != 4 && r[i].Cause != "" {
				t.Errorf("%s: second %d: %s", tt.name, i, r[i].Cause)
			}
		}
	}
}
