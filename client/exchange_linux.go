package client

import (
	"io"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// exchange sends a batch and gets the first of its replies with two system calls, and without the runtime's bookkeeping around
// each: the runtime watches calls that take longer than some 20 us, such as a write to a busy server on the same machine,
// gives their processor away, and wakes threads to do so. That cost a client a third of its CPU time. Per Set on 8
// connections to one redis-server, one request in flight on each, GOMAXPROCS 1, 2 cores of a Xeon, Linux 6.18, 2026-11-30:
//
//	write, read (nothing there yet), wait, read    6.4 us
//	write, wait, read, as calls of the runtime     6.9 us
//	write, wait, read, raw (this)                  4.1 us
//	redis-benchmark                                5.7 us
//
// The calls never block, so that no processor is kept: the descriptor is non-blocking, and a batch is small.
type exchange struct {
	conn    syscall.RawConn
	turn    func(fd uintptr) bool // a method value, made once: it allocates
	out, in []byte
	begun   bool
	sent, n int
	err     error

	message *message // with arrivals noted; nil: not
	lay     time.Duration
	known   bool
}

// message is what recvmsg needs and gives. The kernel puts the time of arrival into oob.
type message struct {
	header unix.Msghdr
	iov    unix.Iovec
	oob    [64]byte
}

// track asks for the time of arrival of what is read.
func (x *exchange) track() bool {
	if x == nil {
		return false
	}
	var failed error
	err := x.conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err != nil || failed != nil {
		return false
	}
	x.message = &message{}
	return true
}

// delay is how long what do has read last had been there, if the system says so.
func (x *exchange) delay() (time.Duration, bool) {
	if x == nil {
		return 0, false
	}
	return x.lay, x.known
}

// receive reads as read(2) does, and notes how long the data had been there. The clock of arrivals is the wall clock: a step
// of it between arrival and reading makes one wrong delay.
func (x *exchange) receive(fd uintptr) (int, error) {
	m := x.message
	m.iov.Base = unsafe.SliceData(x.in)
	m.iov.SetLen(len(x.in))
	m.header = unix.Msghdr{Iov: &m.iov, Control: &m.oob[0]}
	m.header.SetIovlen(1)
	m.header.SetControllen(len(m.oob))
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&m.header)), 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return 0, errno
		}
		head := (*unix.Cmsghdr)(unsafe.Pointer(&m.oob[0]))
		if int(m.header.Controllen) >= unix.CmsgLen(int(unsafe.Sizeof(unix.Timespec{}))) &&
			head.Level == unix.SOL_SOCKET && head.Type == unix.SO_TIMESTAMPNS {
			at := (*unix.Timespec)(unsafe.Pointer(&m.oob[unix.CmsgLen(0)]))
			x.lay, x.known = max(0, time.Duration(time.Now().UnixNano()-at.Nano())), true
		}
		return int(n), nil
	}
}

// newExchange returns nil for what is no socket.
func newExchange(conn net.Conn) *exchange {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	x := &exchange{conn: raw}
	x.turn = x.step
	return x
}

// do sends out, waits, and reads into in. If sent is less than all of it, nothing was waited for. Everything that came for
// earlier batches must have been read, or the wait may be for more than what is there.
func (x *exchange) do(out, in []byte) (sent, n int, err error) {
	if x == nil || len(out) > maxExchange || len(in) == 0 {
		return 0, 0, nil
	}
	x.out, x.in, x.begun, x.sent, x.n, x.err, x.known = out, in, false, 0, 0, nil, false
	if err := x.conn.Read(x.turn); err != nil {
		return x.sent, 0, err
	}
	return x.sent, x.n, x.err
}

// step is called with the poller armed, and again when it has reported that there is something to read. It reports whether
// that is all: since the request goes out after the poller is armed, no reply can be missed.
func (x *exchange) step(fd uintptr) bool {
	if !x.begun {
		x.begun = true
		x.sent, x.err = raw(unix.SYS_WRITE, fd, x.out)
		if x.err == unix.EAGAIN {
			x.err = nil
		}
		return x.err != nil || x.sent < len(x.out)
	}
	if x.message != nil {
		x.n, x.err = x.receive(fd)
	} else {
		x.n, x.err = raw(unix.SYS_READ, fd, x.in)
	}
	if x.err == nil && x.n == 0 {
		x.err = io.EOF
	}
	return x.err != unix.EAGAIN
}

// peek reads without waiting and without taking what it reads.
func (x *exchange) peek(in []byte) (n int) {
	if x == nil {
		return 0
	}
	_ = x.conn.Control(func(fd uintptr) {
		n, _, _ = unix.Recvfrom(int(fd), in, unix.MSG_PEEK|unix.MSG_DONTWAIT) // an error is for whoever reads next
	})
	return max(n, 0)
}

func raw(call, fd uintptr, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
