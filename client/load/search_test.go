package load

import (
	"context"
	"testing"
	"time"

	"kvmark/client/load/loadtest"
)

// A server that takes 2 ms for each request serves 8 workers at most 4,000 times a second: whatever rate is found lies
// below, was tried, and is bracketed by one that was not kept.
func TestSearchFindsARateBelowTheClosedLoop(t *testing.T) {
	t.Parallel()
	c := config(t, loadtest.Behaviour{Delay: 2 * time.Millisecond})
	c.Ops, c.SLO, c.Duration = []string{"set"}, SLO{50, 2 * time.Second}, 100*time.Millisecond
	c.Workload.Workers = 8
	t.Run("a promise that nothing can keep", func(t *testing.T) {
		t.Parallel()
		c := c
		c.Dir, c.SLO = t.TempDir(), SLO{50, time.Millisecond}
		out := run(t, t.Context(), c)
		if len(out.Searches) > 0 && out.Searches[0].Rate != nil {
			t.Errorf("found %+v", out.Searches)
		}
		if cell := out.Cells[0]; !cell.ClosedLoop {
			t.Error("the cell is not that of the closed loop")
		}
	})
	out := run(t, t.Context(), c)
	if len(out.Searches) != 1 || len(out.Cells) != 1 {
		t.Fatalf("%d searches, %d cells", len(out.Searches), len(out.Cells))
	}
	s := out.Searches[0]
	if !out.Cells[0].Valid && len(s.Trials) == 0 {
		t.Skipf("the machine is too busy for a valid closed loop: %+v", out.Cells[0].Checks)
	}
	if s.Closed == nil || *s.Closed > 4000 || len(s.Trials) < 2 || len(s.Trials) > maxRates*trialsOfRate {
		t.Fatalf("closed loop %v, %d trials", s.Closed, len(s.Trials))
	}
	if s.Rate != nil {
		if *s.Rate >= *s.Closed || s.Broken != nil && *s.Broken <= *s.Rate {
			t.Errorf("rate %v of %v, broken at %v", *s.Rate, *s.Closed, s.Broken)
		}
		if cell := out.Cells[0]; cell.Pace == nil || len(unsound(cell)) > 0 {
			t.Errorf("the cell is not a valid one of that rate: %+v", cell.Checks)
		}
	}
}

// What an interrupted search claims, it has tried.
func TestAnInterruptedSearchSaysThatItHasNotFinished(t *testing.T) {
	t.Parallel()
	c := config(t, loadtest.Behaviour{Delay: 2 * time.Millisecond})
	c.Ops, c.SLO, c.Duration, c.tick = []string{"set"}, SLO{50, time.Millisecond}, 400*time.Millisecond, 10*time.Millisecond
	c.Workload.Workers = 8
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	windows, stage := 0, ""
	c.Progress = func(p Progress) {
		if p.Stage == "measure" && stage != p.Stage {
			if windows++; windows == 4 { // the closed loop, two that break the promise, and one of the next rate
				cancel()
			}
		}
		stage = p.Stage
	}
	out := run(t, ctx, c)
	if len(out.Searches) == 1 && !out.Searches[0].Unfinished && len(out.Searches[0].Trials) == 0 {
		t.Skipf("the machine is too busy for a valid closed loop: %+v", out.Cells)
	}
	if !out.Interrupted || len(out.Searches) != 1 || !out.Searches[0].Unfinished || len(out.Searches[0].Trials) != 2 {
		t.Fatalf("interrupted %t, %+v", out.Interrupted, out.Searches)
	}
	s := out.Searches[0]
	if s.Rate != nil || s.Broken == nil || *s.Broken != s.Trials[1].Rate {
		t.Errorf("rate %v, broken %v, tried %+v", s.Rate, s.Broken, s.Trials)
	}
}
