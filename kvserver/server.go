// Package kvserver is a key-value server that speaks RESP, logs every write before it acknowledges it, and keeps its
// entries in one of several ways that are compared with each other. It is for the kvserver command, and for tests that run
// a server in their own process.
//
// The packages below it each know one thing: resp the protocol, wal the log, storage the modes, stats the process. Here
// they meet: see db for the order of every write, and session for the moment at which a reply may leave.
package kvserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kvmark/kvserver/stats"
)

// Server is an open data directory and its clients.
type Server struct {
	opts     Options
	place    *place
	dirLock  *dirLock
	db       *db
	commands *commands
	stats    *stats.Sampler
	started  time.Time
	replayed Replayed

	loading  atomic.Bool // until Load has succeeded: there is no data yet, and db has neither log nor store
	progress loading
	load     sync.Mutex // held by Load, so that Shutdown waits for its end

	settings     settings
	buffered     atomic.Int64  // bytes that count in the budget of MaxBuffered
	garbage      atomic.Int64  // bytes of them that were let go of since letGo began a collection
	collecting   atomic.Bool   // it has begun
	overBudget   atomic.Uint64 // commands and replies for which it had no room
	authFailures atomic.Uint64
	errorCounts  errorCounts
	lastHTTP     atomic.Int64 // tick, plus one, of the last note on a client that speaks HTTP
	lastCutOff   atomic.Int64 // tick, plus one, of the last search for clients to cut off
	mostBuffered int64        // since memory was given back; tend's
	givingBack   atomic.Bool

	space       *space
	slow        *slowdown
	checkpoints checkpointStats
	pubsub      *pubsub

	slowCommands slowCommands
	rates        rates

	ticks      atomic.Int64 // a clock that costs nothing to read; tick apart
	quit       chan struct{}
	background sync.WaitGroup // the server's own goroutines; Shutdown waits for them

	stopping chan struct{} // closed when no more connections are accepted
	serving  sync.WaitGroup
	loops    loops // that serve connections; none with Goroutine
	closed   sync.Once
	closeErr error

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[int64]*conn
	clients   atomic.Int64 // len(conns)
	lastID    int64
	accepted  uint64 // connections
	rejected  uint64 // connections beyond MaxClients
	ended     totals // of connections that are gone
	base      totals // what CONFIG RESETSTAT takes off
	baseAccepted, baseRejected,
	baseExpired, baseCutOff uint64
}

// tick is the step of Server.ticks, and the time between two rounds of removing keys that have come to their end.
const tick = 100 * time.Millisecond

// ErrServerClosed is returned by Serve when the server has been told to stop.
var ErrServerClosed = errors.New("kvserver: server is stopped")

// Open is New and Load: it returns a server that has its data.
func Open(o Options) (*Server, error) {
	srv, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := srv.Load(); err != nil {
		return nil, errors.Join(err, srv.Shutdown(context.Background()))
	}
	return srv, nil
}

// New makes a server of the data directory, which it locks, and makes if need be. The server serves nobody before Serve, has no
// data before Load, and has to be shut down in any case.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.RunID == "" {
		var id [20]byte
		_, _ = rand.Read(id[:]) // never fails
		o.RunID = hex.EncodeToString(id[:])
	}
	o.Dir = absolute(o.FS, o.Dir)
	o.FS = &lenientFS{o.FS, o.Logf, new(sync.Once)}
	srv := &Server{
		opts: o, db: newDB(o.now), commands: newCommands(), stats: stats.New(), started: time.Now(),
		quit: make(chan struct{}), stopping: make(chan struct{}), pubsub: newPubsub(),
		listeners: map[net.Listener]struct{}{}, conns: map[int64]*conn{},
	}
	srv.loading.Store(true)
	srv.progress.cancel = srv.stopping
	srv.db.logf = o.Logf
	srv.settings.init(&srv.opts)
	srv.slowCommands.configure(&srv.settings)
	srv.checkpoints.wanted = make(chan struct{}, 1)
	srv.checkpoints.last.Store(srv.started.Unix())
	srv.ended, srv.base = newTotals(len(srv.commands.all)), newTotals(len(srv.commands.all))
	if srv.slow, err = newSlowdown(&srv.opts, &srv.ticks); err != nil {
		return nil, err
	}
	if err := srv.fitClients(); err != nil {
		return nil, err
	}
	if srv.place, srv.dirLock, err = openDir(o.FS, o.Dir, o.Mode); err != nil {
		return nil, fullDisk(err, &srv.opts)
	}
	if o.noDirLock && srv.dirLock.dir != nil {
		_ = srv.dirLock.dir.Close()
		srv.dirLock.dir = nil
	}
	srv.space, srv.opts.FS = newSpace(&srv.opts, &srv.settings.minFree)
	srv.place.fs = srv.opts.FS
	srv.db.space = srv.space
	if o.IO == Loop {
		if srv.loops, err = newLoops(srv, o.Loops); err != nil {
			return nil, errors.Join(err, srv.dirLock.abandon())
		}
	}
	srv.background.Go(srv.tend)
	return srv, nil
}

// Load brings the store to the state that checkpoint and log tell of. Until it returns, clients hear LOADING to what needs the
// data; when it fails, they do so until Shutdown. A server that is told to stop meanwhile makes it return ErrServerClosed.
func (srv *Server) Load() error {
	srv.load.Lock()
	defer srv.load.Unlock()
	err := srv.progress.goesOn()
	if err == nil {
		err = srv.place.noteIgnored(srv.opts.Logf)
	}
	if err == nil {
		err = srv.recover()
	}
	if noSpace(err) && srv.space.reserve { // free space that the file system shows may be more than a quota leaves
		if err = srv.space.giveUpReserve(); err == nil {
			err = srv.recover()
		}
	}
	if err != nil {
		return fullDisk(err, &srv.opts)
	}
	srv.space.flush = srv.db.log.Flush
	_ = srv.space.poll() // it notes what it finds
	srv.loading.Store(false)
	srv.background.Go(srv.checkpointWhenDue)
	return nil
}

// Replayed returns what Load read to get to the state.
func (srv *Server) Replayed() Replayed { return srv.replayed }

// RunID returns the name of this run.
func (srv *Server) RunID() string { return srv.opts.RunID }

// Serve accepts connections from ln and serves each in a goroutine of its own, until ctx ends, Shutdown is called, or a
// client sends SHUTDOWN; then it returns ErrServerClosed. It closes ln. Connections go on until Shutdown. It may be called before
// Load has returned.
func (srv *Server) Serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if !srv.track(ln) {
		return ErrServerClosed
	}
	defer srv.untrack(ln)
	defer context.AfterFunc(ctx, srv.stop)()
	pause, noted := time.Duration(0), time.Time{}
	for {
		nc, err := ln.Accept()
		if err == nil {
			pause = 0
			srv.accept(nc)
			continue
		}
		select {
		case <-srv.stopping:
			return ErrServerClosed
		default:
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("kvserver: accept: %w", err)
		}
		// Out of file descriptors, most likely: connections that end give some back.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		if time.Since(noted) > acceptNote {
			srv.opts.Logf("kvserver: accept: %v; trying again", err)
			noted = time.Now()
		}
		select {
		case <-srv.stopping:
			return ErrServerClosed
		case <-time.After(pause):
		}
	}
}

// acceptNote is how often at most it is noted that connections cannot be accepted.
const acceptNote = time.Minute

func (srv *Server) track(ln net.Listener) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.isStopping() {
		return false
	}
	srv.listeners[ln] = struct{}{}
	return true
}

func (srv *Server) untrack(ln net.Listener) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	delete(srv.listeners, ln)
}

func (srv *Server) isStopping() bool {
	select {
	case <-srv.stopping:
		return true
	default:
		return false
	}
}

// accept takes a connection on, or turns it away.
func (srv *Server) accept(nc net.Conn) {
	srv.mu.Lock()
	if srv.isStopping() {
		srv.mu.Unlock()
		_ = nc.Close()
		return
	}
	if int64(len(srv.conns)) >= srv.settings.maxClients.Load() {
		srv.rejected++
		srv.mu.Unlock()
		if _, encrypted := nc.(*tls.Conn); !encrypted { // which would have to be agreed on first
			_ = nc.SetWriteDeadline(time.Now().Add(time.Second)) // a new socket takes this at once
			_, _ = nc.Write([]byte("-ERR max number of clients reached\r\n"))
		}
		hangUp(nc)
		return
	}
	srv.accepted++
	srv.lastID++
	c := newConn(srv, nc, srv.lastID)
	srv.conns[c.session.id] = c
	srv.clients.Store(int64(len(srv.conns)))
	srv.serving.Add(1)
	if !srv.loops.take(c, nc) {
		l := &netLink{conn: c, nc: nc}
		c.link = l
		go l.serve()
	}
	srv.mu.Unlock()
}

// agree makes the handshake of a connection that uses TLS. A client that does not agree is forgotten.
func (srv *Server) agree(nc net.Conn) bool {
	encrypted, ok := nc.(*tls.Conn)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), authTimeout)
	defer cancel()
	return encrypted.HandshakeContext(ctx) == nil
}

// hangUp closes a connection at once. A TLS connection would say goodbye first, and wait for a client that does not listen.
func hangUp(nc net.Conn) {
	if encrypted, ok := nc.(*tls.Conn); ok {
		nc = encrypted.NetConn()
	}
	_ = nc.Close()
}

// kill ends the connections that pick picks and returns their number.
func (srv *Server) kill(pick func(*conn) bool) (n int) {
	srv.mu.Lock()
	conns := slices.Collect(maps.Values(srv.conns))
	srv.mu.Unlock()
	for _, c := range conns {
		if pick(c) {
			c.link.abort()
			n++
		}
	}
	return n
}

// forget is called when a connection has been closed, and keeps its counts.
func (srv *Server) forget(c *conn) {
	defer srv.serving.Done()
	c.session.release()
	c.session.over.Store(true)
	c.session.discard()
	c.session.trackOff()
	c.session.quitPubsub()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	delete(srv.conns, c.session.id)
	srv.clients.Store(int64(len(srv.conns)))
	srv.ended.add(&c.session.counters)
}

// stop ends accepting, and lets each connection end once it has answered what it has read.
func (srv *Server) stop() {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.isStopping() {
		return
	}
	close(srv.stopping)
	for ln := range srv.listeners {
		_ = ln.Close()
	}
	for _, c := range srv.conns {
		c.link.finish()
	}
}

// Shutdown stops accepting, lets every connection answer what it has read, closes those that have not done so when ctx
// ends, syncs the log and closes the data directory. Later calls return the same. An error of the log or the store after which
// writes were refused is returned as well, however well the rest goes.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.stop()
	srv.closed.Do(func() {
		srv.load.Lock()
		defer srv.load.Unlock()
		drained := make(chan struct{})
		go func() { // ends with the connections, which the lines below end
			srv.serving.Wait()
			close(drained)
		}()
		select {
		case <-drained:
		case <-ctx.Done():
			srv.mu.Lock()
			for _, c := range srv.conns {
				c.link.abort()
			}
			srv.mu.Unlock()
			<-drained
		}
		srv.loops.stop()
		close(srv.quit)
		srv.background.Wait()
		if srv.loading.Load() {
			srv.closeErr = srv.dirLock.abandon()
			return
		}
		srv.checkStore() // it may have failed since the last tick
		err := errors.Join(srv.db.store.Close(), srv.db.log.Close())
		if f := srv.db.failed.Load(); f != nil {
			err = fmt.Errorf("kvserver: ended after a failure: %w", f.err) // of which those of the closing follow
		}
		if err == nil {
			if cerr := srv.place.leaveClean(srv.db.log.End()); cerr != nil { // what it protects is safe all the same
				srv.opts.Logf("%v", cerr)
			}
		}
		srv.closeErr = errors.Join(err, srv.dirLock.Close())
	})
	return srv.closeErr
}

// tend is the goroutine for what has to be done now and then.
func (srv *Server) tend() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	from := 0
	for {
		select {
		case <-srv.quit:
			return
		case <-ticker.C:
		}
		now := srv.ticks.Add(1)
		loaded := !srv.loading.Load()
		if loaded {
			srv.checkStore()
			from = srv.db.sweep(from)
		}
		if now%int64(time.Second/tick) == 0 {
			srv.closeStuck(now)
			srv.giveBack()
			srv.stats.Observe()
			srv.measureRates()
			if loaded {
				_ = srv.checkLock()
				_ = srv.space.poll()
			}
		}
	}
}

// checkStore makes an error that a store has met in the background, and after which it takes nothing, that of the server: the
// log is not to grow by what the store refuses.
func (srv *Server) checkStore() {
	s, ok := srv.db.store.(interface{ Err() error })
	if !ok || srv.db.failed.Load() != nil {
		return
	}
	if err := s.Err(); err != nil {
		_ = srv.db.fail(fmt.Errorf("storage: %w", err), nil) // it is returned by every write
	}
}

// checkLock ends writing when another server may have the directory.
func (srv *Server) checkLock() error {
	err := srv.dirLock.lost()
	if err != nil && srv.db.failed.Load() == nil {
		err = srv.db.fail(err, nil)
	}
	return err
}

// closeStuck closes connections that have sent or taken nothing for too long, and those that take too long to say who they are.
func (srv *Server) closeStuck(now int64) {
	ticks := func(d int64) int64 { return d / int64(tick) }
	idle, slow := ticks(srv.settings.idleTimeout.Load()), ticks(srv.settings.writeTimeout.Load())
	srv.kill(func(c *conn) bool {
		s := c.session
		if since := c.writing.Load(); since > 0 && c.full.Load() && now-since > min(slow, ticks(int64(deadlocked))) {
			if c.writing.CompareAndSwap(since, now+1) { // it has the same time again to take the replies
				c.link.refuse()
			}
			return false
		}
		if s.held.Load() > 0 && now-c.active.Load() > ticks(int64(trimAfter)) {
			if l, ok := c.link.(interface{ trim() }); ok { // others see to it themselves
				l.trim()
			}
		}
		idle := idle
		if s.subscribes() {
			idle = 0 // it is there to hear, not to say anything
		}
		if since := s.partial.Load(); since > 0 && now-since > slow+s.pending.Load()/slowestClient*ticks(int64(time.Second)) {
			return true
		}
		return !s.trusted.Load() && time.Since(c.since) > authTimeout || c.stuck(now, idle, slow)
	})
}

// deadlocked is for how long a client may take no replies and send more commands than may wait. It would do so for ever.
const deadlocked = 5 * time.Second

// slowestClient is the bytes a second at which a client may send a command that is too big for the time that all have.
const slowestClient = 64 << 10

// port returns the port of the listener, 0 for none.
func (srv *Server) port() int {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for ln := range srv.listeners {
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			return a.Port
		}
	}
	return 0
}
