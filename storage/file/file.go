// Package file is the storage mode that keeps values in files and reads them at
// random; only keys and where their values are stay in memory.
//
// Values are appended to the newest value file through a write buffer. A Get is
// a copy out of that buffer or exactly one pread of exactly the value's bytes,
// into the caller's buffer, with no lock held; the record's checksum is verified
// on every read. What is overwritten or deleted is reclaimed in the background,
// by copying what is still alive out of files that are mostly dead.
//
// The index is rebuilt from a checkpoint and the log, never from the value
// files. So no stale record can come back to life, whatever was being copied or
// removed when the process died. Only repair of a checkpoint that is damaged
// takes from them what it has lost: see [Salvager.Missed].
//
// Memory, measured with 1,000,000 keys of 36 bytes (2026-11-30, go1.26.8,
// linux/amd64, BenchmarkIndexBytesPerKey): 128 bytes of heap a key, of which 48
// are the key's own allocation and 3 the write buffers. A file that is open costs a descriptor; at most
// [Options].MaxOpenFiles are.
package file

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage/descriptors"
	"kvmark/storage/nowait"
	"kvmark/storage/usage"
	"kvmark/storage/warm"
)

// Defaults of [Options].
const (
	DefaultFileBytes   = 256 << 20
	DefaultBufferBytes = 1 << 20
	DefaultDeadShare   = 0.5

	maxFileBytes = 1 << 30 // offsets are 32 bits, and a record starts before this
)

// Options configure [Open]. Only Dir has no default.
type Options struct {
	FS           vfs.FS   // nil = vfs.Default
	Dir          string   // the data directory; values are in Dir/values
	Identity     Identity // of the data directory; a file of another one is damage
	FileBytes    int64    // a value file is sealed before it grows beyond; 0 = 256 MiB, at most 1 GiB
	BufferBytes  int      // a write; two buffers of it are kept; 0 = 1 MiB
	MaxOpenFiles int      // open for reading; 0 = as package descriptors says, 512 mostly
	DeadShare    float64  // a sealed file is rewritten when more than this share of it is dead; 0 = 0.5
	// Logf takes notes on background work, one line each; nil = discard.
	Logf func(format string, args ...any)
}

func (o *Options) defaults() error {
	if o.Dir == "" {
		return errors.New("file: no directory given")
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.FileBytes == 0 {
		o.FileBytes = DefaultFileBytes
	}
	if o.BufferBytes == 0 {
		o.BufferBytes = DefaultBufferBytes
	}
	if o.MaxOpenFiles == 0 {
		o.MaxOpenFiles = descriptors.Files()
	}
	if o.DeadShare == 0 {
		o.DeadShare = DefaultDeadShare
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	switch {
	case o.FileBytes < 0 || o.FileBytes > maxFileBytes:
		return fmt.Errorf("file: value files of %d bytes are not possible (use at most %d)", o.FileBytes, maxFileBytes)
	case o.BufferBytes < 0:
		return fmt.Errorf("file: a write buffer of %d bytes is not possible", o.BufferBytes)
	case o.MaxOpenFiles < 0:
		return fmt.Errorf("file: %d open files are not possible", o.MaxOpenFiles)
	case o.DeadShare < 0 || o.DeadShare >= 1:
		return fmt.Errorf("file: a dead share of %v is not possible (use more than 0 and less than 1)", o.DeadShare)
	}
	return nil
}

// Store keeps keys in memory and values in files.
type Store struct {
	o     Options
	dir   string // of the value files
	index *index
	files files
	w     writer

	// checkpoint is held from the start of a checkpoint until its records are
	// emitted, and while files are removed; it guards the sets of files that
	// must stay because a checkpoint refers to them.
	checkpoint sync.Mutex
	committed  map[uint32]bool // of the newest durable checkpoint
	pending    map[uint32]bool // of those that may become durable any moment

	reclaim reclaimer

	seed      uint32 // of the records' checksums
	madeDir   bool   // Open has made the directory of the value files
	first     uint32 // number of the first file that this store may write
	recovered atomic.Bool
}

// Open opens the value files in Dir/values, which is made if it is missing. No
// value is found before [Store.Restore] or Set.
func Open(o Options) (*Store, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	s := &Store{
		o:         o,
		dir:       o.FS.PathJoin(o.Dir, "values"),
		index:     newIndex(),
		committed: make(map[uint32]bool),
		pending:   make(map[uint32]bool),
		seed:      o.Identity.seed(),
	}
	made, err := makeDirs(o.FS, o.Dir, s.dir)
	if err != nil {
		return nil, err
	}
	s.madeDir = made
	names, err := o.FS.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("file: list directory %s: %w", s.dir, err)
	}
	table := make(map[uint32]*valueFile)
	next := uint32(1)
	for _, name := range names {
		number, ok := parseFileName(name)
		if !ok {
			continue // somebody else's
		}
		f := &valueFile{number: number, path: o.FS.PathJoin(s.dir, name)}
		st, err := o.FS.Stat(f.path)
		if err != nil {
			return nil, fmt.Errorf("file: stat %s: %w", f.path, err)
		}
		f.size.Store(st.Size())
		f.sealed.Store(true)
		table[number] = f
		next = max(next, number+1)
	}
	s.files.fs, s.files.maxOpen, s.files.identity = o.FS, o.MaxOpenFiles, o.Identity
	s.files.table.Store(&table)
	s.files.deadShare, s.files.wake = o.DeadShare, make(chan struct{}, 1)
	s.w = writer{
		fs: o.FS, dir: s.dir, files: &s.files, identity: o.Identity, seed: s.seed,
		fileBytes: o.FileBytes, bufferBytes: o.BufferBytes, next: next,
	}
	s.w.changed = sync.NewCond(&s.w.mu)
	s.w.flushed.Store(uint64(at(next, 0)))
	s.reclaim.stop = make(chan struct{})
	s.first = next
	return s, nil
}

// makeDirs makes values in dir durably, and dir itself if it is missing.
func makeDirs(fs vfs.FS, dir, values string) (made bool, err error) {
	if _, err := fs.Stat(values); err == nil {
		return false, nil
	}
	_, err = fs.Stat(dir)
	missing := oserror.IsNotExist(err)
	if err != nil && !missing {
		return false, fmt.Errorf("file: stat directory %s: %w", dir, err)
	}
	if err := fs.MkdirAll(values, 0o700); err != nil {
		return false, fmt.Errorf("file: make directory %s: %w", values, err)
	}
	if missing {
		if err := syncDir(fs, fs.PathDir(dir)); err != nil {
			return true, err
		}
	}
	return true, syncDir(fs, dir)
}

// Value files are called NNNNNNNNNN.val, by their number.
func fileName(number uint32) string { return fmt.Sprintf("%010d.val", number) }

// Name returns the name of the value file of that number.
func Name(number uint64) string { return fileName(uint32(number)) }

// Number returns the number in the name of a value file; files of other names are none.
func Number(name string) (uint64, bool) {
	n, ok := parseFileName(name)
	return uint64(n), ok
}

func parseFileName(name string) (uint32, bool) {
	digits, ok := strings.CutSuffix(name, ".val")
	if !ok || len(digits) != 10 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil && n > 0 && n < 1<<32-1
}

// Get appends the value of key to dst. A value that is not what was stored is a
// [DamageError]; that and a read error name the file and the offset.
func (s *Store) Get(dst, key []byte) ([]byte, bool, error) { return s.get(dst, key, vfs.File.ReadAt) }

// GetNoWait is Get without waiting for the device: it returns [nowait.ErrWouldWait] for a value that is not in memory.
func (s *Store) GetNoWait(dst, key []byte) ([]byte, bool, error) {
	return s.get(dst, key, nowait.ReadAt)
}

// readAt reads a part of a file as [vfs.File.ReadAt] or [nowait.ReadAt] does.
type readAt func(f vfs.File, p []byte, off int64) (int, error)

func (s *Store) get(dst, key []byte, pread readAt) ([]byte, bool, error) {
	loc, ok := s.index.get(key)
	for ok {
		out, err := s.read(dst, key, loc, pread)
		if err == nil {
			return out, true, nil
		}
		if !errors.Is(err, errGone) {
			return out[:len(dst)], false, err
		}
		// Its record was moved and the file removed between the look-up and the
		// read. If nothing has moved, the file is missing.
		was := loc.pos
		if loc, ok = s.index.get(key); ok && loc.pos == was {
			return dst, false, &DamageError{s.path(was.file()), was.offset(), errors.New("the file is missing")}
		}
	}
	return dst, false, nil
}

// Warm prepares for Gets and Sets of these keys, which are to come soon: see
// package warm. It reads no file.
func (s *Store) Warm(keys [][]byte) { warm.InTurn(keys, s.index.warm) }

func (s *Store) path(number uint32) string { return s.o.FS.PathJoin(s.dir, fileName(number)) }

func (s *Store) read(dst, key []byte, loc location, pread readAt) ([]byte, error) {
	start := len(dst)
	out, ok := s.w.read(dst, loc, len(key))
	if !ok {
		f := s.files.get(loc.pos.file())
		if f == nil {
			return dst, errGone
		}
		h, err := s.files.acquire(f)
		if err != nil {
			return dst, err
		}
		defer h.release()
		n := int(loc.valueLen)
		out = slices.Grow(dst, n)[:start+n]
		if m, err := pread(h.f, out[start:], loc.pos.offset()+recordHeader+int64(len(key))); m < n {
			if errors.Is(err, nowait.ErrWouldWait) {
				return out[:start], err // the array may be a bigger one now
			}
			return dst, &DamageError{f.path, loc.pos.offset(), fmt.Errorf("read %d of %d bytes of a value: %w", m, n, err)}
		}
	}
	if checksum(s.seed, loc.pos.file(), uint32(loc.pos.offset()), key, out[start:]) != loc.crc {
		return dst, &DamageError{s.path(loc.pos.file()), loc.pos.offset(), errChecksum}
	}
	return out, nil
}

// ValueLen returns the length of the value of key without reading it. The error
// is always nil.
func (s *Store) ValueLen(key []byte) (int, bool, error) {
	loc, ok := s.index.get(key)
	return int(loc.valueLen), ok, nil
}

// Set stores key and value. The first failed write is final: from then on every
// Set and Checkpoint fails, while reads go on.
func (s *Store) Set(key, value []byte) error {
	if len(key) > MaxKeyBytes || len(value) > MaxValueBytes {
		return fmt.Errorf("file: key of %d and value of %d bytes are too long (at most %d and %d)",
			len(key), len(value), MaxKeyBytes, MaxValueBytes)
	}
	loc, err := s.w.append(key, value)
	if err != nil {
		return err
	}
	if old, replaced := s.index.set(key, loc); replaced {
		s.files.dead(old, len(key))
	}
	return nil
}

// Delete removes key and reports whether it was there. The error is always nil:
// nothing is written, because the value files do not say what exists.
func (s *Store) Delete(key []byte) (bool, error) {
	old, existed := s.index.delete(key)
	if existed {
		s.files.dead(old, len(key))
	}
	return existed, nil
}

// Clear removes everything. The files go when no checkpoint needs them.
func (s *Store) Clear() error {
	s.index.clear(func(keyLen int, loc location) { s.files.dead(loc, keyLen) })
	return nil
}

// Count returns the number of entries.
func (s *Store) Count() int64 {
	keys, _, _ := s.index.totals()
	return keys
}

// Shards returns the number of partitions for Range and Keys.
func (s *Store) Shards() int { return shardCount }

// Range calls fn with every entry of one partition, reading values one by one
// at random. It ends at the first value that cannot be read.
func (s *Store) Range(shard int, fn func(key, value []byte) error) error {
	var buf []byte
	return s.index.scan(shard, func(key []byte, _ location) error {
		value, ok, err := s.Get(buf[:0], key)
		if err != nil || !ok { // deleted meanwhile
			return err
		}
		buf = value
		return fn(key, value)
	})
}

// Keys is Range without the values, from memory alone.
func (s *Store) Keys(shard int, fn func(key []byte) error) error {
	return s.index.scan(shard, func(key []byte, _ location) error { return fn(key) })
}

// Scan calls fn with some n keys of one partition in the order in which they
// were set, from memory alone. Each call looks at the slots of the whole
// partition.
func (s *Store) Scan(shard int, from uint64, n int, fn func(key []byte) error) (next uint64, err error) {
	return s.index.scanFrom(shard, from, n, fn)
}

// keyBytes estimates what the index spends on a key besides its bytes: a string
// header and a number (24 bytes with padding) and a control byte at the mean
// load of a Go map (11/16), and a location at that of a growing slice (4/5).
const keyBytes = (24+1)*16/11 + 16*5/4

// Stats returns sizes. DeadBytes count what reclaiming could gain.
func (s *Store) Stats() usage.Stats {
	var st usage.Stats
	st.Keys, st.KeyBytes, st.ValueBytes = s.index.totals()
	st.IndexBytes = st.KeyBytes + st.Keys*keyBytes
	all := s.files.all()
	for _, f := range all {
		size, live := f.size.Load(), f.liveBytes.Load()
		st.DiskBytes += size
		st.StoredBytes += live
		st.DeadBytes += max(0, size-live-headerBytes)
	}
	n := &s.reclaim
	st.Extra = []usage.Field{
		{Name: "value_files", Value: strconv.Itoa(len(all))},
		{Name: "reclaimed_files", Value: strconv.FormatInt(n.files.Load(), 10)},
		{Name: "reclaim_copied_bytes", Value: strconv.FormatInt(n.copied.Load(), 10)},
		{Name: "values_error", Value: s.errorText()},
	}
	return st
}

func (s *Store) errorText() string {
	s.w.mu.RLock()
	defer s.w.mu.RUnlock()
	if s.w.err != nil {
		return strings.ReplaceAll(s.w.err.Error(), "\n", " ")
	}
	return "ok"
}

// Close stops reclaiming and closes the files. What a start has written that did
// not get as far as Recovered is removed: the log still has it, and the disk may
// be full of it.
func (s *Store) Close() error {
	s.reclaim.close()
	s.files.closeAll()
	err := s.w.close()
	if s.recovered.Load() {
		return err
	}
	s.checkpoint.Lock()
	defer s.checkpoint.Unlock()
	for number, f := range s.files.all() {
		if number < s.first || s.committed[number] || s.pending[number] {
			continue
		}
		if rerr := s.o.FS.Remove(f.path); rerr != nil && !oserror.IsNotExist(rerr) {
			err = errors.Join(err, fmt.Errorf("file: remove %s: %w", f.path, rerr))
		}
	}
	if s.madeDir {
		_ = s.o.FS.Remove(s.dir) // empty, or else it has to stay
	}
	return err
}

// removeUnreferenced removes the files that neither the index nor a checkpoint
// refers to. REQUIRES: checkpoint held.
func (s *Store) removeUnreferencedLocked() error {
	all := s.files.all()
	var errs []error
	for _, number := range slices.Sorted(maps.Keys(all)) {
		f := all[number]
		// A sealed file below flushed has nothing in a buffer any more.
		if !f.sealed.Load() || number >= position(s.w.flushed.Load()).file() ||
			f.live.Load() > 0 || s.committed[number] || s.pending[number] {
			continue
		}
		s.files.remove(f)
		s.w.discard(f)
		if err := s.o.FS.Remove(f.path); err != nil && !oserror.IsNotExist(err) {
			errs = append(errs, fmt.Errorf("file: remove %s: %w", f.path, err))
		}
	}
	return errors.Join(errs...)
}
