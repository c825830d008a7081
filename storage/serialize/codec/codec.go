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
	"strings"
)

// ErrCorrupt is returned by Decode when src is not what Encode made of rawLen
// bytes. Compression formats notice only some damage; callers that need to be
// sure keep a checksum of their own.
var ErrCorrupt = errors.New("codec: damaged data")

// Default is the codec of an empty name.
const Default = "deflate"

// Codec is safe for concurrent use.
type Codec interface {
	// Encode appends src, compressed, to dst.
	Encode(dst, src []byte) ([]byte, error)
	// Decode appends the rawLen bytes that src holds compressed to dst. It
	// never appends more, nor makes room for more, whatever src says, so a
	// caller that bounds rawLen is safe from decompression bombs.
	Decode(dst, src []byte, rawLen int) ([]byte, error)
}

// kind is a row of the table of codecs.
type kind struct {
	name         string
	def          int // default level
	lo, hi       int // allowed levels; both 0 = the codec has none
	levelMeaning string
	open         func(level int) (Codec, error)
}

func kinds() []kind {
	return []kind{
		{"deflate", 1, 1, 9, "1 fastest, 9 smallest", newDeflate},
		{"zlib", 1, 1, 9, "1 fastest, 9 smallest", newZlib},
		{"zip", 1, 1, 9, "1 fastest, 9 smallest", newZip},
		{"zstd", 1, 1, 4, "1 fastest, 4 smallest", newZstd},
		{"s2", 1, 1, 3, "1 fastest, 3 smallest", newS2},
		{"shared", 0, 0, 0, "", func(int) (Codec, error) { return NewShared(), nil }},
		{"none", 0, 0, 0, "", newNone},
	}
}

// Names returns the names that [New] knows.
func Names() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

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
	if name == "" {
		name = Default
	}
	for _, k := range kinds() {
		if k.name != name {
			continue
		}
		switch {
		case level == 0:
			level = k.def
		case k.hi == 0:
			return nil, fmt.Errorf("codec: %s has no level, got %d (use 0)", name, level)
		case level < k.lo || level > k.hi:
			return nil, fmt.Errorf("codec: level %d of %s is out of range (use %d..%d: %s; 0 = default, %d)",
				level, name, k.lo, k.hi, k.levelMeaning, k.def)
		}
		return k.open(level)
	}
	return nil, fmt.Errorf("codec: unknown codec %q (use one of %s)", name, strings.Join(Names(), ", "))
}

// none keeps bytes as they are.
type none struct{}

func newNone(int) (Codec, error) { return none{}, nil }

func (none) Encode(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }

func (none) Decode(dst, src []byte, rawLen int) ([]byte, error) {
	if len(src) != rawLen {
		return dst, fmt.Errorf("%w: %d bytes, want %d", ErrCorrupt, len(src), rawLen)
	}
	return append(dst, src...), nil
}
