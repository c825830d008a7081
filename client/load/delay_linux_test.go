package load

import (
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kvmark/client/load/loadtest"
	"kvmark/client/result"
)

// A client that is late to read must not be taken for a slow server, nor a slow server for a late client.
func TestALateClientIsToldFromASlowServer(t *testing.T) {
	open := func(b loadtest.Behaviour) result.Cell {
		c := config(t, b)
		c.Workload.Workers, c.Ops, c.Rate, c.Duration = 2, []string{"set"}, Rate{200, 200}, 500*time.Millisecond
		return run(t, t.Context(), c).Cells[0]
	}
	t.Run("late client", func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		stop, gone := make(chan struct{}), make(chan struct{})
		go func() { // keeps the only P for most of the time, as a call that the runtime does not see
			defer close(gone)
			ts := unix.NsecToTimespec(int64(4 * time.Millisecond))
			for {
				select {
				case <-stop:
					return
				default:
					_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
					runtime.Gosched()
				}
			}
		}()
		cell := open(loadtest.Behaviour{})
		close(stop)
		<-gone
		if cell.Valid || !slices.Contains(failed(cell), "client_delay") || cell.Client.Bound != "client" {
			t.Errorf("valid %v, bound by %q: %+v", cell.Valid, cell.Client.Bound, cell.Checks)
		}
	})
	t.Run("slow server", func(t *testing.T) {
		cell := open(loadtest.Behaviour{Delay: 20 * time.Millisecond})
		if slices.Contains(failed(cell), "client_delay") || cell.Pace.ReadDelayUS.P50 == nil || cell.Pace.PingUS.P50 == nil {
			t.Errorf("%+v, %+v", cell.Checks, cell.Pace)
		}
	})
}
