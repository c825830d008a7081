package codec

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// inflater decodes DEFLATE (RFC 1951) from one piece of memory into another. The usual decoders read from a stream into a
// window of 32 KiB and copy out of that, which for the few KiB of a bucket takes longer than the decoding itself. Not safe
// for concurrent use.
type inflater struct {
	bitReader
	lens [maxLiterals + maxDistances]uint8

	// A table is indexed with the next rootBits bits and says what code they begin with. A longer code is looked up a second
	// time, in a part of the table behind that, with as many bits as the longest code has more.
	literals  [1<<literalRoot + maxLiterals/2<<(maxCode-literalRoot)]code
	distances [1<<distanceRoot + maxDistances/2<<(maxCode-distanceRoot)]code

	// Those of the blocks that bring none of their own, of which every stream has one, if only an empty one at its end.
	fixedLiterals  [1 << literalRoot]code
	fixedDistances [1 << distanceRoot]code
}

// bitReader takes bits from bytes.
type bitReader struct {
	in  []byte // not yet in acc
	acc uint64 // the next bits, the first one lowest; above n they are zero or those that come next anyway
	n   uint   // bits that acc holds
}

const (
	maxCode      = 15  // bits of the longest code
	maxLiterals  = 288 // two of which stand for nothing
	maxDistances = 32  // as above
	literalRoot  = 9
	distanceRoot = 7 // and that of the codes of the lengths of codes, which are no longer

	endOfBlock = 256
	minMatch   = 3
)

// code is an entry of a table. The zero code is for bits that begin no code.
//
//	bits 0..3    length of the code; of a reference to a longer one, that of the root
//	bits 4..7    length of the extra bits behind it; of a reference, that of the second index
//	bits 8..9    what it is
//	bits 16..31  value
type code uint32

const (
	isLiteral code = 1 << 8 // of a length of codes too
	isBase    code = 2 << 8 // of a length or a distance, to which the extra bits are added
	isOther   code = 3 << 8 // a reference, or the end of the block with the value 0
	kindMask  code = 3 << 8
)

var (
	lengthBase = [...]uint16{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	lengthBits = [...]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}

	distanceBase = [...]uint16{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distanceBits = [...]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}

	// The order in which the lengths of the codes of lengths are sent.
	lengthOrder = [...]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
)

// literalCode, distanceCode and lengthCode return the code of a symbol without its length.
func literalCode(symbol int) code {
	switch {
	case symbol < endOfBlock:
		return isLiteral | code(symbol)<<16
	case symbol == endOfBlock:
		return isOther
	case symbol-endOfBlock-1 < len(lengthBase):
		i := symbol - endOfBlock - 1
		return isBase | code(lengthBase[i])<<16 | code(lengthBits[i])<<4
	}
	return 0
}

func distanceCode(symbol int) code {
	if symbol < len(distanceBase) {
		return isBase | code(distanceBase[symbol])<<16 | code(distanceBits[symbol])<<4
	}
	return 0
}

func lengthCode(symbol int) code { return isLiteral | code(symbol)<<16 }

// inflate appends the size bytes that src holds to dst, and returns what of src stands behind them.
func (f *inflater) inflate(dst, src []byte, size int) (out, rest []byte, err error) {
	start := len(dst)
	dst = slices.Grow(dst, size)
	out = dst[start : start : start+size]
	f.bitReader = bitReader{in: src}
	defer func() { f.in = nil }() // do not keep the caller's bytes alive
	for last := false; !last; {
		f.refill()
		header, ok := f.take(3)
		if !ok {
			return dst, nil, errTruncated
		}
		last = header&1 != 0
		switch header >> 1 {
		case 0:
			out, err = f.stored(out)
		case 1:
			if f.fixedLiterals[0] == 0 {
				f.makeFixed()
			}
			out, err = f.compressed(out, nil, f.fixedLiterals[:], f.fixedDistances[:], size+1)
		case 2:
			if err = f.dynamic(); err == nil {
				out, err = f.compressed(out, nil, f.literals[:], f.distances[:], size+1)
			}
		default:
			err = errBlock
		}
		if err != nil {
			return dst, nil, err
		}
	}
	if len(out) != size {
		return dst, nil, fmt.Errorf("%d of %d bytes", len(out), size)
	}
	return dst[:start+size], src[len(src)-len(f.in)-int(f.n/8):], nil
}

// inflateError says why bytes are not DEFLATE.
type inflateError string

func (e inflateError) Error() string { return string(e) }

const (
	errTruncated = inflateError("the data ends too early")
	errTooLong   = inflateError("more bytes than there should be")
	errBlock     = inflateError("block of an unknown kind")
	errStored    = inflateError("length of a stored block and its complement differ")
	errCodes     = inflateError("lengths of codes that no code has")
	errCode      = inflateError("bits that are no code")
	errDistance  = inflateError("distance to before the start")
	errPadding   = inflateError("something where nothing should be")
)

// refill makes acc hold at least 56 bits, or all that there are.
func (f *bitReader) refill() {
	if len(f.in) >= 8 {
		f.acc |= binary.LittleEndian.Uint64(f.in) << f.n
		f.in = f.in[(63-f.n)/8:]
		f.n |= 56
		return
	}
	for f.n < 56 && len(f.in) > 0 {
		f.acc |= uint64(f.in[0]) << f.n
		f.in = f.in[1:]
		f.n += 8
	}
}

// take returns the next n bits.
func (f *bitReader) take(n uint) (v uint, ok bool) {
	if n > f.n {
		return 0, false
	}
	v = uint(f.acc & (1<<n - 1))
	f.acc >>= n
	f.n -= n
	return v, true
}

// atEnd says whether there is nothing left but bits of the last byte, all zero.
func (f *bitReader) atEnd() bool { return len(f.in) == 0 && f.n < 8 && f.acc&(1<<f.n-1) == 0 }

// stored copies a block that is not compressed.
func (f *inflater) stored(out []byte) ([]byte, error) {
	f.take(f.n % 8)
	f.refill()
	lengths, ok := f.take(32)
	if !ok {
		return out, errTruncated
	}
	n := int(lengths & 0xffff)
	if n != int(^lengths>>16&0xffff) {
		return out, errStored
	}
	if n > cap(out)-len(out) {
		return out, errTooLong
	}
	for ; n > 0 && f.n >= 8; n-- {
		b, _ := f.take(8)
		out = append(out, byte(b))
	}
	if n > len(f.in) {
		return out, errTruncated
	}
	if n > 0 {
		f.acc = 0 // it is empty but for a look at what is copied now
		out = append(out, f.in[:n]...)
		f.in = f.in[n:]
	}
	return out, nil
}

func (f *inflater) makeFixed() {
	for i := range maxLiterals {
		switch {
		case i < 144:
			f.lens[i] = 8
		case i < 256:
			f.lens[i] = 9
		case i < 280:
			f.lens[i] = 7
		default:
			f.lens[i] = 8
		}
	}
	_ = makeTable(f.fixedLiterals[:], literalRoot, f.lens[:maxLiterals], literalCode) // complete codes: no error
	for i := range maxDistances {
		f.lens[i] = 5
	}
	_ = makeTable(f.fixedDistances[:], distanceRoot, f.lens[:maxDistances], distanceCode)
}

// dynamic reads the lengths of the codes of a block, and makes its tables.
func (f *inflater) dynamic() error {
	f.refill()
	sizes, ok := f.take(14)
	if !ok {
		return errTruncated
	}
	literals, distances, lengths := int(sizes&31)+257, int(sizes>>5&31)+1, int(sizes>>10)+4
	if literals > 286 || distances > 30 {
		return errCodes
	}
	clear(f.lens[:len(lengthOrder)])
	for i := range lengths {
		f.refill()
		n, ok := f.take(3)
		if !ok {
			return errTruncated
		}
		f.lens[lengthOrder[i]] = uint8(n)
	}
	if err := makeTable(f.distances[:], distanceRoot, f.lens[:len(lengthOrder)], lengthCode); err != nil {
		return err
	}
	all := f.lens[:literals+distances]
	for i := 0; i < len(all); {
		f.refill()
		c := f.distances[f.acc&(1<<distanceRoot-1)]
		if c == 0 {
			return errCode
		}
		if _, ok := f.take(uint(c & 15)); !ok {
			return errTruncated
		}
		symbol := uint8(c >> 16)
		if symbol < 16 {
			all[i] = symbol
			i++
			continue
		}
		var repeated uint8
		extra, base := uint(2), uint(3)
		switch symbol {
		case 16:
			if i == 0 {
				return errCodes
			}
			repeated = all[i-1]
		case 17:
			extra = 3
		case 18:
			extra, base = 7, 11
		}
		n, ok := f.take(extra)
		if !ok {
			return errTruncated
		}
		if n += base; int(n) > len(all)-i {
			return errCodes
		}
		for range n {
			all[i] = repeated
			i++
		}
	}
	if all[endOfBlock] == 0 {
		return errCodes // a block without end
	}
	if err := makeTable(f.literals[:], literalRoot, all[:literals], literalCode); err != nil {
		return err
	}
	return makeTable(f.distances[:], distanceRoot, all[literals:], distanceCode)
}

// makeTable fills table for the canonical code in which symbol i has lens[i] bits; 0 = it does not occur. The code must be
// complete, so that any bits begin a code of it, but for two exceptions: a code of no symbol, and one of a single bit.
func makeTable(table []code, root uint, lens []uint8, meaning func(symbol int) code) error {
	var count, next [maxCode + 1]uint32
	for _, n := range lens {
		count[n]++
	}
	count[0] = 0
	first, longest := uint32(0), uint(0)
	for n := uint(1); n <= maxCode; n++ {
		first = (first + count[n-1]) << 1
		next[n] = first
		if count[n] > 0 {
			longest = n
		}
	}
	if end := next[longest] + count[longest]; end != 1<<longest || longest == 0 {
		if longest > 1 || end > 1<<longest {
			return errCodes
		}
		clear(table[:1<<root])
	}
	if longest > root {
		clear(table[:1<<root]) // tells whether there is a second table yet
	}
	// Complete codes that are longer than root come in pairs with the same root, so this many second tables fit.
	second, behind := longest-min(root, longest), uint32(1)<<root
	for symbol, n := range lens {
		if n == 0 {
			continue
		}
		c := meaning(symbol) | code(n)
		if c == code(n) {
			c = 0 // a symbol that must not occur
		}
		reversed := uint32(bits.Reverse16(uint16(next[n]))) >> (16 - n)
		next[n]++
		if uint(n) <= root {
			for i := reversed; i < 1<<root; i += 1 << n {
				table[i] = c
			}
			continue
		}
		at := &table[reversed&(1<<root-1)]
		if *at == 0 {
			*at = isOther | code(behind)<<16 | code(second)<<4 | code(root)
			behind += 1 << second
		}
		part := table[*at>>16:]
		for i := reversed >> root; i < 1<<second; i += 1 << (uint(n) - root) {
			part[i] = c
		}
	}
	return nil
}

// wordPad is how many bytes behind a dictionary may be read, because words are copied, and two of them at first.
const wordPad = 16

// compressed decodes a block with its tables, but not further than it takes to have stop bytes. The bytes of out and before
// them those of dictionary, which has wordPad bytes behind it, may be repeated.
func (f *bitReader) compressed(out, dictionary []byte, literals, distances []code, stop int) ([]byte, error) {
	// All of it in variables: this is where the time goes.
	acc, n, in := f.acc, f.n, f.in
	buf, at := out[:cap(out)], len(out)
	root, distanceRoots := (*[1 << literalRoot]code)(literals), (*[1 << distanceRoot]code)(distances)
	for at < stop {
		// As refill. It is good for six literals of the first table, or for a length with its distance, which are 48 bits.
		if len(in) >= 8 {
			acc |= binary.LittleEndian.Uint64(in) << (n & 63)
			in = in[(63-n)/8:]
			n |= 56
		} else {
			for n < 56 && len(in) > 0 {
				acc |= uint64(in[0]) << (n & 63)
				in = in[1:]
				n += 8
			}
		}
		c := root[acc&(1<<literalRoot-1)]
		if c&kindMask == isLiteral && n >= 5*literalRoot && len(buf)-at >= 5 {
			// One after the other, so that the processor learns about each how often it is the last.
			five := (*[5]byte)(buf[at:])
			five[0] = byte(c >> 16)
			at++
			acc >>= c & 15
			n -= uint(c & 15)
			if c = root[acc&(1<<literalRoot-1)]; c&kindMask == isLiteral {
				five[1] = byte(c >> 16)
				at++
				acc >>= c & 15
				n -= uint(c & 15)
				if c = root[acc&(1<<literalRoot-1)]; c&kindMask == isLiteral {
					five[2] = byte(c >> 16)
					at++
					acc >>= c & 15
					n -= uint(c & 15)
					if c = root[acc&(1<<literalRoot-1)]; c&kindMask == isLiteral {
						five[3] = byte(c >> 16)
						at++
						acc >>= c & 15
						n -= uint(c & 15)
						if c = root[acc&(1<<literalRoot-1)]; c&kindMask == isLiteral {
							five[4] = byte(c >> 16)
							at++
							acc >>= c & 15
							n -= uint(c & 15)
							continue
						}
					}
				}
			}
			if n < 48 {
				if len(in) < 8 {
					continue
				}
				acc |= binary.LittleEndian.Uint64(in) << (n & 63)
				in = in[(63-n)/8:]
				n |= 56
			}
		}
		if c&kindMask == isOther && c>>16 != 0 {
			c = second(literals, c, acc)
		}
		length, left := int(c>>16), n-uint(c&15)-uint(c>>4&15)
		if int(left) < 0 {
			return out, errTruncated
		}
		acc >>= c & 15
		if c&kindMask != isBase {
			switch {
			case c == 0:
				return out, errCode
			case c&kindMask == isOther:
				f.acc, f.n, f.in = acc, left, in
				return buf[:at], nil
			case at == len(buf):
				return out, errTooLong
			}
			buf[at] = byte(length)
			at++
			n = left
			continue
		}
		length += int(acc & (1<<(c>>4&15) - 1))
		acc >>= c >> 4 & 15

		c = distanceRoots[acc&(1<<distanceRoot-1)]
		if c&kindMask == isOther {
			c = second(distances, c, acc)
		}
		if c == 0 {
			return out, errCode
		}
		left -= uint(c&15) + uint(c>>4&15)
		if int(left) < 0 {
			return out, errTruncated
		}
		n = left
		acc >>= c & 15
		distance := int(c>>16) + int(acc&(1<<(c>>4&15)-1))
		acc >>= c >> 4 & 15
		from, end := at-distance, at+length
		if end > len(buf) {
			return out, errTooLong
		}
		words, roomy := buf, end+wordPad <= len(buf)
		if from < 0 {
			from += len(dictionary)
			if from < 0 {
				return out, errDistance
			}
			if from+length > len(dictionary) || !roomy {
				at += copy(buf[at:end], dictionary[from:])
				from = 0
			} else {
				words, distance = dictionary[:len(dictionary)+wordPad], 8 // as good as any: what is read is not what is written
			}
		}
		if !roomy || distance < 8 {
			for ; at < end; at, from = at+1, from+1 {
				buf[at] = buf[from]
			}
			continue
		}
		// Beyond the end, where the next ones will be.
		binary.LittleEndian.PutUint64(buf[at:], binary.LittleEndian.Uint64(words[from:]))
		binary.LittleEndian.PutUint64(buf[at+8:], binary.LittleEndian.Uint64(words[from+8:]))
		for at, from = at+16, from+16; at < end; at, from = at+8, from+8 {
			binary.LittleEndian.PutUint64(buf[at:], binary.LittleEndian.Uint64(words[from:]))
		}
		at = end
	}
	return buf[:at], nil
}

// second follows a reference to the code that the bits of acc begin with.
func second(table []code, c code, acc uint64) code {
	return table[int(c>>16)+int(acc>>(c&15)&(1<<(c>>4&15)-1))]
}
