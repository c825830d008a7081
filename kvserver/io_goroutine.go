package kvserver

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"time"
)

// netLink is a goroutine that reads what there is, runs it, writes the replies, and begins again. When the client does not take them
// another one reads meanwhile, for the client may take none before it has sent everything (see readAhead).
type netLink struct {
	*conn
	nc     net.Conn
	mailer mailer

	ahead   *time.Timer   // calls readAhead
	over    chan struct{} // the write is over; readAhead takes it and sends it back when it has ended
	discard chan struct{} // see refuse
	got     bool          // it has read something
	refused bool          // it has thrown something away
	readErr error         // no more will come
}

// readAheadAfter is how long a write may wait before the client is read from meanwhile.
const readAheadAfter = time.Millisecond

func (l *netLink) finish() { _ = l.nc.SetReadDeadline(time.Unix(1, 0)) }

// abort lets the goroutine run into an error.
func (l *netLink) abort() { hangUp(l.nc) }

func (l *netLink) refuse() {
	if l.full.CompareAndSwap(true, false) {
		l.discard <- struct{}{}
	}
}

// serve runs until the client is gone or has to go.
func (l *netLink) serve() {
	defer l.srv.forget(l.conn)
	defer l.nc.Close()
	if !l.srv.agree(l.nc) {
		return
	}
	s := l.session
	for {
		n, err := l.read()
		for more := n > 0 || s.broken; more; more = more || l.got {
			var k int
			l.claim()
			l.got = false
			if k, more = s.run(s.in.bytes()); !s.broken {
				s.in.drop(k)
			}
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
	}
}

// read gets what the client has sent, waiting for it.
func (l *netLink) read() (int, error) {
	s := l.session
	if l.readErr != nil {
		return 0, l.readErr
	}
	if !s.makeRoom(false) {
		s.refuse(errBudget)
		return 0, nil
	}
	big := s.held.Load() > 0
	if big {
		l.readUntil(time.Now().Add(trimAfter))
	}
	n, err := l.nc.Read(s.in.space())
	if big {
		l.readUntil(time.Time{})
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !l.srv.isStopping() {
			s.trim()
			s.makeRoom(false) // for the least, which needs no budget
			n, err = l.nc.Read(s.in.space())
		}
	}
	l.active.Store(l.srv.ticks.Load())
	s.input.add(uint64(n))
	s.in.have += n
	return n, err
}

// readUntil sets the end of reads, unless the connection is to finish.
func (l *netLink) readUntil(t time.Time) {
	_ = l.nc.SetReadDeadline(t)
	if l.srv.isStopping() {
		l.finish() // which may have been called meanwhile
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
	if s.collectNext(); len(s.out) == 0 {
		return true
	}
	if l.send() != nil {
		return false
	}
	if l.refused {
		l.refused, l.got = false, false
		s.refuseAhead()
		return l.send() == nil
	}
	return true
}

// send sends the replies, and reads on when the client does not take them.
func (l *netLink) send() error {
	s := l.session
	n, err := l.mailer.send(l.nc, s.out)
	if err == nil && n < len(s.out) {
		l.startAhead()
		for k := 0; n < len(s.out) && err == nil; n += k {
			l.writing.Store(l.srv.ticks.Load() + 1)
			k, err = l.nc.Write(s.out[n:min(len(s.out), n+flushAt)])
		}
		l.writing.Store(0)
		l.stopAhead()
	}
	s.output.add(uint64(n))
	s.sent()
	return err
}

func (l *netLink) startAhead() {
	if l.ahead != nil {
		l.ahead.Reset(readAheadAfter)
		return
	}
	l.over, l.discard = make(chan struct{}), make(chan struct{}, 1)
	l.ahead = time.AfterFunc(readAheadAfter, l.readAhead)
}

func (l *netLink) stopAhead() {
	if l.ahead.Stop() {
		return
	}
	l.finish()
	l.over <- struct{}{}
	<-l.over
	l.readUntil(time.Time{})
}

// readAhead reads until finish is called. What it reads is run when the replies have left.
func (l *netLink) readAhead() {
	s := l.session
	over := false
	var scratch []byte // for what is thrown away
	for !over && l.readErr == nil {
		buf := scratch
		if buf == nil {
			if !s.makeRoom(true) {
				if over = !l.waitRefused(); !over {
					l.refused, scratch = true, make([]byte, flushAt)
				}
				continue
			}
			buf = s.in.space()
			buf = buf[:min(len(buf), flushAt)]
		}
		n, err := l.nc.Read(buf)
		if n > 0 && scratch == nil {
			s.noteAhead(n)
			l.got = true
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		l.readErr = err
	}
	if !over {
		<-l.over
	}
	l.over <- struct{}{}
}

// waitRefused waits until the write is over or, in which case it reports true, the client is refused.
func (l *netLink) waitRefused() bool {
	l.full.Store(true)
	select {
	case <-l.discard:
		return true
	case <-l.over:
		if !l.full.CompareAndSwap(true, false) {
			<-l.discard // just now, and too late
		}
		return false
	}
}

// linger lets the last reply arrive.
func (l *netLink) linger() {
	half, ok := l.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = l.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, l.nc)
}
