package load

import (
	"math"
	"slices"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"kvmark/client/result"
)

// maxLatency is what the histograms can hold; longer is recorded as this. No wait is longer, see [Config.Patience].
const maxLatency = time.Minute

// newHistogram holds the latencies of a whole window: nanoseconds, 3 significant digits, 220 KB.
func newHistogram() *hdr.Histogram { return hdr.New(1, int64(maxLatency), 3) }

// newRowHistogram holds those of a second: nanoseconds from about a microsecond, 2 significant digits, 22 KB.
func newRowHistogram() *hdr.Histogram { return hdr.New(1000, int64(maxLatency), 2) }

// record adds n observations. A latency out of range is clamped: a slow reply must not end a run.
func record(h *hdr.Histogram, latency time.Duration, n int64) {
	_ = h.RecordValues(min(max(int64(latency), 1), int64(maxLatency)), n)
}

// series gathers one row a second from all workers. A worker hands in the histogram of a second when it gets its first
// reply of a later one, so the lock is taken once a second by each; a row is summed up and its histogram reused as
// soon as every worker has passed it, so memory does not grow with the window.
type series struct {
	mu     sync.Mutex
	passed []int                  // by worker: rows below this are handed in; gone: math.MaxInt
	open   map[int]*hdr.Histogram // rows from len(rows) on
	free   []*hdr.Histogram
	rows   []result.Row
	ok     int64 // sum of what was handed in
}

func newSeries(workers int) *series {
	return &series{passed: make([]int, workers), open: map[int]*hdr.Histogram{}}
}

// add takes in what worker counted in second, and that its next reply is in a second not before next. h is free again.
func (s *series) add(worker, second, next int, h *hdr.Histogram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := h.TotalCount(); n > 0 {
		row := s.open[second]
		if row == nil {
			row = s.histogram()
			s.open[second] = row
		}
		row.Merge(h)
		s.ok += n
		h.Reset()
	}
	s.passed[worker] = next
	for low := slices.Min(s.passed); len(s.rows) < low && low != math.MaxInt; {
		s.close(1)
	}
}

// REQUIRES: mu held.
func (s *series) histogram() *hdr.Histogram {
	if n := len(s.free); n > 0 {
		h := s.free[n-1]
		s.free = s.free[:n-1]
		return h
	}
	return newRowHistogram()
}

// close sums up the next row, which is seconds long. REQUIRES: mu held.
func (s *series) close(seconds float64) {
	t := len(s.rows)
	row := result.Row{T: float64(t), Seconds: seconds}
	if h := s.open[t]; h != nil {
		row.OK = h.TotalCount()
		row.P50US = result.Number(float64(h.ValueAtPercentile(50)) / 1e3)
		row.P99US = result.Number(float64(h.ValueAtPercentile(99)) / 1e3)
		row.MaxUS = result.Number(float64(h.Max()) / 1e3)
		delete(s.open, t)
		h.Reset()
		s.free = append(s.free, h)
	}
	row.QPS = result.Number(float64(row.OK) / seconds)
	s.rows = append(s.rows, row)
}

// finish closes all rows of a window of that length and returns them. Every worker has left.
func (s *series) finish(window time.Duration) []result.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		rest := window.Seconds() - float64(len(s.rows))
		if rest <= 0 {
			return s.rows
		}
		s.close(min(rest, 1))
	}
}

// latest is the last closed row, if any, and the count so far.
func (s *series) latest() (row result.Row, ok int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.rows); n > 0 {
		row = s.rows[n-1]
	}
	return row, s.ok
}

// silent lists the workers that have handed in nothing since the given second.
func (s *series) silent(since int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []int
	for w, p := range s.passed {
		if p < since {
			list = append(list, w)
		}
	}
	return list
}
