package codec

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
)

const (
	// dictionaryBytes is the length of a dictionary. More is hardly better: of
	// values like JSON of 512 bytes 8 KiB leave 268 bytes, 32 KiB leave 265.
	dictionaryBytes = 16 << 10
	maxDictionaries = 16
	// sharedMost is the largest block that a dictionary is used for: a larger one
	// has enough of its own to be repeated.
	sharedMost = 48 << 10

	maxSamples  = 64
	sampleEvery = 32 // one block in so many is a sample, once there are maxSamples
	worth       = 20 // another dictionary must leave less by one part in so many
)

// Shared is for blocks that are alike: each is an S2 block that refers to a
// dictionary, which all blocks share.
//
//	+----------------------+-----------------------------------------+
//	| number of dictionary | S2 block (klauspost/compress/s2), with  |
//	| 1 byte, 0 = none     | that dictionary                         |
//	+----------------------+-----------------------------------------+
//
// A dictionary is samples of what was encoded, back to back. The first is made
// of the first 64 blocks; whenever the number of blocks has doubled, a new one is
// made and used from then on if it leaves less of the samples that are not in
// it. Dictionaries are kept as long as the codec, and are nowhere else: what is
// encoded can be decoded by the same Shared only.
type Shared struct {
	dicts  atomic.Pointer[[]*s2.Dict] // by number less 1; the last one is in use
	blocks atomic.Uint64

	mu      sync.Mutex
	samples [][]byte // guarded by mu
}

// NewShared returns a codec that has no dictionary yet.
func NewShared() *Shared {
	c := &Shared{}
	c.dicts.Store(new([]*s2.Dict))
	return c
}

// Encode appends src, compressed, to dst.
func (c *Shared) Encode(dst, src []byte) ([]byte, error) {
	most := s2.MaxEncodedLen(len(src))
	if most < 0 {
		return dst, fmt.Errorf("codec: shared: %d bytes are too many for one block", len(src))
	}
	dst = slices.Grow(dst, 1+most)
	if len(src) > sharedMost {
		return encodeBehind(append(dst, 0), src, s2.Encode), nil
	}
	c.learn(src)
	dicts := *c.dicts.Load()
	dst = append(dst, byte(len(dicts)))
	if len(dicts) == 0 {
		return encodeBehind(dst, src, s2.Encode), nil
	}
	return encodeBehind(dst, src, dicts[len(dicts)-1].Encode), nil
}

// encodeBehind appends a block to dst, which has room for it.
func encodeBehind(dst, src []byte, encode func(dst, src []byte) []byte) []byte {
	n := len(dst)
	return dst[:n+len(encode(dst[n:cap(dst)], src))]
}

// Decode appends the rawLen bytes that src holds compressed to dst.
func (c *Shared) Decode(dst, src []byte, rawLen int) ([]byte, error) {
	if n, err := DecodedLen(src); err != nil || n != rawLen {
		return dst, fmt.Errorf("%w: shared block of %d bytes, want %d: %w", ErrCorrupt, n, rawLen, err)
	}
	number, dicts := int(src[0]), *c.dicts.Load()
	if number > len(dicts) {
		return dst, fmt.Errorf("%w: there is no dictionary %d", ErrCorrupt, number)
	}
	decode := s2.Decode
	if number > 0 {
		decode = dicts[number-1].Decode
	}
	n := len(dst)
	dst = slices.Grow(dst, rawLen)
	if _, err := decode(dst[n:n+rawLen], src[1:]); err != nil {
		return dst[:n], fmt.Errorf("%w: shared: %w", ErrCorrupt, err)
	}
	return dst[:n+rawLen], nil
}

// DecodedLen returns how many bytes a block of [Shared] says that it holds.
func DecodedLen(src []byte) (int, error) {
	if len(src) == 0 {
		return 0, ErrCorrupt
	}
	return s2.DecodedLen(src[1:])
}

// learn takes samples of what is encoded, and now and then looks for a better
// dictionary.
func (c *Shared) learn(block []byte) {
	i := c.blocks.Add(1)
	judge := i >= maxSamples && i&(i-1) == 0
	if judge {
		c.mu.Lock()
	} else if i > maxSamples && i%sampleEvery != 0 || !c.mu.TryLock() {
		return // without waiting for the one who judges
	}
	defer c.mu.Unlock()
	block = block[:min(len(block), dictionaryBytes)]
	if len(c.samples) < maxSamples {
		c.samples = append(c.samples, bytes.Clone(block))
	} else {
		at := &c.samples[i/sampleEvery%maxSamples]
		*at = append((*at)[:0], block...)
	}
	if judge {
		c.judge()
	}
}

// judge makes a dictionary of one half of the samples and has it used if it
// leaves less of the other half. REQUIRES: mu held.
func (c *Shared) judge() {
	half := len(c.samples) / 2
	data := bytes.Join(c.samples[:half], nil)
	fresh := s2.MakeDict(data[:min(len(data), dictionaryBytes)], nil)
	dicts := *c.dicts.Load()
	if fresh == nil || len(dicts) == maxDictionaries {
		return
	}
	encode := s2.Encode
	if len(dicts) > 0 {
		encode = dicts[len(dicts)-1].Encode
	}
	before, after := 0, 0
	var buf []byte
	for _, s := range c.samples[half:] {
		buf = slices.Grow(buf[:0], s2.MaxEncodedLen(len(s)))
		before += len(encode(buf[:cap(buf)], s))
		after += len(fresh.Encode(buf[:cap(buf)], s))
	}
	if len(dicts) > 0 {
		before -= before / worth
	}
	if after < before {
		dicts = append(slices.Clone(dicts), fresh)
		c.dicts.Store(&dicts)
	}
}
