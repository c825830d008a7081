package kvserver

import (
	"encoding/binary"
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

// A loop is woken also when the write that is to do so fails because the count of its eventfd has come to its end.
func TestALoopIsWokenThoughItsEventfdIsFull(t *testing.T) {
	srv := open(t, Options{IO: Loop, Loops: 1})
	addr := listen(t, srv)
	dial(t, addr).want("+PONG\r\n", "PING")
	for range 3 {
		var count [8]byte
		_, _ = unix.Read(srv.loops[0].wakeFD, count[:])
		binary.NativeEndian.PutUint64(count[:], math.MaxUint64-1)
		if _, err := unix.Write(srv.loops[0].wakeFD, count[:]); err != nil {
			t.Fatal(err)
		}
		dial(t, addr).want("+PONG\r\n", "PING")
	}
}
