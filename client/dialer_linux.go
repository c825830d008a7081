package client

import (
	"os"
	"syscall"
)

// ipBindAddressNoPort lets connect choose the port, with the destination known, when only the address is bound: bind
// alone would take a port away from all destinations. A constant of the system's interface.
const ipBindAddressNoPort = 24

func lateBind(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		// Systems without it have fewer ports to give, and say so themselves.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, ipBindAddressNoPort, 1)
	})
}

func readText(path string) string {
	b, _ := os.ReadFile(path) // "" says enough
	return string(b)
}
