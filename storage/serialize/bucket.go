package serialize

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"unsafe"

	"kvmark/storage/serialize/codec"
)

// A bucket is a few entries in one immutable piece of memory. The empty bucket
// is no bytes at all.
//
//	+--------+---------+------------+------------+-----------------------+
//	| kind   | entries | raw length | crc32c of  | pairs (package pair), |
//	| 1 byte | uvarint | uvarint    | raw pairs, | compressed unless     |
//	|        |         |            | 4 bytes LE | kind is 0             |
//	+--------+---------+------------+------------+-----------------------+
//
// It is stored as it is when compressing does not make it shorter. Checkpoints
// consist of buckets, so the format is part of the disk format and must not
// change. Kind 10 is in memory only: see shared.go. Kinds 6 to 9 were written by
// versions whose deflate learned codes of its own; they are not used again.
const (
	kindRaw     = 0
	kindDeflate = 1
	kindZlib    = 2
	kindZip     = 3
	kindZstd    = 4
	kindS2      = 5

	maxHeader = 1 + 2*binary.MaxVarintLen64 + crc32.Size
)

// maxRaw is the largest raw bucket: one entry of 64 MiB and its key, with room.
// No length above it is believed.
const maxRaw = 128 << 20

var errDamaged = errors.New("damaged")

// kindOf returns the kind byte of a codec's name.
func kindOf(name string) byte {
	switch name {
	case "deflate":
		return kindDeflate
	case "zlib":
		return kindZlib
	case "zip":
		return kindZip
	case "zstd":
		return kindZstd
	case "s2", "shared": // the latter for what it does not pack entry by entry
		return kindS2
	}
	return kindRaw
}

// header is the front of a bucket.
type header struct {
	kind    byte
	entries int
	raw     int // bytes of pairs
	crc     uint32
	payload []byte
}

// parse takes a bucket apart. The lengths are checked against max only: what they
// promise is checked when it is decoded.
func parse(b []byte, maxRaw int) (header, error) {
	if len(b) == 0 {
		return header{}, nil
	}
	h := header{kind: b[0]}
	rest := b[1:]
	entries, n := binary.Uvarint(rest)
	if n <= 0 {
		return header{}, fmt.Errorf("%w: number of entries", errDamaged)
	}
	rest = rest[n:]
	raw, n := binary.Uvarint(rest)
	if n <= 0 || len(rest[n:]) < crc32.Size {
		return header{}, fmt.Errorf("%w: header", errDamaged)
	}
	rest = rest[n:]
	if raw > uint64(maxRaw) || entries > raw {
		return header{}, fmt.Errorf("%w: %d entries in %d bytes, more than %d bytes are impossible", errDamaged, entries, raw, maxRaw)
	}
	h.entries, h.raw = int(entries), int(raw)
	h.crc = binary.LittleEndian.Uint32(rest)
	h.payload = rest[crc32.Size:]
	return h, nil
}

// coder encodes and decodes buckets.
type coder struct {
	kind   byte // of codec
	codec  codec.Codec
	shared *codec.Shared           // nil: buckets are compressed as a whole
	others [kindS2 + 1]codec.Codec // by kind: what a checkpoint may bring
	crc    *crc32.Table
}

func newCoder(name string, level int) (coder, error) {
	if name == "" {
		name = codec.Default
	}
	c := coder{kind: kindOf(name), crc: crc32.MakeTable(crc32.Castagnoli)}
	var err error
	if c.codec, err = codec.New(name, level); err != nil {
		return coder{}, err
	}
	if shared, ok := c.codec.(*codec.Shared); ok {
		c.shared = shared
	}
	for _, n := range codec.Names() {
		if n == "shared" {
			continue
		}
		if c.others[kindOf(n)], err = codec.New(n, 0); err != nil {
			return coder{}, err
		}
	}
	if c.shared != nil {
		c.codec = c.others[kindS2]
	}
	return c, nil
}

// encode returns a bucket of raw pairs, in a string because nobody may change
// it: readers decode it while it is being replaced.
func (c *coder) encode(raw []byte, entries int, sc *scratch) (bucket string, err error) {
	if entries == 0 {
		return "", nil
	}
	if len(raw) > maxRaw {
		return "", fmt.Errorf("%d bytes in one bucket, at most %d are possible", len(raw), maxRaw)
	}
	tmp := slices.Grow(sc.tmp[:0], maxHeader)
	defer func() { sc.tmp = tmp }()
	if c.shared != nil && len(raw) <= maxShared {
		if tmp, err = c.encodeShared(tmp, raw, entries, sc); err != nil {
			return "", err
		}
		return string(tmp), nil
	}
	tmp = appendFront(tmp, c.kind, entries, len(raw), crc32.Checksum(raw, c.crc))
	front := len(tmp)
	if c.kind != kindRaw {
		if tmp, err = c.codec.Encode(tmp, raw); err != nil {
			return "", err
		}
	}
	if c.kind == kindRaw || len(tmp)-front >= len(raw) {
		tmp[0] = kindRaw
		tmp = append(tmp[:front], raw...)
	}
	return string(tmp), nil
}

// appendFront appends what is before the payload.
func appendFront(dst []byte, kind byte, entries, raw int, crc uint32) []byte {
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(entries))
	dst = binary.AppendUvarint(dst, uint64(raw))
	return binary.LittleEndian.AppendUint32(dst, crc)
}

// decode appends the pairs of a bucket to dst. They are exactly what was
// encoded: anything else is an error.
func (c *coder) decode(dst, bucket []byte, maxRaw int) (raw []byte, entries int, err error) {
	if isShared(bucket) {
		return c.decodeShared(dst, bucket)
	}
	if len(bucket) > 0 && int(bucket[0]) >= len(c.others) {
		return dst, 0, fmt.Errorf("%w: %w %d; was it written by another version of kvserver?", errDamaged, ErrUnknownKind, bucket[0])
	}
	h, err := parse(bucket, maxRaw)
	if err != nil {
		return dst, 0, err
	}
	if h.entries == 0 {
		if len(bucket) > 0 {
			return dst, 0, fmt.Errorf("%w: no entries in %d bytes", errDamaged, len(bucket))
		}
		return dst, 0, nil
	}
	out, err := c.others[h.kind].Decode(dst, h.payload, h.raw)
	if err != nil {
		return dst, 0, err
	}
	if got := crc32.Checksum(out[len(dst):], c.crc); got != h.crc {
		return dst, 0, fmt.Errorf("%w: checksum %08x, want %08x", errDamaged, got, h.crc)
	}
	return out, h.entries, nil
}

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// ErrUnknownKind is in the error of a bucket that no codec of this version has written.
var ErrUnknownKind = errors.New("unknown kind")
