// Package memory is the storage mode that keeps values as they are, in plain
// Go maps. It is deliberately ordinary Go: what the garbage collector makes
// of millions of strings behind a map is the thing its users want to measure.
//
// Key and value of an entry share one allocation, so a Set costs exactly one:
//
//	map[string]string
//	    key ----> +-----+-------+
//	              | key | value |   one []byte, never changed once stored
//	  value ------------^-------+
//
// Measured with 1,000,000 entries of 36 and 60 bytes (2026-11-30, go1.26.8,
// linux/amd64, BenchmarkBytesPerKey): 180 bytes of heap an entry, of which 96
// are the entry.
package memory

import (
	"fmt"
	"hash/maphash"
	"sync"
	"unsafe"

	"kvmark/storage/pair"
	"kvmark/storage/usage"
)

const (
	// shardCount is a power of two, so that a shard is a mask away from a
	// hash; with 256 of them two of 64 busy writers rarely meet.
	shardCount = 256
	// scanBatch is how many entries Range takes under one hold of a shard's
	// lock; writers of that shard wait for no more than that.
	scanBatch = 256
	// recordBytes is the size from which a checkpoint record is handed over.
	recordBytes = 64 << 10
)

// Store keeps all entries in the heap. The zero value is not usable; see [New].
type Store struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

// shard is two cache lines long, so that the lock of one never shares a line,
// nor the line that is prefetched with it, with the lock of another.
type shard struct {
	mu         sync.RWMutex
	m          map[string]string // guarded by mu, as is all below
	clears     uint64            // tells a scan that m was replaced
	keyBytes   int64
	valueBytes int64
	_          [128 - 24 - 8 - 3*8]byte
}

// New returns an empty store.
func New() *Store {
	s := &Store{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].m = make(map[string]string)
	}
	return s
}

func (s *Store) shard(key []byte) *shard {
	return &s.shards[maphash.Bytes(s.seed, key)&(shardCount-1)]
}

// Get appends the value of key to dst. The error is always nil.
func (s *Store) Get(dst, key []byte) ([]byte, bool, error) {
	sh := s.shard(key)
	sh.mu.RLock()
	v, ok := sh.m[string(key)]
	sh.mu.RUnlock()
	// The bytes behind v are never changed, so the copy needs no lock.
	return append(dst, v...), ok, nil
}

// ValueLen returns the length of the value of key. The error is always nil.
func (s *Store) ValueLen(key []byte) (int, bool, error) {
	sh := s.shard(key)
	sh.mu.RLock()
	v, ok := sh.m[string(key)]
	sh.mu.RUnlock()
	return len(v), ok, nil
}

// Set stores copies of key and value. The error is always nil.
func (s *Store) Set(key, value []byte) error {
	entry := make([]byte, len(key)+len(value))
	copy(entry[copy(entry, key):], value)
	all := unsafe.String(unsafe.SliceData(entry), len(entry))
	k, v := all[:len(key)], all[len(key):]

	sh := s.shard(key)
	sh.mu.Lock()
	if old, ok := sh.m[k]; ok {
		sh.valueBytes -= int64(len(old))
	} else {
		sh.keyBytes += int64(len(k))
	}
	sh.valueBytes += int64(len(v))
	// Assigning replaces the key of an entry as well as its value, because
	// equal strings may be different memory. So nothing refers to the old
	// allocation after this; a test holds the runtime to it.
	sh.m[k] = v
	sh.mu.Unlock()
	return nil
}

// Delete removes key and reports whether it was there. The error is always nil.
func (s *Store) Delete(key []byte) (bool, error) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	old, ok := sh.m[string(key)]
	if ok {
		delete(sh.m, string(key))
		sh.keyBytes -= int64(len(key))
		sh.valueBytes -= int64(len(old))
	}
	return ok, nil
}

// Clear removes everything. Shards are emptied one after the other. The error
// is always nil.
func (s *Store) Clear() error {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		// A new map, because clear keeps the old one's memory.
		sh.m = make(map[string]string)
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
		n += int64(len(sh.m))
		sh.mu.RUnlock()
	}
	return n
}

// Shards returns the number of partitions for Range and Keys.
func (s *Store) Shards() int { return shardCount }

// Range calls fn with every entry of one partition. Key and value must not be
// changed; they stay valid after the call. An entry that is present all the
// time is seen exactly once. fn runs without a lock and may use the store.
func (s *Store) Range(shard int, fn func(key, value []byte) error) error {
	sh := &s.shards[shard]
	type entry struct{ k, v string }
	batch := make([]entry, 0, scanBatch)
	hand := func() error {
		for _, e := range batch {
			if err := fn(bytesOf(e.k), bytesOf(e.v)); err != nil {
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
	for k, v := range sh.m {
		if batch = append(batch, entry{k, v}); len(batch) < scanBatch {
			continue
		}
		sh.mu.RUnlock()
		if err := hand(); err != nil {
			return err
		}
		sh.mu.RLock()
		if sh.clears != clears {
			break // what is left in the old map is gone
		}
	}
	sh.mu.RUnlock()
	return hand()
}

// Keys is Range without the values.
func (s *Store) Keys(shard int, fn func(key []byte) error) error {
	return s.Range(shard, func(key, _ []byte) error { return fn(key) })
}

// Checkpoint emits every entry, many to a record (see package pair).
func (s *Store) Checkpoint(emit func(rec []byte) error) (committed func() error, err error) {
	rec := make([]byte, 0, 2*recordBytes)
	for i := range s.shards {
		err := s.Range(i, func(key, value []byte) error {
			rec = pair.Append(rec, key, value)
			if len(rec) < recordBytes {
				return nil
			}
			err := emit(rec)
			rec = rec[:0]
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(rec) > 0 {
		if err := emit(rec); err != nil {
			return nil, err
		}
	}
	return func() error { return nil }, nil
}

// Restore takes back one record of a checkpoint.
func (s *Store) Restore(rec []byte) error {
	for rest := rec; len(rest) > 0; {
		var key, value []byte
		var err error
		at := len(rec) - len(rest)
		if key, value, rest, err = pair.Next(rest); err != nil {
			return fmt.Errorf("memory: checkpoint record of %d bytes, byte %d: %w", len(rec), at, err)
		}
		if err := s.Set(key, value); err != nil {
			return err
		}
	}
	return nil
}

// Recovered does nothing: this mode has no background work.
func (s *Store) Recovered() error { return nil }

// slotBytes is what a map[string]string spends on one entry besides the bytes
// of the strings: two string headers and a control byte at the mean load (11/16)
// of a table that doubles when it is 7/8 full.
const slotBytes = (2*16 + 1) * 16 / 11

// Stats returns sizes. StoredBytes are the bytes of keys and values without
// the allocator's rounding; IndexBytes estimates the maps.
func (s *Store) Stats() usage.Stats {
	var st usage.Stats
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		st.Keys += int64(len(sh.m))
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

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
