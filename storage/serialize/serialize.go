// Package serialize is the storage mode that keeps entries in memory in small
// buckets, serialized together and compressed. It trades CPU for memory: a Get
// decodes a bucket, a Set encodes one again. How many entries share a bucket
// decides both what it costs and what it gains.
//
// With codec shared each entry is compressed alone, with a dictionary that all
// buckets share (see shared.go); every other codec compresses the whole bucket.
// The other way to make Sets cheap, to let a few of them gather uncompressed
// beside each bucket, does not go together with small buckets: keys are hit at
// random, so to encode a bucket for every T-th Set only, (T-1)/2 entries of each
// must wait on average.
//
// Readers never wait for compression: a bucket is immutable, and replacing it
// is one assignment. A Set allocates the new bucket's bytes and nothing else,
// but for what zip needs (see package codec), and a split now and then.
//
// What that costs (2026-12-01, go1.26.8, linux/amd64, BenchmarkOps: 200,000
// entries, 8 a bucket; keys of 36 bytes; ns; heap bytes an entry):
//
//	         classic: 58 bytes      JSON-like: 512 bytes
//	         Set    Get   heap      Set    Get   heap
//	deflate  19200  9200    33    88200  41400    250
//	zip      25700 14300    48    90400  52700    263
//	zstd     19500  4800    34    78800  17100    239
//	s2        2500   770    36    18900   5300    315
//	shared    2600   450    41     8500   1700    295
//	memory     290   100   120      700    180    600
//
// With deflate, 4 entries a bucket took a third less time and 64 bytes instead of
// 46 of classic data, 16 took a third more and 38 bytes; levels above 1 took more
// time and left more of such small buckets. So 8 and 1 are the defaults.
//
// Keys are placed by xxhash, which is the same in every process, so that a
// checkpoint's buckets go back as they are. It is not keyed: somebody who
// chooses keys that collide in 64 bits makes one bucket slow.
package serialize

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"

	"kvmark/storage/pair"
	"kvmark/storage/serialize/codec"
	"kvmark/storage/serialize/limit"
	"kvmark/storage/usage"
)

const (
	// DefaultBucketEntries is the mean number of entries in a bucket.
	DefaultBucketEntries = 8
	// splitBytes is the raw size above which a bucket of several entries is
	// split even if it has few, so that a big value is alone in its bucket and
	// its neighbours do not pay for it.
	splitBytes = 256 << 10
	// keepScratch is the largest buffer that is kept for the next operation.
	keepScratch = 1 << 20
	// recordBytes is the size from which a checkpoint record is handed over.
	recordBytes = 64 << 10
)

// Options configure a [Store]. The zero value is good.
type Options struct {
	Codec         string // empty = deflate; see package codec
	Level         int    // 0 = the codec's default
	BucketEntries int    // mean number of entries in a bucket; 0 = DefaultBucketEntries
}

// Store keeps all entries in the heap, compressed.
type Store struct {
	coder coder
	plain coder  // of checkpoints: no bucket of it needs what is in this store
	name  string // of the codec
	level int
	// split is the number of entries above which a bucket is split. Buckets
	// between a half and all of it, halved by chance, are ln 2 full on average.
	split   int
	scratch sync.Pool // of *scratch
	shards  [shardCount]shard
}

// scratch is the memory of one operation.
type scratch struct {
	raw  []byte // a decoded bucket
	next []byte // what becomes of it
	tmp  []byte // the encoded bucket

	index, blocks []byte // of a bucket of codec shared
}

// New returns an empty store.
func New(o Options) (*Store, error) {
	if o.BucketEntries == 0 {
		o.BucketEntries = DefaultBucketEntries
	}
	if o.BucketEntries < 1 || o.BucketEntries > limit.MaxBucketEntries {
		return nil, fmt.Errorf("serialize: %d entries a bucket is out of range (use 1..%d)", o.BucketEntries, limit.MaxBucketEntries)
	}
	c, err := newCoder(o.Codec, o.Level)
	if err != nil {
		return nil, fmt.Errorf("serialize: %w", err)
	}
	if o.Codec == "" {
		o.Codec = codec.Default
	}
	plain := c
	plain.shared = nil
	s := &Store{coder: c, plain: plain, name: o.Codec, level: o.Level, split: max(1, (o.BucketEntries*13+4)/9)}
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

func (s *Store) borrow() *scratch { return s.scratch.Get().(*scratch) }

func (s *Store) giveBack(sc *scratch) {
	if cap(sc.raw)+cap(sc.next)+cap(sc.tmp)+cap(sc.index)+cap(sc.blocks) <= keepScratch {
		s.scratch.Put(sc)
	}
}

// place returns the shard and the path of a key.
func (s *Store) place(key []byte) (shard int, path uint64) {
	h := xxhash.Sum64(key)
	return int(h >> pathBits), h & (pathEnd - 1)
}

// decode appends the pairs of a bucket to dst. Its error names the bucket.
func (s *Store) decode(dst []byte, bucket string, shard int, path uint64, depth int) ([]byte, int, error) {
	raw, n, err := s.coder.decode(dst, bytesOf(bucket), maxRaw)
	if err != nil {
		return dst, 0, bucketError(shard, path, depth, err)
	}
	return raw, n, nil
}

func bucketError(shard int, path uint64, depth int, err error) error {
	bits := ""
	if depth > 0 {
		bits = fmt.Sprintf("%0*b", depth, path>>(pathBits-depth))
	}
	return fmt.Errorf("serialize: bucket %q of shard %d: %w", bits, shard, err)
}

// lookup returns the value of key, which aliases scratch memory.
func (s *Store) lookup(key []byte, sc *scratch) (value []byte, ok bool, err error) {
	i, path := s.place(key)
	bucket, depth := s.shards[i].bucket(path)
	fail := func(err error) ([]byte, bool, error) {
		return nil, false, bucketError(i, path, depth, err)
	}
	if isShared(bucket) {
		f, err := s.coder.parseShared(bytesOf(bucket))
		if err != nil {
			return fail(err)
		}
		var at int
		if sc.raw, at, value, err = s.coder.find(sc.raw[:0], &f, tagOf(path), key); err != nil {
			return fail(err)
		}
		return value, at < f.entries, nil
	}
	if sc.raw, _, err = s.coder.decode(sc.raw[:0], bytesOf(bucket), maxRaw); err != nil {
		return fail(err)
	}
	for rest := sc.raw; len(rest) > 0; {
		var k, v []byte
		if k, v, rest, err = pair.Next(rest); err != nil {
			return fail(err)
		}
		if bytes.Equal(k, key) {
			return v, true, nil
		}
	}
	return nil, false, nil
}

// Get appends the value of key to dst. An error names the damaged bucket.
func (s *Store) Get(dst, key []byte) ([]byte, bool, error) {
	sc := s.borrow()
	defer s.giveBack(sc)
	v, ok, err := s.lookup(key, sc)
	return append(dst, v...), ok, err
}

// ValueLen returns the length of the value of key, which has to be decoded.
func (s *Store) ValueLen(key []byte) (int, bool, error) {
	sc := s.borrow()
	defer s.giveBack(sc)
	v, ok, err := s.lookup(key, sc)
	return len(v), ok, err
}

// entry is one pair to store.
type entry struct {
	shard      int
	path       uint64
	key, value []byte
}

// Set stores key and value. It fails if they do not fit into a bucket (128 MiB)
// or if the bucket that they belong to is damaged.
func (s *Store) Set(key, value []byte) error {
	shard, path := s.place(key)
	one := [1]entry{{shard, path, key, value}}
	_, err := s.put(one[:])
	return err
}

// put stores those of the entries that belong to the bucket of the first one,
// and returns the others. Keys must differ.
func (s *Store) put(es []entry) (others []entry, err error) {
	first := es[0]
	sh := &s.shards[first.shard]
	sc := s.borrow()
	defer s.giveBack(sc)
	sh.write.Lock()
	defer sh.write.Unlock()

	at, depth := sh.leaf(first.path)
	old := at.bucket
	mine := 0
	for i, e := range es {
		if e.shard == first.shard && samePath(e.path, first.path, depth) {
			es[mine], es[i] = es[i], es[mine]
			mine++
		}
	}
	es, others = es[:mine], es[mine:]

	if len(es) == 1 && isShared(old) {
		done, err := s.putShared(sh, at, depth, es[0], sc)
		if done || err != nil {
			return others, err
		}
	}
	var n int
	if sc.raw, n, err = s.decode(sc.raw[:0], old, first.shard, first.path, depth); err != nil {
		return others, err
	}
	var by size
	sc.next = sc.next[:0]
	for rest := sc.raw; len(rest) > 0; {
		before := rest
		var k, v []byte
		if k, v, rest, err = pair.Next(rest); err != nil {
			return others, bucketError(first.shard, first.path, depth, err)
		}
		if contains(es, k) {
			by.entries--
			by.keyBytes -= int64(len(k))
			by.valueBytes -= int64(len(v))
			continue
		}
		sc.next = append(sc.next, before[:len(before)-len(rest)]...)
	}
	for _, e := range es {
		sc.next = pair.Append(sc.next, e.key, e.value)
		by.entries++
		by.keyBytes += int64(len(e.key))
		by.valueBytes += int64(len(e.value))
	}

	built, grown, err := s.build(sc.next, n+int(by.entries), depth, sc)
	if err != nil {
		return others, bucketError(first.shard, first.path, depth, err)
	}
	by.add(grown, 1)
	by.add(sizeOf(old), -1)
	sh.replace(at, built, by)
	return others, nil
}

// putShared stores an entry in a bucket of codec shared, if that can be done
// without making the bucket anew. REQUIRES: write of the shard held.
func (s *Store) putShared(sh *shard, slotAt *slot, depth int, e entry, sc *scratch) (done bool, err error) {
	fail := func(err error) (bool, error) { return false, bucketError(e.shard, e.path, depth, err) }
	f, err := s.coder.parseShared(bytesOf(slotAt.bucket))
	if err != nil {
		return fail(err)
	}
	var at, oldSize int
	var old []byte
	if sc.raw, at, old, err = s.coder.find(sc.raw[:0], &f, tagOf(e.path), e.key); err != nil {
		return fail(err)
	}
	by := size{valueBytes: int64(len(e.value) - len(old))}
	if at < f.entries {
		oldSize = len(sc.raw)
	} else {
		if f.entries >= s.split && depth < pathBits {
			return false, nil
		}
		by.entries, by.keyBytes = 1, int64(len(e.key))
	}
	sc.next = pair.Append(sc.next[:0], e.key, e.value)
	bucket, ok, err := s.coder.splice(&f, at, oldSize, tagOf(e.path), sc.next, sc)
	if err != nil {
		return fail(err)
	}
	if !ok {
		return false, nil
	}
	by.rawBytes = int64(len(sc.next) - oldSize)
	by.storedBytes = int64(len(bucket) - len(slotAt.bucket))
	sh.replace(slotAt, slot{bucket: bucket}, by)
	return true, nil
}

func contains(es []entry, key []byte) bool {
	for i := range es {
		if bytes.Equal(es[i].key, key) {
			return true
		}
	}
	return false
}

// build makes a bucket of pairs, or a node with several when they are too many.
func (s *Store) build(pairs []byte, n, depth int, sc *scratch) (slot, size, error) {
	if (n <= s.split && (n <= 1 || len(pairs) <= splitBytes)) || depth == pathBits {
		b, err := s.coder.encode(pairs, n, sc)
		return slot{bucket: b}, sizeOf(b), err
	}
	var half [2]*scratch
	var count [2]int
	for i := range half {
		half[i] = s.borrow()
		defer s.giveBack(half[i])
		half[i].next = half[i].next[:0]
	}
	for rest := pairs; len(rest) > 0; {
		before := rest
		k, _, after, err := pair.Next(rest)
		if err != nil {
			return slot{}, size{}, err
		}
		rest = after
		_, path := s.place(k)
		i := pathBit(path, depth)
		half[i].next = append(half[i].next, before[:len(before)-len(rest)]...)
		count[i]++
	}
	inner := new(node)
	sum := size{nodes: 1}
	for i := range half {
		child, z, err := s.build(half[i].next, count[i], depth+1, half[i])
		if err != nil {
			return slot{}, size{}, err
		}
		inner.child[i] = child
		sum.add(z, 1)
	}
	return slot{node: inner}, sum, nil
}

// sizeOf returns what one bucket adds to the sizes that building changes.
func sizeOf(bucket string) size {
	if bucket == "" {
		return size{}
	}
	// The header is the store's own; if it is damaged, decoding says so.
	h, _ := parse(bytesOf(bucket), maxRaw)
	return size{buckets: 1, rawBytes: int64(h.raw), storedBytes: int64(len(bucket))}
}

// Delete removes key and reports whether it was there.
func (s *Store) Delete(key []byte) (bool, error) {
	i, path := s.place(key)
	sh := &s.shards[i]
	sc := s.borrow()
	defer s.giveBack(sc)
	sh.write.Lock()
	defer sh.write.Unlock()

	var way [pathBits + 1]*slot // from the root to the leaf
	depth := 0
	for way[0] = &sh.root; way[depth].node != nil; depth++ {
		way[depth+1] = &way[depth].node.child[pathBit(path, depth)]
	}
	old := way[depth].bucket
	// sibling is the neighbour to take in if there are only so many entries: both
	// together must be at most half of what would be split again.
	sibling := func(entries, raw int) (string, header, bool) {
		if depth == 0 {
			return "", header{}, false
		}
		side := &way[depth-1].node.child[1-pathBit(path, depth-1)]
		h, err := parse(bytesOf(side.bucket), maxRaw)
		ok := side.node == nil && err == nil && entries+h.entries <= s.split/2 && raw+h.raw <= splitBytes/2
		return side.bucket, h, ok // a damaged one stays where it is
	}
	if isShared(old) {
		f, err := s.coder.parseShared(bytesOf(old))
		if err != nil {
			return false, bucketError(i, path, depth, err)
		}
		var at int
		var value []byte
		if sc.raw, at, value, err = s.coder.find(sc.raw[:0], &f, tagOf(path), key); err != nil {
			return false, bucketError(i, path, depth, err)
		}
		if at == f.entries {
			return false, nil
		}
		rawSize := len(sc.raw)
		if _, _, ok := sibling(f.entries-1, f.raw-rawSize); !ok && f.entries > 1 {
			bucket, _, err := s.coder.splice(&f, at, rawSize, 0, nil, sc)
			if err != nil {
				return false, bucketError(i, path, depth, err)
			}
			sh.replace(way[depth], slot{bucket: bucket}, size{
				entries: -1, keyBytes: -int64(len(key)), valueBytes: -int64(len(value)),
				rawBytes: -int64(rawSize), storedBytes: int64(len(bucket) - len(old)),
			})
			return true, nil
		}
	}
	var n int
	var err error
	if sc.raw, n, err = s.decode(sc.raw[:0], old, i, path, depth); err != nil {
		return false, err
	}
	var by size
	sc.next = sc.next[:0]
	for rest := sc.raw; len(rest) > 0; {
		before := rest
		var k, v []byte
		if k, v, rest, err = pair.Next(rest); err != nil {
			return false, bucketError(i, path, depth, err)
		}
		if bytes.Equal(k, key) {
			by = size{entries: -1, keyBytes: -int64(len(k)), valueBytes: -int64(len(v))}
			continue
		}
		sc.next = append(sc.next, before[:len(before)-len(rest)]...)
	}
	if by.entries == 0 {
		return false, nil
	}
	n--
	by.add(sizeOf(old), -1)

	for {
		bucket, h, ok := sibling(n, len(sc.next))
		if !ok {
			break
		}
		// The sibling's path differs in its last bit.
		if sc.next, _, err = s.decode(sc.next, bucket, i, path^1<<(pathBits-depth), depth); err != nil {
			break
		}
		n += h.entries
		by.add(sizeOf(bucket), -1)
		by.nodes--
		depth--
	}
	b, err := s.coder.encode(sc.next, n, sc)
	if err != nil {
		return false, bucketError(i, path, depth, err)
	}
	by.add(sizeOf(b), 1)
	sh.replace(way[depth], slot{bucket: b}, by)
	return true, nil
}

// Clear removes everything. Shards are emptied one after the other.
func (s *Store) Clear() error {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.write.Lock()
		sh.mu.Lock()
		sh.root, sh.size = slot{}, size{}
		sh.mu.Unlock()
		sh.write.Unlock()
	}
	return nil
}

// Count returns the number of entries.
func (s *Store) Count() int64 { return s.size().entries }

func (s *Store) size() (sum size) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		sum.add(sh.size, 1)
		sh.mu.RUnlock()
	}
	return sum
}

// Shards returns the number of partitions for Range and Keys.
func (s *Store) Shards() int { return shardCount }

// Range calls fn with every entry of one partition; key and value are valid
// during the call. No lock is held meanwhile. It ends at a damaged bucket.
func (s *Store) Range(shard int, fn func(key, value []byte) error) error {
	sc := s.borrow()
	defer s.giveBack(sc)
	return s.buckets(shard, func(bucket string, path uint64, depth int) error {
		return s.entries(sc, bucket, shard, path, depth, fn)
	})
}

// entries calls fn with the entries of a bucket whose hashes are not before
// path: it may have been merged with what came before it.
func (s *Store) entries(sc *scratch, bucket string, shard int, path uint64, depth int, fn func(key, value []byte) error) (err error) {
	if sc.raw, _, err = s.decode(sc.raw[:0], bucket, shard, path, depth); err != nil {
		return err
	}
	for rest := sc.raw; len(rest) > 0; {
		var k, v []byte
		if k, v, rest, err = pair.Next(rest); err != nil {
			return bucketError(shard, path, depth, err)
		}
		if _, p := s.place(k); p < path {
			continue
		}
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return nil
}

// buckets calls fn with the buckets of a shard in the order of their paths.
// Those of them that lie before path have been seen already.
func (s *Store) buckets(shard int, fn func(bucket string, path uint64, depth int) error) error {
	for path := uint64(0); path < pathEnd; {
		bucket, depth := s.shards[shard].bucket(path)
		if bucket != "" {
			if err := fn(bucket, path, depth); err != nil {
				return err
			}
		}
		path = afterPath(path, depth)
	}
	return nil
}

// Scan calls fn with some n keys of one partition in the order of their hashes,
// a bucket at a time: a position is the upper bits of a path.
func (s *Store) Scan(shard int, from uint64, n int, fn func(key []byte) error) (next uint64, err error) {
	const below = pathBits - usage.ScanBits // bits of a path that a position has not
	sc := s.borrow()
	defer s.giveBack(sc)
	seen := 0
	for path := from << below; path < pathEnd; {
		if seen >= n && path&(1<<below-1) == 0 {
			return path >> below, nil
		}
		bucket, depth := s.shards[shard].bucket(path)
		if bucket != "" {
			err := s.entries(sc, bucket, shard, path, depth, func(key, _ []byte) error {
				seen++
				return fn(key)
			})
			if err != nil {
				return from, err
			}
		}
		path = afterPath(path, depth)
	}
	return 0, nil
}

// Keys is Range without the values.
func (s *Store) Keys(shard int, fn func(key []byte) error) error {
	return s.Range(shard, func(key, _ []byte) error { return fn(key) })
}

// Checkpoint emits the buckets as they are stored, many to a record; those of
// codec shared as buckets of S2.
//
//	+---------+--------+
//	| length  | bucket |   repeated
//	| uvarint |        |
//	+---------+--------+
//
// A bucket that is merged meanwhile may bring entries again, never older ones.
func (s *Store) Checkpoint(emit func(rec []byte) error) (committed func() error, err error) {
	rec := make([]byte, 0, 2*recordBytes)
	sc := s.borrow()
	defer s.giveBack(sc)
	for shard := range s.shards {
		err := s.buckets(shard, func(bucket string, path uint64, depth int) error {
			if isShared(bucket) {
				var n int
				var err error
				if sc.raw, n, err = s.decode(sc.raw[:0], bucket, shard, path, depth); err != nil {
					return err
				}
				if bucket, err = s.plain.encode(sc.raw, n, sc); err != nil {
					return bucketError(shard, path, depth, err)
				}
			}
			rec = append(binary.AppendUvarint(rec, uint64(len(bucket))), bucket...)
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

// Restore takes back one record of a checkpoint, of this codec or another.
func (s *Store) Restore(rec []byte) error {
	sc := s.borrow()
	defer s.giveBack(sc)
	var es []entry
	for rest := rec; len(rest) > 0; {
		at := len(rec) - len(rest)
		fail := func(err error) error {
			return fmt.Errorf("serialize: checkpoint record of %d bytes, byte %d: %w", len(rec), at, err)
		}
		n, w := binary.Uvarint(rest)
		if w <= 0 || n > uint64(len(rest)-w) {
			return fail(fmt.Errorf("%w: length of a bucket", errDamaged))
		}
		bucket := rest[w : w+int(n)]
		rest = rest[w+int(n):]
		var err error
		if sc.raw, _, err = s.plain.decode(sc.raw[:0], bucket, maxRaw); err != nil {
			return fail(err)
		}
		es = es[:0]
		for pairs := sc.raw; len(pairs) > 0; {
			var k, v []byte
			if k, v, pairs, err = pair.Next(pairs); err != nil {
				return fail(err)
			}
			shard, path := s.place(k)
			es = append(es, entry{shard, path, k, v})
		}
		// Entries of one bucket mostly belong to one bucket here, too.
		for others := es; len(others) > 0; {
			if others, err = s.put(others); err != nil {
				return err
			}
		}
	}
	return nil
}

// Recovered does nothing: this mode has no background work.
func (s *Store) Recovered() error { return nil }

// Stats returns sizes. StoredBytes are those of the buckets, IndexBytes those
// of the tries.
func (s *Store) Stats() usage.Stats {
	z := s.size()
	ratio := 1.0
	if z.storedBytes > 0 {
		ratio = float64(z.rawBytes) / float64(z.storedBytes)
	}
	perBucket := 0.0
	if z.buckets > 0 {
		perBucket = float64(z.entries) / float64(z.buckets)
	}
	return usage.Stats{
		Keys: z.entries, KeyBytes: z.keyBytes, ValueBytes: z.valueBytes,
		StoredBytes: z.storedBytes,
		IndexBytes:  z.nodes*nodeBytes + shardCount*slotBytes,
		Buckets:     z.buckets,
		Extra: []usage.Field{
			{Name: "raw_bytes", Value: strconv.FormatInt(z.rawBytes, 10)},
			{Name: "bucket_ratio", Value: strconv.FormatFloat(ratio, 'f', 3, 64)},
			{Name: "bucket_mean_entries", Value: strconv.FormatFloat(perBucket, 'f', 2, 64)},
		},
	}
}

// Close releases nothing: the heap does.
func (s *Store) Close() error { return nil }
