package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// The minimal client: as many locked threads as asked, one blocking socket each, GET, and clock_nanosleep until the next
// moment. Its system calls are raw and it has more Ps than threads and no collector, so that the Go runtime has no part
// in it: it is what the same program in C would be. It shares no code with kvmark's client.

type minimalLoad struct {
	addr    netip.AddrPort
	threads int
	rate    float64
	poisson bool
	length  time.Duration
}

// run returns the service times of all requests, how late they were sent on a free connection, and the times from when they
// were due to their replies, sorted.
func (m minimalLoad) run() (times, late, response []time.Duration, err error) {
	runtime.GOMAXPROCS(m.threads + 4)
	debug.SetGCPercent(-1)
	all, allLate, allResponse := make([][]time.Duration, m.threads), make([][]time.Duration, m.threads), make([][]time.Duration, m.threads)
	errs := make([]error, m.threads)
	begin := monotonic() + int64(50*time.Millisecond) // for all to be connected
	var running sync.WaitGroup
	for i := range m.threads {
		running.Go(func() {
			runtime.LockOSThread()
			all[i], allLate[i], allResponse[i], errs[i] = m.thread(i, begin)
		})
	}
	running.Wait()
	times, late, response = slices.Concat(all...), slices.Concat(allLate...), slices.Concat(allResponse...)
	slices.Sort(times)
	slices.Sort(late)
	slices.Sort(response)
	return times, late, response, errors.Join(errs...)
}

func (m minimalLoad) thread(i int, begin int64) (times, late, response []time.Duration, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(m.addr.Port()), Addr: m.addr.Addr().As4()}); err != nil {
		return nil, nil, nil, err
	}
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return nil, nil, nil, err
	}
	key, value := "minimal"+strconv.Itoa(i), bytes.Repeat([]byte("v"), 56)
	set := fmt.Appendf(nil, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
	get := fmt.Appendf(nil, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
	buf := make([]byte, 1024)
	if err := exchange(fd, set, buf, len("+OK\r\n")); err != nil {
		return nil, nil, nil, err
	}
	rng := rand.New(rand.NewPCG(1, uint64(i)))
	gap := func() float64 {
		if m.poisson {
			return rng.ExpFloat64()
		}
		return 1
	}
	each := 1e9 * float64(m.threads) / m.rate
	at := each * float64(i) / float64(m.threads)
	times = make([]time.Duration, 0, int(2*m.length.Seconds()*m.rate)/m.threads+1000)
	late = make([]time.Duration, 0, cap(times))
	free := int64(0)
	for ; at < float64(m.length); at += each * gap() {
		sleepUntil(begin + int64(at))
		sent := monotonic()
		if err := exchange(fd, get, buf, len(value)+len("$56\r\n\r\n")); err != nil {
			return nil, nil, nil, err
		}
		late = append(late, time.Duration(sent-max(free, begin+int64(at))))
		free = monotonic()
		times = append(times, time.Duration(free-sent))
		response = append(response, time.Duration(free-begin-int64(at)))
	}
	return times, late, response, nil
}

// exchange sends a request and reads a reply of n bytes.
func exchange(fd int, out, in []byte, n int) error {
	if _, errno := raw(syscall.SYS_WRITE, fd, out); errno != 0 {
		return errno
	}
	for got := 0; got < n; {
		k, errno := raw(syscall.SYS_READ, fd, in[got:])
		if errno != 0 || k == 0 {
			return fmt.Errorf("read: %d bytes, %w", k, errno)
		}
		got += k
	}
	return nil
}

func raw(call uintptr, fd int, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}

func monotonic() int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

const (
	clockMonotonic = 1
	timerAbsolute  = 1
)

func sleepUntil(at int64) {
	ts := syscall.NsecToTimespec(at)
	for {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_CLOCK_NANOSLEEP, clockMonotonic, timerAbsolute, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}
