package codec

import (
	"bytes"
	"compress/flate"
	"io"
	"math/rand/v2"
	"testing"
)

// deflated returns raw in the forms that encoders give it.
func deflated(t testing.TB, raw []byte) [][]byte {
	t.Helper()
	var all [][]byte
	for _, level := range []int{flate.HuffmanOnly, flate.NoCompression, 1, 6, 9} {
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, level)
		if err != nil {
			t.Fatal(err)
		}
		// In two pieces, so that there is more than one block.
		if _, err := w.Write(raw[:len(raw)/2]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(raw[len(raw)/2:]); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		all = append(all, b.Bytes())
	}
	return all
}

// skewed is data in which the symbols are of very different frequencies, so that there are codes of all lengths.
func skewed(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(min(r.ExpFloat64()*20, 255))
	}
	return b
}

func TestInflateGivesBackWhatWasDeflated(t *testing.T) {
	var f inflater
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 200 {
		raw := skewed(r, n*n*3)
		if n%2 == 0 {
			raw = append(bytes.Repeat(raw[:len(raw)/4], 3), raw...)
		}
		for _, src := range deflated(t, raw) {
			out, rest, err := f.inflate([]byte("kept"), append(src, "more"...), len(raw))
			if err != nil || string(rest) != "more" || !bytes.Equal(out, append([]byte("kept"), raw...)) {
				t.Fatalf("%d bytes, %d deflated: got %d, %q after it, %v", len(raw), len(src), len(out), rest, err)
			}
		}
	}
}

// FuzzInflate compares with the decoder of the standard library: what it accepts is accepted with the same result, and what
// it refuses is refused.
func FuzzInflate(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{0, 1, 100, 5000} {
		for _, src := range deflated(f, skewed(r, n)) {
			f.Add(src)
		}
	}
	f.Add([]byte{0x03, 0x00})
	f.Add([]byte{0x05, 0xe0, 0x81, 0x08, 0x00, 0x00, 0x00, 0x00, 0x20, 0x7f, 0xeb, 0x0b, 0x00, 0x00})
	f.Fuzz(func(t *testing.T, src []byte) {
		const most = 1 << 18
		in := bytes.NewReader(src)
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(in), most+1))
		if len(want) > most {
			return
		}
		var d inflater
		out, rest, err := d.inflate(nil, src, len(want))
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%x: error %v, the other decoder's is %v after %d bytes", src, err, wantErr, len(want))
		}
		if err == nil && (!bytes.Equal(out, want) || len(rest) != in.Len()) {
			t.Fatalf("%x: got %d bytes and %d left, want %d and %d", src, len(out), len(rest), len(want), in.Len())
		}
		for _, n := range []int{len(want) - 1, len(want) + 1} {
			if n < 0 {
				continue
			}
			if _, _, err := d.inflate(nil, src, n); err == nil {
				t.Fatalf("%x: %d bytes instead of %d without an error", src, n, len(want))
			}
		}
	})
}
