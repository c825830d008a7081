//go:build !unix

package kvserver

import "net"

// send leaves all of it to the goroutine that may wait.
func (m *mailer) send(net.Conn, []byte) (int, error) { return 0, nil }
