package load

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"kvmark/client/result"
)

// outcome is what a phase gave.
type outcome struct {
	tally
	timing
	seconds float64 // length of the window
	rows    []result.Row
	cut     bool // the window was ended early
	silent  bool // no worker had a reply for as long as it may wait
	began   time.Time
	paused  pauseSum // when this process did not run
	slices  windowSlices
	stops   stops // of the server
}

// cutGrace is how long replies may still take once the run has been interrupted.
const cutGrace = 3 * time.Second

// phase lets all workers run for a window of the given length and waits for them. Workers wait for one start, stop by
// themselves when the window has ended, and drain the reply that is then still due; the deadline of their connections,
// set once, bounds that.
func (s *session) phase(ctx context.Context, k kind, r Rate, length time.Duration, progress Progress) outcome {
	p := &phase{
		kind: k, depth: s.Pipeline, rate: r, length: length,
		start: make(chan struct{}), series: newSeries(len(s.workers), length), pauses: s.pauses,
	}
	s.inStep()
	count, piece := piecesOf(length)
	p.end.Store(int64(length))
	var running sync.WaitGroup
	for _, w := range s.workers {
		w.t, w.timedOut = tally{}, false
		w.timing.reset()
		w.second.reset()
		w.pieces.reset(count, piece)
		w.setDeadline(time.Now().Add(length + s.Patience))
		running.Go(func() { w.run(p) })
	}
	done := make(chan struct{})
	go func() { // ends when the workers have
		running.Wait()
		close(done)
	}()
	p.t0 = time.Now()
	close(p.start)
	clock := s.server.followCPU(p.t0, piece, done)
	stopped := s.server.followStops(p.t0, done)
	out := outcome{began: p.t0, cut: s.watch(ctx, p, done, progress)}
	out.paused = s.pauses.between(p.t0, time.Now())

	s.inStep()
	timedOut := 0
	out.timing = newTiming(s.Pipeline, r.Open())
	for _, w := range s.workers {
		if w.timedOut {
			timedOut++
		}
		out.add(w.t)
		out.timing.merge(w.timing)
	}
	// Workers whose connections have all broken leave before the end: then the window is as long as they lasted.
	out.silent = timedOut == len(s.workers) && !out.cut
	window := min(time.Duration(p.end.Load()), out.stopped)
	out.seconds = window.Seconds()
	out.rows = p.series.finish(window)
	out.slices, out.stops = s.slices(window, piece, clock()), stopped()
	return out
}

// inStep sees that no worker's connection has anything to read while no reply is due, and keeps the first error that tells of replies
// and requests out of step: of a phase, or of the time between two.
func (s *session) inStep() {
	for _, w := range s.workers {
		if !w.dead {
			if err := w.conn.Surplus(); err != nil {
				w.dead, w.outOfStep = true, err
			}
		}
		if s.outOfStep == nil {
			s.outOfStep = w.outOfStep
		}
		w.outOfStep = nil
	}
}

// watch returns when the workers have stopped, and sees to it that they do: it ends the window when ctx does, and the
// connections when the server has died or when a worker has waited for a reply for too long.
// It reports whether the window was cut.
func (s *session) watch(ctx context.Context, p *phase, done <-chan struct{}, progress Progress) (cut bool) {
	tick := time.NewTicker(s.tick)
	defer tick.Stop()
	interrupted, died, killed := ctx.Done(), (<-chan struct{})(s.server.done), s.Kill
	for {
		select {
		case <-done:
			return cut
		case <-interrupted:
			interrupted, cut = nil, true
			// The new end is yet to come, so that no worker can have passed it without having seen it.
			end := time.Since(p.t0) + time.Millisecond
			if int64(end) < p.end.Load() {
				p.end.Store(int64(end))
			}
			s.setDeadlines(time.Now().Add(min(cutGrace, s.Patience)))
		case <-died:
			died = nil
			s.setDeadlines(time.Unix(1, 0))
		case <-killed: // and so is the server
			killed, cut = nil, true
		case <-tick.C:
			p.series.settle()
			row, ok := p.series.latest()
			progress.Elapsed, progress.OK = time.Since(p.t0), ok
			progress.Total = time.Duration(p.end.Load())
			if row.QPS != nil {
				progress.QPS = *row.QPS
			}
			if row.P99US != nil {
				progress.P99 = time.Duration(*row.P99US * 1e3)
			}
			s.Progress(progress)
			// A worker hands in its row with the first reply of a later second, so one may pass more than is asked for.
			since := time.Since(p.t0) - s.Patience - time.Second
			for _, id := range p.series.silent(int(since / time.Second)) {
				s.server.silent.Store(true)
				s.workers[id].setDeadline(time.Unix(1, 0))
			}
		}
	}
}

func (s *session) setDeadlines(t time.Time) {
	for _, w := range s.workers {
		w.setDeadline(t)
	}
}

// setDeadline bounds the worker's waits. A connection on which that fails is broken, which the worker finds out itself.
func (w *worker) setDeadline(t time.Time) { _ = w.conn.SetDeadline(t) }

// fill writes the keys that no worker has had acknowledged.
func (s *session) fill(ctx context.Context, progress Progress) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	var filled atomic.Int64
	for _, w := range s.workers {
		filled.Add(int64(w.written.count))
		progress.Keys += int64(w.written.n)
	}
	var running sync.WaitGroup
	errs := make([]error, len(s.workers))
	stop := make(chan struct{})
	for i, w := range s.workers {
		running.Go(func() {
			errs[i] = w.fill(stop, s.Patience, &filled)
			w.dead = errs[i] != nil
		})
	}
	done := make(chan struct{})
	go func() { // ends when the workers have
		running.Wait()
		close(done)
	}()
	tick := time.NewTicker(s.tick)
	defer tick.Stop()
	begin := time.Now()
	interrupted := ctx.Done()
	for open := true; open; {
		select {
		case <-done:
			open = false
		case <-interrupted:
			interrupted = nil
			close(stop)
		case <-tick.C:
			progress.Elapsed, progress.OK = time.Since(begin), filled.Load()
			s.Progress(progress)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := summed(errs); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return nil
}

// ownPort is our end of a connection in an error, in which alone the errors of workers may differ.
var ownPort = regexp.MustCompile(`\S+:\d+->`)

// summed joins the errors of workers. Those that say the same are said once.
func summed(errs []error) error {
	var texts []string
	first, count := map[string]error{}, map[string]int{}
	for _, err := range errs {
		if err == nil {
			continue
		}
		text := ownPort.ReplaceAllString(err.Error(), "")
		if count[text]++; count[text] == 1 {
			texts, first[text] = append(texts, text), err
		}
	}
	var all []error
	for _, text := range texts {
		err := first[text]
		if n := count[text]; n > 1 {
			err = fmt.Errorf("%d workers: %w", n, err)
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}
