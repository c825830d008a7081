package kvserver

import "syscall"

// mailer writes the messages of a connection that has a goroutine of its own, from the goroutines of publishers: as much as
// the socket takes at once, so that none of them waits. What it does not take, a goroutine sends that ends when it has.
type mailer struct {
	raw   syscall.RawConn // nil: the connection cannot be written to without waiting
	write func(fd uintptr) bool
	chunk []byte
	n     int
	err   error
}

// rounds bounds how often a publisher looks again for what others have published meanwhile.
const rounds = 4

// deliver sends what the mailbox holds, unless somebody does so already.
func (l *netLink) deliver() {
	if l.session.mailbox.Load().try() {
		l.pump()
	}
}

// pump sends what the mailbox holds without waiting. REQUIRES: the caller has the mailbox's busy, and loses it.
func (l *netLink) pump() {
	b := l.session.mailbox.Load()
	var chunk []byte
	for range rounds {
		if chunk = b.next(chunk); chunk == nil {
			return
		}
		n, err := l.mailer.send(l.nc, chunk)
		l.srv.pubsub.output.Add(uint64(n))
		if err != nil {
			l.giveUp()
			return
		}
		if n < len(chunk) {
			l.background(chunk, n)
			return
		}
	}
	l.background(chunk, len(chunk))
}

// background goes on sending where the socket makes it wait. Whoever calls serves a connection, so the server is not down.
func (l *netLink) background(chunk []byte, n int) {
	l.srv.serving.Add(1)
	go func() { // ends when the mailbox is empty or the connection closed
		defer l.srv.serving.Done()
		b := l.session.mailbox.Load()
		for chunk != nil {
			for n < len(chunk) {
				l.writing.Store(l.srv.ticks.Load() + 1)
				k, err := l.nc.Write(chunk[n:min(len(chunk), n+flushAt)])
				l.writing.Store(0)
				l.srv.pubsub.output.Add(uint64(k))
				if err != nil {
					l.giveUp()
					return
				}
				n += k
			}
			chunk, n = b.next(chunk), 0
		}
	}()
}

// giveUp ends a connection that cannot be written to. Its goroutine runs into an error. REQUIRES: the caller has the mailbox's busy.
func (l *netLink) giveUp() {
	l.session.mailbox.Load().lose()
	l.abort()
}

// claim keeps messages from overtaking the replies to what is about to run.
func (l *netLink) claim() {
	if b := l.session.mailbox.Load(); b != nil {
		b.claim()
	}
}

// unclaim lets messages pass again.
func (l *netLink) unclaim() {
	if l.session.mailbox.Load() != nil {
		l.pump()
	}
}
