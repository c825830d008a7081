// Package memory is the storage mode that keeps values as they are in a layout
// that a tuned Go server would have: one object an entry, found in a map of
// hashes. It is for those who want the most operations a second that Go gives
// with little work for the collector; package gomap, the mode "map", is what most
// Go programs have instead.
//
// A map finds an entry by the hash of its key. Key and value share one
// allocation, so a Set costs exactly one:
//
//	map[uint64]entry
//	    hash(key), entry ----> +----------+-----+------------+-------+
//	                           | key size | key | value size | value |
//	                           +----------+-----+------------+-------+
//
// With the key's string in the map instead of its hash, a slot was 32 bytes, not
// 16, and a lookup touched a line of memory more. Keys that are about to be asked
// for can be read ahead ([Store.Warm]), and a start sets many at once
// ([Store.SetAll]).
//
// Two keys with one hash of 64 bits are twins. The hash is seeded at random, so
// among 10,000,000 keys there are some once in 400,000 runs; one of them is then
// in a map[string]entry beside. What is found is always compared with the key.
//
// Measured with 1,000,000 entries of 36 and 60 bytes (2026-11-30, go1.26.8,
// linux/amd64, BenchmarkBytesPerKey): 150 bytes of heap an entry, of which 112
// are the entry and 38 the maps, at the point of their growth where that is
// most; just before they grow it is 21. Keys and values of the classic data
// have about 90 bytes together, and get allocations of 96.
package memory

import (
	"fmt"
	"hash/maphash"
	"iter"
	"sync"
	"unsafe"

	"kvmark/storage/pair"
	"kvmark/storage/usage"
)

const (
	// shardCount is a power of two, so that a shard is a mask away from a hash.
	// BenchmarkShards counted these waits for locks in 1000 operations of 128
	// goroutines (GOMAXPROCS=2, a busy machine): 113 with 1 shard, 12 with 16,
	// 11 with 256, 3 with 1024. Times did not differ beyond their noise from 16
	// on, and every shard costs each scan and each count a lock.
	shardCount = 256
	// scanBatch is how many entries Range takes under one hold of a shard's
	// lock; writers of that shard wait for no more than that.
	scanBatch = 256
	// scanLook is how many hashes Scan looks at under one hold of that lock.
	scanLook = 4096
)

// Store keeps all entries in the heap. The zero value is not usable; see [New].
type Store struct {
	seed   maphash.Seed
	mask   uint64  // of hashes: all ones, except in tests of twins
	shards []shard // a power of two
}

// shard is two cache lines long, so that the lock of one never shares a line,
// nor the line that is prefetched with it, with the lock of another.
type shard struct {
	mu sync.RWMutex
	// m has an entry for every hash, twins those whose hash m had for another
	// key when they were set. An entry stays in one of them, so that a scan of m and then of twins
	// sees it once. Guarded by mu, as is all below.
	m          map[uint64]entry
	twins      map[string]entry // nil until there are some
	clears     uint64           // tells a scan that m and twins were replaced
	keyBytes   int64
	valueBytes int64
	_          [128 - 24 - 2*8 - 3*8]byte
}

// New returns an empty store.
func New() *Store { return newStore(shardCount) }

func newStore(shards int) *Store {
	s := &Store{seed: maphash.MakeSeed(), mask: ^uint64(0), shards: make([]shard, shards)}
	for i := range s.shards {
		s.shards[i].m = make(map[uint64]entry)
	}
	return s
}

func (s *Store) hash(key []byte) uint64 { return maphash.Bytes(s.seed, key) & s.mask }

func (s *Store) shardOf(hash uint64) uint64 { return hash & uint64(len(s.shards)-1) }

func (s *Store) place(key []byte) (*shard, uint64) {
	h := s.hash(key)
	return &s.shards[s.shardOf(h)], h
}

// find returns the entry of key, if there is one. twin says that it is among the
// twins, or would be. REQUIRES: mu held.
func (sh *shard) find(hash uint64, key []byte) (e entry, ok, twin bool) {
	e, taken := sh.m[hash]
	if taken && string(e.key()) == string(key) {
		return e, true, false
	}
	if len(sh.twins) > 0 {
		if e, ok := sh.twins[string(key)]; ok {
			return e, true, true
		}
	}
	return entry{}, false, taken
}

// value returns the value of key, which nothing will change.
func (s *Store) value(key []byte) (value []byte, ok bool) {
	sh, h := s.place(key)
	sh.mu.RLock()
	e, ok, _ := sh.find(h, key)
	sh.mu.RUnlock()
	if ok {
		_, value = e.pair()
	}
	return value, ok
}

// Get appends the value of key to dst. The error is always nil.
func (s *Store) Get(dst, key []byte) ([]byte, bool, error) {
	v, ok := s.value(key)
	return append(dst, v...), ok, nil
}

// ValueLen returns the length of the value of key. The error is always nil.
func (s *Store) ValueLen(key []byte) (int, bool, error) {
	v, ok := s.value(key)
	return len(v), ok, nil
}

// Set stores copies of key and value. The error is always nil.
func (s *Store) Set(key, value []byte) error {
	e := newEntry(key, value)
	sh, h := s.place(key)
	sh.mu.Lock()
	sh.set(h, key, len(value), e)
	sh.mu.Unlock()
	return nil
}

// set stores e, whose key and value are so long. REQUIRES: mu held.
func (sh *shard) set(hash uint64, key []byte, valueLen int, e entry) {
	old, ok, twin := sh.find(hash, key)
	if ok {
		_, v := old.pair()
		sh.valueBytes -= int64(len(v))
	} else {
		sh.keyBytes += int64(len(key))
	}
	sh.valueBytes += int64(valueLen)
	if twin {
		sh.setTwin(e)
	} else {
		sh.m[hash] = e
	}
}

// setTwin stores an entry among the twins. REQUIRES: mu held.
func (sh *shard) setTwin(e entry) {
	if sh.twins == nil {
		sh.twins = make(map[string]entry)
	}
	key := e.key()
	// Assigning replaces the key of a map's entry, too, because equal strings
	// may be different memory: nothing refers to the old entry after this.
	sh.twins[unsafe.String(unsafe.SliceData(key), len(key))] = e
}

// Delete removes key and reports whether it was there. The error is always nil.
func (s *Store) Delete(key []byte) (bool, error) {
	sh, h := s.place(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	old, ok, twin := sh.find(h, key)
	if !ok {
		return false, nil
	}
	if twin {
		delete(sh.twins, string(key))
	} else {
		delete(sh.m, h)
	}
	_, v := old.pair()
	sh.keyBytes -= int64(len(key))
	sh.valueBytes -= int64(len(v))
	return true, nil
}

// Clear removes everything. Shards are emptied one after the other. The error
// is always nil.
func (s *Store) Clear() error {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		// New maps, because clear keeps the old ones' memory.
		sh.m, sh.twins = make(map[uint64]entry), nil
		sh.clears++
		sh.keyBytes, sh.valueBytes = 0, 0
		sh.mu.Unlock()
	}
	return nil
}

// Count returns the number of entries.
func (s *Store) Count() int64 {
	var n int64
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		n += sh.count()
		sh.mu.RUnlock()
	}
	return n
}

// count returns the number of entries. REQUIRES: mu held.
func (sh *shard) count() int64 { return int64(len(sh.m) + len(sh.twins)) }

// Shards returns the number of partitions for Range and Keys.
func (s *Store) Shards() int { return len(s.shards) }

// Range calls fn with every entry of one partition. Key and value must not be
// changed; they stay valid after the call. An entry that is present all the
// time is seen exactly once. fn runs without a lock and may use the store.
func (s *Store) Range(shard int, fn func(key, value []byte) error) error {
	sh := &s.shards[shard]
	batch := make([]entry, 0, scanBatch)
	hand := func() error {
		for _, e := range batch {
			if err := fn(e.pair()); err != nil {
				return err
			}
		}
		batch = batch[:0]
		return nil
	}

	sh.mu.RLock()
	clears := sh.clears
	// The lock is given up inside the loop. The language allows a map to
	// change between two steps of a range over it, and promises that entries
	// that stay are produced exactly once even when the map grows; the lock
	// only has to order each step with the writers.
	for _, e := range s.all(sh) {
		if batch = append(batch, e); len(batch) < scanBatch {
			continue
		}
		sh.mu.RUnlock()
		if err := hand(); err != nil {
			return err
		}
		sh.mu.RLock()
		if sh.clears != clears {
			break // what is left in the old maps is gone
		}
	}
	sh.mu.RUnlock()
	return hand()
}

// all yields the entries of a shard with their hashes. REQUIRES: mu held when the
// next one is asked for.
func (s *Store) all(sh *shard) iter.Seq2[uint64, entry] {
	return func(yield func(uint64, entry) bool) {
		for h, e := range sh.m {
			if !yield(h, e) {
				return
			}
		}
		for _, e := range sh.twins {
			if !yield(s.hash(e.key()), e) {
				return
			}
		}
	}
}

// Keys is Range without the values.
func (s *Store) Keys(shard int, fn func(key []byte) error) error {
	return s.Range(shard, func(key, _ []byte) error { return fn(key) })
}

// Scan calls fn with some n keys of one partition in the order of their hashes:
// a position is the upper bits of a hash. A Go map has no order to enter it in
// the middle of, so each call looks at all hashes of the partition, though at
// no other key than those that it returns. SCAN took 0.18 ms for some 250 of
// 1,000,000 keys (2026-12-01, go1.26.8, linux/amd64, two slow processors).
func (s *Store) Scan(shard int, from uint64, n int, fn func(key []byte) error) (next uint64, err error) {
	const end = uint64(1) << usage.ScanBits
	sh := &s.shards[shard]
	sh.mu.RLock()
	found := make([]entry, 0, min(n, int(sh.count())))
	to := end
	if total := uint64(sh.count()); total > uint64(n) {
		to = min(end, from+max(1, end/total*uint64(n)))
	}
	clears, looked := sh.clears, 0
	for h, e := range s.all(sh) {
		if at := h >> (64 - usage.ScanBits); at >= from && at < to {
			found = append(found, e)
		}
		if looked++; looked%scanLook > 0 {
			continue
		}
		sh.mu.RUnlock() // as in Range
		sh.mu.RLock()
		if sh.clears != clears {
			break
		}
	}
	sh.mu.RUnlock()
	for _, e := range found {
		if err := fn(e.key()); err != nil {
			return from, err
		}
	}
	if to == end {
		to = 0
	}
	return to, nil
}

// Checkpoint emits every entry, many to a record (see package pair).
func (s *Store) Checkpoint(emit func(rec []byte) error) (committed func() error, err error) {
	return func() error { return nil }, pair.Emit("", len(s.shards), s.Range, emit)
}

// Restore takes back one record of a checkpoint.
func (s *Store) Restore(rec []byte) error {
	var keys, values [][]byte
	if err := pair.Read(rec, func(key, value []byte) error {
		keys, values = append(keys, key), append(values, value)
		return nil
	}); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	return s.SetAll(keys, values)
}

// Recovered does nothing: this mode has no background work.
func (s *Store) Recovered() error { return nil }

// slotBytes is what the maps spend on one entry: a hash, an entry and a control
// byte at the mean load (11/16) of a table that doubles when it is 7/8 full.
const slotBytes = (8 + 8 + 1) * 16 / 11

// Stats returns sizes. StoredBytes are the bytes of keys and values without
// the allocator's rounding; IndexBytes estimates the maps.
func (s *Store) Stats() usage.Stats {
	var st usage.Stats
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		st.Keys += sh.count()
		st.KeyBytes += sh.keyBytes
		st.ValueBytes += sh.valueBytes
		sh.mu.RUnlock()
	}
	st.StoredBytes = st.KeyBytes + st.ValueBytes
	st.IndexBytes = st.Keys * slotBytes
	return st
}

// Close releases nothing: the heap does.
func (s *Store) Close() error { return nil }
