package file

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writer appends records to the newest value file, through two buffers: while
// one is being written with one write(2), records go to the other. A record can
// be read from the moment it is appended.
//
//	 file on disk                full            current
//	+---------------------------+---------------+-------------+
//	                            ^ flushed
//
// It is written when it is full, not on every Set: the log has the entries.
type writer struct {
	fs          vfs.FS
	dir         string
	files       *files
	identity    Identity
	seed        uint32
	fileBytes   int64
	bufferBytes int

	// flushed is the position up to which records are in the files. A reader
	// that sees a smaller one than there is looks into the buffers in vain and
	// then reads the file.
	flushed atomic.Uint64

	mu      sync.RWMutex
	changed *sync.Cond // full was written, or err is set; its lock is mu
	current buffer     // guarded by mu, as is all below
	full    buffer
	spare   []byte // memory for the next current
	next    uint32 // number of the next file
	err     error  // the first failed write or sync; final

	out []byte // what write(2) gets; owned by whoever writes full

	// syncing is held while files are synced, so that a sync returns only when
	// those of others are done, too.
	syncing sync.Mutex

	// open is held for moments: never while anything is written or synced.
	open     sync.Mutex
	unsynced []*valueFile // open for writing, oldest first; guarded by open, as is valueFile.writer
}

// maxUnsynced bounds the files that are open for writing until the next checkpoint.
const maxUnsynced = 16

// buffer is bytes on the way to a file.
type buffer struct {
	file  *valueFile // nil = unused
	start int64      // offset of data in the file
	data  []byte
}

func (b *buffer) end() int64 { return b.start + int64(len(b.data)) }

// value appends a part of the buffer to dst if it is there.
func (b *buffer) value(dst []byte, pos position, skip, n int) ([]byte, bool) {
	if b.file == nil || b.file.number != pos.file() {
		return dst, false
	}
	off := pos.offset() - b.start
	if off < 0 || off >= int64(len(b.data)) {
		return dst, false
	}
	return append(dst, b.data[off+int64(skip):][:n]...), true
}

// read appends the value of a record that is still in a buffer to dst.
func (w *writer) read(dst []byte, loc location, keyLen int) ([]byte, bool) {
	if uint64(loc.pos) < w.flushed.Load() {
		return dst, false
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	out, ok := w.current.value(dst, loc.pos, recordHeader+keyLen, int(loc.valueLen))
	if !ok {
		out, ok = w.full.value(dst, loc.pos, recordHeader+keyLen, int(loc.valueLen))
	}
	return out, ok
}

// append puts a record behind the others and returns where it is. It may have
// to wait for the disk when both buffers are full.
func (w *writer) append(key, value []byte) (location, error) {
	n := recordBytes(len(key), len(value))
	w.mu.Lock()
	write := false
	for {
		if w.err != nil {
			defer w.mu.Unlock()
			return location{}, w.err
		}
		if w.current.file == nil {
			w.startLocked()
		}
		newFile := w.current.end()+n > w.fileBytes && w.current.end() > headerBytes
		if !newFile && (len(w.current.data) == 0 || len(w.current.data)+int(n) <= w.bufferBytes ||
			w.current.end() == headerBytes) {
			break
		}
		if w.full.file != nil {
			w.changed.Wait()
			continue
		}
		w.turnLocked(newFile)
		write = true
	}
	f := w.current.file
	offset := w.current.end()
	loc := location{
		pos:      at(f.number, offset),
		valueLen: uint32(len(value)),
		crc:      checksum(w.seed, f.number, uint32(offset), key, value),
	}
	w.current.data = appendRecord(w.current.data, loc.crc, key, value)
	f.size.Add(n)
	f.live.Add(1)
	f.liveBytes.Add(n)
	w.mu.Unlock()
	if write {
		if err := w.writeFull(); err != nil {
			w.files.dead(loc, len(key))
			return location{}, err
		}
	}
	return loc, nil
}

// startLocked begins a new file, in the buffer only. REQUIRES: mu held.
func (w *writer) startLocked() {
	f := &valueFile{number: w.next, path: w.fs.PathJoin(w.dir, fileName(w.next))}
	w.next++
	f.size.Store(headerBytes)
	w.current.file, w.current.start = f, 0
	w.current.data = appendHeader(w.current.data[:0], w.identity, f.number)
	w.files.add(f)
}

// turnLocked makes current full, to be written by the caller, and seals its
// file if nothing more goes there. REQUIRES: mu held, full unused.
func (w *writer) turnLocked(seal bool) {
	w.full = w.current
	w.current = buffer{file: w.full.file, start: w.full.end(), data: w.spare[:0]}
	w.spare = nil
	if seal {
		w.full.file.sealed.Store(true)
		w.current.file = nil
	}
}

// writeFull writes the full buffer. Only the one who filled it calls it. After
// an error the bytes stay in memory, where readers find them.
func (w *writer) writeFull() error {
	// Nobody changes full until this is done, so it needs no lock to be read.
	b := w.full
	// A copy, because a file system may change what it is given to write.
	w.out = append(w.out[:0], b.data...)
	err := w.writeTo(b.file, w.out)
	if cap(w.out) > 2*w.bufferBytes {
		w.out = nil
	}
	if err != nil {
		return w.fail(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	flushed := at(b.file.number, b.end())
	if b.file.sealed.Load() {
		flushed = at(b.file.number+1, 0)
		defer w.files.wakeReclaimer() // it may have died before it was sealed
	}
	w.flushed.Store(uint64(flushed))
	w.full = buffer{}
	if cap(b.data) <= 2*w.bufferBytes {
		w.spare = b.data
	}
	w.changed.Broadcast()
	return nil
}

func (w *writer) writeTo(f *valueFile, p []byte) error {
	c, err := w.openForWriting(f)
	if err != nil {
		return err
	}
	n, err := c.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("file: write %d bytes to %s: %w", len(p), f.path, err)
	}
	return nil
}

// openForWriting returns the open file, making it first if it is new. The file
// stays open until it is sealed and written.
func (w *writer) openForWriting(f *valueFile) (vfs.File, error) {
	w.open.Lock()
	c, n := f.writer, len(w.unsynced)
	w.open.Unlock()
	if c != nil {
		return c, nil
	}
	if n >= maxUnsynced {
		// All of them are sealed: f is newer.
		if err := w.syncBefore(f.number); err != nil {
			return nil, err
		}
	}
	c, err := w.fs.Create(f.path, "kvmark-values")
	if err != nil {
		return nil, fmt.Errorf("file: create %s: %w", f.path, err)
	}
	w.open.Lock()
	defer w.open.Unlock()
	f.writer = c
	w.unsynced = append(w.unsynced, f)
	return c, nil
}

// syncBefore makes the files with smaller numbers durable, which are sealed and
// written, and closes them.
func (w *writer) syncBefore(number uint32) error {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	for {
		f, c := w.take(func(f *valueFile) bool { return f.number < number })
		if c == nil {
			return nil
		}
		err := c.SyncData()
		if err != nil {
			err = fmt.Errorf("file: sync %s: %w", f.path, err)
		}
		if cerr := c.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("file: close %s: %w", f.path, cerr)
		}
		if err != nil {
			return err
		}
	}
}

// take takes the first file for which pick is true off the list of those that
// are open for writing; the caller closes it.
func (w *writer) take(pick func(*valueFile) bool) (*valueFile, vfs.File) {
	w.open.Lock()
	defer w.open.Unlock()
	i := slices.IndexFunc(w.unsynced, pick)
	if i < 0 {
		return nil, nil
	}
	f := w.unsynced[i]
	w.unsynced = slices.Delete(w.unsynced, i, i+1)
	c := f.writer
	f.writer = nil
	return f, c
}

// sync makes everything that was appended before the call durable. The newest
// file is sealed for it, so that writers go on in the next one meanwhile.
func (w *writer) sync() error {
	w.mu.Lock()
	for w.full.file != nil && w.err == nil {
		w.changed.Wait()
	}
	if w.err != nil {
		defer w.mu.Unlock()
		return w.err
	}
	before := w.next
	write := w.current.file != nil
	if write {
		w.turnLocked(true)
	}
	w.mu.Unlock()
	if write {
		if err := w.writeFull(); err != nil {
			return err
		}
	}

	if err := w.syncBefore(before); err != nil {
		return w.fail(err)
	}
	if err := syncDir(w.fs, w.dir); err != nil {
		return w.fail(err)
	}
	return nil
}

// fail makes err final, unless there was one before, and returns the final one.
func (w *writer) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = fmt.Errorf("%w (no more values are accepted until a restart)", err)
	}
	w.changed.Broadcast()
	return w.err
}

// discard closes a file that is about to be removed.
func (w *writer) discard(f *valueFile) {
	if _, c := w.take(func(o *valueFile) bool { return o == f }); c != nil {
		_ = c.Close() // nobody needs what was in it
	}
}

// close closes what is open for writing. What is in the buffers is in the log.
func (w *writer) close() error {
	var errs []error
	for {
		f, c := w.take(func(*valueFile) bool { return true })
		if c == nil {
			return errors.Join(errs...)
		}
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("file: close %s: %w", f.path, err))
		}
	}
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("file: open directory %s: %w", dir, err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("file: sync directory %s: %w", dir, err)
	}
	return nil
}
