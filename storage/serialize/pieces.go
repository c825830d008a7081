package serialize

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/cespare/xxhash/v2"

	"kvmark/storage/pair"
	"kvmark/storage/serialize/codec"
)

// A bucket of kind 6 is for entries that are big enough to be worth finding one of them without the others. Each is a piece
// of its own, compressed with the bytes of the first one known and with the codes that all have in common (see
// [codec.Pieces]).
//
//	+--------+---------+------------+-------------+---------------------+-------+------+--------+
//	| kind   | entries | raw length | head length | crc32c of all that  | index | head | pieces |
//	| 1 byte | uvarint | uvarint    | uvarint     | is not pieces, 4 LE |       |      |        |
//	+--------+---------+------------+-------------+---------------------+-------+------+--------+
//
// That is how it is written to a checkpoint. In memory it is of kind 7: the head is left out, and in place of its length
// is the number of its code.
//
// The index has for every entry
//
//	+------------------+-------------------------+-----------------+
//	| tag: low byte of | crc32c of the raw pair, | length of piece |
//	| the key's hash   | low 3 bytes LE          | 2 bytes LE      |
//	+------------------+-------------------------+-----------------+
//
// A key that is not there is mostly found out from the tags, and one that is there from two pieces: its own and the first.
// A Set compresses one piece and copies the others, unless it changes the first.
const (
	kindPieces   = 6
	kindInMemory = 7

	indexEntry = 1 + 3 + 2
	// piecesFrom is the raw size from which a bucket is in pieces. Below it the index is a large part of it, and decoding
	// all of it is cheap. With it buckets of the classic data (100 bytes an entry) are in pieces, too: that takes a fifth
	// more memory and a third of the time of a Set, a quarter of that of a Get.
	piecesFrom = 256
)

// piecesFront is the front of such a bucket.
type piecesFront struct {
	header
	index, pieces []byte
	code          *codec.Code
	number        int // of code, in memory
}

// isPieces says whether a bucket is in pieces.
func isPieces(bucket []byte) bool {
	return len(bucket) > 0 && (bucket[0] == kindPieces || bucket[0] == kindInMemory)
}

// parsePieces takes a bucket in pieces apart and checks its front.
func (c *coder) parsePieces(b []byte, maxRaw int) (piecesFront, error) {
	h, err := parse(b, min(maxRaw, codec.MaxPieces))
	if err != nil {
		return piecesFront{}, err
	}
	f := piecesFront{header: h}
	number, n := binary.Uvarint(h.payload)
	if n <= 0 || number > codec.MaxPieces {
		return f, fmt.Errorf("%w: length or number of the head", errDamaged)
	}
	head := int(number)
	if h.kind == kindInMemory {
		head, f.number = 0, int(number)
	}
	crcAt := len(b) - len(h.payload) + n
	rest := b[crcAt:]
	index := h.entries * indexEntry
	if len(rest) < crc32.Size+index+head {
		return f, fmt.Errorf("%w: %d entries in %d bytes", errDamaged, h.entries, len(b))
	}
	f.crc = binary.LittleEndian.Uint32(rest)
	rest = rest[crc32.Size:]
	front := rest[:index+head]
	if got := c.frontCRC(b[:crcAt], front); got != f.crc {
		return f, fmt.Errorf("%w: checksum of the front %08x, want %08x", errDamaged, got, f.crc)
	}
	f.index, f.pieces = front[:index], rest[len(front):]
	if h.kind == kindInMemory {
		f.code = c.pieces.Code(f.number)
	} else if f.code, err = c.pieces.Parse(front[index:]); err != nil {
		return f, err
	}
	if f.code == nil {
		return f, fmt.Errorf("%w: there is no code %d", errDamaged, f.number)
	}
	sum := 0
	for i := range f.entries {
		sum += f.pieceLen(i)
	}
	if f.entries == 0 || sum != len(f.pieces) {
		return f, fmt.Errorf("%w: %d bytes of pieces, want %d", errDamaged, len(f.pieces), sum)
	}
	return f, nil
}

func (c *coder) frontCRC(before, behind []byte) uint32 {
	return crc32.Update(crc32.Checksum(before, c.crc), c.crc, behind)
}

func (f *piecesFront) tag(i int) byte { return f.index[i*indexEntry] }

// hasTag says whether a key with that tag may be there.
func (f *piecesFront) hasTag(tag byte) bool {
	for i := range f.entries {
		if f.tag(i) == tag {
			return true
		}
	}
	return false
}

// sum24 is the checksum of a pair, at bit 8 and above.
func (f *piecesFront) sum24(i int) uint32 {
	return binary.LittleEndian.Uint32(f.index[i*indexEntry:]) &^ 0xff
}

func (f *piecesFront) pieceLen(i int) int {
	return int(binary.LittleEndian.Uint16(f.index[i*indexEntry+4:]))
}

// putIndex writes an entry of an index.
func (c *coder) putIndex(at []byte, tag byte, raw []byte, piece int) {
	binary.LittleEndian.PutUint32(at, crc32.Checksum(raw, c.crc)<<8|uint32(tag))
	binary.LittleEndian.PutUint16(at[4:], uint16(piece))
}

func tagOf(hash uint64) byte { return byte(hash) }

// piece returns the bytes of piece i and where they begin.
func (f *piecesFront) piece(i int) (at int, piece []byte) {
	for j := range i {
		at += f.pieceLen(j)
	}
	return at, f.pieces[at : at+f.pieceLen(i)]
}

// pair appends pair i to dst, where the first one begins at first, and checks it.
func (c *coder) pair(dst []byte, f *piecesFront, first, i int) ([]byte, error) {
	_, piece := f.piece(i)
	out, err := c.pieces.Decode(dst, first, f.code, piece, f.raw)
	if err != nil {
		return dst, err
	}
	if got := crc32.Checksum(out[len(dst):], c.crc) << 8; got != f.sum24(i) {
		return dst, fmt.Errorf("%w: checksum of entry %d %06x, want %06x", errDamaged, i, got>>8, f.sum24(i)>>8)
	}
	return out, nil
}

// found is where an entry is in a bucket in pieces.
type found struct {
	at         int // number of the entry; that of all entries if it is not there
	key, value []byte
	size       int // of the pair
}

// find looks for key. The pair of the first entry is buf[:first] afterwards if withFirst, or if it was needed.
func (c *coder) find(buf []byte, f *piecesFront, tag byte, key []byte, withFirst bool) (out []byte, first int, it found, err error) {
	it.at = f.entries
	if withFirst {
		if buf, err = c.pair(buf, f, 0, 0); err != nil {
			return buf, 0, it, err
		}
		first = len(buf)
	}
	for i := range f.entries {
		if f.tag(i) != tag {
			continue
		}
		if first == 0 {
			if buf, err = c.pair(buf, f, 0, 0); err != nil {
				return buf, 0, it, err
			}
			first = len(buf)
		}
		raw := buf[:first]
		if i > 0 {
			if buf, err = c.pair(buf[:first], f, 0, i); err != nil {
				return buf, first, it, err
			}
			raw = buf[first:]
		}
		k, v, rest, err := pair.Next(raw)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%w: %d bytes behind entry %d", errDamaged, len(rest), i)
		}
		if err != nil {
			return buf, first, it, err
		}
		if bytes.Equal(k, key) {
			return buf, first, found{i, k, v, len(raw)}, nil
		}
	}
	return buf, first, it, nil
}

// encodePieces appends a bucket in pieces to dst.
func (c *coder) encodePieces(dst, raw []byte, entries int, sc *scratch) ([]byte, error) {
	sc.ends = sc.ends[:0]
	for rest := raw; len(rest) > 0; {
		var err error
		if _, _, rest, err = pair.Next(rest); err != nil {
			return dst, err
		}
		sc.ends = append(sc.ends, len(raw)-len(rest))
	}
	var number int
	sc.pieces, sc.lens, number = c.pieces.Encode(sc.pieces[:0], sc.lens[:0], raw, sc.ends)
	start := len(dst)
	dst, index := appendFront(dst, kindInMemory, entries, len(raw), number)
	from := 0
	for i, end := range sc.ends {
		k, _, _, err := pair.Next(raw[from:end])
		if err != nil {
			return dst, err
		}
		c.putIndex(dst[index+i*indexEntry:], tagOf(xxhash.Sum64(k)), raw[from:end], sc.lens[i])
		from = end
	}
	c.sign(dst[start:], index-start)
	return append(dst, sc.pieces...), nil
}

// portable appends a bucket to dst as it is written to a checkpoint.
func (c *coder) portable(dst, bucket []byte) ([]byte, error) {
	if !isPieces(bucket) {
		return append(dst, bucket...), nil
	}
	f, err := c.parsePieces(bucket, maxRaw)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	dst, index := appendFront(dst, kindPieces, f.entries, f.raw, len(f.code.Head()))
	copy(dst[index:], f.index)
	dst = append(dst, f.code.Head()...)
	c.sign(dst[start:], index-start)
	return append(dst, f.pieces...), nil
}

// appendFront appends what is before the head, with an index and a checksum of zeros. head is its length or number.
func appendFront(dst []byte, kind byte, entries, raw, head int) (out []byte, index int) {
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(entries))
	dst = binary.AppendUvarint(dst, uint64(raw))
	dst = binary.AppendUvarint(dst, uint64(head))
	dst = append(dst, 0, 0, 0, 0)
	index = len(dst)
	dst = slices.Grow(dst, entries*indexEntry)[:index+entries*indexEntry]
	clear(dst[index:])
	return dst, index
}

// sign fills in the checksum of a front, which is all of b.
func (c *coder) sign(b []byte, index int) {
	at := index - crc32.Size
	binary.LittleEndian.PutUint32(b[at:], c.frontCRC(b[:at], b[index:]))
}

// splice appends a bucket to dst in which entry at, or a new one, is raw. It does nothing if the bucket has to be made anew.
func (c *coder) splice(dst []byte, f *piecesFront, at, oldSize int, tag byte, first, raw []byte, sc *scratch) (out []byte, ok bool) {
	size := f.raw - oldSize + len(raw)
	if at == 0 || size < piecesFrom || size > codec.MaxPieces {
		return dst, false
	}
	if sc.pieces, ok = c.pieces.EncodeOne(sc.pieces[:0], f.number, first, raw); !ok {
		return dst, false
	}
	entries, from, behind := f.entries, len(f.pieces), len(f.pieces)
	if at < entries {
		var old []byte
		from, old = f.piece(at)
		behind = from + len(old)
	} else {
		entries++
	}
	start := len(dst)
	dst, index := appendFront(dst, kindInMemory, entries, size, f.number)
	copy(dst[index:], f.index)
	c.putIndex(dst[index+at*indexEntry:], tag, raw, len(sc.pieces))
	c.sign(dst[start:], index-start)
	dst = append(dst, f.pieces[:from]...)
	dst = append(dst, sc.pieces...)
	dst = append(dst, f.pieces[behind:]...)
	return dst, len(dst)-start < size
}

// decodePieces appends all pairs of a bucket to dst.
func (c *coder) decodePieces(dst, bucket []byte, maxRaw int) (raw []byte, entries int, err error) {
	f, err := c.parsePieces(bucket, maxRaw)
	if err != nil {
		return dst, 0, err
	}
	start := len(dst)
	out, err := c.pair(dst, &f, start, 0)
	if err != nil {
		return dst, 0, err
	}
	first := len(out) - start
	for i := 1; i < f.entries; i++ {
		at := len(out)
		out = append(out, out[start:start+first]...)
		if out, err = c.pair(out, &f, at, i); err != nil {
			return dst, 0, err
		}
		out = out[:at+copy(out[at:], out[at+first:])]
		if len(out)-start > f.raw {
			break
		}
	}
	if len(out)-start != f.raw {
		return dst, 0, fmt.Errorf("%w: %d bytes of pairs, want %d", errDamaged, len(out)-start, f.raw)
	}
	return out, f.entries, nil
}
