//go:build unix

package client

import "syscall"

// descriptorLimit is the number of file descriptors that this process may have. The Go runtime has raised it to what is
// allowed when the process began.
func descriptorLimit() (uint64, bool) {
	var r syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r)
	return uint64(r.Cur), err == nil
}

// raiseDescriptors asks for more than was allowed: the system grants it to privileged processes, up to fs.nr_open. Children
// started later have it too.
func raiseDescriptors(n uint64) error {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return err
	}
	setLimit(&r.Cur, n)
	setLimit(&r.Max, n)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r)
}

// setLimit raises a limit, whose type differs between systems.
func setLimit[T int64 | uint64](limit *T, n uint64) { *limit = max(*limit, T(n)) }
