package load

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pause waits for d, less than a few milliseconds, to within some 20 us on an idle machine. time.Sleep is late by 0.7 ms here:
// the runtime's poller waits in whole milliseconds. The kernel's own sleep is late by its timer slack, so it is asked for
// less, and what is left, mostly nothing, is spent offering the processor to others. Spinning for all of it would take
// the processor from a server on the same machine.
func pause(d time.Duration) {
	begin := time.Now()
	if d > pauseBefore {
		ts := unix.NsecToTimespec(int64(d - pauseBefore))
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil) // woken early by a signal: the rest follows
	}
	for time.Since(begin) < d {
		runtime.Gosched()
	}
}
