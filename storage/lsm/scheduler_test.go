package lsm

import (
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// waiting is a database with compactions that wait, of which so many may run at once.
type waiting struct {
	mu      sync.Mutex
	left    int
	allowed int
	began   chan pebble.CompactionGrantHandle
}

func (w *waiting) GetAllowedWithoutPermission() int { return w.allowed }

func (w *waiting) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left > 0, pebble.WaitingCompaction{}
}

func (w *waiting) Schedule(h pebble.CompactionGrantHandle) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == 0 {
		return false
	}
	w.left--
	w.began <- h
	return true
}

func TestNoCompactionBeginsBeforeTheStoreIsOpen(t *testing.T) {
	s, db := newScheduler(), &waiting{left: 5, allowed: 2, began: make(chan pebble.CompactionGrantHandle, 5)}
	s.Register(2, db)
	if ok, _ := s.TrySchedule(); ok || len(db.began) > 0 {
		t.Error("one began before")
	}
	s.open()
	first, second := <-db.began, <-db.began
	if ok, _ := s.TrySchedule(); ok {
		t.Error("three at once")
	}
	first.Done()
	third := <-db.began
	second.Done()
	third.Done()
	fourth, fifth := <-db.began, <-db.began
	fourth.Done()
	fifth.Done()
	s.Unregister()
	if ok, _ := s.TrySchedule(); ok {
		t.Error("one begins after the end")
	}
}

// An Open that fails never lets the scheduler go on, and may not even register.
func TestASchedulerThatIsNeverOpenLeavesNothingBehind(t *testing.T) {
	s := newScheduler()
	s.Register(2, &waiting{left: 1, allowed: 1})
	s.UpdateGetAllowedWithoutPermission()
	s.UpdateGetAllowedWithoutPermission()
	if ok, _ := s.TrySchedule(); ok {
		t.Error("one began")
	}
}
