package serialize

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"kvmark/storage/pair"
	"kvmark/storage/serialize/codec"
)

func pairs(n int) []byte {
	var raw []byte
	for i := range n {
		raw = pair.Append(raw, fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "a value that repeats itself %d", i))
	}
	return raw
}

// TestEveryBitFlipIsFound flips every bit of a bucket of every codec: what is
// decoded is what was encoded, or an error.
func TestEveryBitFlipIsFound(t *testing.T) {
	for _, name := range codec.Names() {
		t.Run(name, func(t *testing.T) {
			c, err := newCoder(name, 0)
			if err != nil {
				t.Fatal(err)
			}
			raw := pairs(7)
			b, err := c.encode(raw, 7, new(scratch))
			if err != nil {
				t.Fatal(err)
			}
			if isPieces([]byte(b)) {
				t.Fatalf("a bucket of %d bytes is in pieces", len(raw))
			}
			if name != "none" && b[0] == kindRaw {
				t.Fatalf("a compressible bucket of %d bytes was not compressed", len(raw))
			}
			for bit := range 8 * len(b) {
				bad := []byte(b)
				bad[bit/8] ^= 1 << (bit % 8)
				got, _, err := c.decode(nil, bad, 1<<16)
				if err == nil && !bytes.Equal(got, raw) {
					t.Errorf("bit %d: wrong bytes without an error", bit)
				}
			}
			for n := 1; n < len(b); n++ {
				if _, _, err := c.decode(nil, []byte(b[:n]), 1<<16); err == nil {
					t.Errorf("cut to %d of %d bytes: no error", n, len(b))
				}
			}
		})
	}
}

// bigPairs are so many that their bucket is in pieces.
func bigPairs(n int) []byte {
	var raw []byte
	for i := range n {
		raw = pair.Append(raw, fmt.Appendf(nil, "key %d", i), bytes.Repeat(fmt.Appendf(nil, "<%d> repeats itself ", i*i*7919), 30))
	}
	return raw
}

// TestEveryBitFlipInPiecesIsFound flips every bit of a bucket in pieces, as it is in memory and as it is in a checkpoint:
// every entry is found as it was or there is an error.
func TestEveryBitFlipInPiecesIsFound(t *testing.T) {
	c, err := newCoder("deflate", 0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 5
	raw := bigPairs(n)
	inMemory, err := c.encode(raw, n, new(scratch))
	if err != nil {
		t.Fatal(err)
	}
	portable, err := c.portable(nil, []byte(inMemory))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{[]byte(inMemory), portable} {
		if !isPieces(b) {
			t.Fatalf("a bucket of %d bytes is not in pieces", len(raw))
		}
		if got, entries, err := c.decode(nil, b, maxRaw); err != nil || entries != n || !bytes.Equal(got, raw) {
			t.Fatalf("kind %d: %d entries of %d bytes, %v", b[0], entries, len(got), err)
		}
		for bit := range 8 * len(b) {
			bad := bytes.Clone(b)
			bad[bit/8] ^= 1 << (bit % 8)
			if got, _, err := c.decode(nil, bad, maxRaw); err == nil && !bytes.Equal(got, raw) {
				t.Errorf("kind %d, bit %d: wrong bytes without an error", b[0], bit)
			}
			if !isPieces(bad) {
				continue
			}
			f, err := c.parsePieces(bad, maxRaw)
			if err != nil {
				continue
			}
			for rest := raw; len(rest) > 0; {
				var k, v []byte
				k, v, rest, _ = pair.Next(rest)
				_, _, it, err := c.find(nil, &f, tagOf(xxhash.Sum64(k)), k, bit%2 == 0)
				if err == nil && (it.at == n || !bytes.Equal(it.value, v)) {
					t.Errorf("kind %d, bit %d: %q has another value or is not there", b[0], bit, k)
				}
			}
		}
		for cut := 1; cut < len(b); cut++ {
			if _, _, err := c.decode(nil, b[:cut], maxRaw); err == nil {
				t.Errorf("kind %d cut to %d of %d bytes: no error", b[0], cut, len(b))
			}
		}
	}
}

func TestWhatDoesNotShrinkIsStoredAsItIs(t *testing.T) {
	c, err := newCoder("deflate", 9)
	if err != nil {
		t.Fatal(err)
	}
	raw := pair.Append(nil, []byte("k"), []byte("v"))
	b, err := c.encode(raw, 1, new(scratch))
	if err != nil {
		t.Fatal(err)
	}
	if b[0] != kindRaw || !strings.HasSuffix(b, string(raw)) {
		t.Errorf("got %q", b)
	}
}

// TestADamagedBucketIsNamed damages memory behind the store's back.
func TestADamagedBucketIsNamed(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("key")
	shard, path := s.place(key)
	for i := range 5000 {
		if err := s.Set(fmt.Append(nil, i), []byte("some value, some value, some value")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Set(key, []byte("v")); err != nil {
		t.Fatal(err)
	}
	at, depth := s.shards[shard].leaf(path)
	bad := []byte(at.bucket)
	bad[len(bad)-1] ^= 1
	at.bucket = string(bad)

	want := fmt.Sprintf("bucket %q of shard %d", fmt.Sprintf("%0*b", depth, path>>(pathBits-depth)), shard)
	check := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", what, err, want)
		}
	}
	v, ok, err := s.Get([]byte("kept"), key)
	check("get", err)
	if ok || string(v) != "kept" {
		t.Errorf("get: got %q, %v beside the error", v, ok)
	}
	_, _, err = s.ValueLen(key)
	check("length", err)
	check("set", s.Set(key, []byte("new")))
	_, err = s.Delete(key)
	check("delete", err)
	check("range", s.Range(shard, func(_, _ []byte) error { return nil }))
	// Clear is the way out.
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(key, []byte("new")); err != nil {
		t.Error(err)
	}
}

func TestCollidingHashesShareABucket(t *testing.T) {
	s, err := New(Options{Codec: "none", BucketEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	// Real collisions of 64 bits are hard to come by; a bucket at the end of
	// the path is what they lead to.
	sc := s.borrow()
	built, z, err := s.build(pairs(50), 50, pathBits, sc)
	if err != nil || built.node != nil || z.buckets != 1 {
		t.Errorf("got %d buckets, %v; want one", z.buckets, err)
	}
}

func FuzzDecodeBucket(f *testing.F) {
	for _, name := range codec.Names() {
		c, err := newCoder(name, 0)
		if err != nil {
			f.Fatal(err)
		}
		for _, n := range []int{1, 5} {
			b, err := c.encode(pairs(n), n, new(scratch))
			if err != nil {
				f.Fatal(err)
			}
			f.Add([]byte(b))
			if b, err = c.encode(bigPairs(n), n, new(scratch)); err != nil {
				f.Fatal(err)
			}
			portable, err := c.portable(nil, []byte(b))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(portable)
		}
	}
	f.Add([]byte{1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0})
	c, err := newCoder("", 0)
	if err != nil {
		f.Fatal(err)
	}
	const most = 1 << 16
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, n, err := c.decode(nil, b, most)
		if err != nil {
			return
		}
		if len(raw) > most || cap(raw) > 4*most {
			t.Fatalf("%d bytes with room for %d out of %d, at most %d are allowed", len(raw), cap(raw), len(b), most)
		}
		again, err := c.encode(raw, n, new(scratch))
		if err != nil {
			t.Fatal(err)
		}
		back, m, err := c.decode(nil, []byte(again), most)
		if err != nil || m != n || !bytes.Equal(back, raw) {
			t.Errorf("encoded again: %d entries, want %d, error %v", m, n, err)
		}
	})
}
