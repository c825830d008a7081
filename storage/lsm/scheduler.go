package lsm

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler is Pebble's own scheduler of compactions, but none begins before the store is open: a compaction that is under way when
// Pebble's Open fails goes on in caches that are closed, and ends the process. It is the one without a clock (that is what "for
// test" in its name means), because the clock's goroutine would also outlive such an Open. Compactions are looked for when a
// flush or a compaction ends, and here.
type scheduler struct {
	*pebble.ConcurrencyLimitScheduler
	opened atomic.Bool
}

func newScheduler() *scheduler {
	return &scheduler{ConcurrencyLimitScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
}

// TrySchedule implements pebble.CompactionScheduler.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !s.opened.Load() {
		return false, nil
	}
	return s.ConcurrencyLimitScheduler.TrySchedule()
}

// open lets compactions begin, first the one that Pebble wanted while it was being opened: it is looked for when a grant is given back.
func (s *scheduler) open() {
	s.opened.Store(true)
	if ok, grant := s.ConcurrencyLimitScheduler.TrySchedule(); ok {
		grant.Done()
	}
}
