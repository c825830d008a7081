package serialize

import (
	"sync"
	"unsafe"
)

// A shard finds its buckets by the bits of a key's hash, in a binary trie:
//
//	hash   | shard | bits of the path, one a level |
//	        8 bits   56 bits
//
//	root -+- 0 -> bucket          (all keys of the shard whose path starts with 0)
//	      +- 1 -+- 0 -> bucket    (... with 10)
//	            +- 1 -> bucket    (... with 11)
//
// A bucket that has grown too big becomes a node with two buckets, and two
// small siblings become one bucket again: never more than one path changes at a
// time, so there is no moment at which everything is moved. A big value gets
// a bucket for itself by the same means.
//
// A bucket is the interval of hashes that share its path, so a scan is a
// cursor in the space of hashes, and stays right whatever splits and merges.
const (
	shardBits  = 8
	shardCount = 1 << shardBits
	pathBits   = 64 - shardBits
	pathEnd    = uint64(1) << pathBits
)

// slot is where a bucket hangs: a leaf when node is nil.
type slot struct {
	node   *node
	bucket string
}

type node struct{ child [2]slot }

// Sizes for the estimate of what finds the buckets.
const (
	nodeBytes = int64(unsafe.Sizeof(node{}))
	slotBytes = int64(unsafe.Sizeof(slot{}))
)

// size is what buckets add up to.
type size struct {
	entries, keyBytes, valueBytes  int64
	buckets, rawBytes, storedBytes int64
	nodes                          int64
}

func (z *size) add(o size, sign int64) {
	z.entries += sign * o.entries
	z.keyBytes += sign * o.keyBytes
	z.valueBytes += sign * o.valueBytes
	z.buckets += sign * o.buckets
	z.rawBytes += sign * o.rawBytes
	z.storedBytes += sign * o.storedBytes
	z.nodes += sign * o.nodes
}

// shard is padded to two cache lines and more, away from its neighbour's locks.
type shard struct {
	// write is held by the one writer of the shard, all through decoding and
	// compressing.
	write sync.Mutex

	// mu is held for reading to walk the trie and for writing to hang a bucket
	// into it: never while anything is decoded or compressed.
	mu   sync.RWMutex
	root slot
	size size
	_    [64]byte
}

// leaf returns the slot of a path and its depth. REQUIRES: write or mu held.
func (sh *shard) leaf(path uint64) (*slot, int) {
	s, depth := &sh.root, 0
	for s.node != nil {
		s = &s.node.child[pathBit(path, depth)]
		depth++
	}
	return s, depth
}

// bucket returns the bucket of a path and its depth.
func (sh *shard) bucket(path uint64) (string, int) {
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	s, depth := sh.leaf(path)
	return s.bucket, depth
}

// replace hangs new where old was; by is what the sizes change by.
// REQUIRES: write held.
func (sh *shard) replace(at *slot, with slot, by size) {
	sh.mu.Lock()
	*at = with
	sh.size.add(by, 1)
	sh.mu.Unlock()
}

func pathBit(path uint64, depth int) uint64 { return path >> (pathBits - 1 - depth) & 1 }

// samePath says whether two paths share their first depth bits.
func samePath(a, b uint64, depth int) bool {
	return (a^b)>>(pathBits-depth) == 0
}

// afterPath returns the first path behind the bucket that path leads to.
func afterPath(path uint64, depth int) uint64 {
	width := pathBits - depth
	return (path>>width + 1) << width
}
