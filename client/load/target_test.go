package load

import (
	"strings"
	"testing"
	"time"

	"kvmark/client"
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
					if strings.HasPrefix(check.Name, "books_") && strings.HasPrefix(check.Detail, "n/a: the server gives no counters") == tt.counts {
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

// Loads of other kinds need the password as well, and say so before they begin.
func TestAHostThatWantsAPasswordSaysSo(t *testing.T) {
	h, err := OpenHost(t.Context(), target(t, loadtest.Behaviour{Lie: loadtest.NoAuth}), 1)
	if err == nil {
		h.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "redis://:PASSWORD@") {
		t.Errorf("%v, want how to give the password", err)
	}
}

func TestParseTarget(t *testing.T) {
	for _, tt := range []struct {
		in, printed string
		want        Target
	}{
		{"redis://localhost", "redis://localhost:6379", Target{Addr: "localhost:6379"}},
		{"redis://127.0.0.1:1/0", "redis://127.0.0.1:1", Target{Addr: "127.0.0.1:1"}},
		{"redis://:p%40ss@[::1]:2", "redis://[::1]:2", Target{Addr: "[::1]:2", Password: "p@ss"}},
		{"redis://:p@ss:w@h", "redis://h:6379", Target{Addr: "h:6379", Password: "p@ss:w"}},
		{"redis://joe:x@h", "redis://h:6379", Target{Addr: "h:6379", User: "joe", Password: "x"}},
		{"rediss://joe:x@h:7", "rediss://h:7", Target{Addr: "h:7", User: "joe", Password: "x", TLS: client.TLS{On: true}}},
		{"unix:///run/a b.sock", "unix:///run/a%20b.sock", Target{Addr: "unix:/run/a b.sock"}},
		{"unix://:x%23@/s", "unix:///s", Target{Addr: "unix:/s", Password: "x#"}},
	} {
		got, err := ParseTarget(tt.in)
		if err != nil || got != tt.want || got.String() != tt.printed {
			t.Errorf("%s: %+v, %v, printed %s", tt.in, got, err, got)
		}
	}
	for _, in := range []string{
		"", "localhost:6379", "http://h", "redis://", "redis://:Secret@h/1", "redis://Secret@h", "redis://:@h", "redis://@h", "redis://:Secret@h:x",
		"redis://:Secret@h?a=b", "redis://:%zzSecret@h", "redis://:57#Secret@h", "redis://:/Secret@h", "redis://:?Secret@h", "redis:Secret@h", "redis:/Secret@h",
		"redis://:Secret@h:7407:7", "redis://:Secret@h:7407:", "redis://:Secret@h:0", "redis://:Secret@h:65536", "redis://:Secret@::1:7", "redis://:Secret@h#",
		"redis://:Secret@h/0?", "redis://:S/Secret@h", "redis://x:57/Secret@h", "redis://x:57#Secret@h", "redis://x:57?Secret@h", "redis://:Sec ret@Sec ret",
		"redis://:Secret\\@h", "redis://:Secret@[h]", "redis://:Secret@[::1", "redis://:Secret@-h", "redis://Secret:57@/", "redis//:Secret@h", "Secret", ":Secret@h",
		"unix://:Secret@h/s", "unix://:Secret@/", "unix:Secret", "unix:///s?p=Secret", "rediss://:Secret@", "REDIS//Secret", "redis://:Secret\n@h", "redis://:Secret@h\x00",
	} {
		_, err := ParseTarget(in)
		if err == nil || strings.Contains(err.Error(), "Secret") {
			t.Errorf("%q: %v", in, err)
		} else if !strings.Contains(err.Error(), "%xx") {
			t.Errorf("%q: no hint how to write it: %v", in, err)
		}
	}
	if s := (Target{}).String(); s != "" {
		t.Errorf("none is printed as %s", s)
	}
}

// Whatever stands around a password, wherever that is, no error repeats it.
func FuzzParseTargetKeepsSecrets(f *testing.F) {
	for _, around := range [][2]string{{"redis://:", "@h"}, {"redis:", "@h"}, {"redis://:57#", "@h"}, {"unix://", "/s"}, {"redis://h:", ""}, {"redis://:x@h/", "?"}} {
		f.Add(around[0], around[1])
	}
	f.Fuzz(func(t *testing.T, before, behind string) {
		const secret = "Xs3cr3tX" // no word of ours
		target, err := ParseTarget(before + secret + behind)
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", before+secret+behind, err)
		}
		if err == nil && strings.Contains(target.Password, secret) && !strings.Contains(target.Addr, secret) && strings.Contains(target.String(), secret) {
			t.Errorf("%q is printed as %s", before+secret+behind, target)
		}
		if again, err2 := ParseTarget(target.String()); err == nil && (err2 != nil || again.Addr != target.Addr || again.TLS != target.TLS) {
			t.Errorf("%q is printed as %s, which is %+v, %v", before+secret+behind, target, again, err2)
		}
	})
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
