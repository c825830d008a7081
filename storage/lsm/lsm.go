// Package lsm is the storage mode that keeps entries in Pebble, a log-structured
// merge tree: what one would pick instead of writing a store. It is there to
// compare the other modes with.
//
// Pebble's own log is off, because the server's log has every entry already.
// So entries become durable when a memtable is flushed, and not before the log
// is synced ([Options].BeforeFlush): what is on disk is never ahead of the log.
//
// Sizes, chosen to be ordinary rather than tuned: memtables of 64 MiB (of which
// four may wait to be flushed), a block cache of 64 MiB, Bloom filters of 10
// bits a key, Snappy, two compactions at a time. Without cgo memtables and cache
// are part of the Go heap, without pointers: they make the heap bigger and
// collections rarer, not longer.
//
// The number of entries is exact at any moment, also after a crash: each write
// that changes it carries the difference, as a merge operand, in the same
// batch. To know the difference a Set reads the old value first, which costs
// a Bloom filter when there is none, and mostly the cache or a memtable when there is.
package lsm

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage/descriptors"
	"kvmark/storage/usage"
)

// Keys in Pebble. The first byte is a partition, so that one partition is one
// range of keys:
//
//	+---------------------------+-----+
//	| xxhash of the key mod 64  | key |      an entry
//	+---------------------------+-----+
//	| 0xff                      |            the totals, see type sum
//	+---------------------------+
//	| 0xff, a letter            |            marks, see tokenKey and identityKey
//	+---------------------------+
//
// This is part of the disk format and must not change.
const (
	shardCount = 64
	totalsByte = 0xff
)

// Defaults of [Options].
const (
	DefaultMemTableBytes = 64 << 20
	DefaultCacheBytes    = 64 << 20

	// pebbleFormat is the version of Pebble's files. A newer Pebble must not change it behind a user's back.
	pebbleFormat = pebble.FormatValueSeparation

	largeValue = 64 << 10 // bytes from which on a value is kept out of the tables
)

// Options configure [Open]. Only Dir has no default.
type Options struct {
	FS       vfs.FS   // nil = vfs.Default
	Dir      string   // the data directory; Pebble's is Dir/lsm
	Identity Identity // of the data directory; the state of another one is damage
	// Segment returns the number of the log's current segment, for a checkpoint to note. nil = 0.
	Segment       func() uint64
	MemTableBytes uint64 // 0 = 64 MiB
	CacheBytes    int64  // 0 = 64 MiB
	// BeforeFlush is called before each flush, and makes the log durable. When
	// it returns an error the flush fails and is tried again a second later;
	// meanwhile Set and Delete return the error. nil = no call.
	BeforeFlush func() error
	// BeforeWait is called before a read that waits for the device, by the goroutine that does; done is called after it.
	// nil = no call.
	BeforeWait func() (done func())
	// Logf takes notes on background work, one line each; nil = discard.
	Logf func(format string, args ...any)
}

// Store keeps entries in Pebble.
type Store struct {
	db     *pebble.DB
	health *health
	keys   sync.Pool // of *[]byte

	// clearing is held for reading by writers, so that the totals and what they
	// count are reset together.
	clearing sync.RWMutex
	totals   totals
	places   places

	fs         vfs.FS
	dir        string     // Pebble's
	checkpoint sync.Mutex // held while one is made; guards marks
	identity   Identity
	marks      marks // of the last checkpoint
	segment    func() uint64
}

// Open opens what is in Dir/lsm, which is made if it is missing.
func Open(o Options) (*Store, error) {
	if o.Dir == "" {
		return nil, errors.New("lsm: no directory given")
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	o.Logf = oneLine(o.Logf)
	dir := o.FS.PathJoin(o.Dir, "lsm")
	if _, _, err := inspect(o.FS, dir, o.Identity, 0); err != nil {
		return nil, err
	}
	if o.Segment == nil {
		o.Segment = func() uint64 { return 0 }
	}
	s := &Store{health: newHealth(o.BeforeFlush, o.Logf), fs: o.FS, dir: dir, identity: o.Identity, segment: o.Segment}
	s.keys.New = func() any { return new([]byte) }
	if err := s.open(o); err != nil {
		s.health.close()
		if s.db != nil {
			_ = s.db.Close() // the first error says why
		}
		return nil, openError(dir, err)
	}
	return s, nil
}

// open opens Pebble and reads the totals and marks. After an error db may be open.
func (s *Store) open(o Options) (err error) {
	files := newFileCache()
	defer files.Unref() // Pebble has a reference of its own
	opts := s.pebbleOptions(o)
	compactions := newScheduler()
	opts.FileCache, opts.Experimental.CompactionScheduler = files, compactions
	if s.db, err = pebble.Open(s.dir, opts); err == nil {
		err = s.health.fatalErr()
	}
	if err != nil {
		return err
	}
	s.health.opened.Store(true)
	compactions.open()
	if err := s.loadTotals(); err != nil {
		return err
	}
	if s.marks, err = readMarks(s.db); err != nil || s.marks.known {
		return err
	}
	s.marks.identity, s.marks.known = o.Identity, true
	return s.db.Set(identityKey(), o.Identity[:], pebble.NoSync)
}

func (s *Store) pebbleOptions(o Options) *pebble.Options {
	opts := &pebble.Options{
		FS:                          &guardedFS{FS: o.FS, health: s.health, beforeWait: o.BeforeWait},
		DisableWAL:                  true,
		MemTableSize:                cmp.Or(o.MemTableBytes, DefaultMemTableBytes),
		MemTableStopWritesThreshold: 4,
		CacheSize:                   cmp.Or(o.CacheBytes, DefaultCacheBytes),
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		FormatMajorVersion:          pebbleFormat,
		Merger:                      totalsMerger(),
		Logger:                      logger{s.health},
		EventListener: &pebble.EventListener{
			FlushEnd:        func(i pebble.FlushInfo) { s.health.flushEnded(i.Err) },
			BackgroundError: s.health.background,
			// Damage is an error to the one who reads it, and a note.
			DataCorruption: func(i pebble.DataCorruptionInfo) {
				o.Logf("lsm: %s is damaged: %s; see kvserver check", i.Path, plain(i.Details))
			},
		},
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	// A large value inside a table makes a block that no cache shard holds, and every false positive of a filter reads it again:
	// with 64 MiB values, Sets of other keys fell to a few a second. In a file of its own only those who want it read it.
	opts.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: largeValue, MaxBlobReferenceDepth: 10,
			RewriteMinimumAge: 5 * time.Minute, TargetGarbageRatio: 0.3,
		}
	}
	return opts
}

// newFileCache returns the cache of open tables. Pebble's own would not be smaller than 64 files.
func newFileCache() *pebble.FileCache {
	n := descriptors.Files()
	return pebble.NewFileCache(min(n, runtime.GOMAXPROCS(0)), n)
}

// key returns the key in Pebble and where to give it back.
func (s *Store) key(key []byte) ([]byte, *[]byte) {
	p := s.keys.Get().(*[]byte)
	*p = append(append((*p)[:0], byte(xxhash.Sum64(key)%shardCount)), key...)
	return *p, p
}

// get returns the value of a key in Pebble until closer is closed. A nil closer
// is a miss.
func (s *Store) get(k []byte) (value []byte, closer io.Closer, err error) {
	value, closer, err = s.db.Get(k)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil, nil
	case err != nil:
		return nil, nil, s.readError("get", err)
	}
	return value, closer, nil
}

// Get appends the value of key to dst.
func (s *Store) Get(dst, key []byte) ([]byte, bool, error) {
	k, p := s.key(key)
	defer s.keys.Put(p)
	v, c, err := s.get(k)
	if c == nil {
		return dst, false, err
	}
	dst = append(dst, v...)
	return dst, true, c.Close()
}

// ValueLen returns the length of the value of key, which it has to read.
func (s *Store) ValueLen(key []byte) (int, bool, error) {
	k, p := s.key(key)
	defer s.keys.Put(p)
	return s.valueLen(k)
}

func (s *Store) valueLen(k []byte) (int, bool, error) {
	v, c, err := s.get(k)
	if c == nil {
		return 0, false, err
	}
	return len(v), true, c.Close()
}

// Set stores key and value. It fails while flushing fails.
func (s *Store) Set(key, value []byte) error {
	if err := s.health.err(); err != nil {
		return err
	}
	s.clearing.RLock()
	defer s.clearing.RUnlock()
	k, p := s.key(key)
	defer s.keys.Put(p)
	oldLen, ok, err := s.valueLen(k)
	if err != nil {
		return err
	}
	by := sum{valueBytes: int64(len(value) - oldLen)}
	if !ok {
		by.keys, by.keyBytes = 1, int64(len(key))
	}
	return s.write(by, func(b *pebble.Batch) error { return b.Set(k, value, nil) })
}

// Delete removes key and reports whether it was there. It fails while flushing
// fails.
func (s *Store) Delete(key []byte) (bool, error) {
	if err := s.health.err(); err != nil {
		return false, err
	}
	s.clearing.RLock()
	defer s.clearing.RUnlock()
	k, p := s.key(key)
	defer s.keys.Put(p)
	oldLen, ok, err := s.valueLen(k)
	if err != nil || !ok {
		return false, err
	}
	by := sum{-1, -int64(len(key)), -int64(oldLen)}
	return true, s.write(by, func(b *pebble.Batch) error { return b.Delete(k, nil) })
}

// write applies a change together with what it does to the totals.
func (s *Store) write(by sum, change func(*pebble.Batch) error) error {
	b := s.db.NewBatch()
	defer b.Close()
	err := change(b)
	if err == nil && by != (sum{}) {
		var buf [maxSumBytes]byte
		err = b.Merge([]byte{totalsByte}, by.append(buf[:0]), nil)
	}
	if err == nil {
		err = b.Commit(pebble.NoSync)
	}
	if err != nil {
		return fmt.Errorf("lsm: write: %w", err)
	}
	s.totals.add(by)
	// It is in memory, and readers see it, but nobody is told that it is kept.
	return s.health.fatalErr()
}

// Clear removes everything, by one range tombstone. It fails while flushing
// fails.
func (s *Store) Clear() error {
	if err := s.health.err(); err != nil {
		return err
	}
	s.clearing.Lock()
	defer s.clearing.Unlock()
	b := s.db.NewBatch()
	defer b.Close()
	err := b.DeleteRange([]byte{0}, []byte{shardCount}, nil)
	if err == nil {
		err = b.Set([]byte{totalsByte}, sum{}.append(nil), nil)
	}
	if err == nil {
		err = b.Commit(pebble.NoSync)
	}
	if err != nil {
		return fmt.Errorf("lsm: clear: %w", err)
	}
	s.totals.reset()
	return s.health.fatalErr()
}

// Err returns the error after which nothing is written any more; nil = there was none. Reads go on.
func (s *Store) Err() error { return s.health.fatalErr() }

// Count returns the number of entries.
func (s *Store) Count() int64 { return s.totals.keys.Load() }

// Shards returns the number of partitions for Range and Keys.
func (s *Store) Shards() int { return shardCount }

// Range calls fn with every entry of one partition, as of the time of the call.
func (s *Store) Range(shard int, fn func(key, value []byte) error) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{byte(shard)},
		UpperBound: []byte{byte(shard + 1)},
	})
	if err != nil {
		return s.readError("iterate", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = s.readError("iterate", cerr)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return s.readError("iterate", err)
		}
		if err := fn(it.Key()[1:], v); err != nil {
			return err
		}
	}
	return nil
}

// Keys is Range without the values, which are in the same blocks as the keys.
func (s *Store) Keys(shard int, fn func(key []byte) error) error {
	return s.Range(shard, func(key, _ []byte) error { return fn(key) })
}

// Scan calls fn with some n keys of one partition in the order of their bytes.
// Where it goes on from is remembered (see type places). A position that is not
// remembered any more leads to the beginning of the partition, so that keys
// come again and none is left out.
func (s *Store) Scan(shard int, from uint64, n int, fn func(key []byte) error) (next uint64, err error) {
	lower := []byte{byte(shard)}
	if from > 0 {
		if key, ok := s.places.get(shard, from); ok {
			lower = key
		}
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: []byte{byte(shard + 1)}})
	if err != nil {
		return from, fmt.Errorf("lsm: iterate: %w", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("lsm: iterate: %w", cerr)
		}
	}()
	seen := 0
	for ok := it.First(); ok; ok = it.Next() {
		if seen++; seen > n {
			return s.places.put(shard, it.Key()), nil
		}
		if err := fn(it.Key()[1:]); err != nil {
			return from, err
		}
	}
	if err := it.Error(); err != nil {
		return from, fmt.Errorf("lsm: iterate: %w", err)
	}
	return 0, nil
}

// Checkpoint flushes, and emits no more than a number: the state is in Pebble's own files. It
// returns the error of a flush that fails instead of waiting for the next try.
func (s *Store) Checkpoint(emit func(rec []byte) error) (committed func() error, err error) {
	s.checkpoint.Lock()
	defer s.checkpoint.Unlock()
	if err := s.health.err(); err != nil {
		return nil, err
	}
	next := marks{number: s.marks.number + 1, segment: s.segment()}
	if err := s.db.Set(tokenKey(), next.value(), pebble.NoSync); err != nil {
		return nil, fmt.Errorf("lsm: write: %w", err)
	}
	failed := s.health.failure()
	done, err := s.db.AsyncFlush()
	if err != nil {
		return nil, fmt.Errorf("lsm: flush: %w", err)
	}
	select {
	case <-done:
	case <-failed:
		return nil, s.health.err()
	}
	if err := s.health.fatalErr(); err != nil {
		return nil, err
	}
	s.marks.number, s.marks.segment = next.number, next.segment
	if err := writeToken(s.fs, s.dir, s.identity, next.number); err != nil {
		return nil, err
	}
	if err := emit(binary.LittleEndian.AppendUint64(nil, next.number)); err != nil {
		return nil, err
	}
	return func() error { return nil }, nil
}

// Snapshot makes the directory to, which must not exist, a copy of Dir/lsm as of one moment, of hard links where that can be. It
// holds what a flush has made durable.
func (s *Store) Snapshot(to string) error {
	s.checkpoint.Lock()
	defer s.checkpoint.Unlock()
	if err := s.health.fatalErr(); err != nil {
		return err
	}
	if err := s.db.Checkpoint(to); err != nil {
		return fmt.Errorf("lsm: copy the tables: %w", err)
	}
	if s.marks.number == 0 {
		return nil // no token yet
	}
	return writeToken(s.fs, to, s.identity, s.marks.number)
}

// Restore checks that the state is that of the checkpoint or a newer one.
func (s *Store) Restore(rec []byte) error {
	if err := CheckRecord(rec); err != nil {
		return err
	}
	return compareTokens(s.dir, s.marks.number, binary.LittleEndian.Uint64(rec))
}

// Segment returns the segment at whose begin the last checkpoint was made, 0 for none: the state holds everything in front of it.
func (s *Store) Segment() uint64 { return s.marks.segment }

// CheckRecord returns why a record is not one that Checkpoint emits.
func CheckRecord(rec []byte) error {
	if len(rec) != 8 {
		return fmt.Errorf("lsm: a checkpoint of this mode has a record of 8 bytes, not one of %d: was it made by another mode?", len(rec))
	}
	return nil
}

// Recovered does nothing: background work runs from the start.
func (s *Store) Recovered() error { return nil }

// Stats returns sizes. StoredBytes are those of the tables and memtables;
// IndexBytes those of the block cache.
func (s *Store) Stats() usage.Stats {
	m := s.db.Metrics()
	return usage.Stats{
		Keys:        s.totals.keys.Load(),
		KeyBytes:    s.totals.keyBytes.Load(),
		ValueBytes:  s.totals.valueBytes.Load(),
		StoredBytes: m.Total().TablesSize + int64(m.MemTable.Size),
		IndexBytes:  m.BlockCache.Size,
		DiskBytes:   int64(m.DiskSpaceUsage()),
		Extra: []usage.Field{
			{Name: "lsm_tables", Value: strconv.FormatInt(m.Total().TablesCount, 10)},
			{Name: "lsm_read_amplification", Value: strconv.Itoa(m.ReadAmp())},
			{Name: "lsm_memtable_bytes", Value: strconv.FormatUint(m.MemTable.Size, 10)},
			{Name: "lsm_flushes", Value: strconv.FormatInt(m.Flush.Count, 10)},
			{Name: "lsm_compactions", Value: strconv.FormatInt(m.Compact.Count, 10)},
			{Name: "lsm_cache_hits", Value: strconv.FormatInt(m.BlockCache.Hits, 10)},
			{Name: "lsm_cache_misses", Value: strconv.FormatInt(m.BlockCache.Misses, 10)},
			{Name: "lsm_error", Value: s.health.text()},
		},
	}
}

// Close waits for a running flush and compaction. Nothing else is flushed: the
// log has it. The log must still accept BeforeFlush.
func (s *Store) Close() error {
	s.health.close()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("lsm: close: %w", err)
	}
	return nil
}
