//go:build !linux

package kvserver

import (
	"errors"
	"net"
)

// DefaultIO is what is used when nothing is said.
const DefaultIO = Goroutine

// loops are not there on this system: they need epoll.
type loops struct{}

func newLoops(*Server, int) (loops, error) {
	return loops{}, errors.New("kvserver: io loop needs Linux; use io goroutine")
}

func (loops) take(*conn, net.Conn) bool { return false }

func (loops) stop() {}

func (loops) beforeWait() bool { return false }
