// Package codec compresses and decompresses blocks of bytes under one
// append-style interface, with the encoders and decoders kept for reuse. It is
// for the serialize mode, which compresses on every Set. All of them are those of
// klauspost/compress.
//
// What a call allocates once warm, besides growing dst: nothing, but for zip
// with about 20 objects each way, which is the price of an archive's directory.
package codec

import (
	"errors"
	"fmt"

	"kvmark/storage/serialize/limit"
)

// ErrCorrupt is returned by Decode when src is not what Encode made of rawLen
// bytes. Compression formats notice only some damage; callers that need to be
// sure keep a checksum of their own.
var ErrCorrupt = errors.New("codec: damaged data")

// Default is the codec of an empty name.
const Default = limit.DefaultCodec

// Codec is safe for concurrent use.
type Codec interface {
	// Encode appends src, compressed, to dst.
	Encode(dst, src []byte) ([]byte, error)
	// Decode appends the rawLen bytes that src holds compressed to dst. It
	// never appends more, nor makes room for more, whatever src says, so a
	// caller that bounds rawLen is safe from decompression bombs.
	Decode(dst, src []byte, rawLen int) ([]byte, error)
}

// Names returns the names that [New] knows.
func Names() []string { return limit.CodecNames() }

// New returns the codec of that name:
//
//	deflate  raw DEFLATE (RFC 1951), level 1..9; the default codec
//	zlib     DEFLATE with zlib's header and checksum (RFC 1950), level 1..9
//	zip      a complete zip archive with one member, level 1..9
//	zstd     Zstandard frames (RFC 8878), level 1..4
//	s2       S2 blocks, an extension of Snappy, level 1..3
//	shared   S2 blocks with a dictionary of what was encoded before; see [Shared]
//	none     as it is
//
// Level 0 is the codec's default, the fastest.
func New(name string, level int) (Codec, error) {
	level, err := limit.Level(name, level)
	if err != nil {
		return nil, err
	}
	switch name {
	case "", "deflate":
		return newDeflate(level)
	case "zlib":
		return newZlib(level)
	case "zip":
		return newZip(level)
	case "zstd":
		return newZstd(level)
	case "s2":
		return newS2(level)
	case "shared":
		return NewShared(), nil
	}
	return none{}, nil
}

// none keeps bytes as they are.
type none struct{}

func (none) Encode(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }

func (none) Decode(dst, src []byte, rawLen int) ([]byte, error) {
	if len(src) != rawLen {
		return dst, fmt.Errorf("%w: %d bytes, want %d", ErrCorrupt, len(src), rawLen)
	}
	return append(dst, src...), nil
}
