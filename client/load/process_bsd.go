//go:build unix && !linux

package load

import "syscall"

// processAttributes gives the child its own process group. These systems cannot tie its life to ours: should this
// process be killed with SIGKILL, the child has to be stopped by hand.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
