// Package gomap is the storage mode "map": what most Go programs that keep
// something in memory have. It is for those who want to know what their own
// program would pay, and what another layout, that of package memory, saves.
//
//	map[string][]byte  ------> key    one object
//	behind an RWMutex    \---> value  another
//
// There are 256 such maps, so that writers seldom wait for each other. Nothing
// is read ahead, hashed by hand or shared: a Set allocates a key and a value, also
// over a key that is there, and the collector follows two pointers an entry
// beside the map itself.
package gomap

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"sync"

	"kvmark/storage/pair"
	"kvmark/storage/usage"
)

const (
	shardCount = 256
	// scanBatch is how many entries Range takes under one hold of a lock.
	scanBatch = 256
)

// Store keeps all entries in the heap. The zero value is not usable; see [New].
type Store struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

type shard struct {
	mu                   sync.RWMutex
	m                    map[string][]byte // values are replaced, never written to
	clears               uint64            // tells a scan that m was replaced
	keyBytes, valueBytes int64
}

// New returns an empty store.
func New() *Store {
	s := &Store{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].m = make(map[string][]byte)
	}
	return s
}

func (s *Store) shard(key []byte) *shard { return &s.shards[maphash.Bytes(s.seed, key)%shardCount] }

func (s *Store) value(key []byte) ([]byte, bool) {
	sh := s.shard(key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	v, ok := sh.m[string(key)]
	return v, ok
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
	sh := s.shard(key)
	k, v := string(key), bytes.Clone(value)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	old, ok := sh.m[k]
	if !ok {
		sh.keyBytes += int64(len(k))
	}
	sh.valueBytes += int64(len(v) - len(old))
	sh.m[k] = v
	return nil
}

// Delete removes key and reports whether it was there. The error is always nil.
func (s *Store) Delete(key []byte) (bool, error) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	v, ok := sh.m[string(key)]
	if ok {
		delete(sh.m, string(key))
		sh.keyBytes -= int64(len(key))
		sh.valueBytes -= int64(len(v))
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
		sh.m = make(map[string][]byte)
		sh.clears++
		sh.keyBytes, sh.valueBytes = 0, 0
		sh.mu.Unlock()
	}
	return nil
}

// Count returns the number of entries.
func (s *Store) Count() int64 { return s.Stats().Keys }

// Shards returns the number of partitions for Range and Keys.
func (s *Store) Shards() int { return shardCount }

// Range calls fn with every entry of one partition. Key and value are valid
// during the call. An entry that is present all the time is seen exactly once.
// fn runs without a lock and may use the store.
func (s *Store) Range(shard int, fn func(key, value []byte) error) error {
	type entry struct {
		key   string
		value []byte
	}
	batch := make([]entry, 0, scanBatch)
	var key []byte
	flush := func() error {
		for _, e := range batch {
			key = append(key[:0], e.key...)
			if err := fn(key, e.value); err != nil {
				return err
			}
		}
		batch = batch[:0]
		return nil
	}
	sh := &s.shards[shard]
	sh.mu.RLock()
	clears := sh.clears
	// The lock is given up inside the loop. The language allows a map to change
	// between two steps of a range over it, and produces an entry that stays
	// exactly once; the lock only orders each step with the writers.
	for k, v := range sh.m {
		if batch = append(batch, entry{k, v}); len(batch) < scanBatch {
			continue
		}
		sh.mu.RUnlock()
		if err := flush(); err != nil {
			return err
		}
		sh.mu.RLock()
		if sh.clears != clears {
			break // what is left in the old map is gone
		}
	}
	sh.mu.RUnlock()
	return flush()
}

// Keys is Range without the values.
func (s *Store) Keys(shard int, fn func(key []byte) error) error {
	return s.Range(shard, func(key, _ []byte) error { return fn(key) })
}

// Scan calls fn with some n keys of one partition in the order of their hashes:
// a position is the upper bits of a hash. A Go map has no order to enter it in
// the middle of, so each call looks at all keys of the partition.
func (s *Store) Scan(shard int, from uint64, n int, fn func(key []byte) error) (next uint64, err error) {
	const end = uint64(1) << usage.ScanBits
	sh := &s.shards[shard]
	sh.mu.RLock()
	found := make([]string, 0, min(n, len(sh.m)))
	to := end
	if total := uint64(len(sh.m)); total > uint64(n) {
		to = min(end, from+max(1, end/total*uint64(n)))
	}
	clears, looked := sh.clears, 0
	for k := range sh.m {
		if at := maphash.String(s.seed, k) >> (64 - usage.ScanBits); at >= from && at < to {
			found = append(found, k)
		}
		if looked++; looked%scanBatch > 0 {
			continue
		}
		sh.mu.RUnlock() // as in Range
		sh.mu.RLock()
		if sh.clears != clears {
			break
		}
	}
	sh.mu.RUnlock()
	var key []byte
	for _, k := range found {
		key = append(key[:0], k...)
		if err := fn(key); err != nil {
			return from, err
		}
	}
	if to == end {
		to = 0
	}
	return to, nil
}

// recordHead tells a record from one of mode memory, which would have to begin
// with a key of 256 MiB.
const recordHead = "\xff\xff\xff\x7f"

// Checkpoint emits every entry, many to a record:
//
//	+-------------+----------------------+
//	| ff ff ff 7f | pairs (package pair) |
//	+-------------+----------------------+
func (s *Store) Checkpoint(emit func(rec []byte) error) (committed func() error, err error) {
	return func() error { return nil }, pair.Emit(recordHead, shardCount, s.Range, emit)
}

// Restore takes back one record of a checkpoint.
func (s *Store) Restore(rec []byte) error {
	pairs, ok := bytes.CutPrefix(rec, []byte(recordHead))
	if !ok {
		return fmt.Errorf("map: checkpoint record of %d bytes: it does not begin with %x: damaged, or of another mode", len(rec), recordHead)
	}
	if err := pair.Read(pairs, s.Set); err != nil {
		return fmt.Errorf("map: %w", err)
	}
	return nil
}

// Recovered does nothing: this mode has no background work.
func (s *Store) Recovered() error { return nil }

// slotBytes is what the map spends on one entry: a string, a slice and a control
// byte at the mean load (11/16) of a table that doubles when it is 7/8 full.
const slotBytes = (16 + 24 + 1) * 16 / 11

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
