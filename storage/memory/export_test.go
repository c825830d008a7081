package memory

// NewWithTwins returns a store whose keys have no other hashes than the bits of
// mask allow.
func NewWithTwins(mask uint64) *Store {
	s := New()
	s.mask = mask
	return s
}

// NewSharded returns a store of another number of shards, a power of two. If it
// is above warm.MaxShards, Warm is not for it.
func NewSharded(shards int) *Store { return newStore(shards) }
