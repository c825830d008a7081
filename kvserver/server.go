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
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"kvmark/kvserver/stats"
)

// Server is an open data directory and its clients.
type Server struct {
	opts     Options
	dirLock  io.Closer
	db       *db
	commands *commands
	stats    *stats.Sampler
	started  time.Time
	replayed Replayed

	noSpace     atomic.Bool   // less free space than MinFree
	expired     atomic.Uint64 // keys removed because they had come to their end
	checkpoints checkpointStats

	ticks      atomic.Int64 // a clock that costs nothing to read; tick apart
	quit       chan struct{}
	background sync.WaitGroup // goroutines of Open; Shutdown waits for them

	stopping chan struct{} // closed when no more connections are accepted
	serving  sync.WaitGroup
	closed   sync.Once
	closeErr error

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[int64]*conn
	lastID    int64
	accepted  uint64 // connections
	rejected  uint64 // connections beyond MaxClients
	ended     totals // of connections that are gone
	base      totals // what CONFIG RESETSTAT takes off
	baseAccepted, baseRejected,
	baseExpired uint64
}

// tick is the step of Server.ticks, and the time between two rounds of removing keys that have come to their end.
const tick = 100 * time.Millisecond

// ErrServerClosed is returned by Serve when the server has been told to stop.
var ErrServerClosed = errors.New("kvserver: server is stopped")

// Open opens the data directory, making it if need be, and brings the store to the state that the log tells of. The server
// serves nobody before Serve, and has to be shut down in any case.
func Open(o Options) (*Server, error) {
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
	srv := &Server{
		opts: o, commands: newCommands(), stats: stats.New(), started: time.Now(),
		quit: make(chan struct{}), stopping: make(chan struct{}),
		listeners: map[net.Listener]struct{}{}, conns: map[int64]*conn{},
	}
	srv.ended, srv.base = newTotals(len(srv.commands.all)), newTotals(len(srv.commands.all))
	if srv.dirLock, err = openDir(o.FS, o.Dir, o.Mode); err != nil {
		return nil, err
	}
	if err := srv.recover(); err != nil {
		return nil, errors.Join(err, srv.dirLock.Close())
	}
	srv.checkSpace()
	srv.background.Go(srv.tend)
	if o.CheckpointBytes > 0 {
		srv.background.Go(srv.checkpointWhenDue)
	}
	return srv, nil
}

// Replayed returns what Open read to get to the state.
func (srv *Server) Replayed() Replayed { return srv.replayed }

// RunID returns the name of this run.
func (srv *Server) RunID() string { return srv.opts.RunID }

// Serve accepts connections from ln and serves each in a goroutine of its own, until ctx ends, Shutdown is called, or a
// client sends SHUTDOWN; then it returns ErrServerClosed. It closes ln. Connections go on until Shutdown.
func (srv *Server) Serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if !srv.track(ln) {
		return ErrServerClosed
	}
	defer srv.untrack(ln)
	defer context.AfterFunc(ctx, srv.stop)()
	pause := time.Duration(0)
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
		if pause = min(max(2*pause, 5*time.Millisecond), time.Second); pause == 5*time.Millisecond {
			srv.opts.Logf("kvserver: accept: %v; trying again", err)
		}
		select {
		case <-srv.stopping:
			return ErrServerClosed
		case <-time.After(pause):
		}
	}
}

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
	if len(srv.conns) >= srv.opts.MaxClients {
		srv.rejected++
		srv.mu.Unlock()
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second)) // a new socket takes this at once
		_, _ = nc.Write([]byte("-ERR max number of clients reached\r\n"))
		_ = nc.Close()
		return
	}
	srv.accepted++
	srv.lastID++
	c := newConn(srv, nc, srv.lastID)
	srv.conns[c.session.id] = c
	srv.serving.Go(func() {
		defer srv.forget(c)
		c.serve()
	})
	srv.mu.Unlock()
}

// forget closes a connection and keeps its counts.
func (srv *Server) forget(c *conn) {
	_ = c.nc.Close()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	delete(srv.conns, c.session.id)
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
		c.interrupt()
	}
}

// Shutdown stops accepting, lets every connection answer what it has read, closes those that have not done so when ctx
// ends, syncs the log and closes the data directory. Later calls return the same.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.stop()
	srv.closed.Do(func() {
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
				_ = c.nc.Close()
			}
			srv.mu.Unlock()
			<-drained
		}
		close(srv.quit)
		srv.background.Wait()
		srv.closeErr = errors.Join(srv.db.store.Close(), srv.db.log.Close(), srv.dirLock.Close())
	})
	return srv.closeErr
}

// tend is the goroutine for what has to be done now and then.
func (srv *Server) tend() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	from, removed := 0, uint64(0)
	for {
		select {
		case <-srv.quit:
			return
		case <-ticker.C:
		}
		now := srv.ticks.Add(1)
		from, removed = srv.db.sweep(from)
		srv.expired.Add(removed)
		if now%int64(time.Second/tick) == 0 {
			srv.closeStuck(now)
			srv.checkSpace()
		}
	}
}

// closeStuck closes connections that have sent or taken nothing for too long.
func (srv *Server) closeStuck(now int64) {
	idle, slow := int64(srv.opts.IdleTimeout/tick), int64(srv.opts.WriteTimeout/tick)
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for _, c := range srv.conns {
		writing := c.writing.Load()
		if writing > 0 && now-writing > slow || idle > 0 && writing == 0 && now-c.active.Load() > idle {
			_ = c.nc.Close() // its goroutine gets the error and ends
		}
	}
}

// checkSpace looks whether the disk has the space that writes must leave.
func (srv *Server) checkSpace() {
	if srv.opts.MinFree == 0 {
		return
	}
	u, err := srv.opts.FS.GetDiskUsage(srv.opts.Dir)
	if err != nil {
		return // the writes themselves will tell
	}
	short := u.AvailBytes < uint64(srv.opts.MinFree)
	if srv.noSpace.Swap(short) != short && short {
		srv.opts.Logf("kvserver: %d bytes are free in %s, less than the %d to be left; writes are refused until there are more", u.AvailBytes, srv.opts.Dir, srv.opts.MinFree)
	}
}

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
