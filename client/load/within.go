package load

import (
	"fmt"
	"time"

	"kvmark/client/compare"
	"kvmark/client/result"
)

// A window is cut into slices of about sliceLength, of a long one longer ones, so that no window has more than maxSlices.
const (
	sliceLength = 100 * time.Millisecond
	maxSlices   = 600
)

// piecesOf says into how many slices a window is cut, and how long they are.
func piecesOf(window time.Duration) (n int, length time.Duration) {
	n = min(max(1, int((window+sliceLength/2)/sliceLength)), maxSlices)
	return n, window / time.Duration(n)
}

// pieces counts one worker's right replies by slice.
type pieces struct {
	ok     []int64
	at     int
	end    time.Duration // of the current slice
	length time.Duration
}

func (p *pieces) reset(n int, length time.Duration) {
	if cap(p.ok) < n {
		p.ok = make([]int64, n)
	}
	p.ok = p.ok[:n]
	clear(p.ok)
	p.at, p.end, p.length = 0, length, length
}

// count enters a reply at now, which never decreases.
func (p *pieces) count(now time.Duration) {
	for now >= p.end && p.at < len(p.ok)-1 {
		p.at++
		p.end += p.length
	}
	p.ok[p.at]++
}

// windowSlices is the slices of one window, all of one length.
type windowSlices struct {
	length time.Duration
	ok     []int64
	cpu    []time.Duration // of the server; nil: not known
	ramp   bool            // the rate was to change
}

// slices gathers what the workers counted in the whole slices of a window, and the server's CPU time in them.
func (s *session) slices(window, length time.Duration, clock []cpuReading) windowSlices {
	n, _ := piecesOf(window)
	if length > 0 {
		n = int(window / length)
	}
	in := windowSlices{length: length, ok: make([]int64, n), ramp: s.Rate.From != s.Rate.To}
	for _, w := range s.workers {
		for i := range min(n, len(w.pieces.ok)) {
			in.ok[i] += w.pieces.ok[i]
		}
	}
	in.cpu = cpuBySlice(clock, n, length)
	return in
}

// add appends another piece of the window, of slices as long as those before.
func (in *windowSlices) add(o windowSlices) {
	if in.ok == nil {
		*in = o
		return
	}
	in.ok = append(in.ok, o.ok...)
	if in.cpu != nil && o.cpu != nil {
		in.cpu = append(in.cpu, o.cpu...)
	} else {
		in.cpu = nil
	}
}

// halve makes one slice of every two.
func (in *windowSlices) halve() {
	in.length *= 2
	in.ok = pairs(in.ok)
	in.cpu = pairs(in.cpu)
}

func pairs[T int64 | time.Duration](xs []T) []T {
	if xs == nil {
		return nil
	}
	sums := make([]T, len(xs)/2)
	for i := range sums {
		sums[i] = xs[2*i] + xs[2*i+1]
	}
	return sums
}

// summary is what a cell shows of the slices.
func (in windowSlices) summary() *result.WithinRun {
	if in.ok == nil {
		return nil
	}
	for len(in.ok) >= 2*maxSlices { // of many short turns
		in.halve()
	}
	r := &result.WithinRun{SliceSeconds: in.length.Seconds(), OK: in.ok}
	seconds, counts, cpu := make([]float64, len(in.ok)), make([]float64, len(in.ok)), make([]float64, len(in.cpu))
	for i := range in.ok {
		seconds[i], counts[i] = in.length.Seconds(), float64(in.ok[i])
	}
	for i, d := range in.cpu {
		cpu[i] = float64(d) / 1e3
	}
	if in.cpu != nil {
		r.ServerCPUUS = cpu
	}
	if in.ramp {
		r.Note = "a ramp has no rate that could be steady"
		return r
	}
	if n := len(in.ok); n < compare.MinSlices {
		r.Note = fmt.Sprintf("%d slices of %.3g s: an interval takes %d", n, in.length.Seconds(), compare.MinSlices)
		return r
	}
	if i := compare.Within(counts, seconds); i.OK {
		r.QPSLow, r.QPSHigh = result.Number(i.Low), result.Number(i.High)
	}
	if i := compare.Within(cpu, counts); i.OK {
		r.CPULow, r.CPUHigh = result.Number(i.Low), result.Number(i.High)
	}
	course := compare.FindCourse(counts, seconds)
	r.Course, r.Change = course.String(), course.Change.Ptr()
	return r
}

// cpuReading is what a server's CPU clock showed at a moment of the phase.
type cpuReading struct {
	at  time.Duration
	cpu time.Duration
}

// followCPU reads the server's CPU clock about every length until done, and returns a function that gives the readings; none
// where the clock cannot be read.
func (s *server) followCPU(t0 time.Time, length time.Duration, done <-chan struct{}) func() []cpuReading {
	var readings []cpuReading
	read := func() bool {
		cpu, ok := s.cpuClock()
		if ok {
			readings = append(readings, cpuReading{time.Since(t0), cpu})
		}
		return ok
	}
	if !read() {
		return func() []cpuReading { return nil }
	}
	gone := make(chan struct{})
	go func() { // ends with the phase
		defer close(gone)
		tick := time.NewTicker(length)
		defer tick.Stop()
		for {
			select {
			case <-done:
				read()
				return
			case <-tick.C:
				read()
			}
		}
	}()
	return func() []cpuReading {
		<-gone
		return readings
	}
}

// cpuBySlice is the CPU time in each of n slices, interpolated between the readings, which come a little late; nil if they do
// not span the slices.
func cpuBySlice(readings []cpuReading, n int, length time.Duration) []time.Duration {
	if len(readings) < 2 || readings[len(readings)-1].at < time.Duration(n)*length {
		return nil
	}
	cpu := make([]time.Duration, n)
	i, before := 0, readings[0].cpu
	for k := range cpu {
		edge := time.Duration(k+1) * length
		for readings[i+1].at < edge {
			i++
		}
		a, b := readings[i], readings[i+1]
		now := b.cpu
		if b.at > a.at {
			now = a.cpu + time.Duration(float64(b.cpu-a.cpu)*float64(edge-a.at)/float64(b.at-a.at))
		}
		cpu[k], before = now-before, now
	}
	return cpu
}

// cpuClock is the CPU time that the server has used, if it is our child and the system tells.
func (s *server) cpuClock() (time.Duration, bool) {
	if s.foreign || s.pid == 0 || s.dead() {
		return 0, false
	}
	return processCPU(s.pid)
}
