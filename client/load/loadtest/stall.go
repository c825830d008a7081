package loadtest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Stalling passes connections on to a server until so many bytes have gone to it. From then on it keeps them open, takes new ones,
// and passes nothing on: as a server that the system has stopped, whose connections the kernel still answers.
func Stalling(addr string, after int64) (at string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var mu sync.Mutex
	var conns []net.Conn
	stopped := false
	keep := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			c.Close()
			return false
		}
		conns = append(conns, c)
		return true
	}
	var passed atomic.Int64
	var running sync.WaitGroup
	pass := func(to, from net.Conn, n int64) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			k, err := from.Read(buf)
			if err != nil {
				return
			}
			if passed.Add(n*int64(k)) > after {
				_, _ = io.Copy(io.Discard, from)
				return
			}
			if _, err := to.Write(buf[:k]); err != nil {
				return
			}
		}
	}
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", addr)
			if err != nil {
				c.Close()
				continue
			}
			if !keep(c) {
				s.Close()
			} else if keep(s) {
				running.Go(func() { pass(s, c, 1) })
				running.Go(func() { pass(c, s, 0) })
			}
		}
	})
	return ln.Addr().String(), func() {
		ln.Close()
		mu.Lock()
		stopped = true
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	}, nil
}
