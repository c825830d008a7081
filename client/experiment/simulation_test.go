package experiment

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"kvmark/client/compare"
)

// The two simulations here measure for hours and run only with KVMARK_LONG=1:
//
//	KVMARK_LONG=1 go test -v -timeout 0 -run TestTrust ./client/experiment
//	KVMARK_LONG=1 go test -v -timeout 0 -run TestPower ./client/experiment
//
// KVMARK_SIM_BLOCKS is how many rounds are recorded (300), KVMARK_SIM_OUT the directory of the records, with which a
// simulation that was cut short goes on.
//
// Trust records the same server against itself, cuts the record into disjoint comparisons, each as long as a budget, and counts
// those that call a difference although there is none. Power does the same with a server that is slower by a known part: one
// built with the tag kvmark_slow, which burns KVMARK_SLOW per cent more CPU for each command.

type simulation struct {
	out    string
	blocks int
}

func long(t *testing.T) simulation {
	t.Helper()
	if os.Getenv("KVMARK_LONG") == "" {
		t.Skip("takes hours: KVMARK_LONG=1")
	}
	s := simulation{out: os.Getenv("KVMARK_SIM_OUT"), blocks: 300}
	if s.out == "" {
		s.out = t.TempDir()
	}
	if n := os.Getenv("KVMARK_SIM_BLOCKS"); n != "" {
		var err error
		if s.blocks, err = strconv.Atoi(n); err != nil {
			t.Fatalf("KVMARK_SIM_BLOCKS: %v", err)
		}
	}
	return s
}

// record measures two servers in memory mode.
func (s simulation) record(t *testing.T, name string, slices time.Duration, env []string, base, other string) *Outcome {
	t.Helper()
	seed := uint64(1)
	c := DefaultConfig()
	c.Cells = []Variant{{Name: "base", Settings: []Setting{{"server", base}}}, {Name: "other", Settings: []Setting{{"server", other}}}}
	c.Load.Modes, c.Load.Duration, c.Load.Warmup, c.Load.ServerEnv = []string{"memory"}, 2*time.Second, 300*time.Millisecond, env
	c.Rounds, c.Slices, c.Control, c.Seed = s.blocks, slices, false, &seed
	c.Out = filepath.Join(s.out, name)
	if err := os.MkdirAll(c.Out, 0o777); err != nil {
		t.Fatal(err)
	}
	last := time.Now()
	c.Progress = func(p Progress) {
		if time.Since(last) > time.Minute {
			last = time.Now()
			t.Logf("%s: %s", name, p)
		}
	}
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// verdicts are what disjoint comparisons of one record say.
type verdicts struct {
	rounds      int // of each comparison
	comparisons int
	called      int     // p < 0.05, before any correction
	slower      int     // of these, that other is worse
	half        float64 // median half width of the interval, as a part of 1
}

// cut makes comparisons of the second variant with the first, each from as many rounds as fit into the budget.
func cut(o *Outcome, op int, metric string, budget time.Duration) verdicts {
	m, _ := lookupMetric(metric)
	total := 0.0
	blocks := 0
	for _, s := range o.Samples {
		total += s.Seconds
		blocks = max(blocks, s.Block+1)
	}
	v := verdicts{rounds: max(compare.MinRounds(true, 1), int(budget.Seconds()/(total/float64(blocks))))}
	var halves []float64
	for first := 0; first+v.rounds <= blocks; first += v.rounds {
		part := *o
		part.Samples = nil
		for _, s := range o.Samples {
			if s.Block >= first && s.Block < first+v.rounds {
				part.Samples = append(part.Samples, s)
			}
		}
		a := &analysis{Outcome: &part}
		q := a.question(0, 1, o.Plan.Modes[0], op, m)
		e := compare.Paired(q.Base, q.Other)
		if !e.Interval.OK {
			continue
		}
		v.comparisons++
		halves = append(halves, math.Sqrt(e.Interval.High/e.Interval.Low)-1)
		if e.P.OK && e.P.Float < compare.Alpha {
			v.called++
			if (e.Ratio.Float < 1) == (m.Better == compare.HigherIsBetter) {
				v.slower++
			}
		}
	}
	if len(halves) > 0 {
		v.half = middle(halves)
	}
	return v
}

func (v verdicts) String() string {
	return fmt.Sprintf("%3d comparisons of %3d rounds: %5.1f %% call a difference, interval ±%.2f %%",
		v.comparisons, v.rounds, 100*float64(v.called)/float64(max(1, v.comparisons)), 100*v.half)
}

// tooMany reports whether so many calls of a difference among so many comparisons would happen less than once in a hundred
// times, if each had a chance of 5 %.
func tooMany(called, comparisons int) bool {
	p := 0.0 // of that many or more
	for k := called; k <= comparisons; k++ {
		lg := func(n int) float64 { x, _ := math.Lgamma(float64(n + 1)); return x }
		p += math.Exp(lg(comparisons) - lg(k) - lg(comparisons-k) + float64(k)*math.Log(0.05) + float64(comparisons-k)*math.Log(0.95))
	}
	return p < 0.01
}

// servers builds kvserver, plain and with the tag.
func servers(t *testing.T) (plain, slow string) {
	t.Helper()
	source, err := FindSource(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	plain, slow = filepath.Join(dir, "plain"), filepath.Join(dir, "slow")
	for path, tags := range map[string]string{plain: "", slow: "kvmark_slow"} {
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-pgo=off", "-tags="+tags, "-o", path, "./cmd/kvserver")
		cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return plain, slow
}

func TestTrust(t *testing.T) {
	s := long(t)
	plain, _ := servers(t)
	for _, slices := range []time.Duration{0, 250 * time.Millisecond} {
		o := s.record(t, fmt.Sprintf("trust-%v", slices), slices, nil, plain, plain)
		for op, name := range o.Plan.Ops {
			for _, metric := range DefaultMetrics() {
				for _, budget := range []time.Duration{time.Minute, 3 * time.Minute} {
					v := cut(o, op, metric, budget)
					t.Logf("slices %-5v memory/%s %-13s %4v: %v", slices, name, metric, budget, v)
					if tooMany(v.called, v.comparisons) {
						t.Errorf("slices %v, %s, %s, %v: %d of %d comparisons of a server with itself call a difference", slices, name, metric, budget, v.called, v.comparisons)
					}
				}
			}
		}
	}
}

func TestPower(t *testing.T) {
	s := long(t)
	plain, slow := servers(t)
	if a, errA := inspect(plain); true {
		b, errB := inspect(slow)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if a.set["-tags"] == b.set["-tags"] && a.Hash == b.Hash {
			t.Fatal("the tag kvmark_slow makes no difference: this kvserver has no hook for it")
		}
	}
	const budget = 3 * time.Minute
	want := map[string]map[int]float64{"cpu_us_per_op": {3: 0.90, 5: 0.90}, "qps": {5: 0.80}}
	for _, percent := range []int{1, 2, 3, 5} {
		o := s.record(t, fmt.Sprintf("power-%d", percent), 250*time.Millisecond, []string{"KVMARK_SLOW=" + strconv.Itoa(percent)}, plain, slow)
		for op, name := range o.Plan.Ops {
			for _, metric := range DefaultMetrics() {
				v := cut(o, op, metric, budget)
				found := float64(v.slower) / float64(max(1, v.comparisons))
				t.Logf("slower by %d %% memory/%s %-13s %v: found in %.0f %%: %v", percent, name, metric, budget, 100*found, v)
				if least, ok := want[metric][percent]; ok && found < least {
					t.Errorf("%d %% slower, %s, %s: found in %.0f %% of the comparisons, want %.0f %%", percent, name, metric, 100*found, 100*least)
				}
			}
		}
	}
}

// The judges of the simulations, on records that are made up.
func TestCutCountsCallsOfADifference(t *testing.T) {
	equal := made{factors: twoGo, rounds: 240, qps: faster(0)}.outcome(t)
	if v := cut(equal, 0, "qps", time.Minute); v.comparisons != 240/v.rounds || v.rounds != 6 || tooMany(v.called, v.comparisons) {
		t.Errorf("equals: %+v", v)
	}
	slower := made{factors: twoGo, rounds: 240, qps: faster(-0.03)}.outcome(t)
	if v := cut(slower, 1, "cpu_us_per_op", 90*time.Second); v.rounds != 10 || v.slower != v.comparisons || v.comparisons != 24 || v.half > 0.01 {
		t.Errorf("slower: %+v", v)
	}
	for _, tt := range []struct {
		called, comparisons int
		want                bool
	}{{0, 30, false}, {2, 30, false}, {4, 30, false}, {6, 30, true}, {1, 1, false}, {30, 30, true}} {
		if got := tooMany(tt.called, tt.comparisons); got != tt.want {
			t.Errorf("%d of %d: %v", tt.called, tt.comparisons, got)
		}
	}
}
