package kvserver

import (
	"io"
	"net"
	"runtime"
	"time"
)

// netLink is a goroutine that reads what there is, runs it, writes the replies, and begins again.
type netLink struct {
	*conn
	nc     net.Conn
	mailer mailer
}

func (l *netLink) finish() { _ = l.nc.SetReadDeadline(time.Unix(1, 0)) }

// abort lets the goroutine run into an error.
func (l *netLink) abort() { hangUp(l.nc) }

// serve runs until the client is gone or has to go.
func (l *netLink) serve() {
	defer l.srv.forget(l.conn)
	defer l.nc.Close()
	if !l.srv.agree(l.nc) {
		return
	}
	s := l.session
	var in input
	for {
		n, err := l.nc.Read(in.space(s.parser.Need()))
		l.active.Store(l.srv.ticks.Load())
		s.input.add(uint64(n))
		in.have += n
		used := 0
		for more := n > 0; more; {
			var k int
			l.claim()
			k, more = s.run(in.bytes()[used:])
			used += k
			s.spread(nil)
			if !l.reply() {
				return
			}
			l.unclaim()
		}
		if s.broken {
			l.linger()
		}
		if s.closing || err != nil {
			return
		}
		in.drop(used)
	}
}

// reply waits until the replies may leave and sends them. It reports false when the client is gone.
func (l *netLink) reply() bool {
	s := l.session
	if !s.committed() {
		runtime.Gosched() // lets others who can run append their records, so that one write of the log takes them all
	}
	s.commit()
	if d := s.rest(); d > 0 {
		select {
		case <-l.srv.stopping:
		case <-time.After(d):
		}
	}
	if s.collect(); len(s.out) == 0 {
		return true
	}
	l.writing.Store(l.srv.ticks.Load() + 1)
	n, err := l.nc.Write(s.out)
	l.writing.Store(0)
	s.output.add(uint64(n))
	s.sent()
	return err == nil
}

// linger lets the last reply arrive.
func (l *netLink) linger() {
	half, ok := l.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = l.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, l.nc, lingerBytes)
}
