//go:build unix

package load

import (
	"syscall"
	"time"
)

// terminate asks the server's process group to end; kill ends it. Once the process is reaped its number may belong to
// somebody else, so neither does anything then.
func (s *server) terminate() { s.signal(syscall.SIGTERM) }

func (s *server) kill() { s.signal(syscall.SIGKILL) }

func (s *server) signal(sig syscall.Signal) {
	if !s.dead() {
		_ = syscall.Kill(-s.cmd.Process.Pid, sig) // no such process: it has just ended
	}
}

// cpuTime is the CPU time that this process has used.
func cpuTime() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
