package codec

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

const (
	literalSymbols  = 286 // literals, the end of the block, lengths
	distanceSymbols = 30
	lengthRoot      = 7  // bits of the longest code of a length of a code
	repeatLength    = 16 // the length before, 3 to 6 times
	dynamicFinal    = 1 | 2<<1
)

// bitWriter appends bits, the first one lowest.
type bitWriter struct {
	out []byte
	acc uint64
	n   uint // bits in acc, at most 7 between calls
}

func (w *bitWriter) put(v uint64, n uint) {
	w.acc |= v << w.n
	w.n += n
	for ; w.n >= 8; w.n -= 8 {
		w.out = append(w.out, byte(w.acc))
		w.acc >>= 8
	}
}

// flush fills the last byte with zeros.
func (w *bitWriter) flush() []byte {
	if w.n > 0 {
		w.put(0, 8-w.n)
	}
	return w.out
}

// codeLengths returns the lengths of a Huffman code of at most limit bits for symbols that occur so often. A symbol that
// never does has none.
func codeLengths(counts []uint32, limit uint8) []uint8 {
	type tree struct {
		weight uint64
		symbol int // of a leaf; -1 of an inner one
		child  [2]int
	}
	lens := make([]uint8, len(counts))
	counts = slices.Clone(counts)
	for {
		var trees []tree // the leaves, lightest first, then the inner ones in the order in which they are made, lightest first too
		for symbol, n := range counts {
			if n > 0 {
				trees = append(trees, tree{weight: uint64(n), symbol: symbol})
			}
		}
		slices.SortStableFunc(trees, func(a, b tree) int { return int(int64(a.weight) - int64(b.weight)) })
		leaves := len(trees)
		if leaves == 1 {
			lens[trees[0].symbol] = 1
			return lens
		}
		leaf, inner := 0, leaves
		lightest := func() int {
			if leaf < leaves && (inner == len(trees) || trees[leaf].weight <= trees[inner].weight) {
				leaf++
				return leaf - 1
			}
			inner++
			return inner - 1
		}
		for len(trees) < 2*leaves-1 {
			a, b := lightest(), lightest()
			trees = append(trees, tree{trees[a].weight + trees[b].weight, -1, [2]int{a, b}})
		}
		depth := make([]uint8, len(trees))
		longest := uint8(0)
		for i := len(trees) - 1; i >= 0; i-- {
			t := trees[i]
			if t.symbol >= 0 {
				lens[t.symbol] = depth[i]
				longest = max(longest, depth[i])
				continue
			}
			depth[t.child[0]], depth[t.child[1]] = depth[i]+1, depth[i]+1
		}
		if longest <= limit {
			return lens
		}
		for i, n := range counts { // flatter, until it fits
			if n > 0 {
				counts[i] = n/2 + 1
			}
		}
	}
}

// symbolCode is how a symbol is written: its bits, the first one lowest, and above bit 24 how many they are.
type symbolCode uint32

func newSymbolCode(bits uint32, n uint) symbolCode { return symbolCode(bits) | symbolCode(n)<<24 }

func (s symbolCode) bits() uint32 { return uint32(s & (1<<24 - 1)) }

func (s symbolCode) len() uint { return uint(s >> 24) }

// canonical returns the codes of these lengths.
func canonical(lens []uint8) []symbolCode {
	var count, next [maxCode + 2]uint32
	for _, n := range lens {
		count[n]++
	}
	count[0] = 0
	for n := 1; n <= maxCode; n++ {
		next[n+1] = (next[n] + count[n]) << 1
	}
	codes := make([]symbolCode, len(lens))
	for symbol, n := range lens {
		if n > 0 {
			codes[symbol] = newSymbolCode(uint32(bits.Reverse16(uint16(next[n]))>>(16-n)), uint(n))
			next[n]++
		}
	}
	return codes
}

// blockHeader returns the header of a final block with these codes, in whole bytes. All symbols have one: there are no runs of
// zeros.
func blockHeader(literals, distances []uint8) []byte {
	// Lengths of codes, and runs of them: a symbol, and above bit 8 its extra bits.
	var runs []uint16
	all := slices.Concat(literals, distances)
	for i := 0; i < len(all); {
		n := 1
		for i+n < len(all) && all[i+n] == all[i] {
			n++
		}
		i += n
		length := uint16(all[i-1])
		runs = append(runs, length)
		for n--; n >= 3; n -= min(n, 6) {
			runs = append(runs, repeatLength|uint16(min(n, 6)-3)<<8)
		}
		for ; n > 0; n-- {
			runs = append(runs, length)
		}
	}
	var counts [len(lengthOrder)]uint32
	for _, r := range runs {
		counts[r&0xff]++
	}
	lens := codeLengths(counts[:], lengthRoot)
	codes := canonical(lens)
	sent := len(lengthOrder)
	for lens[lengthOrder[sent-1]] == 0 {
		sent--
	}
	sent = max(sent, 4)

	var w bitWriter
	w.put(dynamicFinal, 3)
	w.put(uint64(len(literals)-257), 5)
	w.put(uint64(len(distances)-1), 5)
	w.put(uint64(sent-4), 4)
	for _, symbol := range lengthOrder[:sent] {
		w.put(uint64(lens[symbol]), 3)
	}
	for _, r := range runs {
		c := codes[r&0xff]
		w.put(uint64(c.bits()), c.len())
		if r&0xff == repeatLength {
			w.put(uint64(r>>8), 2)
		}
	}
	return w.flush()
}

// lengthSymbol and distanceSymbol return the symbol of a length or a distance, and the extra bits behind it.
func lengthSymbol(length int) (symbol int, extra uint64, n uint) {
	x := uint(length - minMatch)
	switch {
	case length == maxMatch:
		return literalSymbols - 1, 0, 0
	case x < 8:
		return endOfBlock + 1 + int(x), 0, 0
	}
	n = uint(bits.Len(x)) - 3
	return endOfBlock + 1 + int(4*(n+1)+x>>n&3), uint64(x & (1<<n - 1)), n
}

func distanceSymbol(distance int) (symbol int, extra uint64, n uint) {
	x := uint(distance - 1)
	if x < 4 {
		return int(x), 0, 0
	}
	n = uint(bits.Len(x)) - 2
	return int(2*(n+1) + x>>n&1), uint64(x & (1<<n - 1)), n
}

// load64 is the eight bytes at b[i:].
func load64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }
