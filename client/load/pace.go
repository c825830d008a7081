package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Rate is how many requests a second are to be sent in open loop, from the first rate to the second over the window, all
// workers together. The zero Rate is closed loop: a worker sends when its last reply is there.
type Rate struct{ From, To float64 }

// MaxRate is beyond what one client can send; it bounds the arithmetic of rates that cannot be reached.
const MaxRate = 10_000_000

// Open reports whether a rate was asked for.
func (r Rate) Open() bool { return r != Rate{} }

// steady is the mean of a rate that moves: that of the warm-up.
func (r Rate) steady() Rate { return Rate{(r.From + r.To) / 2, (r.From + r.To) / 2} }

// String is the form that [ParseRate] reads.
func (r Rate) String() string {
	switch {
	case !r.Open():
		return "0"
	case r.From == r.To:
		return strconv.FormatFloat(r.From, 'f', -1, 64)
	}
	return fmt.Sprintf("ramp:%s:%s", strconv.FormatFloat(r.From, 'f', -1, 64), strconv.FormatFloat(r.To, 'f', -1, 64))
}

// ParseRate reads "5000", requests a second; "ramp:1000:20000", a rate that moves evenly over the window; or "0", closed loop.
func ParseRate(s string) (Rate, error) {
	if s == "" {
		return Rate{}, nil
	}
	from, to := s, s
	if ramp, ok := strings.CutPrefix(s, "ramp:"); ok {
		if from, to, ok = strings.Cut(ramp, ":"); !ok {
			return Rate{}, fmt.Errorf("rate %q: want ramp:FROM:TO, such as ramp:1000:20000", s)
		}
	}
	a, errA := strconv.ParseFloat(from, 64)
	b, errB := strconv.ParseFloat(to, 64)
	if errA != nil || errB != nil {
		return Rate{}, fmt.Errorf("rate %q: want requests a second, such as 5000, or ramp:FROM:TO", s)
	}
	r := Rate{a, b}
	if from == to && a == 0 && !math.Signbit(a) && !strings.HasPrefix(s, "ramp:") {
		return Rate{}, nil
	}
	if !r.Open() || !r.valid() {
		return Rate{}, rateError(strconv.Quote(s))
	}
	return r, nil
}

// valid reports whether the rate can be asked for. What a ramp ends with is sent, so that cannot be nothing.
func (r Rate) valid() bool {
	in := func(x float64) bool { return x >= 0 && x <= MaxRate && !math.Signbit(x) } // not for NaN
	return !r.Open() || in(r.From) && in(r.To) && r.To > 0
}

func rateError(rate string) error {
	return fmt.Errorf("rate %s: want 0 < requests a second <= %d, at the end of a ramp too", rate, MaxRate)
}

// due is how many requests are due before t of a window of that length.
func (r Rate) due(t, length time.Duration) float64 {
	s := t.Seconds()
	return r.From*s + (r.To-r.From)*s*s/(2*length.Seconds())
}

// when is the inverse of due; a moment that never comes is far beyond the window.
func (r Rate) when(n float64, length time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	root := r.From*r.From + 2*(r.To-r.From)*n/length.Seconds()
	below := r.From + math.Sqrt(max(root, 0))
	if seconds := 2 * n / below; root >= 0 && below > 0 && seconds < never.Seconds() {
		return time.Duration(seconds * 1e9)
	}
	return never
}

const never = 1000 * time.Hour

// schedule is the moments at which one of several workers is to send: of one schedule for all, every worker has its
// own part, so that nothing is shared between them.
//
//	constant  request i of all is due when i requests are due; worker w takes i = w, w+workers, w+2*workers ...
//	poisson   each worker draws exponential gaps with its part of the rate; together they are a Poisson process again
type schedule struct {
	rate    Rate
	length  time.Duration
	workers float64
	rng     *rand.Rand // nil: constant gaps
	n       float64    // requests of all workers due before the next of this one
	next    time.Duration
}

func newSchedule(r Rate, length time.Duration, worker, workers int, rng *rand.Rand) schedule {
	s := schedule{rate: r, length: length, workers: float64(workers), rng: rng, n: float64(worker)}
	if rng != nil {
		s.n = s.workers * rng.ExpFloat64()
	}
	s.next = r.when(s.n, length)
	return s
}

func (s *schedule) advance() {
	gap := 1.0
	if s.rng != nil {
		gap = s.rng.ExpFloat64()
	}
	s.n += gap * s.workers
	s.next = s.rate.when(s.n, s.length)
}

// rest tells how many requests are due from next on and before end, and calls f with moments that stand for them, each
// for count of them: few calls, however many they are. Beyond the first they are those of the rate itself.
func (s *schedule) rest(end time.Duration, f func(at time.Duration, count int64)) (total int64) {
	if s.next >= end {
		return 0
	}
	total = max(1, int64(math.Ceil((s.rate.due(end, s.length)-s.n)/s.workers)))
	calls := min(total, 1000)
	for i := range calls {
		first, past := i*total/calls, (i+1)*total/calls
		middle := float64(first+past-1) / 2
		f(min(s.rate.when(s.n+middle*s.workers, s.length), end), past-first)
	}
	return total
}

// longestWait is how long a worker sleeps at most before it looks again whether the window has been ended early.
const longestWait = 50 * time.Millisecond

// await waits for the next moment of the schedule, handing in rows meanwhile. It returns early when the window ends.
func (w *worker) await(p *phase) error {
	for {
		now := time.Since(p.t0)
		w.turn(p, now)
		left := w.schedule.next - now
		if left <= 0 || int64(now) >= p.end.Load() {
			return nil
		}
		if err := w.alarm.wait(min(left, longestWait)); err != nil {
			return err
		}
	}
}

// alarm wakes the goroutine that waits for it after d, as exactly as the system can. Meanwhile it keeps no P.
type alarm interface {
	wait(d time.Duration) error
	close()
}

// runtimeAlarm is as exact as the runtime's timers, which is to a millisecond on some systems.
type runtimeAlarm struct{}

func (runtimeAlarm) wait(d time.Duration) error { time.Sleep(d); return nil }
func (runtimeAlarm) close()                     {}
