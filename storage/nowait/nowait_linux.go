package nowait

import (
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// readAt is preadv2(2) with RWF_NOWAIT. Since Linux 5.11 it also makes the system begin to read what is missing. The call never
// sleeps, so the scheduler is not told of it. Some file systems do not know the flag; those are read as ever.
func readAt(f vfs.File, p []byte, off int64) (int, error) {
	fd := f.Fd()
	if fd == vfs.InvalidFd || len(p) == 0 {
		return f.ReadAt(p, off)
	}
	for have := 0; ; {
		v := unix.Iovec{Base: unsafe.SliceData(p[have:])}
		v.SetLen(len(p) - have)
		at := off + int64(have)
		n, _, e := unix.RawSyscall6(unix.SYS_PREADV2, fd, uintptr(unsafe.Pointer(&v)), 1, uintptr(at), uintptr(at>>32), unix.RWF_NOWAIT)
		switch {
		case e == unix.EAGAIN:
			return 0, ErrWouldWait
		case e != 0 || n == 0:
			return f.ReadAt(p, off) // not supported, interrupted, an error, or the end of the file: read again, and say what it is
		}
		if have += int(n); have == len(p) {
			return have, nil
		}
		// The first pages were there. Only asking for the rest makes the system begin to read it.
	}
}
