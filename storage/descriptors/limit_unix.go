//go:build unix

package descriptors

import "golang.org/x/sys/unix"

// Limit returns how many file descriptors this process may have; ok = false if there is no limit. Go has raised the soft
// limit to the hard one when it started.
func Limit() (n int64, ok bool) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || uint64(l.Cur) >= 1<<31 {
		return 0, false
	}
	return int64(l.Cur), true
}
