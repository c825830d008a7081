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

// MaxPiece is the largest number of bytes of a piece: with a dictionary before it, 16 bits say where in it something is.
const MaxPiece = 1<<16 - 2 - maxDictionary

const (
	maxMatch    = 258
	maxDistance = 1 << 15
	hashBits    = 11
	hashBytes   = 5 // and so the shortest match
	hashUnused  = 64 - 8*hashBytes
	skipAfter   = 16
)

// Pieces is DEFLATE for pieces of data that are alike, and that are read and replaced one at a time. What they have in common
// is in a [Code], made once for many of them:
//
//	+-------------------+------------+-------------------------------------------------------+
//	| dictionary length | dictionary | header of a final block with dynamic codes (RFC 1951, |
//	| uvarint           |            | 3.2.7), zero bits up to a whole byte                  |
//	+-------------------+------------+-------------------------------------------------------+
//
// A piece is codes, the last of which is the end of the block, and zero bits up to a whole byte. The header and any piece, the
// zero bits between them left out, are a DEFLATE stream, which has the dictionary as its preset dictionary.
//
// Pieces learns from what it encodes, and uses a code until another would be clearly better. Codes that it has used are
// numbered and kept, so pieces which stay in memory need only a number. Safe for concurrent use.
type Pieces struct {
	codes   atomic.Pointer[codes]
	parsed  atomic.Pointer[Code] // the last one that is not among them
	writers sync.Pool            // of *pieceWriter
	encoded atomic.Uint64        // pieces
	mu      sync.Mutex           // held to change codes and samples
	samples [][]byte
}

// codes are those that were used, by their numbers.
type codes struct {
	all    []*Code
	number int // of the one in use
}

// Code is what many pieces have in common. It does not change.
type Code struct {
	text       []byte // all of it
	dictionary []byte // with wordPad bytes behind it

	// To encode.
	literals  [endOfBlock + 1]symbolCode
	lengths   [maxMatch + 1]symbolCode // with the extra bits
	distances [distanceSymbols]symbolCode
	known     positions // of the dictionary

	// To decode, as in inflater.
	literalTable, distanceTable []code
}

// Text returns the code as bytes, which must not be changed.
func (c *Code) Text() []byte { return c.text }

// positions says where some bytes with a hash were last; 0 if nowhere, which is as good a guess as any.
type positions [1 << hashBits]uint16

// pieceWriter finds what repeats itself.
type pieceWriter struct {
	code   *Code
	window []byte // its dictionary and a piece

	table     positions
	sequences []sequence
}

// sequence is so many literals and then a match; the last one of a piece is without.
type sequence struct{ literals, length, distance uint16 }

// NewPieces returns an encoder that has learned nothing yet.
func NewPieces() *Pieces {
	p := &Pieces{}
	p.codes.Store(&codes{})
	p.writers.New = func() any { return new(pieceWriter) }
	return p
}

// Code returns the code of a number; nil if there is none.
func (p *Pieces) Code(number int) *Code {
	if all := p.codes.Load().all; number < len(all) {
		return all[number]
	}
	return nil
}

// Parse returns the code of a text, wherever that comes from. It is for decoding alone.
func (p *Pieces) Parse(text []byte) (*Code, error) {
	if c := p.parsed.Load(); c != nil && bytes.Equal(c.text, text) {
		return c, nil
	}
	n, w := binary.Uvarint(text)
	if w <= 0 || n > maxDictionary || n > uint64(len(text)-w) {
		return nil, fmt.Errorf("%w: dictionary of a code", ErrCorrupt)
	}
	c := &Code{text: bytes.Clone(text), dictionary: padded(text[w : w+int(n)])}
	if err := c.open(text[w+int(n):]); err != nil {
		return nil, fmt.Errorf("%w: header of a code: %w", ErrCorrupt, err)
	}
	p.parsed.Store(c)
	return c, nil
}

func padded(dictionary []byte) []byte {
	return append(make([]byte, 0, len(dictionary)+wordPad), dictionary...)
}

// open makes the tables of a header.
func (c *Code) open(header []byte) error {
	f := inflater{bitReader: bitReader{in: header}}
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
	c.literalTable, c.distanceTable = used(f.literals[:], literalRoot), used(f.distances[:], distanceRoot)
	return nil
}

// used returns a copy of what of a table is reached.
func used(table []code, root uint) []code {
	end := 1 << root
	for _, c := range table[:end] {
		if c&kindMask == isOther && c>>16 != 0 {
			end = max(end, int(c>>16)+1<<(c>>4&15))
		}
	}
	return slices.Clone(table[:end])
}

// Encode appends the pieces of raw, which end at ends, to dst, and their lengths to lens. It returns the number of their code.
func (p *Pieces) Encode(dst []byte, lens []int, raw []byte, ends []int) (out []byte, outLens []int, number int) {
	from := 0
	for _, end := range ends {
		p.learn(raw[from:end])
		from = end
	}
	w := p.writers.Get().(*pieceWriter)
	defer p.writers.Put(w)
	codes := p.codes.Load()
	from = 0
	for _, end := range ends {
		before := len(dst)
		dst = w.encode(dst, codes.all[codes.number], raw[from:end])
		lens = append(lens, len(dst)-before)
		from = end
	}
	return dst, lens, codes.number
}

// EncodeOne appends one piece to dst, if the code of that number is still in use.
func (p *Pieces) EncodeOne(dst []byte, number int, raw []byte) (out []byte, ok bool) {
	p.learn(raw)
	c := p.codes.Load()
	if number != c.number {
		return dst, false
	}
	w := p.writers.Get().(*pieceWriter)
	defer p.writers.Put(w)
	return w.encode(dst, c.all[number], raw), true
}

// Decode appends the bytes of a piece, of which there are at most most, to dst.
func (c *Code) Decode(dst, piece []byte, most int) ([]byte, error) {
	n := len(dst)
	dst = slices.Grow(dst, most)
	f := bitReader{in: piece}
	out, err := f.compressed(dst[n:n:n+most], c.dictionary, c.literalTable, c.distanceTable, most+1)
	if err == nil && !f.atEnd() {
		err = errPadding
	}
	if err != nil {
		return dst[:n], fmt.Errorf("%w: piece: %w", ErrCorrupt, err)
	}
	return dst[:n+len(out)], nil
}

// frontRoom is more than what is decoded between two looks at how much there is: five literals and a match.
const frontRoom = 5 + maxMatch + wordPad

// DecodeFront appends the front of what Decode does: least bytes and perhaps some more, or all if there are fewer.
func (c *Code) DecodeFront(dst, piece []byte, least, most int) ([]byte, error) {
	n := len(dst)
	room := min(least+frontRoom, most)
	dst = slices.Grow(dst, room)
	f := bitReader{in: piece}
	out, err := f.compressed(dst[n:n:n+room], c.dictionary, c.literalTable, c.distanceTable, least)
	if err != nil {
		return dst[:n], fmt.Errorf("%w: front of a piece: %w", ErrCorrupt, err)
	}
	return dst[:n+len(out)], nil
}

// hashOf is of the first hashBytes of a word.
func hashOf(word uint64) uint64 { return word << hashUnused * 0x9e3779b185ebca87 >> (64 - hashBits) }

// remember makes a dictionary known.
func (t *positions) remember(dictionary []byte) {
	for i := 0; i+8 <= len(dictionary); i++ {
		t[hashOf(load64(dictionary, i))] = uint16(i)
	}
}

// encode appends a piece.
func (w *pieceWriter) encode(dst []byte, c *Code, piece []byte) []byte {
	w.find(c, piece)
	return c.write(dst, piece, w.sequences)
}

// find finds the sequences of a piece.
func (w *pieceWriter) find(c *Code, piece []byte) {
	if w.code != c {
		w.code, w.window = c, append(w.window[:0], c.dictionary...)
	}
	at := len(c.dictionary)
	w.window = append(w.window[:at], piece...)
	w.table = c.known
	window, sequences := w.window, w.sequences[:0]
	quiet := at // since when nothing has repeated itself: what is literals
	for at+8 <= len(window) {
		word := load64(window, at)
		known := &w.table[hashOf(word)]
		from := int(*known)
		*known = uint16(at)
		differ := load64(window, from) ^ word
		if differ<<hashUnused != 0 || uint(at-from-1) >= maxDistance {
			// The longer nothing repeats itself, the fewer places are looked at.
			at += 1 + (at-quiet)/skipAfter
			continue
		}
		end := at + 8
		for differ == 0 && end+8 <= len(window) {
			differ = load64(window, end) ^ load64(window, end-at+from)
			end += 8
		}
		if differ != 0 {
			end += bits.TrailingZeros64(differ)/8 - 8
		} else {
			for end < len(window) && window[end] == window[end-at+from] {
				end++
			}
		}
		for at > quiet && from > 0 && window[at-1] == window[from-1] {
			at, from = at-1, from-1
		}
		literals, distance, n := uint16(at-quiet), uint16(at-from), end-at
		for n > maxMatch {
			m := min(maxMatch, n-minMatch) // so that what is left is not too short
			sequences = append(sequences, sequence{literals, uint16(m), distance})
			literals, n = 0, n-m
		}
		sequences = append(sequences, sequence{literals, uint16(n), distance})
		at, quiet = end, end
		if at+8 <= len(window)+1 {
			w.table[hashOf(load64(window, at-1))] = uint16(at - 1)
		}
	}
	w.sequences = append(sequences, sequence{literals: uint16(len(window) - quiet)})
}

// write appends the codes of a piece.
func (c *Code) write(dst, piece []byte, sequences []sequence) []byte {
	// No literal takes more than 12 bits, and no match, of at least 3 bytes, more than 12+5+12+13.
	dst = slices.Grow(dst, 2*len(piece)+16)
	out, at := dst[:cap(dst)], len(dst)
	var acc uint64
	var n uint
	for _, s := range sequences {
		run := piece[:s.literals]
		piece = piece[int(s.literals)+int(s.length):]
		for len(run) >= 4 {
			a, b := c.literals[run[0]], c.literals[run[1]]
			acc |= uint64(a.bits()) << (n & 63)
			n += a.len()
			acc |= uint64(b.bits()) << (n & 63)
			n += b.len()
			a, b = c.literals[run[2]], c.literals[run[3]]
			acc |= uint64(a.bits()) << (n & 63)
			n += a.len()
			acc |= uint64(b.bits()) << (n & 63)
			n += b.len()
			binary.LittleEndian.PutUint64(out[at:], acc) // of at most 7+4*12 bits
			at += int(n / 8)
			acc >>= n &^ 7 & 63
			n &= 7
			run = run[4:]
		}
		for _, b := range run { // at most 7+3*12 bits
			a := c.literals[b]
			acc |= uint64(a.bits()) << (n & 63)
			n += a.len()
		}
		binary.LittleEndian.PutUint64(out[at:], acc)
		at += int(n / 8)
		acc >>= n &^ 7 & 63
		n &= 7
		if s.length == 0 {
			break
		}
		a := c.lengths[s.length]
		acc |= uint64(a.bits()) << (n & 63)
		n += a.len()
		symbol, extra, bits := distanceSymbol(int(s.distance))
		a = c.distances[symbol]
		acc |= uint64(a.bits()) << (n & 63)
		n += a.len()
		acc |= extra << (n & 63)
		n += bits
		binary.LittleEndian.PutUint64(out[at:], acc)
		at += int(n / 8)
		acc >>= n &^ 7 & 63
		n &= 7
	}
	end := c.literals[endOfBlock]
	acc |= uint64(end.bits()) << n
	n += end.len()
	binary.LittleEndian.PutUint64(out[at:], acc)
	return out[:at+int(n+7)/8]
}
