package load

import (
	"strings"
	"testing"
	"time"

	"kvmark/client/load/loadtest"
)

// target starts a server that behaves so, and returns a run against it that does not know who started it.
func target(t *testing.T, b loadtest.Behaviour) Config {
	t.Helper()
	c := config(t, b)
	r := &runner{Config: c.withDefaults()}
	server, err := r.startServer(t.Context(), "memory", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.kill()
		server.ended(time.Minute)
	})
	c.Target, c.Modes, c.Server, c.ServerEnv = Target{Addr: server.addr}, nil, "", nil
	return c
}

func TestATargetIsMeasuredAsFarAsItTells(t *testing.T) {
	for _, tt := range []struct {
		lie    loadtest.Lie
		counts bool
	}{
		{loadtest.Honest, true},
		{loadtest.NoInfo, false},
		{loadtest.NoCounts, false},
	} {
		t.Run(string(tt.lie), func(t *testing.T) {
			t.Parallel()
			c := target(t, loadtest.Behaviour{Lie: tt.lie})
			c.Repeat = 2
			out := run(t, t.Context(), c)
			if len(out.Cells) != 4 {
				t.Fatalf("%d cells, want Set and Get twice", len(out.Cells))
			}
			for _, cell := range out.Cells {
				if len(unsound(cell)) > 0 || cell.Mode != "target" {
					t.Errorf("%s %s: %+v", cell.Mode, cell.Op, cell.Checks)
				}
				if told := cell.Server.CPUPerOp != nil; told != tt.counts && cell.OK > 0 {
					t.Errorf("%s: CPU %v", cell.Op, cell.Server.CPUPerOp)
				}
				for _, check := range cell.Checks {
					if strings.HasPrefix(check.Name, "books_") && strings.Contains(check.Detail, "not checked") == tt.counts {
						t.Errorf("%s: %s", check.Name, check.Detail)
					}
				}
			}
			if out.Cells[2].Repeat != 2 {
				t.Errorf("third cell is of repeat %d", out.Cells[2].Repeat)
			}
		})
	}
}

func TestATargetThatCountsOtherwiseIsInvalid(t *testing.T) {
	for lie, want := range map[loadtest.Lie]string{
		loadtest.DoubleCount: "books_commands", loadtest.WrongValue: "wrong_values", loadtest.Die: "completed",
	} {
		c := target(t, loadtest.Behaviour{Lie: lie, After: 20})
		c.Workload.Keys, c.Patience = 5, 2*time.Second
		found := false
		for _, cell := range run(t, t.Context(), c).Cells {
			for _, name := range failed(cell) {
				found = found || name == want
			}
		}
		if !found {
			t.Errorf("%s: no cell fails %s", lie, want)
		}
	}
}

func TestATargetThatCannotBeMeasuredEndsTheRunBeforeItBegins(t *testing.T) {
	for _, tt := range []struct {
		lie  loadtest.Lie
		want string
	}{
		{loadtest.NoAuth, "redis://:PASSWORD@"},
		{loadtest.NoSet, "unknown command 'SET'"},
		{loadtest.OtherProtocol, "Redis's protocol"},
		{loadtest.Forget, "does not give back"},
		{loadtest.NotEmpty, "--allow-data"},
	} {
		t.Run(string(tt.lie), func(t *testing.T) {
			t.Parallel()
			out, err := Run(t.Context(), target(t, loadtest.Behaviour{Lie: tt.lie}))
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(out.Cells) > 0 {
				t.Errorf("error %v, %d cells; want one with %q", err, len(out.Cells), tt.want)
			}
		})
	}
	t.Run("data are allowed", func(t *testing.T) {
		c := target(t, loadtest.Behaviour{Lie: loadtest.NotEmpty})
		c.AllowData = true
		for _, cell := range run(t, t.Context(), c).Cells {
			if len(unsound(cell)) > 0 {
				t.Errorf("%s: %+v", cell.Op, cell.Checks)
			}
		}
	})
}

func TestParseTarget(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Target
	}{
		{"redis://localhost", Target{Addr: "localhost:6379"}},
		{"redis://127.0.0.1:1/0", Target{Addr: "127.0.0.1:1"}},
		{"redis://:p%40ss@[::1]:2", Target{Addr: "[::1]:2", Password: "p@ss"}},
		{"redis://joe:x@h", Target{Addr: "h:6379", User: "joe", Password: "x"}},
	} {
		if got, err := ParseTarget(tt.in); err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v", tt.in, got, err)
		}
	}
	for _, in := range []string{"", "localhost:6379", "http://h", "redis://", "redis://:secret@h/1", "redis://joe@h", "redis://:secret@h:x", "redis://:secret@h?a=b", "redis://:%zzsecret@h"} {
		if _, err := ParseTarget(in); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", in, err)
		}
	}
	if s := (Target{Addr: "h:1", Password: "secret"}).String(); s != "redis://h:1" {
		t.Errorf("printed as %s", s)
	}
}

func TestParseSLO(t *testing.T) {
	for in, want := range map[string]SLO{
		"p99<2ms": {99, 2 * time.Millisecond}, "p99.9 < 10ms": {99.9, 10 * time.Millisecond}, "max<1s": {100, time.Second},
	} {
		got, err := ParseSLO(in)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
		if again, err := ParseSLO(got.String()); err != nil || again != want {
			t.Errorf("%s: printed as %s", in, got)
		}
	}
	for _, in := range []string{"", "p99", "99<2ms", "p0<1ms", "p101<1ms", "pNaN<1ms", "p99<2", "p99<-1ms", "p99<0s"} {
		if got, err := ParseSLO(in); err == nil {
			t.Errorf("%q is %+v", in, got)
		}
	}
}
