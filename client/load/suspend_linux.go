package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended is how long this machine has been suspended since it was booted.
func suspended() time.Duration {
	var boot, running unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &running) != nil {
		return 0
	}
	// The two are read one after the other: what is less than a moment is none.
	return time.Duration(boot.Nano() - running.Nano()).Truncate(pauseTick)
}
