package serialize

import (
	"bytes"
	"encoding/binary"
	"errors"
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

// bigPairs have more in common than pairs.
func bigPairs(n int) []byte {
	var raw []byte
	for i := range n {
		raw = pair.Append(raw, fmt.Appendf(nil, "key %d", i), bytes.Repeat(fmt.Appendf(nil, "<%d> repeats itself ", i*i*7919), 30))
	}
	return raw
}

// sharing returns a coder that has a dictionary.
func sharing(t testing.TB) coder {
	t.Helper()
	c, err := newCoder("shared", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.encode(bigPairs(64), 64, new(scratch)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEveryBitFlipInASharedBucketIsFound flips every bit of one: every entry is found as it was or there is an error.
func TestEveryBitFlipInASharedBucketIsFound(t *testing.T) {
	c := sharing(t)
	const n = 5
	raw := bigPairs(n)
	encoded, err := c.encode(raw, n, new(scratch))
	if err != nil {
		t.Fatal(err)
	}
	b := []byte(encoded)
	if !isShared(b) || len(b) > 200 {
		t.Fatalf("a bucket of %d bytes is of kind %d and has %d", len(raw), b[0], len(b))
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
		if !isShared(bad) {
			continue
		}
		if _, err := c.parseShared(bad); err == nil {
			t.Errorf("bit %d: no error", bit)
		}
	}
	for cut := 1; cut < len(b); cut++ {
		if _, _, err := c.decode(nil, b[:cut], maxRaw); err == nil {
			t.Errorf("cut to %d of %d bytes: no error", cut, len(b))
		}
	}
	f, err := c.parseShared(b)
	if err != nil {
		t.Fatal(err)
	}
	for rest := raw; len(rest) > 0; {
		var k, v []byte
		k, v, rest, _ = pair.Next(rest)
		_, at, got, err := c.find(nil, &f, tagOf(xxhash.Sum64(k)), k)
		if err != nil || at == n || !bytes.Equal(got, v) {
			t.Errorf("%q: number %d, %q, %v", k, at, got, err)
		}
	}
}

// TestACheckpointStandsAlone restores each record of a store of codec shared into another store: no record has a bucket that
// needs a dictionary, and one that has is refused, as are those of versions that learned codes.
func TestACheckpointStandsAlone(t *testing.T) {
	s, err := New(Options{Codec: "shared"})
	if err != nil {
		t.Fatal(err)
	}
	const keys = 3000
	value := func(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "kind %d of data, ", i/500), 20+i%7) }
	for i := range keys {
		if err := s.Set(fmt.Append(nil, i), value(i)); err != nil {
			t.Fatal(err)
		}
	}
	total := int64(0)
	if _, err := s.Checkpoint(func(rec []byte) error {
		alone, err := New(Options{Codec: "shared"})
		if err != nil {
			return err
		}
		total += func() int64 { err = alone.Restore(rec); return alone.Count() }()
		for i := range keys {
			if got, ok, err := alone.Get(nil, fmt.Append(nil, i)); err != nil || ok && !bytes.Equal(got, value(i)) {
				t.Fatalf("%d: %.40q, %v", i, got, err)
			}
		}
		return err
	}); err != nil || total != keys {
		t.Errorf("%d of %d entries, %v", total, keys, err)
	}
	for _, kind := range []byte{6, 7, 8, 9, kindShared} {
		bucket := appendFront(nil, kind, 1, 10, 0)
		rec := append(binary.AppendUvarint(nil, uint64(len(bucket))), bucket...)
		err := s.Restore(rec)
		if want := "written by another version"; !errors.Is(err, errDamaged) || kind != kindShared && !strings.Contains(err.Error(), want) {
			t.Errorf("a bucket of kind %d: %v", kind, err)
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
	shared := sharing(f)
	for _, name := range codec.Names() {
		c, err := newCoder(name, 0)
		if err != nil {
			f.Fatal(err)
		}
		if name == "shared" {
			c = shared // whose dictionary its buckets need
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
		raw, n, err := shared.decode(nil, b, most)
		if err != nil {
			return
		}
		if len(raw) > most || cap(raw) > 4*most {
			t.Fatalf("%d bytes with room for %d out of %d, at most %d are allowed", len(raw), cap(raw), len(b), most)
		}
		again, err := shared.encode(raw, n, new(scratch))
		if errors.Is(err, pair.ErrCorrupt) || errors.Is(err, errDamaged) {
			return // any bytes can be in a block, and any number of entries before it
		}
		if err != nil {
			t.Fatal(err)
		}
		back, m, err := shared.decode(nil, []byte(again), most)
		if err != nil || m != n || !bytes.Equal(back, raw) {
			t.Errorf("encoded again: %d entries, want %d, error %v", m, n, err)
		}
	})
}

// FuzzRestore has any bytes restored: what goes in comes out again.
func FuzzRestore(f *testing.F) {
	for _, name := range codec.Names() {
		s, err := New(Options{Codec: name})
		if err != nil {
			f.Fatal(err)
		}
		for i := range 20 {
			if err := s.Set(fmt.Append(nil, "key ", i), bytes.Repeat(fmt.Append(nil, i), 30)); err != nil {
				f.Fatal(err)
			}
		}
		if _, err := s.Checkpoint(func(rec []byte) error { f.Add(bytes.Clone(rec)); return nil }); err != nil {
			f.Fatal(err)
		}
	}
	var stores [2]*Store // made once: that is most of the time
	for i := range stores {
		var err error
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
