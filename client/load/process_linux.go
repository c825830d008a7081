package load

import "syscall"

// processAttributes gives the child its own process group, and has the kernel kill it when the thread that started it
// ends, which launch keeps until the child is gone: so when this process dies, even of SIGKILL.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
