package load

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// timerfd is an alarm by a timer of the kernel, which the runtime's poller watches together with all connections: the
// moment to send and the reply are events alike, each wakes the goroutine that waits for it, and no goroutine waits in a
// system call that keeps a P. One that sleeps in clock_nanosleep does: once all Ps are kept, no thread polls the
// connections, and replies wait there for milliseconds. time.Sleep keeps no P, but the poller's time-out is in whole
// milliseconds. A timerfd is exact: it has not even the 50 us of timer slack that sleeping threads have.
type timerfd struct {
	file  *os.File
	raw   syscall.RawConn
	turn  func(fd uintptr) bool // a method value, made once: it allocates
	spec  unix.ItimerSpec
	armed bool
	err   error
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &timerfd{file: os.NewFile(uintptr(fd), "timerfd")}
	if a.raw, err = a.file.SyscallConn(); err != nil {
		a.file.Close()
		return nil, err
	}
	a.turn = a.step
	return a, nil
}

func (a *timerfd) close() { a.file.Close() }

// wait returns after d. REQUIRES: d > 0.
func (a *timerfd) wait(d time.Duration) error {
	a.spec.Value, a.armed, a.err = unix.NsecToTimespec(int64(d)), false, nil
	if err := a.raw.Read(a.turn); err != nil {
		return err
	}
	return a.err
}

// step is called with the poller armed, sets the timer, and is called again when the poller reports it. Neither call blocks.
func (a *timerfd) step(fd uintptr) bool {
	if !a.armed {
		a.armed = true
		_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&a.spec)), 0, 0, 0)
		if errno != 0 {
			a.err = os.NewSyscallError("timerfd_settime", errno)
		}
		return errno != 0
	}
	var expired [8]byte
	_, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&expired[0])), uintptr(len(expired)))
	return errno != unix.EAGAIN
}
