//go:build unix

package kvserver

import (
	"math"

	"golang.org/x/sys/unix"
)

// fileSizeLimit returns how long a file of this process may be.
func fileSizeLimit() int64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &r); err != nil || uint64(r.Cur) > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(r.Cur)
}
