package serialize

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"kvmark/storage/pair"
	"kvmark/storage/serialize/codec"
)

// A bucket of kind 9 is for entries that are big enough to be worth finding one of them without the others. Each is a piece
// of its own, compressed with a code that all buckets have in common (see [codec.Pieces]).
//
//	+--------+---------+------------+----------------+---------------------+-------+--------+
//	| kind   | entries | raw length | number of code | crc32c of all that  | index | pieces |
//	| 1 byte | uvarint | uvarint    | uvarint        | is not pieces, 4 LE |       |        |
//	+--------+---------+------------+----------------+---------------------+-------+--------+
//
// The index has for every entry
//
//	+------------------+----------------------+-----------------+
//	| tag: low byte of | crc32c of the piece, | length of piece |
//	| the key's hash   | low 3 bytes LE       | 2 bytes LE      |
//	+------------------+----------------------+-----------------+
//
// A key that is not there is mostly found out from the tags, and one that is there from the front of its piece. A Set
// compresses one piece and copies the others.
//
// Kind 8 is not a bucket but a code, and is in checkpoints only, before the first bucket that needs it:
//
//	+--------+---------+---------------------+------------------+
//	| kind   | number  | crc32c of the other | text of the code |
//	| 1 byte | uvarint | fields, 4 LE        |                  |
//	+--------+---------+---------------------+------------------+
const (
	kindCode   = 8
	kindPieces = 9

	indexEntry = 1 + 3 + 2
	// piecesFrom is the raw size from which a bucket is in pieces. Below it the index is a large part of it, and decoding
	// all of it is cheap.
	piecesFrom = 256
	// pieceTo is the mean raw size up to which they are. Above it entries have enough of their own to be repeated, and what
	// all entries have in common is little.
	pieceTo = 8 << 10
	// maxPieces is the largest raw size of a bucket in pieces. All of it may be one piece.
	maxPieces = codec.MaxPiece
)

// inPieces says whether a bucket is to be in pieces.
func inPieces(entries, raw int) bool {
	return raw >= piecesFrom && raw <= min(maxPieces, entries*pieceTo)
}

// codes has codes by their numbers, nil for those that there are not.
type codes interface{ Code(number int) *codec.Code }

// piecesFront is the front of such a bucket.
type piecesFront struct {
	header
	index, pieces []byte
	number        int // of the code
	code          *codec.Code
}

// isPieces says whether a bucket is in pieces.
func isPieces[B string | []byte](bucket B) bool { return len(bucket) > 0 && bucket[0] == kindPieces }

// parsePieces takes a bucket in pieces apart and checks its front.
func (c *coder) parsePieces(b []byte, maxRaw int) (piecesFront, error) {
	h, err := parse(b, min(maxRaw, maxPieces))
	if err != nil {
		return piecesFront{}, err
	}
	f := piecesFront{header: h}
	number, n := binary.Uvarint(h.payload)
	if n <= 0 || number > math.MaxInt32 {
		return f, fmt.Errorf("%w: number of a code", errDamaged)
	}
	f.number = int(number)
	crcAt := len(b) - len(h.payload) + n
	rest := b[crcAt:]
	index := h.entries * indexEntry
	if len(rest) < crc32.Size+index {
		return f, fmt.Errorf("%w: %d entries in %d bytes", errDamaged, h.entries, len(b))
	}
	f.crc = binary.LittleEndian.Uint32(rest)
	rest = rest[crc32.Size:]
	f.index, f.pieces = rest[:index], rest[index:]
	if got := c.frontCRC(b[:crcAt], f.index); got != f.crc {
		return f, fmt.Errorf("%w: checksum of the front %08x, want %08x", errDamaged, got, f.crc)
	}
	sum := 0
	for i := range f.entries {
		sum += f.pieceLen(i)
	}
	if f.entries == 0 || sum != len(f.pieces) {
		return f, fmt.Errorf("%w: %d bytes of pieces, want %d", errDamaged, len(f.pieces), sum)
	}
	if f.code = c.codes.Code(f.number); f.code == nil {
		return f, fmt.Errorf("%w: there is no code %d", errDamaged, f.number)
	}
	return f, nil
}

func (c *coder) frontCRC(before, behind []byte) uint32 {
	return crc32.Update(crc32.Checksum(before, c.crc), c.crc, behind)
}

func (f *piecesFront) tag(i int) byte { return f.index[i*indexEntry] }

// sum24 is the checksum of a piece, at bit 8 and above.
func (f *piecesFront) sum24(i int) uint32 {
	return binary.LittleEndian.Uint32(f.index[i*indexEntry:]) &^ 0xff
}

func (f *piecesFront) pieceLen(i int) int {
	return int(binary.LittleEndian.Uint16(f.index[i*indexEntry+4:]))
}

// appendIndex appends an entry of an index.
func (c *coder) appendIndex(dst []byte, tag byte, piece []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(piece, c.crc)<<8|uint32(tag))
	return binary.LittleEndian.AppendUint16(dst, uint16(len(piece)))
}

func tagOf(hash uint64) byte { return byte(hash) }

// bounds returns where piece i begins and ends.
func (f *piecesFront) bounds(i int) (from, to int) {
	for j := range i {
		from += f.pieceLen(j)
	}
	return from, from + f.pieceLen(i)
}

// piece returns piece i, checked.
func (c *coder) piece(f *piecesFront, i int) ([]byte, error) {
	from, to := f.bounds(i)
	piece := f.pieces[from:to]
	if got := crc32.Checksum(piece, c.crc) << 8; got != f.sum24(i) {
		return nil, fmt.Errorf("%w: checksum of piece %d %06x, want %06x", errDamaged, i, got>>8, f.sum24(i)>>8)
	}
	return piece, nil
}

// pair appends pair i to dst.
func (c *coder) pair(dst []byte, f *piecesFront, i int) (out, key, value []byte, err error) {
	piece, err := c.piece(f, i)
	if err != nil {
		return dst, nil, nil, err
	}
	if out, err = f.code.Decode(dst, piece, f.raw); err != nil {
		return dst, nil, nil, err
	}
	key, value, rest, err := pair.Next(out[len(dst):])
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes behind entry %d", errDamaged, len(rest), i)
	}
	return out, key, value, err
}

// value looks for key and returns its value, which is in out.
func (c *coder) value(buf []byte, f *piecesFront, tag byte, key []byte) (out, value []byte, ok bool, err error) {
	for i := range f.entries {
		if f.tag(i) != tag {
			continue
		}
		var k, v []byte
		if buf, k, v, err = c.pair(buf[:0], f, i); err != nil {
			return buf, nil, false, err
		}
		if bytes.Equal(k, key) {
			return buf, v, true, nil
		}
	}
	return buf, nil, false, nil
}

// found is where an entry is in a bucket in pieces.
type found struct {
	at              int // number of the entry; that of all entries if it is not there
	size, valueSize int // of the pair and of its value
}

// find looks for key without decoding its value.
func (c *coder) find(buf []byte, f *piecesFront, tag byte, key []byte) (out []byte, it found, err error) {
	for i := range f.entries {
		if f.tag(i) != tag {
			continue
		}
		piece, err := c.piece(f, i)
		if err != nil {
			return buf, it, err
		}
		if buf, err = f.code.DecodeFront(buf[:0], piece, len(key)+2*binary.MaxVarintLen32, f.raw); err != nil {
			return buf, it, err
		}
		if rest, ok := cutKey(buf, key); ok {
			n, w := binary.Uvarint(rest)
			if w <= 0 || n > uint64(f.raw) {
				return buf, it, fmt.Errorf("%w: length of the value of entry %d", errDamaged, i)
			}
			return buf, found{i, pair.Size(len(key), int(n)), int(n)}, nil
		}
	}
	return buf, found{at: f.entries}, nil
}

// cutKey returns what is behind key in a pair; false if it has another.
func cutKey(raw, key []byte) (rest []byte, ok bool) {
	n, w := binary.Uvarint(raw)
	if w <= 0 || n != uint64(len(key)) {
		return nil, false
	}
	return bytes.CutPrefix(raw[w:], key)
}

// encodePieces appends a bucket in pieces to dst.
func (c *coder) encodePieces(dst, raw []byte, entries int, sc *scratch) ([]byte, error) {
	sc.ends, sc.tags = sc.ends[:0], sc.tags[:0]
	for rest := raw; len(rest) > 0; {
		var k []byte
		var err error
		if k, _, rest, err = pair.Next(rest); err != nil {
			return dst, err
		}
		sc.ends = append(sc.ends, len(raw)-len(rest))
		sc.tags = append(sc.tags, tagOf(xxhash.Sum64(k)))
	}
	if len(sc.ends) != entries {
		return dst, fmt.Errorf("%w: %d entries, want %d", errDamaged, len(sc.ends), entries)
	}
	var number int
	sc.pieces, sc.lens, number = c.pieces.Encode(sc.pieces[:0], sc.lens[:0], raw, sc.ends)
	start := len(dst)
	dst = appendFront(dst, entries, len(raw), number)
	index := len(dst) - start
	rest := sc.pieces
	for i, n := range sc.lens {
		dst = c.appendIndex(dst, sc.tags[i], rest[:n])
		rest = rest[n:]
	}
	c.sign(dst[start:], index)
	return append(dst, sc.pieces...), nil
}

// appendFront appends what is before the index, with a checksum of zeros.
func appendFront(dst []byte, entries, raw, number int) []byte {
	dst = append(dst, kindPieces)
	dst = binary.AppendUvarint(dst, uint64(entries))
	dst = binary.AppendUvarint(dst, uint64(raw))
	dst = binary.AppendUvarint(dst, uint64(number))
	return append(dst, 0, 0, 0, 0)
}

// sign fills in the checksum of a front, which is all of b.
func (c *coder) sign(b []byte, index int) {
	at := index - crc32.Size
	binary.LittleEndian.PutUint32(b[at:], c.frontCRC(b[:at], b[index:]))
}

// splice returns a bucket in which the entry that was found, or a new one, is raw. It does nothing if the bucket has to be
// made anew.
func (c *coder) splice(f *piecesFront, it found, tag byte, raw []byte, sc *scratch) (bucket string, ok bool) {
	entries, size := f.entries, f.raw-it.size+len(raw)
	if it.at == entries {
		entries++
	}
	if !inPieces(entries, size) {
		return "", false
	}
	if sc.pieces, ok = c.pieces.EncodeOne(sc.pieces[:0], f.number, raw); !ok {
		return "", false
	}
	bucket = c.exchange(f, it.at, entries, size, c.appendIndex(sc.index[:0], tag, sc.pieces), sc.pieces, sc)
	return bucket, len(bucket) < size
}

// cut returns a bucket without the entry that was found. It does nothing if the bucket has to be made anew.
func (c *coder) cut(f *piecesFront, it found, sc *scratch) (bucket string, ok bool) {
	entries, size := f.entries-1, f.raw-it.size
	if !inPieces(entries, size) {
		return "", false
	}
	return c.exchange(f, it.at, entries, size, nil, nil, sc), true
}

// exchange returns a bucket with piece, and its entry of the index, in place of those of entry at, if there is one.
func (c *coder) exchange(f *piecesFront, at, entries, size int, index, piece []byte, sc *scratch) string {
	from, to, next := len(f.pieces), len(f.pieces), at
	if at < f.entries {
		from, to = f.bounds(at)
		next++
	}
	front := appendFront(sc.tmp[:0], entries, size, f.number)
	indexAt := len(front)
	front = append(front, f.index[:at*indexEntry]...)
	front = append(front, index...)
	front = append(front, f.index[next*indexEntry:]...)
	c.sign(front, indexAt)
	sc.tmp = front

	var b strings.Builder // it makes room without clearing it
	b.Grow(len(front) + len(f.pieces) - (to - from) + len(piece))
	b.Write(front)
	b.Write(f.pieces[:from])
	b.Write(piece)
	b.Write(f.pieces[to:])
	return b.String()
}

// decodePieces appends all pairs of a bucket to dst.
func (c *coder) decodePieces(dst, bucket []byte, maxRaw int) (raw []byte, entries int, err error) {
	f, err := c.parsePieces(bucket, maxRaw)
	if err != nil {
		return dst, 0, err
	}
	out := slices.Grow(dst, f.raw)
	for i := 0; i < f.entries && len(out)-len(dst) <= f.raw; i++ {
		if out, _, _, err = c.pair(out, &f, i); err != nil {
			return dst, 0, err
		}
	}
	if len(out)-len(dst) != f.raw {
		return dst, 0, fmt.Errorf("%w: %d bytes of pairs, want %d", errDamaged, len(out)-len(dst), f.raw)
	}
	return out, f.entries, nil
}

// appendCode appends a code of that number as it is written to a checkpoint.
func (c *coder) appendCode(dst []byte, number int) []byte {
	start := len(dst)
	dst = append(dst, kindCode)
	dst = binary.AppendUvarint(dst, uint64(number))
	dst = append(dst, 0, 0, 0, 0)
	text := len(dst) - start
	dst = append(dst, c.codes.Code(number).Text()...)
	c.sign(dst[start:], text)
	return dst
}

// codesOfRecord are the codes of a checkpoint's record.
type codesOfRecord map[int]*codec.Code

func (m codesOfRecord) Code(number int) *codec.Code { return m[number] }

// addCode takes in what appendCode appended.
func (c *coder) addCode(m codesOfRecord, b []byte) error {
	number, n := binary.Uvarint(b[1:])
	if n <= 0 || number > math.MaxInt32 || len(b) < 1+n+crc32.Size {
		return fmt.Errorf("%w: a code of %d bytes", errDamaged, len(b))
	}
	at := 1 + n
	text := b[at+crc32.Size:]
	if got, want := c.frontCRC(b[:at], text), binary.LittleEndian.Uint32(b[at:]); got != want {
		return fmt.Errorf("%w: checksum of code %d %08x, want %08x", errDamaged, number, got, want)
	}
	code, err := c.pieces.Parse(text)
	if err == nil {
		m[int(number)] = code
	}
	return err
}
