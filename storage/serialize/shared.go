package serialize

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"kvmark/storage/pair"
	"kvmark/storage/serialize/codec"
)

// With codec shared the entries of a bucket are compressed one by one, each with
// a dictionary that all buckets share (see [codec.Shared]), so that a Get unpacks
// one of them and a Set packs one and copies the others.
//
//	+--------+---------+------------+---------------------+-------+--------+
//	| kind   | entries | raw length | crc32c of the other | index | blocks |
//	| 1 byte | uvarint | uvarint    | fields, 4 bytes LE  |       |        |
//	+--------+---------+------------+---------------------+-------+--------+
//
// The index has for every entry
//
//	+------------------+-----------------+
//	| tag: low byte of | length of block |
//	| the key's hash   | 2 bytes LE      |
//	+------------------+-----------------+
//
// A key that is not there is mostly found out from the tags. These buckets are in
// memory only: a checkpoint has them as buckets of S2, for dictionaries end with
// the store.
const (
	kindShared = 10

	indexEntry = 1 + 2
	// maxShared is the largest raw size of such a bucket; a larger one is of S2.
	maxShared = 48 << 10
)

// sharedBucket is such a bucket, taken apart.
type sharedBucket struct {
	header
	index, blocks []byte
}

// isShared says whether a bucket has a block for each entry.
func isShared[B string | []byte](bucket B) bool { return len(bucket) > 0 && bucket[0] == kindShared }

// parseShared takes a bucket apart and verifies it.
func (c *coder) parseShared(b []byte) (f sharedBucket, err error) {
	if c.shared == nil {
		return f, fmt.Errorf("%w: a bucket of codec shared outside the store that made it", errDamaged)
	}
	if f.header, err = parse(b, maxShared); err != nil {
		return f, err
	}
	front := b[:len(b)-len(f.payload)-crc32.Size]
	if got := crc32.Update(crc32.Checksum(front, c.crc), c.crc, f.payload); got != f.crc {
		return f, fmt.Errorf("%w: checksum %08x, want %08x", errDamaged, got, f.crc)
	}
	index := f.entries * indexEntry
	if f.entries == 0 || len(f.payload) < index {
		return f, fmt.Errorf("%w: %d entries in %d bytes", errDamaged, f.entries, len(b))
	}
	f.index, f.blocks = f.payload[:index], f.payload[index:]
	if _, end := f.bounds(f.entries - 1); end != len(f.blocks) {
		return f, fmt.Errorf("%w: %d bytes of blocks, want %d", errDamaged, len(f.blocks), end)
	}
	return f, nil
}

func tagOf(hash uint64) byte { return byte(hash) }

func (f *sharedBucket) tag(i int) byte { return f.index[i*indexEntry] }

// bounds returns where block i begins and ends.
func (f *sharedBucket) bounds(i int) (from, to int) {
	length := func(i int) int { return int(binary.LittleEndian.Uint16(f.index[i*indexEntry+1:])) }
	for j := range i {
		from += length(j)
	}
	return from, from + length(i)
}

// pair appends pair i to dst.
func (c *coder) pair(dst []byte, f *sharedBucket, i int) (out, key, value []byte, err error) {
	from, to := f.bounds(i)
	block := f.blocks[from:to]
	n, err := codec.DecodedLen(block)
	if err != nil || n > f.raw {
		return dst, nil, nil, fmt.Errorf("%w: length of entry %d", errDamaged, i)
	}
	if out, err = c.shared.Decode(dst, block, n); err != nil {
		return dst, nil, nil, err
	}
	key, value, rest, err := pair.Next(out[len(dst):])
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes behind entry %d", errDamaged, len(rest), i)
	}
	return out, key, value, err
}

// find returns the number of the entry of key and its value, which is in out;
// the number of all entries if it is not there.
func (c *coder) find(buf []byte, f *sharedBucket, tag byte, key []byte) (out []byte, at int, value []byte, err error) {
	for i := range f.entries {
		if f.tag(i) != tag {
			continue
		}
		var k, v []byte
		if buf, k, v, err = c.pair(buf[:0], f, i); err != nil {
			return buf, 0, nil, err
		}
		if bytes.Equal(k, key) {
			return buf, i, v, nil
		}
	}
	return buf, f.entries, nil, nil
}

// appendShared appends a pair to blocks and its entry to index.
func (c *coder) appendShared(index, blocks []byte, tag byte, pair []byte) (outIndex, outBlocks []byte, err error) {
	before := len(blocks)
	blocks, err = c.shared.Encode(blocks, pair)
	return binary.LittleEndian.AppendUint16(append(index, tag), uint16(len(blocks)-before)), blocks, err
}

// encodeShared appends a bucket of raw pairs to dst.
func (c *coder) encodeShared(dst, raw []byte, entries int, sc *scratch) ([]byte, error) {
	sc.index, sc.blocks = sc.index[:0], sc.blocks[:0]
	for rest := raw; len(rest) > 0; {
		before := rest
		var k []byte
		var err error
		if k, _, rest, err = pair.Next(rest); err != nil {
			return dst, err
		}
		sc.index, sc.blocks, err = c.appendShared(sc.index, sc.blocks, tagOf(xxhash.Sum64(k)), before[:len(before)-len(rest)])
		if err != nil {
			return dst, err
		}
	}
	if n := len(sc.index) / indexEntry; n != entries {
		return dst, fmt.Errorf("%w: %d entries, want %d", errDamaged, n, entries)
	}
	start := len(dst)
	dst = append(appendFront(dst, kindShared, entries, len(raw), 0), sc.index...)
	dst = append(dst, sc.blocks...)
	c.sign(dst[start:], len(dst)-start-len(sc.index)-len(sc.blocks)-crc32.Size)
	return dst, nil
}

// sign fills in the checksum, at that place, of a bucket that goes on with more.
func (c *coder) sign(b []byte, at int, more ...[]byte) {
	sum := crc32.Update(crc32.Checksum(b[:at], c.crc), c.crc, b[at+crc32.Size:])
	for _, m := range more {
		sum = crc32.Update(sum, c.crc, m)
	}
	binary.LittleEndian.PutUint32(b[at:], sum)
}

// splice returns a bucket in which entry at, whose pair was so long, is pair; a
// new one if at is the number of entries. Without a pair the entry is left out.
// It does nothing if the bucket has to be made anew.
func (c *coder) splice(f *sharedBucket, at, oldSize int, tag byte, pair []byte, sc *scratch) (bucket string, ok bool, err error) {
	from, to, next := len(f.blocks), len(f.blocks), at
	entries, raw := f.entries, f.raw-oldSize+len(pair)
	if at < f.entries {
		from, to = f.bounds(at)
		next++
		entries--
	}
	sc.index, sc.blocks = sc.index[:0], sc.blocks[:0]
	if pair != nil {
		entries++
		if raw > maxShared {
			return "", false, nil
		}
		if sc.index, sc.blocks, err = c.appendShared(sc.index, sc.blocks, tag, pair); err != nil {
			return "", false, err
		}
	}
	if entries == 0 {
		return "", true, nil
	}
	front := appendFront(sc.tmp[:0], kindShared, entries, raw, 0)
	crcAt := len(front) - crc32.Size
	front = append(front, f.index[:at*indexEntry]...)
	front = append(front, sc.index...)
	front = append(front, f.index[next*indexEntry:]...)
	c.sign(front, crcAt, f.blocks[:from], sc.blocks, f.blocks[to:])
	sc.tmp = front

	var b strings.Builder // it makes room without clearing it
	b.Grow(len(front) + len(f.blocks) - (to - from) + len(sc.blocks))
	b.Write(front)
	b.Write(f.blocks[:from])
	b.Write(sc.blocks)
	b.Write(f.blocks[to:])
	return b.String(), true, nil
}

// decodeShared appends all pairs of a bucket to dst.
func (c *coder) decodeShared(dst, bucket []byte) (raw []byte, entries int, err error) {
	f, err := c.parseShared(bucket)
	if err != nil {
		return dst, 0, err
	}
	out := slices.Grow(dst, f.raw)
	for i := range f.entries {
		if out, _, _, err = c.pair(out, &f, i); err != nil {
			return dst, 0, err
		}
	}
	if len(out)-len(dst) != f.raw {
		return dst, 0, fmt.Errorf("%w: %d bytes of pairs, want %d", errDamaged, len(out)-len(dst), f.raw)
	}
	return out, f.entries, nil
}
