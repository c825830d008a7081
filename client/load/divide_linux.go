package load

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownCPUs are those that this process may run on.
func ownCPUs() (CPUs, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var all CPUs
	for n := 0; len(all) < set.Count(); n++ {
		if set.IsSet(n) {
			all = append(all, n)
		}
	}
	return all, nil
}

func (c CPUs) set() *unix.CPUSet {
	var set unix.CPUSet
	for _, n := range c {
		set.Set(n)
	}
	return &set
}

// onThread calls f while the thread of the calling goroutine may run on c alone; with no CPUs, it just calls it.
// REQUIRES: the goroutine is locked to its thread.
func (c CPUs) onThread(f func() error) error {
	if len(c) == 0 {
		return f()
	}
	before, err := ownCPUs()
	if err == nil {
		if err = unix.SchedSetaffinity(0, c.set()); err == nil {
			defer unix.SchedSetaffinity(0, before.set())
		}
	}
	if err != nil {
		return fmt.Errorf("keep the server on CPUs %v: %w", c, err)
	}
	return f()
}

// onProcess keeps all threads of this process on c. A thread inherits from the one that starts it, so that once a round has
// found all threads done, there are no others.
func (c CPUs) onProcess() error {
	set, done := c.set(), map[int]bool{}
	for again := true; again; {
		again = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("keep this process on CPUs %v: %w", c, err)
		}
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil || done[id] {
				continue
			}
			if err := unix.SchedSetaffinity(id, set); err != nil && err != unix.ESRCH { // it has just ended
				return fmt.Errorf("keep this process on CPUs %v: %w", c, err)
			}
			done[id], again = true, true
		}
	}
	return nil
}
