package wal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/wal/policy"
)

const (
	// maxBuffered is how many bytes may wait in memory before Append itself writes them.
	maxBuffered = 4 << 20
	// keptBuffer is the largest buffer that is kept for the next batch.
	keptBuffer = 2 * maxBuffered
	// flushBytes and flushEvery bound what the Buffered policy holds back.
	flushBytes = 256 << 10
	flushEvery = 200 * time.Millisecond
	// fillBytes is how many zeros are written ahead at once, in a segment that is longer than fillBehind.
	fillBytes, fillBehind = 1 << 20, 256 << 10

	// batchStart is where the records of a buffered batch begin; in front of them is room for a synced mark.
	batchStart = markFrameSize
)

var (
	// ErrClosed is returned by Append, Sync and Rotate after Close.
	ErrClosed = errors.New("wal: log is closed")
	// ErrTooLarge is returned by Append for a payload above MaxRecord; nothing was appended.
	ErrTooLarge = errors.New("wal: record too large")
)

// Policy says when Commit returns: the level that a record has reached by then; see package policy.
type Policy = policy.Policy

const (
	Buffered = policy.Buffered
	OS       = policy.OS
	Interval = policy.Interval
	Always   = policy.Always
)

// ParsePolicy is the inverse of Policy.String.
func ParsePolicy(s string) (Policy, error) { return policy.Parse(s) }

// Options of Open. The zero value is a Buffered log on the operating system's file system.
type Options struct {
	FS           vfs.FS        // nil is vfs.Default; there, segments get mode 0600 and the directory 0700
	Policy       Policy        //
	SegmentBytes int64         // a segment ends before the record that would make it longer; 0 is 256 MiB. A larger record gets a segment of its own
	SyncEvery    time.Duration // period of the background goroutine: the sync of Interval, and the mark of an idle log; 0 is 1s
	Identity     Identity      // of the log; a segment of another one is damage
	FirstSegment uint64        // replay begins here (from a checkpoint); it must exist. Older ones are ignored, and removed when replay is done. 0: the oldest there is

	// FirstID is the id that segment FirstSegment must have; 0 if that is not known.
	FirstID uint64

	// Logf receives notes of the recovery, a line each; nil discards them.
	Logf func(format string, args ...any)
}

func (o Options) withDefaults() (Options, error) {
	if o.Policy > Always {
		return o, fmt.Errorf("wal: unknown policy %d", o.Policy)
	}
	if o.SegmentBytes < 0 || o.SyncEvery < 0 {
		return o, fmt.Errorf("wal: negative option: SegmentBytes %d, SyncEvery %v", o.SegmentBytes, o.SyncEvery)
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 256 << 20
	}
	if o.SyncEvery == 0 {
		o.SyncEvery = time.Second
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o, nil
}

// Pos is the end of a record among all that this process has appended, in bytes of frames; 0 is in front of everything.
type Pos uint64

// Log is an open log. It is safe for concurrent use.
//
// Three roles share the work, and no lock that Append needs is held over a system call:
//
//	mu      guards the buffer and all positions; held for a copy, never for I/O
//	owner   the goroutine that set busy, usually the leader of a batch; the only one that touches out, so the file
//	        sees one write or sync at a time
//	syncer  the goroutine that holds syncMu; it syncs through a file handle of its own, so that batches go on being written
//
// syncMu is taken before mu, and never waited for by an owner.
type Log struct {
	options Options
	dir     string

	// The published positions: everything up to them has been written, or is on the device. They only grow, and change under mu.
	written, durable atomic.Uint64
	err              atomic.Pointer[error] // the first error; final

	mu       sync.Mutex
	turn     sync.Cond // on mu: an owner is done, or the log has failed
	busy     bool
	closed   bool
	appended Pos
	buf      []byte        // batchStart bytes of room, then unsigned frames that end at appended
	spare    []byte        // the other buffer, while nobody writes it
	failed   []byte        // the batch whose write or sync was the first error
	failedAt Pos           // where failed begins
	segments []segmentSize // ascending; the last one is being written
	synced   int64         // offset in the last segment up to which it is known to be on the device
	marked   int64         // offset behind the last mark in it; a mark is due if synced is above
	stats    counters

	// out is the owner's.
	out struct {
		file    vfs.File
		number  uint64
		id      uint64
		offset  int64
		last    uint32 // checksum of the last record
		records bool   // there are some in this segment
		filled  int64  // Always: up to here the file has been written to, if only with zeros
		sum     summer
	}

	syncMu     sync.Mutex
	syncFile   vfs.File // second handle of segment syncNumber
	syncNumber uint64

	deniedOnce sync.Once // the note on a file system without modes

	zeros []byte // the owner's; Always

	kick chan struct{} // Buffered: there is enough to write
	stop chan struct{}
	done sync.WaitGroup // the background goroutine; Close waits for it
}

type segmentSize struct {
	number uint64
	id     uint64
	bytes  int64
	filled int64 // up to here there are zeros behind bytes
}

func newLog(dir string, o Options) *Log {
	l := &Log{options: o, dir: dir, buf: make([]byte, batchStart, 64<<10), kick: make(chan struct{}, 1), stop: make(chan struct{})}
	l.turn.L = &l.mu
	l.stats.latency = hdrhistogram.New(1, maxLatency.Microseconds(), 3)
	return l
}

// Append copies payload into the log's buffer, behind all records appended before. It makes no system call unless more
// than 4 MiB are buffered already. The record is acknowledged by Commit. Errors: ErrTooLarge, ErrClosed, or the log's first error.
func (l *Log) Append(payload []byte) (Pos, error) {
	if len(payload) > MaxRecord {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(payload), MaxRecord)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if err := l.usableLocked(); err != nil {
			return 0, err
		}
		if len(l.buf) < maxBuffered {
			break
		}
		l.leadOrWaitLocked()
	}
	before := len(l.buf)
	l.buf = appendFrame(l.buf, payload)
	l.appended += Pos(len(l.buf) - before)
	l.stats.records++
	l.stats.bytes += uint64(len(l.buf) - before)
	if l.options.Policy == Buffered && len(l.buf) >= flushBytes {
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
	return l.appended, nil
}

// Commit returns when everything up to p has reached the policy's level, or with the log's first error if it never will.
func (l *Log) Commit(p Pos) error {
	switch l.options.Policy {
	case Always:
		return l.reach(&l.durable, p)
	case Buffered:
		if l.written.Load() >= uint64(p) {
			return nil
		}
		return l.Err()
	default:
		return l.reach(&l.written, p)
	}
}

// Reached reports whether Commit would return at once.
func (l *Log) Reached(p Pos) bool {
	if l.options.Policy == Always {
		return l.durable.Load() >= uint64(p)
	}
	return l.written.Load() >= uint64(p) || l.options.Policy == Buffered
}

// Flush returns when everything appended before the call has been handed to the operating system.
func (l *Log) Flush() error { return l.reach(&l.written, l.end()) }

// Sync returns when everything appended before the call is on the device.
func (l *Log) Sync() error {
	p := l.end()
	if err := l.reach(&l.written, p); err != nil {
		return err
	}
	return l.syncTo(p)
}

// end is the position behind the newest record.
func (l *Log) end() Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appended
}

// Err returns the first error of a write, sync or file creation. It is final: every later Append returns it, and so does
// every Commit of a record that had not reached its level. Only a new Open can tell what is in the files.
func (l *Log) Err() error {
	if err := l.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Unwritten passes to fn, in order, the payloads that were appended but, because of the log's first error, never reached the policy's level; their
// Commit has failed, or will. Without such an error it does nothing. Some may be found by the next Open all the same. Under Buffered
// there are none: its level is the buffer. payload is valid during the call.
func (l *Log) Unwritten(fn func(payload []byte) error) error {
	if l.Err() == nil || l.options.Policy == Buffered {
		return nil
	}
	l.mu.Lock()
	for l.busy {
		l.turn.Wait() // a batch that was on its way may still arrive
	}
	level := Pos(l.written.Load())
	if l.options.Policy == Always {
		level = Pos(l.durable.Load())
	}
	failed, failedAt, buf, bufAt := l.failed, l.failedAt, l.buf, l.appended-Pos(len(l.buf)-batchStart)
	l.mu.Unlock()
	// Nothing changes these after the first error.
	if failed != nil {
		if err := eachRecord(failed, failedAt, level, fn); err != nil {
			return err
		}
	}
	return eachRecord(buf, bufAt, level, fn)
}

// eachRecord calls fn for the records of batch, which begins at p, that end behind level.
func eachRecord(batch []byte, p, level Pos, fn func(payload []byte) error) error {
	var scratch, payload []byte
	for b := batch[batchStart:]; len(b) > 0; {
		n := frameSize(b)
		if p += Pos(n); p > level {
			payload, scratch = framePayload(b[0], b[frameHeaderSize:n], scratch)
			if err := fn(payload); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

// Close writes and syncs everything, ends the segment, and waits for the background goroutine. Later calls change nothing.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return l.Err()
	}
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
	l.done.Wait()

	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	l.ownLocked()
	l.flushOwned()
	l.mu.Unlock()
	if l.Err() == nil {
		if err := l.endOwned(); err != nil {
			l.fail(err)
		}
	}
	err := l.Err()
	for _, f := range []vfs.File{l.out.file, l.syncFile} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	l.mu.Lock()
	l.disownLocked()
	l.mu.Unlock()
	return err
}

// End returns where the log ended. REQUIRES: Close has returned nil.
func (l *Log) End() End {
	return End{Segment: l.out.number, ID: l.out.id, Offset: l.out.offset, Sum: l.out.last}
}

// SegmentID returns the id of a segment, 0 if there is none of that number.
func (l *Log) SegmentID(number uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.number == number {
			return s.id
		}
	}
	return 0
}

func (l *Log) usableLocked() error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.closed {
		return ErrClosed
	}
	return nil
}

// fail makes err the log's first error, unless there is one.
func (l *Log) fail(err error) {
	err = fmt.Errorf("wal: %w (the log takes no more records until it is opened again)", err)
	l.err.CompareAndSwap(nil, &err)
	l.mu.Lock()
	l.turn.Broadcast()
	l.mu.Unlock()
}
