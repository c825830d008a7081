package load

import (
	"math"
	"slices"
	"sync"
	"time"

	"kvmark/client/result"
)

// series gathers one row a second from all workers. A worker hands in the histogram of a second when it gets its first
// reply of a later one, so the lock is taken once a second by each; a row is summed up and its histogram reused as
// soon as every worker has passed it. Of a window longer than result.MaxRows seconds only those histograms are kept, as
// text, whose rows the result will have as extremes. A row without takes 130 bytes and what the server says of its
// second 220, 210 MB in a week, until the window ends; all histograms would be 300 MB or more beside that.
type series struct {
	mu     sync.Mutex
	passed []int              // by worker: rows below this are handed in; gone: math.MaxInt
	open   map[int]*histogram // rows from len(rows) on
	closed []closedRow
	free   []*histogram
	rows   []result.Row
	ok     int64 // sum of what was handed in

	planned  int    // rows of a long window; 0: it is short
	stretch  int    // that the last row was in
	extremes [3]int // its rows with least and most replies, and with the longest wait, so far
}

// closedRow is a row whose histogram is yet to be written as text.
type closedRow struct {
	t int
	h *histogram
}

func newSeries(workers int, window time.Duration) *series {
	s := &series{passed: make([]int, workers), open: map[int]*histogram{}}
	if n := int(math.Ceil(window.Seconds())); n > result.MaxRows {
		s.planned, s.stretch = n, -1
	}
	return s
}

// add takes in what worker counted in second, and that its next reply is in a second not before next. h is free again.
func (s *series) add(worker, second, next int, h *histogram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := h.TotalCount(); n > 0 {
		row := s.open[second]
		if row == nil {
			row = s.histogram()
			s.open[second] = row
		}
		row.merge(h)
		s.ok += n
		h.reset()
	}
	s.passed[worker] = next
	for low := slices.Min(s.passed); len(s.rows) < low && low != math.MaxInt; {
		s.close(1)
	}
}

// REQUIRES: mu held.
func (s *series) histogram() *histogram {
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
		row.P50US, row.P99US, row.MaxUS = h.micros(50, 1), h.micros(99, 1), h.micros(100, 1)
		delete(s.open, t)
		s.closed = append(s.closed, closedRow{t, h})
	}
	row.QPS = result.Number(float64(row.OK) / seconds)
	s.rows = append(s.rows, row)
	if s.planned > 0 {
		s.forget(t)
	}
}

// forget drops the histograms of rows that are no extremes of their stretch any more, now that there is row t.
// REQUIRES: mu held.
func (s *series) forget(t int) {
	if at := result.Stretch(t, s.planned); at != s.stretch {
		s.stretch, s.extremes = at, [3]int{t, t, t}
		return
	}
	before := append(s.extremes[:len(s.extremes):len(s.extremes)], t)
	for i, more := range []func(a, b result.Row) bool{
		func(a, b result.Row) bool { return *a.QPS < *b.QPS },
		func(a, b result.Row) bool { return *a.QPS > *b.QPS },
		func(a, b result.Row) bool { return deref(a.MaxUS) > deref(b.MaxUS) },
	} {
		if more(s.rows[t], s.rows[s.extremes[i]]) {
			s.extremes[i] = t
		}
	}
	for _, old := range before {
		if slices.Contains(s.extremes[:], old) {
			continue
		}
		s.rows[old].Histogram = ""
		s.closed = slices.DeleteFunc(s.closed, func(c closedRow) bool {
			if c.t == old {
				c.h.reset()
				s.free = append(s.free, c.h)
			}
			return c.t == old
		})
	}
}

// settle writes the histograms of closed rows as text and makes them free. That takes too long for a worker.
func (s *series) settle() {
	s.mu.Lock()
	closed := s.closed
	s.closed = nil
	s.mu.Unlock()
	for _, c := range closed {
		text := c.h.text()
		c.h.reset()
		s.mu.Lock()
		s.rows[c.t].Histogram = text
		s.free = append(s.free, c.h)
		s.mu.Unlock()
	}
}

// finish closes all rows of a window of that length and returns them. Every worker has left.
func (s *series) finish(window time.Duration) []result.Row {
	s.mu.Lock()
	for rest := window.Seconds() - float64(len(s.rows)); rest > 0; rest-- {
		s.close(min(rest, 1))
	}
	s.mu.Unlock()
	s.settle()
	return s.rows
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
