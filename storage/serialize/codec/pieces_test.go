package codec

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// similar returns pieces that are alike but for what is random in them.
func similar(r *rand.Rand, n int) [][]byte {
	pieces := make([][]byte, n)
	for i := range pieces {
		b := fmt.Appendf(nil, `{"id":%d,"name":"some name","token":"`, r.IntN(1000))
		for range r.IntN(300) {
			b = append(b, byte('A'+r.IntN(26)))
		}
		pieces[i] = append(b, `","list":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"last":true}`...)
	}
	return pieces
}

// encodePieces returns the code and the pieces.
func encodePieces(p *Pieces, pieces [][]byte) (code *Code, encoded [][]byte) {
	number, encoded := encodeNumbered(p, pieces)
	return p.Code(number), encoded
}

func encodeNumbered(p *Pieces, pieces [][]byte) (number int, encoded [][]byte) {
	var raw []byte
	var ends []int
	for _, b := range pieces {
		raw = append(raw, b...)
		ends = append(ends, len(raw))
	}
	out, lens, number := p.Encode([]byte("kept"), nil, raw, ends)
	out = out[len("kept"):]
	for _, n := range lens {
		encoded = append(encoded, out[:n])
		out = out[n:]
	}
	return number, encoded
}

func TestPiecesComeBackOneAtATime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	p, other := NewPieces(), NewPieces()
	for round := range 300 {
		var pieces [][]byte
		switch round % 4 {
		case 0:
			for n := range 9 {
				pieces = append(pieces, skewed(r, n*n*round/10))
			}
		case 1:
			for range 5 {
				pieces = append(pieces, bytes.Repeat([]byte{byte(r.Uint32()), 1, 2, 3}, r.IntN(3000)))
			}
		case 2:
			far := skewed(r, 40_000) // so that what repeats itself is too far away
			pieces = [][]byte{slices.Concat(far, far[:20_000]), far}
		default:
			pieces = similar(r, 8)
		}
		number, encoded := encodeNumbered(p, pieces)
		parsed, err := other.Parse(p.Code(number).Text())
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range []*Code{p.Code(number), parsed} {
			for i, want := range pieces {
				n := len(want)
				out, err := code.Decode([]byte("kept"), encoded[i], n+r.IntN(2)*100)
				if err != nil || string(out) != "kept"+string(want) {
					t.Fatalf("round %d: piece %d of %d bytes: got %d, %v", round, i, n, len(out)-4, err)
				}
				least := r.IntN(n + 10)
				out, err = code.DecodeFront([]byte("kept"), encoded[i], least, n)
				if err != nil || len(out)-4 < min(least, n) || len(out)-4 > least+frontRoom || !strings.HasPrefix("kept"+string(want), string(out)) {
					t.Fatalf("round %d: %d bytes of piece %d of %d: got %d, %v", round, least, i, n, len(out)-4, err)
				}
				if n == 0 {
					continue
				}
				if _, err := code.Decode(nil, encoded[i], n-1); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("round %d: piece %d in a byte less than it has: error %v, want ErrCorrupt", round, i, err)
				}
			}
		}
		i := r.IntN(len(pieces))
		one, ok := p.EncodeOne([]byte("kept"), number, pieces[i])
		if ok != (p.codes.Load().number == number) || ok && !bytes.Equal(one[4:], encoded[i]) {
			t.Fatalf("round %d: piece %d alone: %v, %d bytes, want %d", round, i, ok, len(one)-4, len(encoded[i]))
		}
		if _, ok := p.EncodeOne(nil, 1<<20, pieces[i]); ok {
			t.Fatal("a code that is not in use was used")
		}
	}
}

// TestPiecesRepeatAnyPartOfTheDictionary has matches that begin in the dictionary, end at its end or behind it, and are at all
// distances.
func TestPiecesRepeatAnyPartOfTheDictionary(t *testing.T) {
	c := &Code{dictionary: padded([]byte("one two three four five six seven eight nine ten"))}
	c.known.remember(c.dictionary)
	c.assign(&tally{})
	parsed, err := NewPieces().Parse(c.Text())
	if err != nil {
		t.Fatal(err)
	}
	for distance := 1; distance < len(c.dictionary)+12; distance++ {
		for length := minMatch; length < 40; length++ {
			for literals := max(0, distance-len(c.dictionary)); literals < 12; literals++ {
				window := slices.Concat(c.dictionary, []byte("<other-text>")[:literals])
				for range length {
					window = append(window, window[len(window)-distance])
				}
				piece := append(window, "no more"...)[len(c.dictionary):]
				encoded := c.write(nil, piece, []sequence{{uint16(literals), uint16(length), uint16(distance)}, {literals: 7}})
				for _, most := range []int{len(piece), len(piece) + 100} {
					if out, err := parsed.Decode(nil, encoded, most); err != nil || !bytes.Equal(out, piece) {
						t.Fatalf("%d bytes from %d back after %d: got %q, %v; want %q", length, distance, literals, out, err, piece)
					}
				}
			}
		}
	}
}

// join returns header and piece as one stream of bits.
func join(header, piece []byte) []byte {
	// How many bits of the last byte are padding is for a decoder to find out: it is what it has not taken.
	f := inflater{bitReader: bitReader{in: header}}
	f.refill()
	f.take(3)
	if f.dynamic() != nil {
		return nil
	}
	w := bitWriter{out: slices.Clone(header[:len(header)-1])}
	w.put(uint64(header[len(header)-1]), 8-f.n)
	for _, b := range piece {
		w.put(uint64(b), 8)
	}
	return w.flush()
}

// TestHeaderAndPieceAreDeflate has the standard library decode them.
func TestHeaderAndPieceAreDeflate(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	p := NewPieces()
	withDictionary := 0
	for range 200 {
		pieces := similar(r, 4)
		code, encoded := encodePieces(p, pieces)
		n, w := binary.Uvarint(code.Text())
		dictionary, header := code.Text()[w:w+int(n)], code.Text()[w+int(n):]
		if n > 0 {
			withDictionary++
		}
		for i, want := range pieces {
			got, err := io.ReadAll(flate.NewReaderDict(bytes.NewReader(join(header, encoded[i])), dictionary))
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("piece %d: got %q, %v; want %q", i, got, err, want)
			}
		}
	}
	if withDictionary < 100 {
		t.Errorf("%d of 200 with a dictionary", withDictionary)
	}
}

// TestPiecesLearn has the data change: the code stays until it pays to have another, and what was good once is used again.
func TestPiecesLearn(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	letters := func() []byte { return similar(r, 1)[0] }
	others := func() []byte {
		b := []byte("a sentence that all of these have in common, and then some bytes")
		for range 100 {
			b = append(b, byte(200+r.IntN(8)))
		}
		return b
	}
	p := NewPieces()
	// encode returns the mean size of the last of n pieces.
	encode := func(piece func() []byte, n int) (size int) {
		const last = 100
		for i := range n {
			raw := piece()
			out, _, _ := p.Encode(nil, nil, raw, []int{len(raw)})
			if i >= n-last {
				size += len(out)
			}
		}
		return size / last
	}
	inUse := func() int { return p.codes.Load().number }
	const while = judgeEvery + 100
	encode(letters, while)
	first := inUse()
	if encode(letters, while); inUse() != first {
		t.Error("another code for data of the same kind")
	}
	strange := encode(others, 100)
	if learned := encode(others, while); learned > strange/2 {
		t.Errorf("%d bytes at first, %d later; want at most half", strange, learned)
	}
	second := inUse()
	if encode(letters, while); inUse() != first {
		t.Error("data of the first kind are there again, but not their code")
	}
	if encode(others, while); inUse() != second {
		t.Error("data of the second kind are there again, but not their code")
	}
	if n := len(p.codes.Load().all); n > 16 {
		t.Errorf("%d codes for two kinds of data", n)
	}
}

// TestPiecesAreEncodedAtOnce has many begin before there is a code.
func TestPiecesAreEncodedAtOnce(t *testing.T) {
	for round := range 20 {
		p := NewPieces()
		var wg sync.WaitGroup
		for seed := range 8 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(round), uint64(seed)))
				for range 30 {
					pieces := similar(r, 2)
					number, encoded := encodeNumbered(p, pieces)
					if one, ok := p.EncodeOne(nil, number, pieces[0]); ok && !bytes.Equal(one, encoded[0]) {
						t.Errorf("%d bytes alone, %d among others", len(one), len(encoded[0]))
					}
					for i, want := range pieces {
						if out, err := p.Code(number).Decode(nil, encoded[i], len(want)); err != nil || !bytes.Equal(out, want) {
							t.Errorf("got %q, %v; want %q", out, err, want)
						}
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestCodesAreWithinTheirLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for round := range 500 {
		counts := make([]uint32, 2+r.IntN(285))
		a, b := uint32(1), uint32(1)
		for i := range counts {
			switch round % 3 {
			case 0: // the deepest trees are of these
				counts[i], a, b = a, b, min(a+b, 1<<30)
			case 1:
				counts[i] = r.Uint32N(1 << r.UintN(31))
			case 2:
				counts[i] = 1
			}
		}
		counts[0]++
		limit := uint8(9 + round%7)
		sum := 0
		for i, n := range codeLengths(counts, limit) {
			if n > limit || (n == 0) != (counts[i] == 0) {
				t.Fatalf("symbol %d, seen %d times, has %d bits; at most %d are possible", i, counts[i], n, limit)
			}
			if n > 0 {
				sum += 1 << (15 - n)
			}
		}
		if sum != 1<<15 && slices.Max(counts) > 0 && !oneSymbol(counts) {
			t.Fatalf("round %d: the code is not complete: %d of %d", round, sum, 1<<15)
		}
	}
}

func oneSymbol(counts []uint32) bool {
	n := 0
	for _, c := range counts {
		if c > 0 {
			n++
		}
	}
	return n == 1
}

func FuzzPieces(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	p := NewPieces()
	for range 20 {
		code, encoded := encodePieces(p, similar(r, 3))
		f.Add(code.Text(), encoded[0])
	}
	f.Fuzz(func(t *testing.T, text, piece []byte) {
		const most = 1 << 12
		code, err := p.Parse(text)
		if err == nil {
			var out, front []byte
			out, err = code.Decode([]byte("kept"), piece, most)
			if !bytes.HasPrefix(out, []byte("kept")) || len(out)-4 > most || err != nil && len(out) > 4 {
				t.Errorf("%d bytes of %d, error %v", len(out)-4, most, err)
			}
			var frontErr error
			front, frontErr = code.DecodeFront([]byte("kept"), piece, 50, most)
			if err == nil && (frontErr != nil || len(front) < min(len(out), 54) || !bytes.HasPrefix(out, front)) {
				t.Errorf("the front is %q, %v; want one of %q", front, frontErr, out)
			}
			// The standard library agrees.
			n, w := binary.Uvarint(text)
			dictionary, header := text[w:w+int(n)], text[w+int(n):]
			in := bytes.NewReader(join(header, piece))
			want, wantErr := io.ReadAll(io.LimitReader(flate.NewReaderDict(in, dictionary), most+1))
			if err == nil && (wantErr != nil || string(out[4:]) != string(want)) {
				t.Errorf("got %q; the other decoder's is %q, %v", out[4:], want, wantErr)
			}
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("error %v is not ErrCorrupt", err)
		}
		if len(piece) > MaxPiece {
			return
		}
		// And the other way round: anything is encoded.
		code, encoded := encodePieces(p, [][]byte{piece})
		out, err := code.Decode(nil, encoded[0], len(piece))
		if err != nil || !bytes.Equal(out, piece) {
			t.Errorf("got %q, %v; want %q", out, err, piece)
		}
	})
}

func BenchmarkPieces(b *testing.B) {
	r := rand.New(rand.NewPCG(6, 6))
	noise := func(n int) [][]byte {
		pieces := make([][]byte, n)
		for i := range pieces {
			pieces[i] = fmt.Appendf(nil, "a key of some length %d", r.IntN(100_000))
			for range 200 {
				pieces[i] = append(pieces[i], byte(r.Uint32()))
			}
			pieces[i] = append(pieces[i], bytes.Repeat([]byte("filler, "), 40)...)
		}
		return pieces
	}
	for _, data := range []struct {
		name   string
		pieces [][]byte
	}{{"text", similar(r, 64)}, {"noise", noise(64)}} {
		p := NewPieces()
		var number int
		var encoded [][]byte
		for range 200 {
			number, encoded = encodeNumbered(p, data.pieces)
		}
		code := p.Code(number)
		run := func(op string, do func(i int) error) {
			b.Run(fmt.Sprintf("data=%s/op=%s", data.name, op), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(bytes.Join(data.pieces, nil)) / 64))
				i := 0
				for b.Loop() {
					if err := do(i % 64); err != nil {
						b.Fatal(err)
					}
					i++
				}
				b.ReportMetric(float64(len(bytes.Join(encoded, nil)))/64, "B/piece")
			})
		}
		out := make([]byte, 0, 1<<14)
		var w pieceWriter
		run("encode", func(i int) error { w.encode(out, code, data.pieces[i]); return nil })
		run("decode", func(i int) error { _, err := code.Decode(out, encoded[i], 1<<12); return err })
		run("decode-front", func(i int) error { _, err := code.DecodeFront(out, encoded[i], 40, 1<<12); return err })
	}
}

// BenchmarkJudge is what looking for a better code costs the piece that asks for one, if there is none.
func BenchmarkJudge(b *testing.B) {
	p := NewPieces()
	r := rand.New(rand.NewPCG(1, 2))
	for range maxSamples {
		sample := make([]byte, 600)
		for i := range sample {
			sample[i] = "0123456789abcdef"[r.IntN(16)]
		}
		p.samples = append(p.samples, sample)
	}
	c := p.choose(&codes{}, worthLater)
	for b.Loop() {
		p.choose(c, worthLater)
	}
}
