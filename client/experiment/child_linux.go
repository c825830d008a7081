package experiment

import "syscall"

// childAttributes gives a client its own process group, so that a Ctrl-C at the terminal reaches us alone, and ends it with us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
