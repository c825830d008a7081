package lsm

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler lets Pebble run as many compactions as it wants by itself, as Pebble's own does, but none before it is open. Pebble
// may want one while it opens, and forgets it and its scheduler if it then fails: the compaction would go on in caches that
// are closed, and take the process along.
type scheduler struct {
	db    pebble.DBForCompaction
	asked chan struct{} // capacity 1: there may be room for one more
	stop  chan struct{}
	done  sync.WaitGroup

	mu      sync.Mutex
	opened  bool
	running int
}

func newScheduler() *scheduler {
	return &scheduler{asked: make(chan struct{}, 1), stop: make(chan struct{})}
}

// lookEvery is how often Pebble is asked what it wants, which it does not tell by itself each time.
const lookEvery = 100 * time.Millisecond

// open lets compactions begin.
func (s *scheduler) open() {
	s.mu.Lock()
	s.opened = true
	s.mu.Unlock()
	s.done.Go(func() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			s.grant()
			select {
			case <-ticker.C:
			case <-s.asked:
			case <-s.stop:
				return
			}
		}
	})
}

// grant begins what waits, as far as there is room. It does not hold mu meanwhile: Pebble calls TrySchedule with a lock of its
// own, which it takes here.
func (s *scheduler) grant() {
	for s.take() {
		if waits, _ := s.db.GetWaitingCompaction(); !waits || !s.db.Schedule(s) {
			s.give()
			return
		}
	}
}

func (s *scheduler) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened || s.running >= s.db.GetAllowedWithoutPermission() {
		return false
	}
	s.running++
	return true
}

func (s *scheduler) give() {
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
}

// Register implements pebble.CompactionScheduler.
func (s *scheduler) Register(_ int, db pebble.DBForCompaction) { s.db = db }

// Unregister implements pebble.CompactionScheduler.
func (s *scheduler) Unregister() {
	s.mu.Lock()
	s.opened = false
	s.mu.Unlock()
	close(s.stop)
	s.done.Wait()
}

// TrySchedule implements pebble.CompactionScheduler.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) { return s.take(), s }

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler.
func (s *scheduler) UpdateGetAllowedWithoutPermission() {
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// Done implements pebble.CompactionGrantHandle.
func (s *scheduler) Done() {
	s.give()
	s.UpdateGetAllowedWithoutPermission()
}

// Started implements pebble.CompactionGrantHandle.
func (s *scheduler) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (s *scheduler) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (s *scheduler) CumulativeStats(pebble.CompactionGrantHandleStats) {}
