package serialize

import (
	"bytes"
	"errors"
	"fmt"
	"os"
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

// TestEveryBitFlipInPiecesIsFound flips every bit of a bucket in pieces: every entry is found as it was or there is an error.
func TestEveryBitFlipInPiecesIsFound(t *testing.T) {
	c, err := newCoder("deflate", 0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 5
	raw := bigPairs(n)
	encoded, err := c.encode(raw, n, new(scratch))
	if err != nil {
		t.Fatal(err)
	}
	b := []byte(encoded)
	if !isPieces(b) {
		t.Fatalf("a bucket of %d bytes is not in pieces", len(raw))
	}
	if got, entries, err := c.decode(nil, b, maxRaw); err != nil || entries != n || !bytes.Equal(got, raw) {
		t.Fatalf("%d entries of %d bytes, %v", entries, len(got), err)
	}
	for bit := range 8 * len(b) {
		bad := bytes.Clone(b)
		bad[bit/8] ^= 1 << (bit % 8)
		if got, _, err := c.decode(nil, bad, maxRaw); err == nil && !bytes.Equal(got, raw) {
			t.Errorf("bit %d: wrong bytes without an error", bit)
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
			_, got, ok, err := c.value(nil, &f, tagOf(xxhash.Sum64(k)), k)
			if err == nil && (!ok || !bytes.Equal(got, v)) {
				t.Errorf("bit %d: %q has another value or is not there", bit, k)
			}
			_, it, err := c.find(nil, &f, tagOf(xxhash.Sum64(k)), k)
			if err == nil && (it.at == n || it.valueSize != len(v) || it.size != pair.Size(len(k), len(v))) {
				t.Errorf("bit %d: %q has another size or is not there", bit, k)
			}
		}
	}
	for cut := 1; cut < len(b); cut++ {
		if _, _, err := c.decode(nil, b[:cut], maxRaw); err == nil {
			t.Errorf("cut to %d of %d bytes: no error", cut, len(b))
		}
	}
}

// TestEveryBitFlipInARecordIsFound flips every bit of a checkpoint's record: there is an error, or all entries are as they
// were.
func TestEveryBitFlipInARecordIsFound(t *testing.T) {
	record, err := os.ReadFile(piecesRecord)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Codec: "none"})
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(record) {
		bad := bytes.Clone(record)
		bad[bit/8] ^= 1 << (bit % 8)
		if err := s.Clear(); err != nil {
			t.Fatal(err)
		}
		restored := s.Restore(bad)
		n := int64(0)
		for rest := bigPairs(5); len(rest) > 0; {
			var k, v []byte
			k, v, rest, _ = pair.Next(rest)
			got, ok, err := s.Get(nil, k)
			if ok {
				n++
			}
			if err != nil || ok && !bytes.Equal(got, v) || !ok && restored == nil {
				t.Errorf("bit %d: %q is %.40q, %v, %v; restored with error %v", bit, k, got, ok, err, restored)
			}
		}
		if s.Count() != n {
			t.Errorf("bit %d: there are %d entries, %d of which were there", bit, s.Count(), n)
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
	deflate, err := newCoder("deflate", 0) // whose codes those in pieces need
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range codec.Names() {
		c := deflate
		if name != "deflate" {
			if c, err = newCoder(name, 0); err != nil {
				f.Fatal(err)
			}
		}
		for _, n := range []int{1, 5} {
			for _, raw := range [][]byte{pairs(n), bigPairs(n)} {
				b, err := c.encode(raw, n, new(scratch))
				if err != nil {
					f.Fatal(err)
				}
				f.Add([]byte(b))
			}
		}
	}
	f.Add([]byte{1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0})
	zlib, err := newCoder("zlib", 0)
	if err != nil {
		f.Fatal(err)
	}
	wrongNumber, err := zlib.encode(pairs(9), 40, new(scratch))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(wrongNumber))
	const most = 1 << 16
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, n, err := deflate.decode(nil, b, most)
		if err != nil {
			return
		}
		if len(raw) > most || cap(raw) > 4*most {
			t.Fatalf("%d bytes with room for %d out of %d, at most %d are allowed", len(raw), cap(raw), len(b), most)
		}
		again, err := deflate.encode(raw, n, new(scratch))
		if errors.Is(err, pair.ErrCorrupt) || errors.Is(err, errDamaged) {
			return // any bytes can be in a block, and any number of entries before it
		}
		if err != nil {
			t.Fatal(err)
		}
		back, m, err := deflate.decode(nil, []byte(again), most)
		if err != nil || m != n || !bytes.Equal(back, raw) {
			t.Errorf("encoded again: %d entries, want %d, error %v", m, n, err)
		}
	})
}

// FuzzRestore has any bytes restored: what goes in comes out again.
func FuzzRestore(f *testing.F) {
	record, err := os.ReadFile(piecesRecord)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record)
	for _, name := range codec.Names() {
		s, err := New(Options{Codec: name})
		if err != nil {
			f.Fatal(err)
		}
		if err := s.Restore(record); err != nil {
			f.Fatal(err)
		}
		if _, err := s.Checkpoint(func(rec []byte) error { f.Add(bytes.Clone(rec)); return nil }); err != nil {
			f.Fatal(err)
		}
	}
	var stores [2]*Store // made once: that is most of the time
	for i := range stores {
		if stores[i], err = New(Options{}); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		for _, s := range stores {
			if err := s.Clear(); err != nil {
				t.Fatal(err)
			}
		}
		s, other := stores[0], stores[1]
		if err := s.Restore(record); err != nil {
			return
		}
		if _, err := s.Checkpoint(other.Restore); err != nil || other.Count() != s.Count() {
			t.Errorf("%d of %d entries are restored again, error %v", other.Count(), s.Count(), err)
		}
	})
}
