package load

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"kvmark/client/load/loadtest"
	"kvmark/client/result"
)

// Another arm's server that works while this arm has its slice is ours: it is no other process, nor the cause of anything.
func TestServersBesideAnArmAreNoOtherProcesses(t *testing.T) {
	spin := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	if err := spin.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _, _ = spin.Process.Kill(), spin.Wait() }()
	other := &Arm{s: &session{server: &server{pid: spin.Process.Pid, done: make(chan struct{})}}}
	a, err := Start(t.Context(), config(t, loadtest.Behaviour{}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	}()
	a.Beside([]*Arm{other, a, nil})
	if err := a.Begin(t.Context(), "set"); err != nil {
		t.Fatal(err)
	}
	spun := time.Duration(0)
	for range 3 {
		before, _ := processCPU(spin.Process.Pid)
		a.Slice(t.Context(), 100*time.Millisecond)
		after, known := processCPU(spin.Process.Pid)
		if !known {
			t.Fatal("the CPU clock of a child cannot be read")
		}
		spun += after - before
	}
	own, _ := a.s.server.cpuClock()
	servers, machine, expense := a.open.servers, a.open.machine, a.open.expense.cpu
	if servers < spun/2 || servers > spun+own {
		t.Errorf("servers beside each other used %v within the slices, of which one alone about %v", servers, spun)
	}
	cell, err := a.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := machine.Others((servers + expense).Seconds()).CPUShare
	if got := cell.Others.CPUShare; got == nil || want == nil || *got != *want {
		t.Errorf("others used %v of the CPUs, want %v", got, want)
	}
}

func TestAPauseIsNamedForLoadsOfOtherKinds(t *testing.T) {
	h, err := OpenHost(t.Context(), config(t, loadtest.Behaviour{}), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, length := range []time.Duration{0, 2 * time.Second} {
		before, err := h.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if length > 0 {
			h.s.pauses.mu.Lock()
			h.s.pauses.list = append(h.s.pauses.list, pause{before.At, before.At.Add(length), 0})
			h.s.pauses.mu.Unlock()
		}
		after, err := h.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		after.At = after.At.Add(length)
		c := result.Cell{Valid: true}
		h.Enter(&c, before, after, 10)
		if found := slices.Contains(failed(c), "client_ran"); found != (length > 0) || c.Valid == found {
			t.Errorf("stopped for %v: %+v", length, c.Checks)
		}
	}
}
