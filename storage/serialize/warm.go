package serialize

import (
	"runtime"

	"kvmark/storage/warm"
)

// Warm prepares for Gets and Sets of these keys, which are to come soon: see
// package warm.
func (s *Store) Warm(keys [][]byte) { warm.InTurn(keys, s.warm) }

func (s *Store) warm(keys [][]byte) {
	const line, most = 64, 2 << 10 // bytes of memory; of a bucket that are read
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
		for at := 0; at < min(len(b), most); at += line {
			sum += b[at]
		}
	}
	runtime.KeepAlive(sum) // so that it is computed
}
