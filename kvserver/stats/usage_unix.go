//go:build unix

package stats

import (
	"time"

	"golang.org/x/sys/unix"
)

// usage is what the kernel has charged this process with.
type usage struct {
	user, system             time.Duration
	maxRSS                   int64 // in the unit of the system
	minorFaults, majorFaults int64
	voluntary, involuntary   int64 // context switches
}

func readUsage() (usage, bool) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return usage{}, false
	}
	return usage{
		user:        time.Duration(r.Utime.Nano()),
		system:      time.Duration(r.Stime.Nano()),
		maxRSS:      int64(r.Maxrss),
		minorFaults: int64(r.Minflt), majorFaults: int64(r.Majflt),
		voluntary: int64(r.Nvcsw), involuntary: int64(r.Nivcsw),
	}, true
}

func appendFaults(t *Text) {
	if u, ok := readUsage(); ok {
		t.Int("minor_faults", u.minorFaults)
		t.Int("major_faults", u.majorFaults)
		t.Int("voluntary_ctxt", u.voluntary)
		t.Int("nonvoluntary_ctxt", u.involuntary)
	}
}
