package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// Dialer opens thousands of connections to one address. Two limits of the system stand in the way, and both errors say so:
//
//	descriptors  each connection is one at either end; a process may have RLIMIT_NOFILE of them
//	ports        connections to one address and port differ by their own address and port, and the system hands out
//	             28,232 ports (32768..60999 unless set otherwise) for each own address
//
// A server on this machine is reached from 127.0.0.1 and, once that has made its share, from 127.0.0.2, 127.0.0.3 and so on.
type Dialer struct {
	addr     string
	secure   *tls.Config // nil: plain text
	loopback bool
	dialer   net.Dialer
}

// PortsPerSource is how many connections a Dialer makes from one own address, well below what the system gives: ports of
// connections that have just ended are not free at once.
const PortsPerSource = 20_000

// MaxSources is how many own addresses there may be: 127.0.0.1 to 127.0.0.250.
const MaxSources = 250

// NewDialer returns a dialer of connections to addr, which is as for [Dial]. The error is about the files of t.
func NewDialer(addr string, t TLS) (*Dialer, error) {
	secure, err := t.Load()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	d := &Dialer{addr: addr, secure: secure}
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Is4() || !ip.IsLoopback() {
		return d, nil
	}
	d.loopback, d.dialer.Control = true, lateBind
	return d, nil
}

// Dial opens the i-th connection, of all processes of this machine together. i chooses the own address, nothing else.
func (d *Dialer) Dial(ctx context.Context, i int) (net.Conn, error) {
	dialer := d.dialer
	from := ""
	if d.loopback {
		source := netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i/PortsPerSource%MaxSources)})
		from = " from " + source.String()
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	c, err := open(ctx, dialer, d.addr, d.secure)
	if err == nil {
		return c, nil
	}
	return nil, fmt.Errorf("client: connection %d to %s%s: %w", i+1, d.addr, from, err)
}

// explain says what the system's limits mean, with their numbers.
func explain(err error) error {
	var sys *SystemLimitError
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		sys = &SystemLimitError{"no free local port: the system hands out the ports " + portRange() + " for each own address and destination, and those of " +
			"connections just ended rest for a minute: use fewer connections, several addresses of the server, or a wider net.ipv4.ip_local_port_range", err}
	case errors.Is(err, syscall.EMFILE):
		sys = &SystemLimitError{"this process is out of file descriptors: its limit is " + descriptorWords() +
			": raise it (ulimit -n, LimitNOFILE=), or open fewer connections in each process", err}
	case errors.Is(err, syscall.ENFILE):
		sys = &SystemLimitError{"the whole system is out of file descriptors: raise fs.file-max", err}
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: no server listens there", cause(err))
	default:
		return cause(err)
	}
	return sys
}

// SystemLimitError is a limit of the operating system that a connection ran into, and what may be done about it.
type SystemLimitError struct {
	Words string
	Err   error
}

func (e *SystemLimitError) Error() string { return cause(e.Err).Error() + ": " + e.Words }
func (e *SystemLimitError) Unwrap() error { return e.Err }

// cause is what the system said, without the addresses around it.
func cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// EnsureDescriptors raises this process's limit where it is too low for so many connections, or reports, before any is
// opened, that it may not. instead is what else can be done then.
func EnsureDescriptors(connections int, instead string) error {
	need := uint64(connections) + ownDescriptors
	limit, ok := descriptorLimit()
	if !ok || need <= limit {
		return nil
	}
	err := raiseDescriptors(need)
	if err == nil {
		return nil
	}
	return &SystemLimitError{fmt.Sprintf("%d connections need %d file descriptors, and the limit of this process is %d, which it may not raise (%v): "+
		"raise it (ulimit -Hn, LimitNOFILE=), or %s", connections, need, limit, cause(err), instead), syscall.EMFILE}
}

// ownDescriptors is what a process needs beside its connections: streams, the poller, files, a child's pipes.
const ownDescriptors = 64

func descriptorWords() string {
	limit, ok := descriptorLimit()
	if !ok {
		return "not known"
	}
	return fmt.Sprint(limit)
}

// portRange is the system's range of local ports, as it shows it.
func portRange() string {
	text := readText("/proc/sys/net/ipv4/ip_local_port_range")
	if from, to, ok := strings.Cut(strings.TrimSpace(text), "\t"); ok {
		return strings.TrimSpace(from) + ".." + strings.TrimSpace(to)
	}
	return "of ip_local_port_range"
}
