package load

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvmark/client/result"
)

// Whatever the order in which workers hand in their seconds, every reply is in its own row, and no row is missing.
func TestSeriesHoldsEveryReplyInItsSecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 5).Draw(t, "workers")
		window := time.Duration(rapid.Int64Range(1, 8000).Draw(t, "window ms")) * time.Millisecond
		last := int((window - 1) / time.Second)
		s := newSeries(workers, window)
		want := make([]int64, last+1)
		at := make([]int, workers) // the second each worker is in; math.MaxInt: gone
		h := newRowHistogram()
		for gone := 0; gone < workers; {
			w := rapid.IntRange(0, workers-1).Draw(t, "worker")
			if at[w] == math.MaxInt {
				continue
			}
			n := rapid.Int64Range(0, 3).Draw(t, "replies")
			h.record(time.Millisecond, n)
			want[at[w]] += n
			next := at[w] + rapid.IntRange(1, 3).Draw(t, "seconds on")
			if next > last {
				next = math.MaxInt
				gone++
			}
			s.add(w, at[w], next, h)
			at[w] = next
			if h.TotalCount() != 0 {
				t.Fatal("the histogram is not free again")
			}
		}
		rows := s.finish(window)
		if len(rows) != len(want) {
			t.Fatalf("%d rows for %v, want %d", len(rows), window, len(want))
		}
		seconds, sum := 0.0, int64(0)
		for i, row := range rows {
			if row.OK != want[i] || row.T != float64(i) {
				t.Errorf("row %d: t %v, %d replies; want %d", i, row.T, row.OK, want[i])
			}
			if (row.P99US == nil) != (row.OK == 0) {
				t.Errorf("row %d: p99 %v of %d replies", i, row.P99US, row.OK)
			}
			seconds += row.Seconds
			sum += row.OK
		}
		if math.Abs(seconds-window.Seconds()) > 1e-9 {
			t.Errorf("the rows are %v s long, want %v", seconds, window)
		}
		if _, ok := s.latest(); ok != sum {
			t.Errorf("count so far %d, want %d", ok, sum)
		}
	})
}

func TestRowsOfALongWindowReuseTheirHistograms(t *testing.T) {
	s, h := newSeries(2, time.Minute), newRowHistogram()
	for second := range 2000 {
		for w := range 2 {
			h.record(time.Millisecond, 1)
			s.add(w, second, second+1, h)
		}
		s.settle()
	}
	if n := len(s.open) + len(s.free); n > 1 {
		t.Errorf("%d histograms for a window of 2000 s, want 1", n)
	}
	if len(s.rows) != 2000 {
		t.Errorf("%d rows, want 2000", len(s.rows))
	}
}

func TestSilentNamesTheWorkersThatAreLate(t *testing.T) {
	s, h := newSeries(3, time.Minute), newRowHistogram()
	s.add(0, 0, 5, h)
	s.add(2, 0, math.MaxInt, h)
	if got := s.silent(4); len(got) != 1 || got[0] != 1 {
		t.Errorf("silent %v, want worker 1", got)
	}
}

// A reply beyond the histogram's range ended the whole run of another tool (RediSearchBenchmark#18).
func TestLatenciesOutOfRangeAreClamped(t *testing.T) {
	h := newHistogram()
	for _, d := range []time.Duration{-time.Second, 0, 2 * time.Hour} {
		h.record(d, 1)
	}
	if h.TotalCount() != 3 {
		t.Errorf("%d of 3 recorded", h.TotalCount())
	}
	if top := time.Duration(h.most); top < maxLatency || top > maxLatency+maxLatency/100 {
		t.Errorf("largest %v, want about %v", top, maxLatency)
	}
}

func TestBitmapCountsEachKeyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "keys")
		b, model := newBitmap(n), map[int]bool{}
		for _, k := range rapid.SliceOf(rapid.IntRange(0, n-1)).Draw(t, "writes") {
			b.set(k)
			model[k] = true
		}
		for k := range n {
			if b.has(k) != model[k] {
				t.Fatalf("key %d: %v, want %v", k, b.has(k), model[k])
			}
		}
		if b.count != len(model) {
			t.Fatalf("count %d, want %d", b.count, len(model))
		}
	})
}

func TestInfo(t *testing.T) {
	t.Run("calls", func(t *testing.T) {
		in := info{"cmdstat_set": "calls=12,usec=3,failed_calls=1,rejected_calls=2", "cmdstat_get": "usec=3"}
		if n, err := in.calls("set"); n != 12 || err != nil {
			t.Errorf("set: %d, %v", n, err)
		}
		if n, err := in.calls("del"); n != 0 || err != nil {
			t.Errorf("a command that never came: %d, %v", n, err)
		}
		if _, err := in.calls("get"); err == nil {
			t.Error("a line without calls: no error")
		}
	})
	t.Run("without a GC cycle in the window its share and pauses are not known", func(t *testing.T) {
		before := info{"heap_live_bytes": "77", "gc_cycles": "5", "gc_cpu_seconds": "1", "gc_idle_seconds": "0", "cpu_total_seconds": "10", "gc_pause_p50_us": "7"}
		s := before.server(before, 10)
		if s.GCCPUShare != nil || s.GCPauseUS.P50 != nil || s.GCCycles == nil || *s.GCCycles != 0 || s.HeapLiveBytes != nil {
			t.Errorf("share %v, pause %v, cycles %v, live heap %v", s.GCCPUShare, s.GCPauseUS.P50, s.GCCycles, s.HeapLiveBytes)
		}
		after := info{"gc_cycles": "6", "gc_cpu_seconds": "3", "gc_idle_seconds": "1", "cpu_total_seconds": "20", "gc_pause_p50_us": "7"}
		s = after.server(before, 10)
		if s.GCCPUShare == nil || *s.GCCPUShare != 0.1 || s.GCPauseUS.P50 == nil || *s.GCPauseUS.P50 != 7 {
			t.Errorf("share %v, want (2-1)/10; pause %v", s.GCCPUShare, s.GCPauseUS.P50)
		}
	})
	t.Run("what the server does not say is null", func(t *testing.T) {
		s := info{}.server(info{}, 0)
		if s.CPUPerOp != nil || s.RSSPeakBytes != nil || s.WALRecords != nil || s.GCCycles != nil {
			t.Errorf("%+v", s)
		}
	})
	t.Run("numbers that are none", func(t *testing.T) {
		in := info{"a": "NaN", "b": "inf", "c": "x"}
		for name := range in {
			if in.number(name) != nil {
				t.Errorf("%s is a number", in[name])
			}
		}
	})
}

// A long window keeps the histograms that its result will show, and no others.
func TestALongWindowKeepsTheHistogramsOfItsExtremes(t *testing.T) {
	const seconds = 4*result.MaxRows + 7
	s, h := newSeries(1, seconds*time.Second), newRowHistogram()
	r := rand.New(rand.NewPCG(1, 2))
	for at := range seconds {
		h.record(time.Duration(1+r.IntN(1e6))*time.Microsecond, 1+r.Int64N(1000))
		next := at + 1
		if next == seconds {
			next = math.MaxInt
		}
		s.add(0, at, next, h)
		if at%1000 == 0 {
			s.settle()
		}
	}
	rows := s.finish(seconds * time.Second)
	kept := 0
	for _, row := range rows {
		if row.Histogram != "" {
			kept++
		}
	}
	thin := result.Thin(rows)
	if len(rows) != seconds || kept == 0 || kept > len(thin) {
		t.Errorf("%d rows, %d with a histogram; the result has %d", len(rows), kept, len(thin))
	}
	for _, row := range thin {
		if row.Histogram == "" && row.T > 0 && row.T < seconds-1 { // the ends are there without being extremes
			t.Errorf("row %v of the result has no histogram", row.T)
		}
	}
}
