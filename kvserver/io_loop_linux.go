package kvserver

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kvmark/wal"
)

// DefaultIO is what is used when nothing is said.
const DefaultIO = Loop

// loop is a goroutine that serves many connections. In each turn it
//
//	waits until some of them have sent something             one epoll_wait(2)
//	reads from each what there is                            a read(2) each
//	tells the store what all of that asks for, and runs it
//	lets the log write the records of all of them            one write(2)
//	sends each its replies                                   a write(2) each
//
// so the more there is to do, the less does each operation cost. Nothing that a client does makes the loop wait: what does
// not fit into a socket is sent when epoll says so, and what one connection gets of a turn is bounded by readAtOnce and
// flushAt, so that a deep pipeline is served in pieces, in turn with the others. The loop does wait for the log's
// writes, and for the store: one that reads a device does so while all its connections wait.
type loop struct {
	srv    *Server
	epoll  int
	bell   int // eventfd that ends epoll_wait when there are letters
	events []unix.EpollEvent
	first  int    // ms; see wait
	buf    []byte // for connections that have nothing left over from the last read
	used   int    // of it, by those in batch

	links []*loopLink // by file descriptor
	ready []*loopLink // to be served in this turn
	next  []*loopLink // to be served in the next one, whatever epoll says
	batch []*loopLink // of this turn, with something to run
	keys  [][]byte    // that the batch is about to ask for
	mail  []*loopLink // of this loop, to be sent messages that were published in this turn
	near  func(link) bool

	// With wal.Always, replies wait for the device. While all that there is to do waits for it the loop does so itself, which
	// costs least; when there are also connections that only read, the syncer waits, and they are served meanwhile. A loop
	// that has waited for longer than patience leaves the turns to another goroutine, and becomes a syncer for once.
	syncer   chan []*loopLink // capacity 1
	syncing  bool             // somebody waits with a batch
	waiting  []*loopLink      // for the next
	reading  bool             // somebody was answered in this turn who did not have to wait
	answered bool             // a batch was answered in this turn
	stuck    *time.Timer      // calls leave
	inside   atomic.Bool      // the loop waits

	mu      sync.Mutex
	letters []letter
	read    []letter // spare
	over    bool     // nobody reads letters any more
}

// letter tells the loop what has happened elsewhere.
type letter struct {
	to   *loopLink
	what what
}

type what uint8

const (
	arrived  what = iota // a new connection
	finish               // answer what has been read, then close
	abort                // close
	rested               // the time to rest is over
	mail                 // something has been published
	synced               // the log has what the replies tell of
	batched              // the syncer is free; to is nil
	stopping             // end the loop, which has no connections; to is nil
)

const (
	// readAtOnce bounds what is read from one connection in a turn, and from all of them before it is run: as soon as there is
	// less room than readLeast for the next one.
	readAtOnce, readLeast = 64 << 10, 16 << 10
	// turnLinks bounds how many connections epoll reports at once.
	turnLinks = 256
	// patience is how long the loop itself waits for the device.
	patience = 5 * time.Millisecond
	// attention is for how many milliseconds a loop keeps its processor while it waits. With a time shorter than the
	// kernel's tick each wait would set a timer of the hardware.
	attention = 20
)

// loopLink is a connection of a loop. Everything here belongs to the loop.
type loopLink struct {
	*conn
	loop *loop
	fd   int // -1 = closed
	in   input
	got  []byte // what this turn runs: all of in, or a part of loop.buf

	// Epoll reports changes only, so what it has said holds until a read or write says otherwise.
	readable bool
	hangup   bool // nothing comes after what can be read

	queued    bool // in ready or next
	more      bool // in holds commands that have not been run, for what was replied had to be sent first
	sent      int  // bytes of session.out that have left
	syncing   bool // until a letter comes: the syncer has the session, or it waits for that
	resting   bool // until a letter comes
	finishing bool // read no more
	gone      bool // close
	lingering bool // see lingerBytes
	lingered  int
}

// loops share the connections of a server.
type loops []*loop

// newLoops starts n loops, for n = 0 as many as GOMAXPROCS makes sense of.
func newLoops(srv *Server, n int) (loops, error) {
	n = loopCount(n)
	first := 0
	if n < runtime.GOMAXPROCS(0) {
		first = attention
	}
	var all loops
	for range n {
		l, err := newLoop(srv, first)
		if err != nil {
			all.stop()
			return nil, fmt.Errorf("kvserver: start an event loop: %w", err)
		}
		all = append(all, l)
	}
	return all, nil
}

func newLoop(srv *Server, first int) (*loop, error) {
	l := &loop{srv: srv, events: make([]unix.EpollEvent, turnLinks), first: first, buf: make([]byte, readAtOnce)}
	l.near = l.isNear
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if l.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(l.epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := l.watch(l.bell, unix.EPOLLIN); err != nil {
		_ = unix.Close(l.bell)
		_ = unix.Close(l.epoll)
		return nil, err
	}
	if srv.opts.WALPolicy == wal.Always {
		l.syncer = make(chan []*loopLink, 1)
		srv.background.Go(l.sync)
		l.stuck = time.AfterFunc(patience, l.leave)
	}
	srv.background.Go(l.serve)
	return l, nil
}

// watch lets epoll report what happens to fd, each thing once.
func (l *loop) watch(fd int, events uint32) error {
	err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(fd)})
	return os.NewSyscallError("epoll_ctl", err)
}

// take makes a connection one of a loop's, unless there are no loops or it is of a kind that they cannot serve.
func (ls loops) take(c *conn, nc net.Conn) bool {
	if len(ls) == 0 {
		return false
	}
	var socket syscall.Conn
	switch nc := nc.(type) {
	case *net.TCPConn:
		socket = nc
	case *net.UnixConn:
		socket = nc
	default:
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	// A descriptor of our own, of the same socket: the runtime stops watching it when it closes the one it has.
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(theirs uintptr) {
		fd, dupErr = unix.FcntlInt(theirs, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err != nil || dupErr != nil {
		return false
	}
	_ = nc.Close()
	l := ls[int(c.session.id)%len(ls)]
	link := &loopLink{conn: c, loop: l, fd: fd}
	c.link = link
	l.tell(letter{link, arrived})
	return true
}

func (ls loops) stop() {
	for _, l := range ls {
		l.tell(letter{nil, stopping})
	}
}

func (l *loopLink) finish() { l.loop.tell(letter{l, finish}) }

func (l *loopLink) abort() { l.loop.tell(letter{l, abort}) }

func (l *loopLink) deliver() { l.loop.tell(letter{l, mail}) }

// isNear makes a connection of this loop one that gets its messages at the end of the turn.
func (l *loop) isNear(to link) bool {
	c, ok := to.(*loopLink)
	if !ok || c.loop != l {
		return false
	}
	l.mail = append(l.mail, c)
	return true
}

func (l *loop) tell(letters ...letter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	first := len(l.letters) == 0
	l.letters = append(l.letters, letters...)
	if first {
		_, _ = unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // can fail only by counting to 2^64
	}
}

// serve is the loop. It keeps its thread: one that waits in epoll_wait for long loses its processor, and would otherwise
// hand the goroutine over to another thread when it returns.
func (l *loop) serve() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		goOn := l.turn()
		// Those who have just been answered have a turn's time to ask again, and share the next sync.
		if len(l.waiting) > 0 && !l.syncing && !l.answered && l.commit() {
			return // another goroutine has the loop
		}
		l.answered = false
		if !goOn {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.syncer != nil {
		close(l.syncer)
	}
	_ = unix.Close(l.epoll)
	_ = unix.Close(l.bell)
}

// turn does what there is to do, waiting for it if need be, and reports whether the loop goes on.
func (l *loop) turn() bool {
	n := l.wait(len(l.next) > 0 || len(l.waiting) > 0 && !l.syncing)
	l.ready, l.next = l.next, l.ready[:0]
	rung := false
	for _, e := range l.events[:n] {
		if int(e.Fd) == l.bell {
			rung = true
			continue
		}
		c := l.links[e.Fd]
		c.readable = c.readable || e.Events&^unix.EPOLLOUT != 0
		c.hangup = c.hangup || e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
		l.queue(c, &l.ready)
	}
	goOn := true
	l.reading = false
	if rung {
		goOn = l.readLetters()
	}
	for _, c := range l.ready {
		c.queued = false
		l.gather(c)
	}
	l.run()
	for _, c := range l.ready {
		l.reply(c)
	}
	for _, c := range l.mail {
		l.reply(c)
	}
	clear(l.mail)
	l.mail = l.mail[:0]
	clear(l.ready)
	return goOn
}

// wait returns how many events there are, waiting for some unless the loop has something else to do.
//
// Under load they come after some 20 us. That is just when the runtime takes the processor from a goroutine in a system
// call that it was told of, and then it looks for more of them every 20 us: it got in the way of the loop and of the client.
//
//	8 connections, one request in flight on each     CPU of a Get      Set    looks/s   migrations/s
//	told of every wait                                     6.1 us   6.8 us       1300           1000
//	told of those longer than attention (this)             5.4 us   6.1 us        130             20
//
// Meanwhile the loop keeps its processor, as it would by computing; it does so only if there are more of them than loops,
// otherwise first is 0. A collection that has to stop the loop interrupts the call with a signal.
func (l *loop) wait(busy bool) int {
	first := l.first
	if busy {
		first = 0
	}
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll), uintptr(unsafe.Pointer(unsafe.SliceData(l.events))), uintptr(len(l.events)), uintptr(first), 0, 0)
	switch {
	case e != 0: // EINTR: a signal
		return 0
	case n > 0 || busy:
		return int(n)
	}
	more, err := unix.EpollWait(l.epoll, l.events, -1)
	if err != nil {
		return 0
	}
	return more
}

func (l *loop) queue(c *loopLink, to *[]*loopLink) {
	if !c.queued {
		c.queued = true
		*to = append(*to, c)
	}
}

func (l *loop) readLetters() (goOn bool) {
	l.mu.Lock()
	l.letters, l.read = l.read[:0], l.letters
	l.mu.Unlock()
	goOn = true
	for _, m := range l.read {
		c := m.to
		switch m.what {
		case stopping:
			goOn = false
			continue
		case batched:
			l.syncing, l.answered = false, true
			continue
		case arrived:
			l.arrive(c)
		case finish:
			c.finishing, c.resting = true, false
		case abort:
			c.gone = true
		case rested:
			c.resting = false
		case synced:
			c.syncing = false
		}
		if c.fd >= 0 {
			l.queue(c, &l.ready)
		}
	}
	clear(l.read)
	return goOn
}

func (l *loop) arrive(c *loopLink) {
	for c.fd >= len(l.links) {
		l.links = append(l.links, nil)
	}
	l.links[c.fd] = c
	if err := l.watch(c.fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP); err != nil {
		l.srv.opts.Logf("kvserver: new connection: %v", err)
		c.gone = true
	}
}

// gather gets what a connection has sent, if the replies to what it sent before have left, and puts it into the batch.
func (l *loop) gather(c *loopLink) {
	s := c.session
	if c.fd < 0 || c.gone || c.syncing || c.resting || len(s.out) > 0 {
		return
	}
	if c.more {
		l.take(c, c.in.bytes())
		return
	}
	if !c.readable || c.finishing {
		return
	}
	if len(l.buf)-l.used < readLeast {
		l.run()
	}
	buf := l.buf[l.used:]
	left := c.in.have > 0 && !c.lingering
	if left {
		buf = c.in.space(s.parser.Need())
	}
	n, err := receive(c.fd, buf)
	if err == unix.EAGAIN {
		c.readable = false
		return
	}
	if n <= 0 {
		c.gone = true
		return
	}
	c.readable = n == len(buf) || c.hangup
	c.active.Store(l.srv.ticks.Load())
	s.input.add(uint64(n))
	switch {
	case c.lingering:
		c.lingered += n
		c.gone = c.lingered >= lingerBytes
	case left:
		c.in.have += n
		l.take(c, c.in.bytes())
	default:
		l.used += n
		l.take(c, buf[:n])
	}
}

func (l *loop) take(c *loopLink, got []byte) {
	c.got = got
	l.batch = append(l.batch, c)
}

// run runs what the connections of the batch have sent.
func (l *loop) run() {
	if len(l.batch) > 1 {
		for _, c := range l.batch {
			if c.in.have == 0 { // otherwise it may be the same again as in the last turn
				l.keys = c.session.foresee(l.keys, c.got)
			}
		}
		l.keys = l.srv.db.warm(l.keys)
	}
	for _, c := range l.batch {
		n, more := c.session.run(c.got)
		c.more = more
		if c.in.have > 0 {
			c.in.drop(n)
		} else {
			c.in.add(c.got[n:])
		}
		c.got = nil
		c.session.spread(l.near)
	}
	clear(l.batch)
	l.batch, l.used = l.batch[:0], 0
}

// reply sends what there is to send, as far as the socket takes it, when the log has what it tells of. Then it
// decides how the connection goes on.
func (l *loop) reply(c *loopLink) {
	s := c.session
	switch {
	case c.fd < 0:
		return
	case c.gone:
		l.close(c)
		return
	case c.syncing, c.resting, c.sent == 0 && !l.mayLeave(c):
		return
	}
	for c.sent > 0 || s.collect() || len(s.out) > 0 {
		for c.sent < len(s.out) {
			n, err := transmit(c.fd, s.out[c.sent:])
			if err == unix.EAGAIN {
				if c.writing.Load() == 0 {
					c.writing.Store(l.srv.ticks.Load() + 1) // it has taken nothing at all
				}
				return // epoll tells when to go on
			}
			if err != nil {
				l.close(c)
				return
			}
			c.sent += n
			if c.sent < len(s.out) {
				c.writing.Store(l.srv.ticks.Load() + 1) // it has taken something
			} else if c.writing.Load() > 0 {
				c.writing.Store(0)
			}
		}
		s.output.add(uint64(c.sent))
		c.sent = 0
		s.sent()
	}
	switch {
	case s.broken && !c.lingering && !c.finishing && unix.Shutdown(c.fd, unix.SHUT_WR) == nil:
		c.lingering, c.more = true, false
		c.over.Store(l.srv.ticks.Load() + int64(lingerTime/tick) + 1)
	case s.closing && !c.lingering, c.finishing && !c.more:
		l.close(c)
		return
	}
	if c.more || c.readable {
		l.queue(c, &l.next)
	}
}

// mayLeave reports whether the replies can be sent now. Otherwise a letter comes when they can.
func (l *loop) mayLeave(c *loopLink) bool {
	s := c.session
	if l.syncer != nil && !s.committed() {
		c.syncing = true
		l.waiting = append(l.waiting, c)
		return false
	}
	l.reading = l.reading || len(s.out) > 0
	s.commit()
	if d := s.rest(); d > 0 {
		c.resting = true
		time.AfterFunc(d, func() { l.tell(letter{c, rested}) })
		return false
	}
	return true
}

func (l *loop) close(c *loopLink) {
	_ = unix.Close(c.fd)
	l.links[c.fd] = nil
	c.fd = -1
	l.srv.forget(c.conn)
}

// commit gets those who wait for the device what they wait for, now or later. It reports whether it has left the loop.
func (l *loop) commit() (left bool) {
	batch := l.waiting
	l.syncing, l.waiting = true, nil
	if l.reading {
		l.syncer <- batch
		return false
	}
	l.inside.Store(true)
	l.stuck.Reset(patience)
	for _, c := range batch {
		c.session.commit()
	}
	l.stuck.Stop()
	if !l.inside.CompareAndSwap(true, false) {
		l.committed(batch)
		return true
	}
	l.syncing, l.waiting = false, batch[:0]
	for _, c := range batch {
		c.syncing = false
		l.reply(c)
	}
	clear(batch)
	return false
}

// leave continues the loop in another goroutine if it waits.
func (l *loop) leave() {
	if l.inside.CompareAndSwap(true, false) {
		l.srv.background.Go(l.serve)
	}
}

// committed lets the loop know that the log has what the batch waits for.
func (l *loop) committed(batch []*loopLink) {
	letters := make([]letter, 0, len(batch)+1)
	letters = append(letters, letter{nil, batched})
	for _, c := range batch {
		letters = append(letters, letter{c, synced})
	}
	l.tell(letters...)
}

// sync is the goroutine that waits for the log.
func (l *loop) sync() {
	for batch := range l.syncer {
		for _, c := range batch {
			c.session.commit()
		}
		l.committed(batch)
	}
}

// receive and transmit are read(2) and write(2) on a socket that never makes them wait. So the scheduler is not told of
// them, which it would be by Syscall, at a tenth of what the call costs. On an error n is -1.
func receive(fd int, buf []byte) (n int, err error) { return rawIO(unix.SYS_READ, fd, buf) }

func transmit(fd int, buf []byte) (n int, err error) { return rawIO(unix.SYS_WRITE, fd, buf) }

func rawIO(call uintptr, fd int, buf []byte) (int, error) {
	for {
		n, _, e := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return -1, e
	}
}
