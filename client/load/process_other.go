//go:build !unix

package load

import (
	"syscall"
	"time"
)

func processAttributes() *syscall.SysProcAttr { return nil }

// There is no signal to ask with.
func (s *server) terminate() { s.kill() }

func (s *server) kill() { _ = s.cmd.Process.Kill() }

func cpuTime() (time.Duration, bool) { return 0, false }
