package memory

import (
	"runtime"

	"kvmark/storage/warm"
)

// Warm prepares for Gets and Sets of these keys, which are to come soon: see
// package warm.
func (s *Store) Warm(keys [][]byte) { warm.InTurn(keys, s.warm) }

func (s *Store) warm(keys [][]byte) {
	var (
		hashes [warm.AtOnce]uint64
		found  [warm.AtOnce]entry
		shards warm.Shards
		sum    int
	)
	for i, key := range keys {
		hashes[i] = s.hash(key)
		shards.Add(s.shardOf(hashes[i]))
	}
	for i := range shards.All() {
		s.shards[i].mu.RLock()
	}
	for i, h := range hashes[:len(keys)] {
		found[i] = s.shards[s.shardOf(h)].m[h]
	}
	for i := range shards.All() {
		s.shards[i].mu.RUnlock()
	}
	for _, e := range found[:len(keys)] {
		if e.first != nil {
			_, v := e.pair()
			sum += len(v)
		}
	}
	runtime.KeepAlive(sum) // so that it is computed
}
