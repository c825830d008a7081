package experiment

import (
	"encoding/binary"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// instructions counts the instructions that a process executes in user mode, by one hardware counter for each of its
// threads; threads that these start are counted with them. nil counts nothing: many virtual machines and containers have
// no counters, and that is no reason not to measure the rest.
type instructions struct{ counters []int }

func countInstructions(pid int) *instructions {
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_INSTRUCTIONS,
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | unix.PerfBitInherit,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	c := new(instructions)
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err == unix.ESRCH { // the thread has just ended
			continue
		}
		if err != nil {
			c.close()
			return nil
		}
		c.counters = append(c.counters, fd)
	}
	return c
}

// read returns the instructions since the counters were opened. ok is false if there are none.
func (c *instructions) read() (n uint64, ok bool) {
	if c == nil || len(c.counters) == 0 {
		return 0, false
	}
	for _, fd := range c.counters {
		var b [8]byte
		if k, err := unix.Read(fd, b[:]); err != nil || k != len(b) {
			return 0, false
		}
		n += binary.NativeEndian.Uint64(b[:])
	}
	return n, n > 0
}

func (c *instructions) close() {
	if c == nil {
		return
	}
	for _, fd := range c.counters {
		_ = unix.Close(fd)
	}
	c.counters = nil
}
