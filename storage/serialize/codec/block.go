package codec

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// zstdCodec shares one encoder and one decoder, which keep their own pools.
type zstdCodec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newZstd(level int) (Codec, error) {
	enc, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.EncoderLevel(level)),
		zstd.WithEncoderCRC(false),   // the caller has a checksum
		zstd.WithSingleSegment(true), // every frame says how long it is,
		zstd.WithZeroFrames(true),    // an empty one too
		zstd.WithLowerEncoderMem(true),
	)
	if err != nil {
		return nil, fmt.Errorf("codec: zstd: %w", err)
	}
	dec, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(0),
		zstd.WithDecoderLowmem(true),
		// DecodeAll fills what dst has room for and never grows it.
		zstd.WithDecodeAllCapLimit(true),
	)
	if err != nil {
		return nil, fmt.Errorf("codec: zstd: %w", err)
	}
	return &zstdCodec{enc: enc, dec: dec}, nil
}

func (c *zstdCodec) Encode(dst, src []byte) ([]byte, error) {
	return c.enc.EncodeAll(src, dst), nil
}

func (c *zstdCodec) Decode(dst, src []byte, rawLen int) ([]byte, error) {
	// The frame says how long it is: ask before making room.
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return dst, fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
	}
	if !h.HasFCS || h.FrameContentSize != uint64(rawLen) {
		return dst, fmt.Errorf("%w: zstd frame of %d bytes, want %d", ErrCorrupt, h.FrameContentSize, rawLen)
	}
	n := len(dst)
	dst = slices.Grow(dst, rawLen)
	out, err := c.dec.DecodeAll(src, dst[:n:n+rawLen])
	if err != nil {
		return dst[:n], fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
	}
	if len(out) != n+rawLen {
		return dst[:n], fmt.Errorf("%w: zstd: %d bytes, want %d", ErrCorrupt, len(out)-n, rawLen)
	}
	return dst[:n+rawLen], nil
}

// s2Codec needs no state: the tables of its encoders are on the stack or
// pooled by the library.
type s2Codec struct {
	encode func(dst, src []byte) []byte
}

func newS2(level int) (Codec, error) {
	switch level {
	case 2:
		return s2Codec{s2.EncodeBetter}, nil
	case 3:
		return s2Codec{s2.EncodeBest}, nil
	}
	return s2Codec{s2.Encode}, nil
}

func (c s2Codec) Encode(dst, src []byte) ([]byte, error) {
	most := s2.MaxEncodedLen(len(src))
	if most < 0 {
		return dst, fmt.Errorf("codec: s2: %d bytes are too many for one block", len(src))
	}
	n := len(dst)
	dst = slices.Grow(dst, most)
	return dst[:n+len(c.encode(dst[n:n+most], src))], nil
}

func (c s2Codec) Decode(dst, src []byte, rawLen int) ([]byte, error) {
	says, err := s2.DecodedLen(src)
	if err != nil {
		return dst, fmt.Errorf("%w: s2: %w", ErrCorrupt, err)
	}
	if says != rawLen {
		return dst, fmt.Errorf("%w: s2 block of %d bytes, want %d", ErrCorrupt, says, rawLen)
	}
	n := len(dst)
	dst = slices.Grow(dst, rawLen)
	if _, err := s2.Decode(dst[n:n+rawLen], src); err != nil {
		return dst[:n], fmt.Errorf("%w: s2: %w", ErrCorrupt, err)
	}
	return dst[:n+rawLen], nil
}
