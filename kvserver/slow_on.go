//go:build kvmark_slow && linux

package kvserver

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// slowdown makes every command cost a known share more of processor time than it does. Whoever wants to know which differences
// a comparison of two builds finds, compares a build with the tag kvmark_slow, and the environment variable KVMARK_SLOW set
// to a number of per cent, with one without it, or with KVMARK_SLOW=0.
//
// What a command costs is measured while the server runs: the processor time of the process, user and system, less what
// has been burnt, by the number of commands, tick by tick. The share of it is burnt in the thread that runs the
// commands, by its own clock of processor time; so waiting, other programs, and being preempted do not count. What commands
// owe that run before the cost is known is burnt then.
type slowdown struct {
	share float64
	ticks *atomic.Int64 // the server's

	commands atomic.Int64 // that have not paid yet
	cost     atomic.Int64 // ns that a command owes; 0 = not known yet

	mu            sync.Mutex
	paid          int64 // commands since the last measurement that have
	debt          int64 // ns that are still to be burnt; below 0 = too many have been
	measured      int64 // tick of the last measurement
	usage, before int64 // processor time of the process, and burnt, then
	burnt         int64 // ns in all
}

const (
	leastBurn = int64(400 * time.Microsecond) // each burning changes how requests gather, so there should be few
	longBurn  = int64(time.Millisecond)       // at once, so that others get their turn
	firstLook = 100                           // commands, before the cost is known
)

// newSlowdown reads KVMARK_SLOW.
func newSlowdown(o *Options, ticks *atomic.Int64) (*slowdown, error) {
	text := os.Getenv("KVMARK_SLOW")
	if text == "" {
		return nil, nil
	}
	percent, err := strconv.ParseFloat(text, 64)
	if err != nil || !(percent >= 0 && percent <= 1000) {
		return nil, fmt.Errorf("kvserver: KVMARK_SLOW is %q; want per cent between 0 and 1000", text)
	}
	o.Logf("kvserver: KVMARK_SLOW: every command costs %g %% more processor time", percent)
	return &slowdown{share: percent / 100, ticks: ticks, usage: clock(unix.CLOCK_PROCESS_CPUTIME_ID)}, nil
}

// command is called for each command that has run, in the thread that ran it.
func (s *slowdown) command() {
	if s == nil {
		return
	}
	n, cost := s.commands.Add(1), s.cost.Load()
	if cost > 0 && n*cost < leastBurn || cost == 0 && n%firstLook != 0 || !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	s.measure()
	if cost = s.cost.Load(); cost == 0 {
		return
	}
	n = s.commands.Swap(0)
	s.paid += n
	if s.debt += n * cost; s.debt > 0 {
		s.burn(min(s.debt, longBurn))
	}
}

// measure sets what a command costs, once a tick. REQUIRES: mu held.
func (s *slowdown) measure() {
	now, n := s.ticks.Load(), s.paid+s.commands.Load()
	if now == s.measured || n < firstLook {
		return
	}
	usage := clock(unix.CLOCK_PROCESS_CPUTIME_ID)
	own := usage - s.usage - (s.burnt - s.before)
	cost := s.share * float64(max(0, own)) / float64(n)
	if old := s.cost.Load(); old > 0 {
		cost = (cost + float64(old)) / 2
	}
	s.cost.Store(int64(math.Round(cost)))
	s.paid -= n // what is in commands counts when it pays
	s.measured, s.usage, s.before = now, usage, s.burnt
}

// burn uses ns of this thread's processor time. REQUIRES: mu held.
func (s *slowdown) burn(ns int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := int64(0)
	for begin := clock(unix.CLOCK_THREAD_CPUTIME_ID); used < ns; {
		used = clock(unix.CLOCK_THREAD_CPUTIME_ID) - begin
	}
	s.burnt += used
	s.debt -= used
}

func clock(id int32) int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t) // fails for clocks that there are not
	return t.Nano()
}
