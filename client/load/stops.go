package load

import (
	"fmt"
	"strings"
	"time"

	"kvmark/client/result"
)

// stops is when the server was stopped by a signal such as SIGSTOP, as the system tells of a child. What it counts meanwhile as the time
// of an fsync, or of anything else, is no such thing.
type stops struct {
	known bool // the system tells
	list  []stop
}

// stop is from the first look at which the process was stopped to the first at which it was not any more.
type stop struct{ from, to time.Duration }

const stopTick = 50 * time.Millisecond

// followStops looks at the server's state until done, and returns a function that gives what was seen.
func (s *server) followStops(t0 time.Time, done <-chan struct{}) func() stops {
	var seen stops
	if s.foreign || s.pid == 0 {
		return func() stops { return seen }
	}
	if _, seen.known = processStopped(s.pid); !seen.known {
		return func() stops { return seen }
	}
	gone := make(chan struct{})
	go func() { // ends with the phase
		defer close(gone)
		tick := time.NewTicker(stopTick)
		defer tick.Stop()
		within := false
		look := func() {
			now := time.Since(t0)
			if within {
				seen.list[len(seen.list)-1].to = now
			}
			stopped, _ := processStopped(s.pid)
			if stopped && !within {
				seen.list = append(seen.list, stop{now, now})
			}
			within = stopped
		}
		for {
			select {
			case <-done:
				look()
				return
			case <-tick.C:
				look()
			}
		}
	}()
	return func() stops {
		<-gone
		return seen
	}
}

// explain names the stops as the cause of rows in which they were long, or that stand out. Where the system does not tell of stops, an
// fsync is no cause if INFO was not answered either for as long: both may have waited for the same.
func (s stops) explain(rows []result.Row) {
	for i := range rows {
		r := &rows[i]
		from := time.Duration(r.T * 1e9)
		to := from + time.Duration(r.Seconds*1e9)
		var length time.Duration
		for _, one := range s.list {
			length += max(min(one.to, to)-max(one.from, from), 0)
		}
		switch {
		case length >= longPause || length > 0 && r.Cause != "":
			r.Cause = fmt.Sprintf("the server's process was stopped by a signal (state T) for about %.2f s", length.Seconds())
		case !s.known && r.Server != nil && strings.HasPrefix(r.Cause, fsyncCause) && deref(r.Server.InfoUS) >= float64(longPause.Microseconds()):
			r.Cause = fmt.Sprintf("the server stood still, INFO too took %.2f s: it was stopped, or waited for its device (it counts %s)", deref(r.Server.InfoUS)/1e6, r.Cause)
		}
	}
}
