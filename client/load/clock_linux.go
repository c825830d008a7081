package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// processCPU reads the CPU clock of a process, in nanoseconds: what clock_getcpuclockid(3) of its pid stands for.
func processCPU(pid int) (time.Duration, bool) {
	const clockOfProcess = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|clockOfProcess), &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
