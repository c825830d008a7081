package lsm

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage/nowait"
)

// health knows what goes wrong in Pebble's background. A failed flush is tried
// again and may get better; an error that Pebble calls fatal is final here:
// nothing is written any more, reads go on, and a restart recovers from the log.
type health struct {
	beforeFlush func() error
	logf        func(string, ...any)
	closing     chan struct{}
	once        sync.Once
	bad         atomic.Bool // fast path: flush or fatal is set
	opened      atomic.Bool // Pebble works in the background

	mu     sync.Mutex
	ended  error         // what the last flush said at its end
	flush  error         // why the last flush failed; nil = it did not
	fatal  error         // final
	failed chan struct{} // closed at the next failure
}

// retryAfter is how long a flush waits after one that failed; Pebble itself
// tries again at once.
const retryAfter = time.Second

var errClosing = errors.New("lsm: the store is being closed")

func newHealth(beforeFlush func() error, logf func(string, ...any)) *health {
	return &health{
		beforeFlush: beforeFlush, logf: logf,
		closing: make(chan struct{}), failed: make(chan struct{}),
	}
}

// err returns what stands in the way of writing.
func (h *health) err() error {
	if !h.bad.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal != nil {
		return h.fatal
	}
	return h.flush
}

func (h *health) fatalErr() error {
	if !h.bad.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fatal
}

func (h *health) text() string {
	if err := h.err(); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return "ok"
}

// failure returns a channel that is closed at the next failure.
func (h *health) failure() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// flushEnded takes the end of a flush. Its error may only mean that there was
// nothing to write; if it is a real one, Pebble reports it as a background error next.
func (h *health) flushEnded(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.flush != nil {
		h.logf("lsm: flushing works again")
	}
	h.flush, h.ended = nil, err
	h.bad.Store(h.fatal != nil)
}

// background takes an error of a flush or a compaction. A compaction that fails
// stands in nobody's way yet.
func (h *health) background(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal != nil {
		return // nothing of it is news
	}
	if h.ended == nil || !errors.Is(err, h.ended) {
		h.logf("lsm: in the background: %v", err)
		return
	}
	h.flush = fmt.Errorf("lsm: flush, which is tried again: %w", err)
	h.failedLocked(h.flush)
}

func (h *health) setFatal(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal != nil {
		return // what follows from the first one
	}
	h.fatal = fmt.Errorf("%w (nothing is written any more until a restart)", err)
	h.failedLocked(h.fatal)
}

// mayWrite is asked before Pebble writes anything but a flush. After a fatal error it makes Pebble, which tries again at
// once, wait: what it has in memory still serves reads, but does not fit any more with what is on disk.
func (h *health) mayWrite() error {
	err := h.fatalErr()
	if err != nil && h.opened.Load() {
		h.pause()
	}
	return err
}

// pretend keeps an error of the manifest from Pebble while it is being opened: it would try again for ever and never return. What
// it writes from then on goes nowhere, and Open fails when Pebble is done.
func (h *health) pretend(err error) error {
	if err == nil || h.opened.Load() {
		return err
	}
	h.setFatal(fmt.Errorf("lsm: write manifest: %w", err))
	return nil
}

// pause returns after a while, or when the store is being closed.
func (h *health) pause() {
	t := time.NewTimer(retryAfter)
	defer t.Stop()
	select {
	case <-h.closing:
	case <-t.C:
	}
}

func (h *health) failedLocked(err error) {
	h.bad.Store(true)
	h.logf("%v", err)
	close(h.failed)
	h.failed = make(chan struct{})
}

func (h *health) close() { h.once.Do(func() { close(h.closing) }) }

// mayFlush is called when Pebble makes the first file of a flush, by the flush's
// own goroutine and without Pebble's locks, so it may wait.
func (h *health) mayFlush() error {
	if h.err() != nil {
		h.pause()
		select {
		case <-h.closing:
			return errClosing
		default:
		}
	}
	if err := h.fatalErr(); err != nil {
		return err
	}
	if h.beforeFlush == nil {
		return nil
	}
	return h.beforeFlush()
}

// guardedFS puts the log before Pebble's flushes. The files of a flush are made
// after its memtables are complete, and whatever is in a memtable has been put
// into the log before: so what a flush makes durable is in the synced log. The
// event listener's FlushBegin would be too early to say no, and runs under
// Pebble's lock.
type guardedFS struct {
	vfs.FS
	health     *health
	beforeWait func() (done func()) // see Options
}

// Open implements vfs.FS.
func (g *guardedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.Open(name, opts...)
	if err != nil || g.beforeWait == nil {
		return f, err
	}
	return &readFile{f, g.beforeWait}, nil
}

// readFile tells before a read waits for the device.
type readFile struct {
	vfs.File
	beforeWait func() (done func())
}

// ReadAt implements vfs.File.
func (f *readFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := nowait.ReadAt(f.File, p, off)
	if !errors.Is(err, nowait.ErrWouldWait) {
		return n, err
	}
	defer f.beforeWait()()
	return f.File.ReadAt(p, off)
}

// Categories by which Pebble says what it creates.
const (
	flushCategory    vfs.DiskWriteCategory = "pebble-memtable-flush"
	manifestCategory vfs.DiskWriteCategory = "pebble-manifest"
)

// Create implements vfs.FS.
func (g *guardedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.create(name, category)
	if category != manifestCategory && !g.isMarker(name) {
		return f, err
	}
	if err = g.health.pretend(err); err != nil {
		return nil, err
	}
	if f == nil {
		if f, err = vfs.NewMem().Create("nowhere", category); err != nil {
			return nil, err
		}
	}
	return &guardedFile{f, g.health}, nil
}

func (g *guardedFS) create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == flushCategory {
		if err := g.health.mayFlush(); err != nil {
			return nil, err
		}
	} else if err := g.health.mayWrite(); err != nil {
		return nil, err
	}
	if g.isMarker(name) {
		if err := syncDir(g.FS, g.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return g.FS.Create(name, category)
}

// OpenDir implements vfs.FS.
func (g *guardedFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err == nil {
		f = &guardedDir{f, g.health}
	}
	return f, err
}

// Remove implements vfs.FS. After a fatal error nobody knows which files the
// next start will need.
func (g *guardedFS) Remove(name string) error {
	if err := g.health.fatalErr(); err != nil {
		return err
	}
	if g.isMarker(name) {
		if err := syncDir(g.FS, g.PathDir(name)); err != nil {
			return err
		}
	}
	return g.FS.Remove(name)
}

// isMarker reports whether a file's name says which manifest is the valid one. Pebble makes the manifest, makes the new
// marker, removes the old one, and syncs the directory once at the end. Where a power failure can lose entries of a directory
// in any order, that can leave a marker without its manifest, or no marker; so the directory is synced at each step.
func (g *guardedFS) isMarker(name string) bool {
	return strings.HasPrefix(g.PathBase(name), "marker.")
}

// Unwrap implements vfs.FS.
func (g *guardedFS) Unwrap() vfs.FS { return g.FS }

// guardedDir is a directory. Pebble panics when it cannot sync one; here that is
// a fatal error of the store and not of the process: nothing is written to the
// manifest after it, and nothing is removed, so either state that the directory
// may turn out to have can be opened.
type guardedDir struct {
	vfs.File
	health *health
}

func (d *guardedDir) Sync() error {
	if err := d.File.Sync(); err != nil {
		d.health.setFatal(fmt.Errorf("lsm: sync directory: %w", err))
	}
	return nil
}

// guardedFile is a manifest, to which nothing may be added behind a write that
// failed: nobody knows whether it is there.
type guardedFile struct {
	vfs.File
	health *health
}

func (f *guardedFile) Write(p []byte) (int, error) {
	if err := f.health.mayWrite(); err != nil {
		return len(p), f.health.pretend(err)
	}
	n, err := f.File.Write(p)
	if err != nil {
		f.health.setFatal(fmt.Errorf("lsm: write manifest: %w", err))
		if !f.health.opened.Load() {
			return len(p), nil // see pretend
		}
	}
	return n, err
}

func (f *guardedFile) Sync() error {
	if err := f.health.mayWrite(); err != nil {
		return f.health.pretend(err)
	}
	err := f.File.Sync()
	if err != nil {
		f.health.setFatal(fmt.Errorf("lsm: sync manifest: %w", err))
	}
	return f.health.pretend(err)
}

// logger keeps Pebble quiet and alive: its own logger prints every event and
// ends the process on a fatal error. Pebble goes on when Fatalf returns, but
// nothing more gets into its manifest, so what is on disk stays as it is.
type logger struct{ health *health }

func (logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) { l.health.logf("lsm: "+format, args...) }

func (l logger) Fatalf(format string, args ...any) {
	l.health.setFatal(fmt.Errorf("lsm: "+format, args...))
}
