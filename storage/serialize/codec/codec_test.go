package codec_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kvmark/storage/serialize/codec"
)

// levels returns every codec at every level it has.
func levels(t testing.TB) map[string]codec.Codec {
	t.Helper()
	all := make(map[string]codec.Codec)
	for _, name := range codec.Names() {
		for level := range 10 {
			if c, err := codec.New(name, level); err == nil {
				all[fmt.Sprintf("codec=%s/level=%d", name, level)] = c
			}
		}
	}
	if len(all) != 3*10+5+4+2 {
		t.Fatalf("%d codecs with levels, want 41", len(all))
	}
	return all
}

// inputs are what compressors see as extremes.
func inputs() map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 70_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	var lines bytes.Buffer
	for i := range 8 {
		fmt.Fprintf(&lines, "DataSaveKey123456789ABC_0_pfx_%d DataSaveValue_0987654321DEFGHIJKLMN0123456789_0_pfx_%d", i, i)
	}
	return map[string][]byte{
		"nothing":       {},
		"one byte":      {0},
		"similar lines": lines.Bytes(),
		"noise":         noise,
		"a long run":    bytes.Repeat([]byte{7}, 300_000),
	}
}

func TestWhatIsEncodedComesBackBehindWhatWasThere(t *testing.T) {
	for name, c := range levels(t) {
		t.Run(name, func(t *testing.T) {
			for what, raw := range inputs() {
				enc, err := c.Encode([]byte("before"), raw)
				if err != nil {
					t.Fatalf("encode %s: %v", what, err)
				}
				if !bytes.HasPrefix(enc, []byte("before")) {
					t.Fatalf("%s: dst was not appended to", what)
				}
				enc = enc[len("before"):]
				dec, err := c.Decode([]byte("kept"), enc, len(raw))
				if err != nil {
					t.Fatalf("decode %s: %v", what, err)
				}
				if want := append([]byte("kept"), raw...); !bytes.Equal(dec, want) {
					t.Fatalf("%s: got %d bytes, want %d", what, len(dec), len(want))
				}
				for _, n := range []int{len(raw) - 1, len(raw) + 1} {
					if n < 0 {
						continue
					}
					if out, err := c.Decode(nil, enc, n); !errors.Is(err, codec.ErrCorrupt) {
						t.Errorf("%s as %d bytes instead of %d: got %d bytes, error %v, want ErrCorrupt", what, n, len(raw), len(out), err)
					}
				}
			}
		})
	}
}

func TestNewRefusesWhatDoesNotExist(t *testing.T) {
	for _, tt := range []struct {
		name  string
		codec string
		level int
		want  string
	}{
		{"an unknown name lists the names", "lzma", 0, "deflate, zlib, zip, zstd, s2, shared, none"},
		{"a level too high names the range", "deflate", 10, "use 1..9"},
		{"a level too low names the range", "zlib", -1, "use 1..9"},
		{"zip names the range", "zip", 99, "use 1..9"},
		{"zstd names the range", "zstd", 5, "use 1..4"},
		{"s2 names the range", "s2", 4, "use 1..3"},
		{"none has no level", "none", 1, "no level"},
		{"shared has no level", "shared", 2, "no level"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := codec.New(tt.codec, tt.level); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestAllocations holds the numbers of the package comment.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("SKIPPED: the race detector has sync.Pool drop what it is given, at random")
	}
	raw := inputs()["similar lines"]
	for _, tt := range []struct {
		codec    string
		enc, dec float64
	}{
		{"none", 0, 0},
		{"s2", 0, 0},
		{"zstd", 0, 0},
		{"deflate", 0, 0},
		{"zlib", 0, 0},
		{"shared", 0, 0},
		{"zip", 25, 28},
	} {
		t.Run(tt.codec, func(t *testing.T) {
			c, err := codec.New(tt.codec, 0)
			if err != nil {
				t.Fatal(err)
			}
			enc, dec := make([]byte, 0, 1<<14), make([]byte, 0, 1<<14)
			stored, err := c.Encode(nil, raw)
			if err != nil {
				t.Fatal(err)
			}
			// A pool that the collector empties costs an encoder now and then.
			if got := testing.AllocsPerRun(500, func() { _, _ = c.Encode(enc, raw) }); got > tt.enc {
				t.Errorf("Encode allocates %v times, want at most %v", got, tt.enc)
			}
			if got := testing.AllocsPerRun(500, func() { _, _ = c.Decode(dec, stored, len(raw)) }); got > tt.dec {
				t.Errorf("Decode allocates %v times, want at most %v", got, tt.dec)
			}
		})
	}
}

// TestSharedLearnsWhatBlocksHaveInCommon has it encode two kinds of data, one after the other: each leaves less than alone,
// and what was encoded with the first dictionary is still read.
func TestSharedLearnsWhatBlocksHaveInCommon(t *testing.T) {
	c := codec.NewShared()
	block := func(kind string, i int) []byte {
		return fmt.Appendf(nil, `{"kind":%q,"a long name of a field of %s":%d,"another name of %s":%d}`, kind, kind, i*7919, kind, i*104729)
	}
	var first [][]byte
	for _, kind := range []string{"orders", "persons and their addresses"} {
		alone := codec.NewShared()
		enc, err := alone.Encode(nil, block(kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		before := len(enc)
		for i := range 4000 {
			if enc, err = c.Encode(nil, block(kind, i)); err != nil {
				t.Fatal(err)
			}
			if kind == "orders" {
				first = append(first, enc)
			}
		}
		if len(enc) > before*2/3 {
			t.Errorf("%s: %d bytes, %d alone", kind, len(enc), before)
		}
	}
	for i, enc := range first {
		if got, err := c.Decode(nil, enc, len(block("orders", i))); err != nil || !bytes.Equal(got, block("orders", i)) {
			t.Fatalf("block %d: %q, %v", i, got, err)
		}
	}
	// Another one has no such dictionary.
	last := first[len(first)-1]
	if _, err := codec.NewShared().Decode(nil, last, len(block("orders", len(first)-1))); !errors.Is(err, codec.ErrCorrupt) || !strings.Contains(err.Error(), "no dictionary") {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range codec.Names() {
		c, err := codec.New(name, 0)
		if err != nil {
			f.Fatal(err)
		}
		for what, raw := range inputs() {
			if what == "noise" {
				continue
			}
			enc, err := c.Encode(nil, raw)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(name, enc, len(raw))
		}
	}
	f.Fuzz(func(t *testing.T, name string, src []byte, rawLen int) {
		c, err := codec.New(name, 0)
		if err != nil || rawLen < 0 || rawLen > 1<<20 {
			return
		}
		out, err := c.Decode(nil, src, rawLen)
		if err == nil && len(out) != rawLen {
			t.Errorf("%s: %d bytes without an error, want %d", name, len(out), rawLen)
		}
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: error %v is not ErrCorrupt", name, err)
		}
		if cap(out) > 2*rawLen+1024 {
			t.Errorf("%s: room for %d bytes for %d", name, cap(out), rawLen)
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	raw := inputs()["similar lines"]
	for _, name := range codec.Names() {
		c, err := codec.New(name, 0)
		if err != nil {
			b.Fatal(err)
		}
		stored, err := c.Encode(nil, raw)
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 0, 1<<14)
		for _, op := range []struct {
			name string
			run  func() error
		}{
			{"encode", func() error { _, err := c.Encode(buf, raw); return err }},
			{"decode", func() error { _, err := c.Decode(buf, stored, len(raw)); return err }},
		} {
			b.Run(fmt.Sprintf("codec=%s/op=%s/size=%d", name, op.name, len(raw)), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(raw)))
				for b.Loop() {
					if err := op.run(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(raw))/float64(len(stored)), "ratio")
			})
		}
	}
}
