//go:build unix

package kvserver

import (
	"net"
	"syscall"
)

// send writes as much as the socket takes without waiting.
func (m *mailer) send(nc net.Conn, chunk []byte) (int, error) {
	if m.write == nil {
		// Made once, so that sending allocates nothing. Encrypted connections have no such way.
		if sc, ok := nc.(syscall.Conn); ok {
			m.raw, _ = sc.SyscallConn() // nil on an error
		}
		m.write = func(fd uintptr) bool {
			m.n, m.err = syscall.Write(int(fd), m.chunk)
			for m.err == syscall.EINTR {
				m.n, m.err = syscall.Write(int(fd), m.chunk)
			}
			return true
		}
	}
	if m.raw == nil {
		return 0, nil
	}
	m.chunk = chunk
	err := m.raw.Write(m.write)
	m.chunk = nil
	switch {
	case err != nil:
		return 0, err
	case m.err == syscall.EAGAIN:
		return 0, nil
	case m.err != nil:
		return 0, m.err
	}
	return m.n, nil
}
