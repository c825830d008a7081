package memory

import (
	"math/bits"
	"runtime"
)

// warmAtOnce is how many keys Warm works on at a time. What it keeps of them is
// on the stack.
const warmAtOnce = 32

// Warm brings what Get and Set of these keys will read into the processor's
// cache; it is for a server that knows what it is about to be asked. A Get of
// one among a million keys spends most of its time waiting for memory, twice in
// a row: for the map's slot, and for the entry. A processor waits for the memory
// of several lookups at once if one is right behind the other and no lock, which
// is a barrier, stands between them:
//
//	hash the keys
//	take the locks of their shards
//	look all of them up
//	give the locks back
//	read the entries
func (s *Store) Warm(keys [][]byte) {
	for len(keys) > 0 {
		n := min(len(keys), warmAtOnce)
		s.warmSome(keys[:n])
		keys = keys[n:]
	}
}

func (s *Store) warmSome(keys [][]byte) {
	var (
		hashes [warmAtOnce]uint64
		found  [warmAtOnce]entry
		wanted [shardCount / 64]uint64
		sum    int
	)
	for i, key := range keys {
		hashes[i] = s.hash(key)
		shard := s.shardOf(hashes[i])
		wanted[shard/64] |= 1 << (shard % 64)
	}
	// In ascending order, though nobody else holds one lock and waits for another.
	for w, b := range wanted {
		for ; b != 0; b &= b - 1 {
			s.shards[w*64+bits.TrailingZeros64(b)].mu.RLock()
		}
	}
	for i, h := range hashes[:len(keys)] {
		found[i] = s.shards[s.shardOf(h)].m[h]
	}
	for w, b := range wanted {
		for ; b != 0; b &= b - 1 {
			s.shards[w*64+bits.TrailingZeros64(b)].mu.RUnlock()
		}
	}
	for _, e := range found[:len(keys)] {
		if e.first != nil {
			_, v := e.pair()
			sum += len(v)
		}
	}
	runtime.KeepAlive(sum) // so that it is computed
}
