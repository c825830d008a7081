package lsm

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
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
	opened      atomic.Bool // Pebble's Open has returned

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

// background takes an error of a flush or a compaction. Writes go on after a compaction that failed: Pebble tries it again.
func (h *health) background(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal != nil {
		return // it follows from the fatal error
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
		return // it follows from the first one
	}
	h.fatal = fmt.Errorf("%w (nothing is written any more until a restart)", err)
	h.failedLocked(h.fatal)
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

// mayWrite is asked before Pebble writes anything but a flush. After a fatal error it waits before it says no, because Pebble tries
// again at once: what Pebble has in memory still serves reads, but does not fit any more with what is on disk.
func (h *health) mayWrite() error {
	err := h.fatalErr()
	if err != nil && h.opened.Load() {
		h.pause()
	}
	return err
}

// manifestError takes an error of writing the manifest, which is fatal, and returns what Pebble is told. While it is being opened
// that is no error: Pebble would try again for ever, and its Open would not return. What it writes from then on goes nowhere, and
// our Open fails when Pebble's is done.
func (h *health) manifestError(err error) error {
	if err == nil {
		return nil
	}
	h.setFatal(fmt.Errorf("lsm: write manifest: %w", err))
	if h.opened.Load() {
		return err
	}
	return nil
}

// logger takes what Pebble logs. Pebble's own logger prints every event, and ends the process on a fatal error. Pebble goes on
// when Fatalf returns, but nothing more gets into its manifest (see guardedFile), so what is on disk stays as it is.
type logger struct{ health *health }

func (logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) { l.health.logf("lsm: "+format, args...) }

func (l logger) Fatalf(format string, args ...any) {
	l.health.setFatal(fmt.Errorf("lsm: "+format, args...))
}
