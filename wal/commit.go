package wal

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// reach returns when level has reached p: at once, or as a follower of the goroutine that writes, or as the next leader.
//
//	A                                 B, C
//	Append a
//	Commit a: leads, takes {a}        Append b, Append c
//	write(2) {a}                      Commit b, Commit c: wait for a turn
//	publishes a, Broadcast
//	                                  B: leads, takes {b, c}
//	                                  C: waits
//	                                  B: write(2) {b, c}, publishes c, Broadcast
//	                                  C: level has reached c
func (l *Log) reach(level *atomic.Uint64, p Pos) error {
	if level.Load() >= uint64(p) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for level.Load() < uint64(p) {
		if err := l.Err(); err != nil {
			return err
		}
		if p > l.appended {
			return fmt.Errorf("wal: commit of position %d, but the log ends at %d", p, l.appended)
		}
		l.leadOrWaitLocked()
	}
	return nil
}

// leadOrWaitLocked writes everything buffered, or waits for a goroutine that does. REQUIRES: mu held; it is released meanwhile.
func (l *Log) leadOrWaitLocked() {
	if l.busy {
		l.turn.Wait()
		return
	}
	l.busy = true
	l.flushOwned()
	l.disownLocked()
}

// ownLocked waits for the ownership of l.out. REQUIRES: mu held.
func (l *Log) ownLocked() {
	for l.busy {
		l.turn.Wait()
	}
	l.busy = true
}

func (l *Log) disownLocked() {
	l.busy = false
	l.turn.Broadcast()
}

// flushOwned brings the buffer to the policy's level (Buffered: writes it). After the first error it does nothing.
// REQUIRES: mu held and busy set by the caller; mu is released during I/O.
func (l *Log) flushOwned() {
	if l.Err() != nil {
		return
	}
	batch, start := l.buf, l.appended-Pos(len(l.buf)-batchStart)
	if l.spare == nil {
		l.spare = make([]byte, batchStart, 64<<10)
	}
	l.buf, l.spare = l.spare[:batchStart], nil
	l.mu.Unlock()
	err := l.writeBatch(batch, start)
	if err != nil {
		l.fail(err)
	}
	l.mu.Lock()
	switch {
	case err != nil:
		l.failed, l.failedAt = batch, start
	case cap(batch) <= keptBuffer:
		l.spare = batch
	}
}

// writeBatch signs the frames of batch for the places where they will stand and writes them, with one write for each
// segment it needs, which is one but for rotations. p is where the batch begins. Frames stay readable for Unwritten.
func (l *Log) writeBatch(batch []byte, p Pos) error {
	if l.options.Policy == Always {
		if err := l.fill(l.out.offset + int64(len(batch))); err != nil {
			return err
		}
	}
	// What stands in batch[from:to] goes to the file next.
	from, to := batchStart, batchStart
	if synced, due := l.markDue(); due && len(batch) > batchStart {
		from = 0
		l.out.sum.putMark(batch[:batchStart], kindSynced, l.out.offset, synced)
	}
	for to < len(batch) {
		frame := batch[to : to+frameSize(batch[to:])]
		offset := l.out.offset + int64(to-from)
		if l.out.records && offset+int64(len(frame)) > l.options.SegmentBytes {
			if err := l.write(batch[from:to], p); err != nil {
				return err
			}
			if err := l.rotateOwned(); err != nil {
				return err
			}
			from = to
			continue
		}
		l.out.sum.sign(frame, offset)
		l.out.records = true
		l.out.last = frameSum(frame)
		to += len(frame)
		p += Pos(len(frame))
	}
	if err := l.write(batch[from:to], p); err != nil {
		return err
	}
	if l.options.Policy == Always && l.durable.Load() < l.written.Load() {
		return l.syncOwned()
	}
	return nil
}

// fill writes zeros ahead of a batch that ends at end, unless there are some, or the segment is still small. To sync what is
// written over them, the file system has no new length and no new blocks to write down: on ext4 that takes two thirds of the
// time, and of the processor. Zeros are the normal end of a segment.
func (l *Log) fill(end int64) error {
	if l.out.offset < fillBehind || end <= l.out.filled {
		return nil
	}
	from := max(l.out.filled, l.out.offset) // marks may have gone beyond
	l.out.filled = end
	n := min(fillBytes, l.options.SegmentBytes-from)
	if end > from+n {
		return nil // a big batch, or the last one of the segment
	}
	if l.zeros == nil {
		l.zeros = make([]byte, fillBytes)
	}
	if _, err := l.out.file.WriteAt(l.zeros[:n], from); err != nil {
		return fmt.Errorf("write %d zeros to %s at offset %d: %w", n, l.path(l.out.number), from, err)
	}
	l.out.filled = from + n
	l.mu.Lock()
	l.segments[len(l.segments)-1].filled = l.out.filled
	l.mu.Unlock()
	return nil
}

// markDue returns the offset that a mark would vouch for, and whether the last one is behind it.
func (l *Log) markDue() (synced int64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced, l.synced > l.marked
}

// write appends b, signed frames that end at p, to the segment and publishes p. After an error nothing more is written, so
// a part of a frame is never followed by another. vfs.File.Write may change the bytes it is given, but WriteAt, by the
// contract of io.WriterAt, may not: a batch that fails is whole for Unwritten.
func (l *Log) write(b []byte, p Pos) error {
	if len(b) == 0 {
		return nil
	}
	n, err := l.out.file.WriteAt(b, l.out.offset)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write %d bytes to %s at offset %d: %w", len(b), l.path(l.out.number), l.out.offset, err)
	}
	l.out.offset += int64(len(b))
	l.mu.Lock()
	l.stats.writes++
	l.segments[len(l.segments)-1].bytes = l.out.offset
	if b[0] == kindSynced {
		l.marked = l.out.offset - int64(len(b)) + markFrameSize
	}
	l.written.Store(max(l.written.Load(), uint64(p)))
	l.mu.Unlock()
	return nil
}

// syncOwned syncs the segment and publishes what has been written as durable.
func (l *Log) syncOwned() error {
	start := time.Now()
	if err := l.out.file.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", l.path(l.out.number), err)
	}
	l.publishSync(time.Since(start), l.out.number, l.out.offset, Pos(l.written.Load()))
	return nil
}

// syncTo returns when everything up to p, which has been written, is on the device. Segments in front of the current one are
// already: so the current one, as it is now, is all there is to sync.
func (l *Log) syncTo(p Pos) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.durable.Load() >= uint64(p) {
		return nil
	}
	return l.syncCurrent()
}

// syncCurrent syncs the current segment beside its writer. If the writer goes on to another segment meanwhile, it has synced this one
// itself, and the result still holds. REQUIRES: syncMu held.
func (l *Log) syncCurrent() error {
	l.mu.Lock()
	if err := l.Err(); err != nil {
		l.mu.Unlock()
		return err
	}
	current, written := l.segments[len(l.segments)-1], Pos(l.written.Load())
	l.mu.Unlock()

	if l.syncFile == nil || l.syncNumber != current.number {
		if err := l.openSyncFile(current.number); err != nil {
			l.fail(err)
			return l.Err()
		}
	}
	start := time.Now()
	if err := l.syncFile.SyncData(); err != nil {
		l.fail(fmt.Errorf("sync %s: %w", l.path(current.number), err))
		return l.Err()
	}
	l.publishSync(time.Since(start), current.number, current.bytes, written)
	return nil
}

func (l *Log) openSyncFile(number uint64) error {
	if l.syncFile != nil {
		err := l.syncFile.Close()
		l.syncFile = nil
		if err != nil {
			return fmt.Errorf("close %s: %w", l.path(l.syncNumber), err)
		}
	}
	f, err := l.options.FS.OpenReadWrite(l.path(number), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("open %s to sync it: %w", l.path(number), err)
	}
	l.syncFile, l.syncNumber = f, number
	return nil
}

func (l *Log) publishSync(took time.Duration, segment uint64, offset int64, p Pos) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.synced(took)
	if segment == l.segments[len(l.segments)-1].number {
		l.synced = max(l.synced, offset)
	}
	l.durable.Store(max(l.durable.Load(), uint64(p)))
}

// background is the log's only goroutine; Close ends it.
func (l *Log) background() {
	period := l.options.SyncEvery
	if l.options.Policy == Buffered {
		period = min(period, flushEvery)
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.kick:
			l.flush()
		case <-ticker.C:
			l.tick()
		}
	}
}

// tick does what is due when nobody else did: write (Buffered), sync (Interval), mark an idle log. Errors are in l.err.
func (l *Log) tick() {
	switch l.options.Policy {
	case Buffered:
		l.flush()
	case Interval:
		if written := l.written.Load(); l.durable.Load() < written {
			_ = l.syncTo(Pos(written))
			return // if a batch follows, it brings the mark
		}
	}
	l.markIdle()
}

func (l *Log) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) > batchStart {
		l.leadOrWaitLocked()
	}
}

// markIdle writes and syncs a mark if one is due, everything is on the device, and nobody is writing.
func (l *Log) markIdle() {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	if l.busy || l.Err() != nil || l.synced <= l.marked || len(l.buf) > batchStart || l.durable.Load() < l.written.Load() {
		l.mu.Unlock()
		return
	}
	l.busy = true
	synced := l.synced
	l.mu.Unlock()

	var mark [markFrameSize]byte
	l.out.sum.putMark(mark[:], kindSynced, l.out.offset, synced)
	err := l.write(mark[:], 0)
	if err != nil {
		l.fail(err)
	}
	l.mu.Lock()
	l.disownLocked()
	l.mu.Unlock()
	if err == nil {
		_ = l.syncCurrent()
	}
}
