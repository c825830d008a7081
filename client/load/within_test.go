package load

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvmark/client/result"
)

func TestSlicesOfAWindowCountEveryReply(t *testing.T) {
	for _, tt := range []struct {
		window time.Duration
		n      int
		length time.Duration
	}{
		{50 * time.Millisecond, 1, 50 * time.Millisecond},
		{250 * time.Millisecond, 3, 250 * time.Millisecond / 3},
		{5 * time.Second, 50, 100 * time.Millisecond},
		{time.Minute, 600, 100 * time.Millisecond},
		{168 * time.Hour, 600, 1008 * time.Second},
	} {
		if n, length := piecesOf(tt.window); n != tt.n || length != tt.length {
			t.Errorf("%v: %d slices of %v, want %d of %v", tt.window, n, length, tt.n, tt.length)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := virtualConfig(2, 2*time.Second)
		out, cell := virtual(t, c, &slowServer{delay: func(int) time.Duration { return time.Millisecond }})
		w := cell.WithinRun
		if w == nil || len(w.OK) != 20 || w.SliceSeconds != 0.1 {
			t.Fatalf("slices %+v, want 20 of 0.1 s", w)
		}
		sum := int64(0)
		for _, n := range w.OK {
			sum += n
		}
		if sum != out.ok {
			t.Errorf("the slices hold %d replies, the window %d", sum, out.ok)
		}
		if w.QPSLow == nil || *w.QPSLow > *cell.QPS || *w.QPSHigh < *cell.QPS {
			t.Errorf("QPS %v, interval %v..%v", *cell.QPS, w.QPSLow, w.QPSHigh)
		}
		if !strings.HasPrefix(w.Course, "steady") {
			t.Errorf("a server of constant speed is called %q", w.Course)
		}
		if w.CPULow != nil || w.ServerCPUUS != nil {
			t.Error("CPU time of a server that has no clock here")
		}
	})
}

func TestAServerThatGetsSlowerIsSaidToDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, cell := virtual(t, virtualConfig(2, 5*time.Second), &slowServer{delay: func(int) time.Duration {
			return time.Duration(float64(time.Millisecond) * (1 + 0.1*time.Since(begin).Seconds()/5))
		}})
		if w := cell.WithinRun; w == nil || !strings.HasPrefix(w.Course, "drift: -") || math.Abs(*w.Change+0.064) > 0.01 {
			t.Errorf("a server that got 10 %% slower: %+v", w)
		}
	})
}

func TestAShortWindowHasNoIntervalAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cell := virtual(t, virtualConfig(2, 500*time.Millisecond), &slowServer{delay: func(int) time.Duration { return time.Millisecond }})
		if w := cell.WithinRun; w == nil || w.QPSLow != nil || w.Note != "5 slices of 0.1 s: an interval takes 10" {
			t.Errorf("half a second: %+v", w)
		}
	})
}

func TestCPUTimeIsSharedOutToSlices(t *testing.T) {
	ms := time.Millisecond
	// The clock is read a little late, and advances by half of the time at first, then by all of it.
	readings := []cpuReading{{0, 1000 * ms}, {104 * ms, 1052 * ms}, {200 * ms, 1100 * ms}, {310 * ms, 1210 * ms}}
	if got, want := cpuBySlice(readings, 3, 100*ms), []time.Duration{50 * ms, 50 * ms, 100 * ms}; !slices.Equal(got, want) {
		t.Errorf("CPU time by slice %v, want %v", got, want)
	}
	if got := cpuBySlice(readings, 4, 100*ms); got != nil {
		t.Errorf("readings that end within a slice give %v", got)
	}
	var all windowSlices
	for range 3 * maxSlices {
		all.add(windowSlices{length: 20 * ms, ok: []int64{1}, cpu: []time.Duration{ms}})
	}
	if r := all.summary(); len(r.OK) >= 2*maxSlices || r.OK[0]*int64(len(r.OK)) != 3*maxSlices || r.SliceSeconds != 0.04 || r.CPULow == nil {
		t.Errorf("%d turns: %d slices of %v s", 3*maxSlices, len(r.OK), r.SliceSeconds)
	}
}

func TestLoadOfSliceIsWhatNeitherArmUsed(t *testing.T) {
	n := func(x int64) *int64 { return &x }
	var s result.LoadSum
	// Two slices: of 200 ticks the machine was busy for 150, of which arms and client used 0.7 s = 70 ticks in each.
	for i := range int64(2) {
		s.Add(result.Load{BusyTicks: n(1000 * i), TotalTicks: n(5000 * i), StealTicks: n(0), SwapPages: n(0)},
			result.Load{BusyTicks: n(1000*i + 75), TotalTicks: n(5000*i + 100), StealTicks: n(2), SwapPages: n(0)})
	}
	if o := s.Others(1.4); o.CPUShare == nil || math.Abs(*o.CPUShare-0.05) > 1e-9 || math.Abs(*o.StealShare-0.02) > 1e-9 {
		t.Errorf("others used %v, stolen %v", *o.CPUShare, *o.StealShare)
	}
	s.Add(result.Load{}, result.Load{})
	if o := s.Others(0); o.CPUShare != nil {
		t.Error("a stretch of which nothing is known makes no share")
	}
}
