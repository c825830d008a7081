// Package warm is for stores that are told what they are about to be asked, so that what a Get or Set reads is in the processor's
// cache by then. A lookup among millions of keys spends most of its time waiting for memory, and a processor waits for the
// memory of several at once if one is right behind the other and no lock, which is a barrier, stands between them:
//
//	find the shards of the keys
//	take the locks of all these shards
//	look all keys up
//	give the locks back
//	read what was found
package warm

import (
	"iter"
	"math/bits"
)

// AtOnce is for how many keys that is done at a time.
const AtOnce = 32

// InTurn calls fn with AtOnce of the keys at a time.
func InTurn(keys [][]byte, fn func(keys [][]byte)) {
	for len(keys) > 0 {
		n := min(len(keys), AtOnce)
		fn(keys[:n])
		keys = keys[n:]
	}
}

// MaxShards is how many shards a store has at most.
const MaxShards = 256

// Shards is a set of them. To lock its members in ascending order cannot deadlock with those who lock one at a time.
type Shards [MaxShards / 64]uint64

// Add adds a shard to the set.
func (s *Shards) Add(i uint64) { s[i/64] |= 1 << (i % 64) }

// All yields the members in ascending order.
func (s *Shards) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for w, b := range s {
			for ; b != 0; b &= b - 1 {
				if !yield(w*64 + bits.TrailingZeros64(b)) {
					return
				}
			}
		}
	}
}
