package serialize

import (
	"runtime"

	"kvmark/storage/warm"
)

// Warm prepares for Gets and Sets of these keys, which are to come soon: see
// package warm. Of a bucket it reads the front, and not which piece is asked for.
func (s *Store) Warm(keys [][]byte) { warm.InTurn(keys, s.warm) }

func (s *Store) warm(keys [][]byte) {
	const front = 128 // bytes
	var (
		numbers [warm.AtOnce]int
		paths   [warm.AtOnce]uint64
		buckets [warm.AtOnce]string
		shards  warm.Shards
		sum     byte
	)
	for i, key := range keys {
		numbers[i], paths[i] = s.place(key)
		shards.Add(uint64(numbers[i]))
	}
	for i := range shards.All() {
		s.shards[i].mu.RLock()
	}
	for i := range keys {
		at, _ := s.shards[numbers[i]].leaf(paths[i])
		buckets[i] = at.bucket
	}
	for i := range shards.All() {
		s.shards[i].mu.RUnlock()
	}
	for _, b := range buckets[:len(keys)] {
		for i := 0; i < min(len(b), front); i += 64 {
			sum += b[i]
		}
	}
	runtime.KeepAlive(sum) // so that it is computed
}
