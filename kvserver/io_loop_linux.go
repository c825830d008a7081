package kvserver

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
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
// flushAt, so that a deep pipeline is served in pieces, in turn with the others. The loop does wait for the log's writes.
//
// A command that takes long, or waits for the device or for a lock, leaves the loop (leaveLoop): the goroutine that runs it
// goes on with it alone, another one goes on with the loop, and an event brings the connection back. Leaving costs some 10 us.
// So a Get of a value that is not in memory begins its read of the device and is put aside (pending): the loop tries it again
// when it is likely to be there, and lets it leave only if it takes longer than longestRead.
type loop struct {
	srv    *Server
	epoll  int
	wakeFD int // eventfd that ends epoll_wait when there are events
	polled []unix.EpollEvent
	first  int    // ms; see wait
	buf    []byte // for connections that have nothing left over from the last read
	used   int    // of it, by those in batch
	spare  []byte // for the next buf

	links []*loopLink // by file descriptor
	ready []*loopLink // to be served in this turn
	next  []*loopLink // to be served in the next one, whatever epoll says
	batch []*loopLink // of this turn, with something to run
	keys  [][]byte    // that the batch is about to ask for

	running *loopLink    // whose commands the loop runs just now
	tid     atomic.Int32 // of the loop's thread; 0 = it is being handed over
	pending []*loopLink  // whose Get waits for the device, the oldest first
	mail    []*loopLink  // of this loop, to be sent messages that were published in this turn
	near    func(link) bool

	// With wal.Always, replies wait for the device. While all that there is to do waits for it the loop does so itself, which
	// costs least; when there are also connections that only read, the syncer waits, and they are served meanwhile. A loop
	// that has waited for longer than longestWait leaves the turns to another goroutine, and becomes a syncer for once.
	syncer   chan []*loopLink // capacity 1
	syncing  bool             // somebody waits with a batch
	unsynced []*loopLink      // for the next
	reading  bool             // somebody was answered in this turn who did not have to wait
	answered bool             // a batch was answered in this turn
	stuck    *time.Timer      // calls leave
	inside   atomic.Bool      // the loop waits

	mu     sync.Mutex
	events []event
	read   []event // spare
	over   bool    // nobody reads events any more
}

// event tells the loop what has happened elsewhere.
type event struct {
	to   *loopLink
	kind eventKind
}

type eventKind uint8

const (
	arrived  eventKind = iota // a new connection
	finish                    // answer what has been read, then close
	abort                     // close
	rested                    // the time to rest is over
	mail                      // something has been published
	refuse                    // see link
	trim                      // let go of buffers
	returned                  // the command that had left the loop has run
	synced                    // the log has what the replies tell of
	batched                   // the syncer is free; to is nil
	stopping                  // end the loop, which has no connections; to is nil
)

const (
	// readAtOnce bounds what is read from one connection in a turn, and from all of them before it is run: as soon as there is
	// less room than readLeast for the next one.
	readAtOnce, readLeast = 64 << 10, 16 << 10
	// writeAtOnce is after how many bytes that one connection was sent in a turn the others have theirs. Sockets of the same
	// machine take a few MiB at once: with some hundred of them a turn would take half a second.
	writeAtOnce = 256 << 10
	// turnLinks bounds how many connections epoll reports at once.
	turnLinks = 256
	// longestWait is how long the loop itself waits for the device.
	longestWait = 5 * time.Millisecond
	// spinWait is for how many milliseconds a loop keeps its processor while it waits. With a time shorter than the
	// kernel's tick each wait would set a timer of the hardware.
	spinWait = 20
	// longestRead is for how long the loop tries the Get of a value again that the device has not brought: for spinRead, a fast
	// device's time, in each turn, then at growing intervals. In a turn it tries retries of them in vain.
	longestRead, spinRead = 2 * time.Millisecond, 100 * time.Microsecond
	retries               = 2
)

// loopLink is a connection of a loop. Everything here belongs to the loop.
type loopLink struct {
	*conn
	loop *loop
	fd   int    // -1 = closed
	got  []byte // what this turn runs: all of session.in, or a part of loop.buf

	// Epoll reports changes only, so what it has said holds until a read or write says otherwise.
	readable bool
	hangup   bool // nothing comes after what can be read

	queued    bool   // in ready or next
	more      bool   // session.in holds commands that have not been run, for what was replied had to be sent first
	sent      int    // bytes of session.out that have left
	syncing   bool   // until a event comes: the syncer has the session, or it waits for that
	resting   bool   // until a event comes
	buf       []byte // the loop's, with what the command that is away was read into
	away      bool   // until an event comes: its command has left the loop, which touches nothing else of it meanwhile
	finishing bool   // read no more
	gone      bool   // close
	lingering bool   // see lingerTime

	asked time.Time // since when it is in loop.pending; zero = it is not
}

// loops share the connections of a server.
type loops []*loop

// newLoops starts n loops, for n = 0 as many as GOMAXPROCS makes sense of.
func newLoops(srv *Server, n int) (loops, error) {
	n = loopCount(n)
	first := 0
	if n < runtime.GOMAXPROCS(0) {
		first = spinWait
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
	l := &loop{srv: srv, polled: make([]unix.EpollEvent, turnLinks), first: first, buf: make([]byte, readAtOnce)}
	l.near = l.isNear
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if l.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(l.epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := l.watch(l.wakeFD, unix.EPOLLIN); err != nil {
		_ = unix.Close(l.wakeFD)
		_ = unix.Close(l.epoll)
		return nil, err
	}
	if srv.opts.WALPolicy == wal.Always {
		l.syncer = make(chan []*loopLink, 1)
		srv.background.Go(l.sync)
		l.stuck = time.AfterFunc(longestWait, l.leave)
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
	c.session.locks.leave = link.leaveLoop
	l.post(event{link, arrived})
	return true
}

func (ls loops) stop() {
	for _, l := range ls {
		l.post(event{nil, stopping})
	}
}

func (l *loopLink) finish() { l.loop.post(event{l, finish}) }

func (l *loopLink) abort() { l.loop.post(event{l, abort}) }

func (l *loopLink) deliver() { l.loop.post(event{l, mail}) }

func (l *loopLink) refuse() { l.loop.post(event{l, refuse}) }

func (l *loopLink) trim() { l.loop.post(event{l, trim}) }

// isNear makes a connection of this loop one that gets its messages at the end of the turn.
func (l *loop) isNear(to link) bool {
	c, ok := to.(*loopLink)
	if !ok || c.loop != l {
		return false
	}
	l.mail = append(l.mail, c)
	return true
}

func (l *loop) post(events ...event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	first := len(l.events) == 0
	l.events = append(l.events, events...)
	if first {
		l.wake()
	}
}

// wake ends epoll_wait. The write can be interrupted, and the count can be at its end (EAGAIN), which epoll reports as well, once
// for each write: so it is read, and written again. Without the wake-up the loop would sleep for ever.
func (l *loop) wake() {
	one := [8]byte{1}
	for {
		_, err := transmit(l.wakeFD, one[:])
		if err == nil {
			return
		}
		if err == unix.EAGAIN {
			var count [8]byte
			_, _ = receive(l.wakeFD, count[:]) // somebody else may have
			continue
		}
		l.srv.opts.Logf("kvserver: an event loop may have been told in vain of an event: write to its eventfd: %v", err)
		return
	}
}

// serve is the loop. It keeps its thread: one that waits in epoll_wait for long loses its processor, and would otherwise
// hand the goroutine over to another thread when it returns.
func (l *loop) serve() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.tid.Store(int32(unix.Gettid()))
	// Reads of the device are waited for by the microsecond. Should the system not grant that they only take longer.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(time.Microsecond), 0, 0, 0)
	for {
		goOn, left := l.turn()
		if left {
			return // another goroutine has the loop
		}
		// Those who have just been answered have a turn's time to ask again, and share the next sync.
		if len(l.unsynced) > 0 && !l.syncing && !l.answered && l.commit() {
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
	_ = unix.Close(l.wakeFD)
}

// turn does what there is to do, waiting for it if need be, and reports whether the loop goes on, and whether this goroutine has
// left it: then it must touch nothing of it.
func (l *loop) turn() (goOn, left bool) {
	n := l.wait(len(l.next) > 0 || len(l.unsynced) > 0 && !l.syncing)
	l.ready, l.next = l.next, l.ready[:0]
	woken := false
	for _, e := range l.polled[:n] {
		if int(e.Fd) == l.wakeFD {
			woken = true
			continue
		}
		c := l.links[e.Fd]
		c.readable = c.readable || e.Events&^unix.EPOLLOUT != 0
		c.hangup = c.hangup || e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
		l.queue(c, &l.ready)
	}
	goOn = true
	l.reading = false
	if woken {
		goOn = l.readEvents()
	}
	if l.retry() {
		return true, true
	}
	for _, c := range l.ready {
		c.queued = false
		if l.gather(c) {
			return true, true
		}
	}
	if l.run() {
		return true, true
	}
	for _, c := range l.ready {
		l.reply(c)
	}
	for _, c := range l.mail {
		l.reply(c)
	}
	clear(l.mail)
	l.mail = l.mail[:0]
	clear(l.ready)
	return goOn, false
}

// wait returns how many events there are, waiting for some unless the loop has something else to do.
//
// Under load they come after some 20 us. That is just when the runtime takes the processor from a goroutine in a system
// call that it was told of, and then it looks for more of them every 20 us: it got in the way of the loop and of the client.
//
//	8 connections, one request in flight on each     CPU of a Get      Set    looks/s   migrations/s
//	told of every wait                                     6.1 us   6.8 us       1300           1000
//	told of those longer than spinWait (this)             5.4 us   6.1 us        130             20
//
// Meanwhile the loop keeps its processor, as it would by computing; it does so only if there are more of them than loops,
// otherwise first is 0. A collection that has to stop the loop interrupts the call with a signal.
func (l *loop) wait(busy bool) int {
	first := l.first
	if pause, some := l.pause(); some && pause > 0 && !busy {
		return l.waitFor(pause)
	} else if busy = busy || some; busy {
		first = 0
	}
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll), uintptr(unsafe.Pointer(unsafe.SliceData(l.polled))), uintptr(len(l.polled)), uintptr(first), 0, 0)
	switch {
	case e != 0: // EINTR: a signal
		return 0
	case n > 0 || busy:
		return int(n)
	}
	more, err := unix.EpollWait(l.epoll, l.polled, -1)
	if err != nil {
		return 0
	}
	return more
}

// waitFor is wait for a short time.
func (l *loop) waitFor(d time.Duration) int {
	call := unix.Syscall6
	if l.first > 0 {
		call = unix.RawSyscall6 // see wait
	}
	t := unix.NsecToTimespec(int64(d))
	n, _, e := call(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll), uintptr(unsafe.Pointer(unsafe.SliceData(l.polled))), uintptr(len(l.polled)), uintptr(unsafe.Pointer(&t)), 0, 0)
	switch e {
	case 0:
		return int(n)
	case unix.ENOSYS: // before Linux 5.11
		if more, err := unix.EpollWait(l.epoll, l.polled, 1); err == nil {
			return more
		}
	}
	return 0
}

// pause returns after what time to try the oldest pending Get again; there may be none.
func (l *loop) pause() (d time.Duration, some bool) {
	for _, c := range l.pending {
		if c.mayRetry() {
			if age := time.Since(c.asked); age > spinRead {
				d = age / 4
			}
			return d, true
		}
	}
	return 0, false
}

// mayRetry reports whether the session is free to run its Get again.
func (c *loopLink) mayRetry() bool { return !c.syncing && !c.resting && len(c.session.out) == 0 }

// retry runs the Gets again that wait for the device, until it has not brought what some ask for. It reports whether the
// loop has been left.
func (l *loop) retry() (left bool) {
	for i, vain := 0, 0; i < len(l.pending) && vain < retries; {
		c := l.pending[i]
		if !c.mayRetry() {
			i++
			continue
		}
		age := time.Since(c.asked)
		c.session.locks.patient = age > longestRead
		c.got = c.session.in.bytes()
		if l.runOne(c) {
			return true
		}
		c.session.locks.patient = false
		if c.session.again {
			i, vain = i+1, vain+1
			continue
		}
		l.unpend(c)
		l.queue(c, &l.ready)
	}
	return false
}

func (l *loop) unpend(c *loopLink) {
	if i := slices.Index(l.pending, c); i >= 0 {
		l.pending = slices.Delete(l.pending, i, i+1)
	}
	c.asked = time.Time{}
}

// leaveLoop makes the goroutine that runs a command of the connection leave the loop to another one, for what it has to do takes
// long. It is called by the command.
func (c *loopLink) leaveLoop() {
	l := c.loop
	if c.away {
		return
	}
	c.away = true
	l.running = nil
	l.tid.Store(0)
	if !c.asked.IsZero() {
		l.unpend(c)
	}
	// The turn ends here. What it has not come to is for the next one. The bytes that c and others have read stay theirs.
	for _, o := range l.batch {
		if o != c && o.got != nil {
			if o.session.in.have == 0 {
				o.session.in.add(o.got)
			}
			o.got, o.more = nil, true
		}
	}
	clear(l.batch)
	c.buf = l.buf
	if l.buf, l.spare = l.spare, nil; l.buf == nil {
		l.buf = make([]byte, readAtOnce)
	}
	l.batch, l.used = l.batch[:0], 0
	for _, all := range [][]*loopLink{l.ready, l.mail} {
		for _, o := range all {
			o.queued = false
		}
		for _, o := range all {
			if o != c {
				l.queue(o, &l.next)
			}
		}
		clear(all)
	}
	l.ready, l.mail = l.ready[:0], l.mail[:0]
	runtime.UnlockOSThread()
	l.srv.background.Go(l.serve)
	runtime.Gosched() // the loop goes on first, for it may have more of these, and others behind them
}

// comeBack ends what leaveLoop began.
func (c *loopLink) comeBack() {
	c.session.spread(nil)
	if c.loop.syncer == nil {
		c.session.commit() // a big record takes long, too
	}
	c.loop.post(event{c, returned})
}

// beforeWait is leaveLoop for a store that does not know for whom it is about to wait. It reports whether that is a connection of
// a loop that has just left it.
func (ls loops) beforeWait() bool {
	tid := int32(unix.Gettid())
	for _, l := range ls {
		if l.tid.Load() == tid && l.running != nil {
			l.running.leaveLoop()
			return true
		}
	}
	return false
}

func (l *loop) queue(c *loopLink, to *[]*loopLink) {
	if !c.queued {
		c.queued = true
		*to = append(*to, c)
	}
}

func (l *loop) readEvents() (goOn bool) {
	l.mu.Lock()
	l.events, l.read = l.read[:0], l.events
	l.mu.Unlock()
	goOn = true
	for _, m := range l.read {
		c := m.to
		switch m.kind {
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
		case refuse:
			if !c.away && c.full.CompareAndSwap(true, false) {
				c.session.refuseAhead()
				c.more = false
			}
		case trim:
			if !c.away && !c.syncing && !c.resting && c.asked.IsZero() {
				c.session.trim()
			}
		case rested:
			c.resting = false
		case synced:
			c.syncing = false
		case returned:
			c.away = false
			l.spare, c.buf = c.buf, nil
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

// gather gets what a connection has sent, if the replies to what it sent before have left, and puts it into the batch. It
// reports whether the loop has been left.
func (l *loop) gather(c *loopLink) (left bool) {
	s := c.session
	if c.away || c.fd < 0 || c.gone || c.syncing || c.resting || !c.asked.IsZero() {
		return false
	}
	if len(s.out) > 0 {
		if c.writing.Load() > 0 && c.mayReadAhead() {
			l.readAhead(c)
		}
		return false
	}
	if c.more {
		l.take(c, c.session.in.bytes())
		return false
	}
	if !c.readable || c.finishing {
		return false
	}
	if len(l.buf)-l.used < readLeast && l.run() {
		return true
	}
	buf := l.buf[l.used:]
	behind := s.in.have > 0
	if behind {
		if !s.makeRoom(false) {
			s.refuse(errBudget)
			return false
		}
		buf = s.in.space()
	}
	n, err := receive(c.fd, buf)
	if err == unix.EAGAIN {
		c.readable = false
		return false
	}
	if n <= 0 {
		c.gone = true
		return false
	}
	c.readable = n == len(buf) || c.hangup
	c.active.Store(l.srv.ticks.Load())
	s.input.add(uint64(n))
	switch {
	case c.lingering:
	case behind:
		s.in.have += n
		l.take(c, s.in.bytes())
	default:
		l.used += n
		l.take(c, buf[:n])
	}
	return false
}

// mayReadAhead reports whether something can be read while replies wait.
func (c *loopLink) mayReadAhead() bool {
	return c.readable && !c.finishing && !c.full.Load() && (!c.session.closing || c.session.broken)
}

// readAhead reads what a client sends that does not take its replies: it may take none before it has sent everything. That is run
// when the replies have left, or thrown away if the client has been refused.
func (l *loop) readAhead(c *loopLink) {
	s := c.session
	buf := l.buf[l.used:]
	if !s.broken {
		if !s.makeRoom(true) {
			c.full.Store(true)
			return
		}
		buf = s.in.space()
	}
	if len(buf) == 0 {
		return // in the next turn
	}
	buf = buf[:min(len(buf), readAtOnce)]
	n, err := receive(c.fd, buf)
	switch {
	case err == unix.EAGAIN:
		c.readable = false
	case n == 0:
		c.finishing = true
	case n < 0:
		c.gone = true
	default:
		c.readable = n == len(buf) || c.hangup
		if !s.broken {
			s.noteAhead(n)
			c.more = true
		}
	}
}

func (l *loop) take(c *loopLink, got []byte) {
	c.got = got
	l.batch = append(l.batch, c)
}

// run runs what the connections of the batch have sent. It reports whether the loop has been left.
func (l *loop) run() (left bool) {
	if len(l.batch) > 1 {
		for _, c := range l.batch {
			if c.session.in.have == 0 { // otherwise it may be the same again as in the last turn
				l.keys = c.session.foresee(l.keys, c.got)
			}
		}
		l.keys = l.srv.db.warm(l.keys)
	}
	alone := len(l.batch) == 1 && len(l.ready) <= 1 && len(l.pending) == 0
	for _, c := range l.batch {
		c.session.locks.patient = alone // nothing else is to be done meanwhile, so trying again gains nothing
		if l.runOne(c) {
			return true
		}
		c.session.locks.patient = false
		if c.session.again {
			c.asked = time.Now()
			l.pending = append(l.pending, c)
		}
	}
	clear(l.batch)
	l.batch, l.used = l.batch[:0], 0
	return false
}

// runOne runs what one connection has sent. It reports whether the loop has been left.
func (l *loop) runOne(c *loopLink) (left bool) {
	l.running = c
	s := c.session
	n, more := s.run(c.got)
	c.more = more
	switch {
	case s.broken: // what there was has been let go of
	case s.in.have > 0:
		s.in.drop(n)
	default:
		s.in.add(c.got[n:])
	}
	c.got = nil
	if c.away {
		c.comeBack()
		return true
	}
	l.running = nil
	c.session.spread(l.near)
	return false
}

// reply sends what there is to send, as far as the socket takes it, when the log has what it tells of. Then it
// decides how the connection goes on.
func (l *loop) reply(c *loopLink) {
	s := c.session
	switch {
	case c.away, c.fd < 0:
		return
	case c.gone:
		l.close(c)
		return
	case c.syncing, c.resting, c.sent == 0 && !l.mayLeave(c):
		return
	}
	written := 0
	for c.sent > 0 || s.collectNext() || len(s.out) > 0 {
		for c.sent < len(s.out) {
			if written >= writeAtOnce {
				l.queue(c, &l.next) // others have their turn
				return
			}
			n, err := transmit(c.fd, s.out[c.sent:min(len(s.out), c.sent+writeAtOnce)])
			if err == unix.EAGAIN {
				if c.writing.Load() == 0 {
					c.writing.Store(l.srv.ticks.Load() + 1) // it has taken nothing at all
				}
				if c.mayReadAhead() {
					l.queue(c, &l.next)
				}
				return // epoll tells when to go on
			}
			if err != nil {
				l.close(c)
				return
			}
			c.sent += n
			written += n
			switch {
			case c.sent < len(s.out):
				c.writing.Store(l.srv.ticks.Load() + 1) // it has taken something
				c.full.Store(false)
			case c.writing.Load() > 0:
				c.writing.Store(0)
				c.full.Store(false)
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
	if (c.more || c.readable) && c.asked.IsZero() {
		l.queue(c, &l.next)
	}
}

// mayLeave reports whether the replies can be sent now. Otherwise a event comes when they can.
func (l *loop) mayLeave(c *loopLink) bool {
	s := c.session
	if l.syncer != nil && !s.committed() {
		c.syncing = true
		l.unsynced = append(l.unsynced, c)
		return false
	}
	l.reading = l.reading || len(s.out) > 0
	s.commit()
	if d := s.rest(); d > 0 {
		c.resting = true
		time.AfterFunc(d, func() { l.post(event{c, rested}) })
		return false
	}
	return true
}

func (l *loop) close(c *loopLink) {
	if !c.asked.IsZero() {
		l.unpend(c)
	}
	_ = unix.Close(c.fd)
	l.links[c.fd] = nil
	c.fd = -1
	l.srv.forget(c.conn)
}

// commit gets those who wait for the device what they wait for, now or later. It reports whether it has left the loop.
func (l *loop) commit() (left bool) {
	batch := l.unsynced
	l.syncing, l.unsynced = true, nil
	if l.reading {
		l.syncer <- batch
		return false
	}
	l.inside.Store(true)
	l.stuck.Reset(longestWait)
	for _, c := range batch {
		c.session.commit()
	}
	l.stuck.Stop()
	if !l.inside.CompareAndSwap(true, false) {
		l.committed(batch)
		return true
	}
	l.syncing, l.unsynced = false, batch[:0]
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
	events := make([]event, 0, len(batch)+1)
	events = append(events, event{nil, batched})
	for _, c := range batch {
		events = append(events, event{c, synced})
	}
	l.post(events...)
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
