package codec

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
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
			pieces = [][]byte{far, far[:20_000], far[10_000:30_000]}
		default:
			pieces = similar(r, 8)
		}
		number, encoded := encodeNumbered(p, pieces)
		parsed, err := other.Parse(p.Code(number).Head())
		if err != nil {
			t.Fatal(err)
		}
		for i, code := range []*Code{p.Code(number), parsed} {
			d := []*Pieces{p, other}[i]
			first, err := d.Decode([]byte("kept"), 4, code, encoded[0], len(pieces[0]))
			if err != nil || !bytes.Equal(first[4:], pieces[0]) {
				t.Fatalf("round %d: piece 0 of %d bytes: got %d, %v", round, len(pieces[0]), len(first)-4, err)
			}
			for i := 1; i < len(pieces); i++ {
				out, err := d.Decode(first, 4, code, encoded[i], len(pieces[i])+r.IntN(2)*100)
				if err != nil || !bytes.Equal(out[len(first):], pieces[i]) {
					t.Fatalf("round %d: piece %d of %d bytes: got %d, %v", round, i, len(pieces[i]), len(out)-len(first), err)
				}
				if n := len(pieces[i]); n > 0 {
					if _, err := d.Decode(first, 4, code, encoded[i], n-1); !errors.Is(err, ErrCorrupt) {
						t.Fatalf("round %d: piece %d in a byte less than it has: error %v, want ErrCorrupt", round, i, err)
					}
				}
			}
		}
		i := 1 + r.IntN(len(pieces)-1)
		one, ok := p.EncodeOne([]byte("kept"), number, pieces[0], pieces[i])
		if !ok || !bytes.Equal(one[4:], encoded[i]) {
			t.Fatalf("round %d: piece %d alone: %v, %d bytes, want %d", round, i, ok, len(one)-4, len(encoded[i]))
		}
		if _, ok := p.EncodeOne(nil, number+1, pieces[0], pieces[i]); ok {
			t.Fatal("a code that is not in use was used")
		}
	}
}

// join returns head and piece as one stream of bits.
func join(head, piece []byte) []byte {
	// How many bits of the last byte are padding is for a decoder to find out: it is what it has not taken.
	var f inflater
	f.in = head
	f.refill()
	f.take(3)
	if f.dynamic() != nil {
		return nil
	}
	w := bitWriter{out: slices.Clone(head[:len(head)-1])}
	w.put(uint64(head[len(head)-1]), 8-f.n)
	for _, b := range piece {
		w.put(uint64(b), 8)
	}
	return w.flush()
}

// TestHeadAndPieceAreDeflate has the standard library decode them.
func TestHeadAndPieceAreDeflate(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	p := NewPieces()
	for range 100 {
		pieces := similar(r, 4)
		code, encoded := encodePieces(p, pieces)
		for i, want := range pieces {
			var dictionary []byte
			if i > 0 {
				dictionary = pieces[0]
			}
			got, err := io.ReadAll(flate.NewReaderDict(bytes.NewReader(join(code.Head(), encoded[i])), dictionary))
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("piece %d: got %q, %v; want %q", i, got, err, want)
			}
		}
	}
}

// TestPiecesLearn has the data change: the code stays until it pays to have another, and what was good once is used again.
func TestPiecesLearn(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var letters, others [][][]byte
	for range 50 {
		letters = append(letters, similar(r, 2))
		pieces := make([][]byte, 2)
		for i := range pieces {
			for range 300 {
				pieces[i] = append(pieces[i], byte(200+r.IntN(8)))
			}
		}
		others = append(others, pieces)
	}
	p := NewPieces()
	encode := func(data [][][]byte, n int) (code *Code, size int) {
		for i := range n {
			var encoded [][]byte
			code, encoded = encodePieces(p, data[i%len(data)])
			size = len(bytes.Join(encoded, nil))
		}
		return code, size
	}
	encode(letters, 2000)
	before, _ := encode(letters, 1)
	if after, _ := encode(letters, 2*judgeEvery); before != after {
		t.Error("another code for data of the same kind")
	}
	_, strange := encode(others, 50)
	for round := range 5 {
		if _, learned := encode(others, 6*judgeEvery); round == 0 && learned > strange/2 {
			t.Errorf("%d bytes at first, %d later; want at most half", strange, learned)
		}
		encode(letters, 6*judgeEvery)
	}
	if n := len(p.codes.Load().all); n > 25 {
		t.Errorf("%d codes for two kinds of data and their mixtures", n)
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
		pieces := similar(r, 3)
		code, encoded := encodePieces(p, pieces)
		f.Add(code.Head(), encoded[0], []byte(nil))
		f.Add(code.Head(), encoded[1], pieces[0])
	}
	f.Fuzz(func(t *testing.T, head, piece, first []byte) {
		const most = 1 << 12
		code, err := p.Parse(head)
		if err == nil {
			var out []byte
			out, err = p.Decode(first, 0, code, piece, most)
			if !bytes.HasPrefix(out, first) || len(out)-len(first) > most || err != nil && len(out) > len(first) {
				t.Errorf("%d bytes of %d, error %v", len(out)-len(first), most, err)
			}
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("error %v is not ErrCorrupt", err)
		}
		if len(first)+len(piece) > MaxPieces || len(first) == 0 {
			return
		}
		// And the other way round: anything is encoded.
		pieces := [][]byte{first, piece}
		code, encoded := encodePieces(p, pieces)
		out, err := p.Decode(slices.Clone(first), 0, code, encoded[1], len(piece))
		if err != nil || !bytes.Equal(out[len(first):], piece) {
			t.Errorf("got %q, %v; want %q", out[len(first):], err, piece)
		}
	})
}

func BenchmarkPieces(b *testing.B) {
	p := NewPieces()
	pieces := similar(rand.New(rand.NewPCG(6, 6)), 8)
	var number int
	var encoded [][]byte
	for range 2000 {
		number, encoded = encodeNumbered(p, pieces)
	}
	out := make([]byte, 0, 1<<14)
	b.Run("op=encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := p.EncodeOne(out, number, pieces[0], pieces[1]); !ok {
				b.Fatal("another code is in use")
			}
		}
	})
	b.Run("op=decode", func(b *testing.B) {
		b.ReportAllocs()
		out = append(out, pieces[0]...)
		for b.Loop() {
			if _, err := p.Decode(out, 0, p.Code(number), encoded[1], 1<<12); err != nil {
				b.Fatal(err)
			}
		}
	})
}
