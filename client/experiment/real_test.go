package experiment

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A whole experiment on the real server, built from this very source: tiny, but with every part.
func TestARealExperiment(t *testing.T) {
	if testing.Short() {
		t.Skip("builds kvserver")
	}
	c := DefaultConfig()
	c.Out, c.Cache, c.Load.Dir = t.TempDir(), t.TempDir(), t.TempDir()
	c.Factors = []Factor{{"GOGC", []string{"50", "off"}}, {"GOMEMLIMIT", []string{Default, "512MiB"}}, {"checkpoint-bytes", []string{"1MiB"}}}
	c.Load.Modes = []string{"memory", "serialize"}
	c.Load.Duration, c.Load.Warmup, c.Load.Workload.Keys = 80*time.Millisecond, 0, 200
	c.Slices, c.Rounds, c.Control = 40*time.Millisecond, 1, true
	c.Logf = t.Logf
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Samples) != 2*(2*2+1) {
		t.Errorf("%d samples", len(o.Samples))
	}
	for _, s := range o.Samples {
		v := o.Plan.Variants[s.Variant]
		if s.Failed != "" || s.Process.GOGC != v.Get("GOGC") || s.Process.Go != o.Plan.Binaries[0].Version {
			t.Errorf("%s saw GOGC %s, %s: %s", v.Name, s.Process.GOGC, s.Process.Go, s.Failed)
			continue
		}
		for _, cell := range s.Cells {
			if cell.OK == 0 || cell.Server.CPUPerOp == nil || cell.Server.RSSPeakBytes == nil || cell.Server.MinorFaultsPerOp == nil {
				t.Errorf("%s %s: %+v", v.Name, cell.Op, cell.Server)
			}
			for _, check := range cell.Checks {
				// The others may fail on a busy machine.
				if !check.Pass && slices.Contains([]string{"books_commands", "books_wal", "keys_proven", "hit_ratio", "wrong_values", "errors", "completed"}, check.Name) {
					t.Errorf("%s %s: %s: %s", v.Name, cell.Op, check.Name, check.Detail)
				}
			}
		}
	}
	if a, err := Analyze(o, nil, 0, 0); err != nil || len(a.GC) != 4 {
		t.Errorf("%v", err)
	}
}

// pgo=auto: the server records a profile of itself in each mode, from which it is built once more; going on takes the same one.
func TestAProfileIsRecordedAndBuiltWith(t *testing.T) {
	if os.Getenv("KVMARK_LONG") == "" {
		t.Skip("builds kvserver and all it needs with a profile: KVMARK_LONG=1")
	}
	c := DefaultConfig()
	c.Out, c.Cache, c.Load.Dir = t.TempDir(), t.TempDir(), t.TempDir()
	c.Factors = []Factor{{"pgo", []string{"off", auto}}}
	c.Load.Modes = []string{"memory", "serialize"}
	c.Load.Duration, c.Load.Warmup, c.Load.Workload.Keys = 500*time.Millisecond, 0, 200
	c.Rounds, c.Control, c.Logf = 1, false, t.Logf
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	b := o.Plan.Binaries
	if len(b) != 2 || b[0].SHA256 == b[1].SHA256 {
		t.Errorf("the profile makes no difference: %+v", b)
	}
	if files, _ := filepath.Glob(filepath.Join(c.Out, "auto-*.pgo")); len(files) != 1 {
		t.Errorf("profiles %q", files)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Out, "profile-*")); len(left) != 0 {
		t.Errorf("%q is left", left)
	}
	c.Rounds = 2
	if o, err = Run(t.Context(), c); err != nil || o.Resumed != 4 || len(o.Samples) != 8 {
		t.Errorf("going on: %v, %d samples of which %d old", err, len(o.Samples), o.Resumed)
	}
}
