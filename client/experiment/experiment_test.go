package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"kvmark/client/load/loadtest"
)

// fakeServer returns a tiny experiment on servers that this test binary plays.
func fakeServer(t *testing.T, b loadtest.Behaviour) Config {
	t.Helper()
	name, value, _ := strings.Cut(loadtest.Env(b), "=")
	t.Setenv(name, value)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.Server, c.Out, c.Cache = self, t.TempDir(), t.TempDir()
	c.Load.Dir = t.TempDir()
	c.Factors = []Factor{{"GOGC", []string{"50", "100"}}}
	c.Load.Modes = []string{"memory"}
	c.Load.Duration, c.Load.Warmup = 51*time.Millisecond, 0
	c.Load.Workload.Workers, c.Load.Workload.Keys = 2, 50
	c.Rounds = 2
	seed := uint64(11)
	c.Seed = &seed
	c.Logf = t.Logf
	return c
}

// once checks that every cell of every round is there, and nothing twice.
func once(t *testing.T, o *Outcome, rounds int) {
	t.Helper()
	seen := map[sampleKey]bool{}
	for _, s := range o.Samples {
		if seen[s.key()] {
			t.Errorf("%v is counted twice", s.key())
		}
		seen[s.key()] = true
	}
	for block := range rounds {
		for v, variant := range o.Plan.Variants {
			for _, mode := range o.Plan.Modes {
				if variant.NA == "" && !seen[sampleKey{block, Cell{v, mode}}] {
					t.Errorf("round %d of %s in mode %q is missing", block+1, variant.Name, mode)
				}
			}
		}
	}
}

func TestAnExperimentMeasuresEveryCellOncePerRound(t *testing.T) {
	for _, slices := range []time.Duration{0, 20 * time.Millisecond} {
		t.Run(fmt.Sprintf("slices of %v", slices), func(t *testing.T) {
			c := fakeServer(t, loadtest.Behaviour{})
			c.Slices = slices
			c.Load.Modes = []string{"memory", "file"}[:1+int(slices/(20*time.Millisecond))]
			var lines []string
			c.Progress = func(p Progress) { lines = append(lines, p.String()) }
			o, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			once(t, o, 2)
			if len(o.Samples) != 2*3*len(c.Load.Modes) || o.Blocks != 2 || o.Interrupted || o.Ended != "2 rounds" || o.Plan.Variants[2].Control != "A/A" {
				t.Errorf("%d samples, %d rounds, ended %q, variants %+v", len(o.Samples), o.Blocks, o.Ended, o.Plan.Variants)
			}
			if want := fmt.Sprintf("0 of %d samples, 0 s, about ", 6*len(c.Load.Modes)); !strings.HasPrefix(lines[0], want) {
				t.Errorf("progress %q, want %q", lines[0], want)
			}
			var replies int64 // of all: a machine that is busy may give one short window none
			for _, s := range o.Samples {
				replies += s.Cells[0].OK
				if s.Failed != "" || s.Cells[0].Op != "set" || s.Cells[1].Op != "get" || s.Process.GOGC != o.Plan.Variants[s.Variant].Get("GOGC") {
					t.Errorf("sample %+v", s)
				}
				if slices > 0 && (len(s.Slices) != 2 || len(s.Slices[1])%2 != 0 || len(s.Slices[1]) < 2) {
					t.Errorf("slices %v", s.Slices)
				}
			}
			if replies == 0 {
				t.Error("nothing was measured")
			}
			if left, err := os.ReadDir(c.Load.Dir); err != nil || len(left) != 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}

func TestAnExperimentThatIsKilledGoesOn(t *testing.T) {
	for trial := range 4 {
		slices := time.Duration(trial%2) * 20 * time.Millisecond
		t.Run(fmt.Sprintf("trial %d, slices of %v", trial, slices), func(t *testing.T) {
			c := fakeServer(t, loadtest.Behaviour{})
			c.Slices = slices
			rng := rand.New(rand.NewPCG(5, uint64(trial)))
			c.Seed = nil // the journal's from the second run on
			interrupted := 0
			for run := 1; ; run++ {
				if run > 50 {
					t.Fatal("it never ends")
				}
				ctx, cancel := context.WithCancel(t.Context())
				// Each run ends within a sample of its own, at a random moment of it.
				left := rng.IntN(3)
				c.Progress = func(Progress) {
					if left--; left < 0 && run < 4 {
						time.AfterFunc(time.Duration(rng.IntN(100))*time.Millisecond, cancel)
						left = 1000
					}
				}
				o, err := Run(ctx, c)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				if o.Interrupted {
					interrupted++
					if o.Ended != "interrupted" {
						t.Errorf("ended %q", o.Ended)
					}
					continue
				}
				once(t, o, 2)
				if len(o.Samples) != 6 {
					t.Errorf("%d samples, want 6", len(o.Samples))
				}
				for i, s := range o.Samples {
					want := order(o.Plan.Seed, s.Block, []int{0, 1, 2}, []string{"memory"})[s.Order]
					if s.Cell() != want || i > 0 && s.Block < o.Samples[i-1].Block {
						t.Errorf("sample %d is %v of round %d, the plan says %v", i, s.Cell(), s.Block+1, want)
					}
				}
				break
			}
			t.Logf("interrupted %d times", interrupted)
		})
	}
}

func TestProgressIsOneLine(t *testing.T) {
	tests := []struct {
		p    Progress
		want string
	}{
		{
			Progress{Done: 17, Total: 80, Elapsed: 9 * time.Minute, Limit: 30 * time.Minute, Widest: "memory/set", HalfWidth: 0.008},
			"17 of 80 samples, 9 of 30 min; memory/set at +-0.8 %",
		},
		{Progress{Done: 3, Elapsed: 59 * time.Second, Now: "memory a"}, "3 samples, 59 s; now memory a"},
	}
	for _, tt := range tests {
		if got := tt.p.String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestMoreRoundsOfTheSameExperimentAreAdded(t *testing.T) {
	c := fakeServer(t, loadtest.Behaviour{})
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Rounds = 3
	o, err := Run(t.Context(), c)
	if err != nil || o.Resumed != 6 || len(o.Samples) != 9 {
		t.Fatalf("%v: %+v", err, o)
	}
	once(t, o, 3)
	c.Load.Duration *= 2
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "holds another experiment") {
		t.Errorf("another plan: %v", err)
	}
}

func TestTheBudgetAndThePrecisionEndAnExperiment(t *testing.T) {
	t.Run("budget", func(t *testing.T) {
		c := fakeServer(t, loadtest.Behaviour{})
		c.Rounds, c.Budget = 0, time.Nanosecond // one round is always measured
		o, err := Run(t.Context(), c)
		if err != nil || o.Blocks != 1 || !strings.Contains(o.Ended, "no room") {
			t.Errorf("%v, %+v", err, o)
		}
	})
	t.Run("precision", func(t *testing.T) {
		c := fakeServer(t, loadtest.Behaviour{})
		c.Rounds, c.Until = 0, 0.99
		c.Load.Modes, c.Control = []string{"memory"}, false
		o, err := Run(t.Context(), c)
		if err != nil || o.Blocks < 6 || o.Blocks%2 != 0 || !strings.Contains(o.Ended, "known to ±99.0 %") {
			t.Errorf("%v, %+v rounds, ended %q", err, o.Blocks, o.Ended)
		}
	})
}

func TestABadSampleIsShownAndNotUsed(t *testing.T) {
	for _, lie := range []loadtest.Lie{loadtest.WrongValue, loadtest.Miscount} {
		t.Run(string(lie), func(t *testing.T) {
			c := fakeServer(t, loadtest.Behaviour{Lie: lie, After: 5})
			c.Rounds = 1
			o, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			a, err := Analyze(o, nil, 0, 0)
			if err != nil || a.Invalid == 0 {
				t.Fatalf("%v, %d invalid", err, a.Invalid)
			}
			for _, cell := range a.Cells {
				if cell.Op == "get" && (cell.Valid != 0 || len(cell.Metrics) != 0) {
					t.Errorf("%+v is used", cell)
				}
			}
		})
	}
}

func TestServersThatDieAgainAndAgainEndTheExperiment(t *testing.T) {
	c := fakeServer(t, loadtest.Behaviour{Lie: loadtest.Die, After: 5})
	o, err := Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "3 samples in a row") || !strings.Contains(err.Error(), "out of luck") {
		t.Fatalf("%v", err)
	}
	if len(o.Samples) != 3 || o.Samples[0].Failed == "" {
		t.Errorf("%+v", o.Samples)
	}
}

func TestSettingsMustBeThoseAsked(t *testing.T) {
	c := fakeServer(t, loadtest.Behaviour{})
	c.Factors = []Factor{{"GOMEMLIMIT", []string{"64MiB", "128MiB"}}} // the fake server always says off
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "GOMEMLIMIT=64MiB was asked, but the server has off") {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(c.Out); err != nil || len(entries) != 0 {
		t.Errorf("%v was made, %v", entries, err)
	}
}

func TestAFlagThatTheServerDoesNotKnowIsCaughtBeforeTheRun(t *testing.T) {
	c := fakeServer(t, loadtest.Behaviour{})
	c.Factors = []Factor{{"no-such-flag", []string{"it's 1", "2"}}}
	_, err := Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "no-such-flag: unknown") || !errors.As(err, new(*UsageError)) {
		t.Errorf("%v", err)
	}
}

func TestAFlagOfTheServerIsGivenToIt(t *testing.T) {
	c := fakeServer(t, loadtest.Behaviour{})
	c.Factors = []Factor{{"level", []string{"1", "2"}}}
	c.Load.Modes, c.Control, c.Rounds = []string{"serialize"}, false, 1
	if o, err := Run(t.Context(), c); err != nil || len(o.Samples) != 2 {
		t.Errorf("%v", err)
	}
}
