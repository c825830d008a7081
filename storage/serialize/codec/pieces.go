package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// MaxPieces is the largest number of bytes that the first piece and any other have together.
const MaxPieces = 1<<16 - 2

const (
	maxMatch    = 258
	maxDistance = 1 << 15
	hashBits    = 11
	hashBytes   = 4 // and so the shortest match
	skipAfter   = 64
)

// Pieces is DEFLATE for pieces of data that are alike and that are read and replaced one at a time. A stream of them is
//
//	+-------+---------+---------+-----+
//	| head  | piece 0 | piece 1 | ... |
//	+-------+---------+---------+-----+
//
//	head   the header of a block with dynamic codes (RFC 1951, 3.2.7), zero bits up to a whole byte
//	piece  codes, the last of which is the end of the block, zero bits up to a whole byte
//
// Head and any piece, the zero bits between them left out, are a DEFLATE stream, which has the bytes of piece 0 as its
// preset dictionary if it is another one. So one piece costs the work of two, whatever number there is.
//
// One head does for many streams when the data are alike. Pieces learns from what it encodes, and uses a code until another
// would be better by a fiftieth; it numbers those that it has used, so that streams which stay in memory need not have a
// head each. Neither a code nor its tables are made anew while encoding and decoding. Safe for concurrent use.
type Pieces struct {
	codes   atomic.Pointer[codes]
	parsed  atomic.Pointer[Code] // the last one that is not among them
	writers sync.Pool            // of *pieceWriter
	readers sync.Pool            // of *inflater

	encoded atomic.Uint64 // streams
	mu      sync.Mutex    // held to change codes and seen
	seen    symbolCounts
}

// codes are those that were used, by their numbers.
type codes struct {
	all    []*Code
	number int // of the one in use
}

// Code is a head and what is made of it. It does not change.
type Code struct {
	head      []byte
	literals  []symbolCode // to encode, as the next
	distances []symbolCode
	tables    inflater
}

// Head returns the head, which must not be changed.
func (c *Code) Head() []byte { return c.head }

type symbolCounts struct {
	literals  [literalSymbols]uint32
	distances [distanceSymbols]uint32
}

// pieceWriter finds what repeats itself. A table says where four bytes with a hash were last, plus one.
type pieceWriter struct {
	first, table [1 << hashBits]uint16
	window       []byte // the first piece and another
	tokens       []token
	ends         []int // of the pieces in tokens
}

// token is a literal, or a length above bit 16 with a distance less one below it.
type token uint32

const isMatch token = 1 << 31

// NewPieces returns an encoder that has learned nothing yet.
func NewPieces() *Pieces {
	p := &Pieces{}
	p.codes.Store(&codes{})
	p.writers.New = func() any { return new(pieceWriter) }
	p.readers.New = func() any { return new(inflater) }
	return p
}

// Code returns the code of a number; nil if there is none.
func (p *Pieces) Code(number int) *Code {
	if all := p.codes.Load().all; number < len(all) {
		return all[number]
	}
	return nil
}

// Parse returns the code that a head says, wherever it comes from.
func (p *Pieces) Parse(head []byte) (*Code, error) {
	if c := p.parsed.Load(); c != nil && bytes.Equal(c.head, head) {
		return c, nil
	}
	c := &Code{head: bytes.Clone(head)}
	if err := c.tables.open(c.head); err != nil {
		return nil, fmt.Errorf("%w: head of pieces: %w", ErrCorrupt, err)
	}
	p.parsed.Store(c)
	return c, nil
}

// Encode appends the pieces of raw, which end at ends, to dst, and their lengths to lens. It returns the number of their code.
func (p *Pieces) Encode(dst []byte, lens []int, raw []byte, ends []int) (out []byte, outLens []int, number int) {
	w := p.writers.Get().(*pieceWriter)
	defer p.writers.Put(w)
	w.tokens, w.ends = w.tokens[:0], w.ends[:0]
	clear(w.first[:])
	from := 0
	for i, end := range ends {
		w.find(raw[:ends[0]], raw[from:end], i == 0)
		w.ends = append(w.ends, len(w.tokens))
		from = end
	}
	c := p.learn(w)
	code := c.all[c.number]
	from = 0
	for _, end := range w.ends {
		before := len(dst)
		dst = code.write(dst, w.tokens[from:end])
		lens = append(lens, len(dst)-before)
		from = end
	}
	return dst, lens, c.number
}

// EncodeOne appends one piece that is not the first to dst, if the code of that number is still in use.
func (p *Pieces) EncodeOne(dst []byte, number int, first, raw []byte) (out []byte, ok bool) {
	c := p.codes.Load()
	if number != c.number || number >= len(c.all) {
		return dst, false
	}
	w := p.writers.Get().(*pieceWriter)
	defer p.writers.Put(w)
	w.tokens = w.tokens[:0]
	clear(w.first[:])
	w.remember(first)
	w.find(first, raw, false)
	return c.all[number].write(dst, w.tokens), true
}

// Decode appends the bytes of a piece, of which there are at most most, to dst. Those of the first piece are dst[first:];
// none for the first piece itself.
func (p *Pieces) Decode(dst []byte, first int, code *Code, piece []byte, most int) ([]byte, error) {
	f := p.readers.Get().(*inflater)
	defer p.readers.Put(f)
	n := len(dst)
	dst = slices.Grow(dst, most)
	f.in, f.acc, f.n = piece, 0, 0
	out, err := f.compressed(dst[first:n:n+most], code.tables.literals[:], code.tables.distances[:])
	if err == nil && !f.atEnd() {
		err = errPadding
	}
	f.in = nil // do not keep the caller's bytes alive
	if err != nil {
		return dst[:n], fmt.Errorf("%w: piece: %w", ErrCorrupt, err)
	}
	return dst[:first+len(out)], nil
}

// open reads a head.
func (f *inflater) open(head []byte) error {
	f.in, f.acc, f.n = head, 0, 0
	defer func() { f.in = nil }()
	f.refill()
	if kind, ok := f.take(3); !ok || kind != dynamicFinal {
		return errBlock
	}
	if err := f.dynamic(); err != nil {
		return err
	}
	if !f.atEnd() {
		return errPadding
	}
	return nil
}

// atEnd says whether there is nothing left but bits of the last byte, all zero.
func (f *inflater) atEnd() bool { return len(f.in) == 0 && f.n < 8 && f.acc&(1<<f.n-1) == 0 }

func hashOf(v uint32) uint32 { return v * 0x9e3779b1 >> (32 - hashBits) }

// remember makes the first piece known.
func (w *pieceWriter) remember(first []byte) {
	for i := 0; i+hashBytes <= len(first); i++ {
		w.first[hashOf(load32(first, i))] = uint16(i + 1)
	}
}

// find appends the tokens of a piece.
func (w *pieceWriter) find(first, piece []byte, isFirst bool) {
	w.table = w.first
	window, at := piece, 0
	if !isFirst {
		w.window = append(append(w.window[:0], first...), piece...)
		window, at = w.window, len(first)
	}
	tokens := w.tokens
	quiet := at // since when nothing has repeated itself
	for at+hashBytes <= len(window) {
		v := load32(window, at)
		known := &w.table[hashOf(v)]
		from := int(*known) - 1
		*known = uint16(at + 1)
		if from < 0 || at-from > maxDistance || load32(window, from) != v {
			// The longer nothing repeats itself, the fewer places are looked at.
			for next := at + 1 + (at-quiet)/skipAfter; at < next && at < len(window); at++ {
				tokens = append(tokens, token(window[at]))
			}
			continue
		}
		for last := max(quiet, at-(maxMatch-hashBytes)); at > last && from > 0 && window[at-1] == window[from-1]; {
			at, from, tokens = at-1, from-1, tokens[:len(tokens)-1]
		}
		most := min(maxMatch, len(window)-at)
		n := hashBytes
		for ; n+8 <= most; n += 8 {
			if x := binary.LittleEndian.Uint64(window[at+n:]) ^ binary.LittleEndian.Uint64(window[from+n:]); x != 0 {
				n += bits.TrailingZeros64(x) / 8
				most = n
				break
			}
		}
		for n < most && window[at+n] == window[from+n] {
			n++
		}
		tokens = append(tokens, isMatch|token(n)<<16|token(at-from-1))
		at += n
		quiet = at
		if at+hashBytes <= len(window)+1 {
			w.table[hashOf(load32(window, at-1))] = uint16(at)
		}
	}
	for ; at < len(window); at++ {
		tokens = append(tokens, token(window[at]))
	}
	w.tokens = tokens
	if isFirst {
		w.remember(first)
	}
}

// write appends a piece.
func (c *Code) write(dst []byte, tokens []token) []byte {
	literals, distances := (*[literalSymbols]symbolCode)(c.literals), (*[distanceSymbols]symbolCode)(c.distances)
	// No token takes more than 15+5+15+13 bits, which are 6 bytes.
	dst = slices.Grow(dst, 6*len(tokens)+16)
	out, at := dst[:cap(dst)], len(dst)
	var acc uint64
	var n uint
	for _, t := range tokens {
		if t&isMatch == 0 {
			s := literals[t&0xff]
			acc |= uint64(s&0xffff) << (n & 63)
			n += uint(s >> 16)
		} else {
			symbol, extra, bits := lengthSymbol(int(t >> 16 & 0x1ff))
			s := literals[symbol]
			acc |= uint64(s&0xffff) << (n & 63)
			n += uint(s >> 16)
			acc |= extra << (n & 63)
			n += bits
			symbol, extra, bits = distanceSymbol(int(t&0x7fff) + 1)
			s = distances[symbol]
			acc |= uint64(s&0xffff) << (n & 63)
			n += uint(s >> 16)
			acc |= extra << (n & 63)
			n += bits
		}
		if n >= 16 { // and with what comes next at most 15+48
			binary.LittleEndian.PutUint64(out[at:], acc)
			at += int(n / 8)
			acc >>= n &^ 7 & 63
			n &= 7
		}
	}
	s := literals[endOfBlock]
	acc |= uint64(s&0xffff) << n
	n += uint(s >> 16)
	binary.LittleEndian.PutUint64(out[at:], acc)
	return out[:at+int(n+7)/8]
}

const (
	learnAll   = 64   // streams from all of which is learned
	learnEvery = 16   // and then from one in so many;
	judgeEvery = 4096 // one in so many asks for a better code, and before that every one whose number is a power of two
	seenEnough = 1 << 22
	maxCodes   = 64 // of about 40 KiB each; with that many, the best of them is used
)

// learn returns the codes, perhaps with a new one in use, after looking at what is to be written.
func (p *Pieces) learn(w *pieceWriter) *codes {
	i := p.encoded.Add(1)
	c := p.codes.Load()
	if len(c.all) > 0 && i > learnAll && i%learnEvery != 0 {
		return c
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range w.tokens {
		if t&isMatch == 0 {
			p.seen.literals[t]++
			continue
		}
		symbol, _, _ := lengthSymbol(int(t >> 16 & 0x1ff))
		p.seen.literals[symbol]++
		symbol, _, _ = distanceSymbol(int(t&0x7fff) + 1)
		p.seen.distances[symbol]++
	}
	p.seen.literals[endOfBlock] += uint32(len(w.ends))
	c = p.codes.Load()
	if len(c.all) > 0 && i%judgeEvery != 0 && (i&(i-1) != 0 || i > judgeEvery) {
		return c
	}
	c = p.seen.choose(c)
	p.codes.Store(c)
	p.seen.fade()
	return c
}

// choose returns c, or with another code in use if that is better for what was seen: one that there is, or a new one.
func (s *symbolCounts) choose(c *codes) *codes {
	fresh := s.code()
	enough := s.bits(fresh) / 49 * 50
	if len(c.all) > 0 && s.bits(c.all[c.number]) <= enough {
		return c
	}
	best := &codes{all: c.all, number: c.number}
	for i, code := range c.all {
		if s.bits(code) < s.bits(c.all[best.number]) {
			best.number = i
		}
	}
	if len(c.all) == 0 || s.bits(c.all[best.number]) > enough && len(c.all) < maxCodes {
		best.all, best.number = append(slices.Clone(c.all), fresh), len(c.all)
	}
	return best
}

// code returns the code that is best for what was seen. It has all symbols.
func (s *symbolCounts) code() *Code {
	lens := func(counts []uint32) []uint8 {
		all := make([]uint32, len(counts))
		for i, n := range counts {
			all[i] = 8*n + 1
		}
		return codeLengths(all, maxCode)
	}
	literals, distances := lens(s.literals[:]), lens(s.distances[:])
	c := &Code{head: blockHeader(literals, distances), literals: canonical(literals), distances: canonical(distances)}
	_ = c.tables.open(c.head) // its own head: no error
	return c
}

// bits returns what was seen takes with a code, but for extra bits, which are the same with any.
func (s *symbolCounts) bits(c *Code) (sum uint64) {
	for i, n := range s.literals {
		sum += uint64(n) * uint64(c.literals[i]>>16)
	}
	for i, n := range s.distances {
		sum += uint64(n) * uint64(c.distances[i]>>16)
	}
	return sum
}

// fade makes what comes count more than what was.
func (s *symbolCounts) fade() {
	sum := uint64(0)
	for _, n := range s.literals {
		sum += uint64(n)
	}
	if sum < seenEnough {
		return
	}
	for i := range s.literals {
		s.literals[i] /= 2
	}
	for i := range s.distances {
		s.distances[i] /= 2
	}
}
