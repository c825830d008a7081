package load

import (
	"fmt"
	"sync"
	"time"

	"kvmark/client/result"
)

// pauses notes when this process did not run: it was stopped (SIGSTOP, Ctrl-Z), or its machine was suspended or paused.
// Nothing that was measured meanwhile says anything about the server, which may have run or not. A ticker whose tick
// comes far too late, and a process that used next to no CPU time until then, tell it. A suspended machine's monotonic
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

type pause struct {
	end    time.Time
	length time.Duration
}

const (
	pauseTick = 20 * time.Millisecond
	// A process that waits for a CPU among others gets one sooner than this.
	leastPause = 250 * time.Millisecond
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
	since, length := now.at.Sub(before.at), max(now.asleep-before.asleep, 0)
	idle := !now.cpuKnown || float64(now.cpu-before.cpu) < pauseBusy*float64(since)
	if since >= leastPause && idle {
		length += since - pauseTick
	}
	if length >= leastPause-pauseTick {
		p.list = append(p.list, pause{now.at, length})
	}
}

// between is how long this process did not run from one moment to another, in all.
func (p *pauses) between(from, to time.Time) (total time.Duration) {
	if p == nil {
		return 0
	}
	p.look(readTick()) // the ticker may not have run yet since
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.list {
		if one.end.After(from) && one.end.Add(-one.length).Before(to) {
			total += one.length
		}
	}
	return total
}

// excuse names a pause as the cause of the rows in it: what they say is not the server's doing.
func (p *pauses) excuse(rows []result.Row, t0 time.Time) {
	for i, r := range rows {
		from := t0.Add(time.Duration(r.T * 1e9))
		if d := p.between(from, from.Add(time.Duration(r.Seconds*1e9))); d > 0 {
			rows[i].Cause = fmt.Sprintf("this client did not run: it, or its machine, was stopped for %.2f s", d.Seconds())
		}
	}
}
