package load

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"kvmark/client/result"
)

// SLO is a promise about the response time in open loop, such as p99 < 2ms. The zero SLO is none.
type SLO struct {
	Quantile float64 // percent; 100 is the maximum
	Below    time.Duration
}

// Set reports whether there is a promise.
func (o SLO) Set() bool { return o != SLO{} }

// String is the form that [ParseSLO] reads.
func (o SLO) String() string {
	name := "max"
	if o.Quantile < 100 {
		name = "p" + strconv.FormatFloat(o.Quantile, 'f', -1, 64)
	}
	return name + "<" + o.Below.String()
}

// ParseSLO reads "p99<2ms", "p99.9 < 10ms" or "max<50ms".
func ParseSLO(s string) (SLO, error) {
	name, limit, found := strings.Cut(strings.ReplaceAll(s, " ", ""), "<")
	o := SLO{Quantile: 100}
	var err error
	if name != "max" {
		if o.Quantile, err = strconv.ParseFloat(strings.TrimPrefix(name, "p"), 64); !strings.HasPrefix(name, "p") {
			err = strconv.ErrSyntax
		}
	}
	below, errBelow := time.ParseDuration(limit)
	o.Below = below
	if !found || err != nil || errBelow != nil || !(o.Quantile > 0 && o.Quantile <= 100) || below <= 0 {
		return SLO{}, fmt.Errorf("slo %q: want a percentile of the response time and its limit, such as p99<2ms or max<50ms", s)
	}
	return o, nil
}

// The search ends after this many rates, or when the best and the worst differ by less than this part. A rate keeps the
// promise if most of its windows do.
const (
	maxRates     = 8
	searchGrain  = 0.03
	trialsOfRate = 3
	maxWindows   = 1 + maxRates*trialsOfRate // that of the closed loop is the first
)

// search finds the highest rate that keeps the promise, for one operation. The cell is the last window of that rate, or
// of the closed loop if there is none.
func (s *session) search(ctx context.Context, op string) (*result.Cell, error) {
	saved := s.Config
	defer func() { s.Config = saved }()
	closed, err := s.cell(ctx, op)
	if err != nil || closed == nil || s.out.Interrupted {
		return closed, err
	}
	found := result.Search{Mode: s.mode, Op: op, SLO: s.SLO.String(), Closed: closed.QPS, Trials: []result.Trial{}}
	defer func() { s.out.Searches = append(s.out.Searches, found) }()
	if !closed.Valid || deref(closed.QPS) == 0 {
		return closed, nil // it says why itself
	}
	for _, w := range s.workers {
		w.timing = newTiming(s.Pipeline, true)
	}
	defer func() {
		for _, w := range s.workers {
			w.timing = newTiming(s.Pipeline, false)
		}
	}()
	best := closed
	low, high := 0.0, *closed.QPS
	rate := high / 2
	for range maxRates {
		cell, kept, err := s.try(ctx, op, rate, &found)
		if err != nil || s.out.Interrupted {
			found.Unfinished = true
			if cell == nil {
				cell = best
			}
			return cell, err
		}
		if kept {
			low, best = rate, cell
			found.Rate = result.Number(rate)
		} else {
			high = rate
			found.Broken = result.Number(rate)
		}
		if high-low < searchGrain*high {
			break
		}
		rate = (low + high) / 2
	}
	return best, nil
}

// try runs windows of one rate until most of them agree. cell is the last that agrees with them.
func (s *session) try(ctx context.Context, op string, rate float64, found *result.Search) (cell *result.Cell, kept bool, err error) {
	s.Rate = Rate{rate, rate}
	votes := map[bool]int{}
	for range trialsOfRate {
		c, err := s.cell(ctx, op)
		if err != nil || s.out.Interrupted {
			return c, false, err
		}
		t := judgeTrial(c, rate, s.SLO)
		found.Trials = append(found.Trials, t)
		votes[t.Kept]++
		if t.Kept || cell == nil {
			cell = c
		}
		if votes[t.Kept] > trialsOfRate/2 {
			return cell, t.Kept, nil
		}
	}
	return cell, false, nil
}

// judgeTrial says whether a window kept the promise. One that could not be sent, or is not valid, did not.
func judgeTrial(c *result.Cell, rate float64, o SLO) result.Trial {
	t := result.Trial{Rate: rate, Value: quantileOf(c.Pace, o.Quantile)}
	for _, check := range c.Checks {
		if !check.Pass {
			t.Why = check.Name + ": " + check.Detail
			break
		}
	}
	t.Kept = t.Why == "" && t.Value != nil && *t.Value*1e3 < float64(o.Below)
	return t
}

// quantileOf reads a percentile of the response time, in us, from the cell's own histogram.
func quantileOf(p *result.Pace, quantile float64) *float64 {
	if p == nil {
		return nil
	}
	h, err := hdr.Decode([]byte(p.ResponseHistogram))
	if err != nil {
		return nil
	}
	return result.Number(float64(h.ValueAtPercentile(quantile)) / 1e3)
}
