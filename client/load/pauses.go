package load

import (
	"fmt"
	"sync"
	"time"

	"kvmark/client/result"
)

// pauses notes when this process did not run: it was stopped (SIGSTOP, Ctrl-Z), its machine was suspended or paused, or it got
// no CPU. Nothing that was measured meanwhile says anything about the server, which may have run or not. A ticker whose tick
// comes too late, and a process that used next to no CPU time until then, tell it. A suspended machine's monotonic
// clock stands still; how much the clock of boot time is ahead of it tells that.
type pauses struct {
	mu   sync.Mutex
	list []pause
	last tickReading
	stop chan struct{}
	gone chan struct{}
}

// tickReading is what is compared from tick to tick.
type tickReading struct {
	at       time.Time
	asleep   time.Duration // of the machine, since it was booted
	cpu      time.Duration // of this process
	cpuKnown bool
}

func readTick() tickReading {
	r := tickReading{at: time.Now(), asleep: suspended()}
	r.cpu, r.cpuKnown = cpuTime()
	return r
}

// pause is a time in which this process did not run.
type pause struct {
	start, end time.Time
	asleep     time.Duration // of the machine, beside what the clock shows between the two
}

// pauseSum is what the pauses within some time come to.
type pauseSum struct {
	total, longest time.Duration
	stopped        time.Duration // of those of stopPause and more
}

func (s *pauseSum) add(o pauseSum) {
	s.total += o.total
	s.stopped += o.stopped
	s.longest = max(s.longest, o.longest)
}

// Bounds of pauses. A machine at rest wakes a process within some milliseconds, a busy one, where it waits for a CPU among others, mostly
// within leastPause and hardly ever as late as stopPause. Pauses as long as that may take maxPaused of a window, which is what the QPS may be
// too low by; one of longPause none. What shorter ones do to the tail is the affair of the check client_tail.
const (
	pauseTick  = 10 * time.Millisecond
	leastPause = 20 * time.Millisecond
	longPause  = 250 * time.Millisecond
	stopPause  = 100 * time.Millisecond
	maxPaused  = 0.05
	// Within a pause this part of the time may have been used: the ticks before and after it were not at its edges.
	pauseBusy = 0.3
)

// watchPauses begins to note pauses, until close.
func watchPauses() *pauses {
	p := &pauses{last: readTick(), stop: make(chan struct{}), gone: make(chan struct{})}
	go func() { // ends with close
		defer close(p.gone)
		tick := time.NewTicker(pauseTick)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.look(readTick())
			}
		}
	}()
	return p
}

func (p *pauses) close() {
	close(p.stop)
	<-p.gone
}

// look judges the time since the last reading.
func (p *pauses) look(now tickReading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.last
	if now.at.Before(before.at) { // read before a pause, and here after a reading behind it: that was judged already
		return
	}
	p.last = now
	since := now.at.Sub(before.at)
	one := pause{start: now.at, end: now.at, asleep: max(now.asleep-before.asleep, 0)}
	idle := !now.cpuKnown || float64(now.cpu-before.cpu) < pauseBusy*float64(since)
	if since >= pauseTick+leastPause && idle {
		one.start = before.at.Add(pauseTick)
	}
	if one.asleep < longPause-pauseTick { // the clocks are not read at one moment
		one.asleep = 0
	}
	if one.asleep > 0 || one.end.After(one.start) {
		p.list = append(p.list, one)
	}
}

// between is how long this process did not run from one moment to another.
func (p *pauses) between(from, to time.Time) (sum pauseSum) {
	if p == nil {
		return sum
	}
	p.look(readTick()) // the ticker may not have run yet since
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.list) - 1; i >= 0 && !p.list[i].end.Before(from); i-- { // in the order of their ends
		start, end := p.list[i].start, p.list[i].end
		if start.After(to) {
			continue
		}
		if start.Before(from) {
			start = from
		}
		if end.After(to) {
			end = to
		}
		one := pauseSum{total: end.Sub(start) + p.list[i].asleep}
		if one.longest = one.total; one.total >= stopPause {
			one.stopped = one.total
		}
		sum.add(one)
	}
	return sum
}

// checkPauses is the check client_ran of a window of that length.
func checkPauses(s pauseSum, window time.Duration, check func(string, bool, string, ...any)) {
	allowed := time.Duration(maxPaused * float64(window))
	words := "this process ran all the time within the window"
	pass := s.longest < longPause && s.stopped <= allowed
	if s.total > 0 {
		words = fmt.Sprintf("this client, or its machine, did not run for %.3f s within the window, %.3f s at once, %.3f s of it in pauses of %v and more; at most %.3f of these",
			s.total.Seconds(), s.longest.Seconds(), s.stopped.Seconds(), stopPause, allowed.Seconds())
	}
	if !pass {
		words += ": the other checks, and figures, say nothing about the server"
	}
	check("client_ran", pass, "%s", words)
}

// excuse names a pause as the cause of the rows in it: what they say is not the server's doing. A short one is the cause of
// a row that stands out if it was at least half of its longest wait.
func (p *pauses) excuse(rows []result.Row, t0 time.Time) {
	for i, r := range rows {
		from := t0.Add(time.Duration(r.T * 1e9))
		d := p.between(from, from.Add(time.Duration(r.Seconds*1e9)))
		explains := r.Cause != "" && 2*float64(d.longest.Microseconds()) >= deref(r.MaxUS)
		if d.longest >= longPause || d.longest > 0 && explains {
			rows[i].Cause = fmt.Sprintf("this client did not run: it, or its machine, was stopped for %.2f s", d.total.Seconds())
		}
	}
}
