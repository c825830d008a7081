package serialize

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"testing"

	"kvmark/storage/pair"
)

// recount adds up what the store's sizes must be.
func recount(t *testing.T, s *Store) (sum size, inPieces int64) {
	t.Helper()
	for shard := range s.shards {
		err := s.buckets(shard, func(bucket string, path uint64, depth int) error {
			raw, n, err := s.decode(nil, bucket, shard, path, depth)
			sum.buckets++
			sum.entries += int64(n)
			sum.rawBytes += int64(len(raw))
			sum.storedBytes += int64(len(bucket))
			if isPieces(bucket) {
				inPieces++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Range(shard, func(key, value []byte) error {
			sum.keyBytes += int64(len(key))
			sum.valueBytes += int64(len(value))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sum, inPieces
}

// TestEntriesInPiecesComeAndGo compares a store with a map, over sizes at which buckets are in pieces and others, and its
// sizes with what is there.
func TestEntriesInPiecesComeAndGo(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	model := map[string]string{}
	text := func() string {
		v := fmt.Sprintf(`{"id":%d,"text":"`, r.Uint32())
		for range r.IntN(100) {
			v += string(rune('a' + r.IntN(26)))
		}
		for n := []int{0, 60, 500, 500, 500, 900, 20_000}[r.IntN(7)]; len(v) < n; {
			v += fmt.Sprintf(`","item":"%d and so on`, r.IntN(1000))
		}
		return v
	}
	check := func() {
		t.Helper()
		for i := range 1500 {
			k := fmt.Sprint("key ", i)
			want, there := model[k]
			got, ok, err := s.Get(nil, []byte(k))
			n, lok, lerr := s.ValueLen([]byte(k))
			if err != nil || ok != there || string(got) != want || lerr != nil || lok != there || n != len(want) {
				t.Fatalf("%q: got %.40q, %v, %v and length %d, %v, %v; want %.40q, %v", k, got, ok, err, n, lok, lerr, want, there)
			}
		}
		want, inPieces := recount(t, s)
		got := s.size()
		want.nodes = got.nodes
		if got != want || got.entries != int64(len(model)) {
			t.Fatalf("sizes are %+v, want %+v", got, want)
		}
		if inPieces < got.buckets/4 && len(model) > 500 {
			t.Errorf("%d of %d buckets are in pieces", inPieces, got.buckets)
		}
	}
	for round := range 3 {
		for range 4000 {
			k := fmt.Sprint("key ", r.IntN(1200))
			if r.IntN(4) == 0 {
				_, there := model[k]
				if ok, err := s.Delete([]byte(k)); err != nil || ok != there {
					t.Fatalf("delete %q: %v, %v; want %v", k, ok, err, there)
				}
				delete(model, k)
				continue
			}
			v := text()
			if err := s.Set([]byte(k), []byte(v)); err != nil {
				t.Fatal(err)
			}
			model[k] = v
		}
		check()
		// Into a store of another codec and back.
		other, err := New(Options{Codec: []string{"s2", "zstd", "deflate"}[round], BucketEntries: 5})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Checkpoint(other.Restore); err != nil {
			t.Fatal(err)
		}
		if s, err = New(Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Checkpoint(s.Restore); err != nil {
			t.Fatal(err)
		}
		check()
	}
	for k := range maps.Clone(model) {
		if ok, err := s.Delete([]byte(k)); err != nil || !ok {
			t.Fatalf("delete %q: %v, %v", k, ok, err)
		}
		delete(model, k)
	}
	check()
}

// TestASetReplacesOnePiece holds the store to what pieces are for: the others are copied.
func TestASetReplacesOnePiece(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.split = 1 << 20
	c := &s.coder
	raw := bigPairs(8)
	b, err := c.encode(raw, 8, new(scratch))
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.parsePieces([]byte(b), maxRaw)
	if err != nil {
		t.Fatal(err)
	}
	at := &slot{bucket: b}
	for _, tt := range []struct {
		name, key string
		at        int
	}{
		{"one in the middle is replaced", "key 3", 3},
		{"a new one is added", "another key", 8},
		{"the first one is replaced", "key 0", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, path := s.place([]byte(tt.key))
			done, err := s.putPiece(&s.shards[0], at, 0, entry{0, path, []byte(tt.key), []byte("a new value")}, new(scratch))
			if err != nil || !done {
				t.Fatalf("got %v, %v", done, err)
			}
			g, err := c.parsePieces([]byte(at.bucket), maxRaw)
			if err != nil {
				t.Fatal(err)
			}
			for i := range f.entries {
				was, err := c.piece(&f, i)
				if err != nil {
					t.Fatal(err)
				}
				if is, err := c.piece(&g, i); err != nil || bytes.Equal(is, was) == (i == tt.at) {
					t.Errorf("piece %d: changed %v, %v", i, !bytes.Equal(is, was), err)
				}
			}
			if want := max(f.entries, tt.at+1); g.entries != want {
				t.Errorf("%d entries, want %d", g.entries, want)
			}
			f = g
		})
	}
}

const piecesRecord = "testdata/pieces.record"

// TestTheFormatOfPiecesStays reads a checkpoint's record that was written when the format was new.
func TestTheFormatOfPiecesStays(t *testing.T) {
	record, err := os.ReadFile(piecesRecord)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Codec: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(record); err != nil || s.Count() != 5 {
		t.Errorf("%d entries are restored, error %v", s.Count(), err)
	}
	for rest := bigPairs(5); len(rest) > 0; {
		var k, v []byte
		k, v, rest, _ = pair.Next(rest)
		if got, ok, err := s.Get(nil, k); err != nil || !ok || !bytes.Equal(got, v) {
			t.Errorf("%q: got %.40q, %v, %v", k, got, ok, err)
		}
	}
	// Without the code that it begins with.
	n, w := binary.Uvarint(record)
	if err := s.Restore(record[w+int(n):]); !errors.Is(err, errDamaged) {
		t.Errorf("a bucket without its code was restored: %v", err)
	}
}

// TestARecordHasItsCodes has a store use one code after the other, and every record of its checkpoint restored alone.
func TestARecordHasItsCodes(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	const keys = 3000
	value := func(i int) []byte {
		v := bytes.Repeat(fmt.Appendf(nil, "kind %d of data, ", i/500), 3)
		for range 60 {
			v = append(v, byte(i/500*20+r.IntN(16)))
		}
		return v
	}
	model := map[string][]byte{}
	for i := range keys {
		k := fmt.Sprint("key ", i)
		model[k] = value(i)
		if err := s.Set([]byte(k), model[k]); err != nil {
			t.Fatal(err)
		}
	}
	records, numbers, total := 0, map[int]bool{}, int64(0)
	if _, err := s.Checkpoint(func(rec []byte) error {
		records++
		for rest := rec; len(rest) > 0; {
			n, w := binary.Uvarint(rest)
			if rest[w] == kindCode {
				number, _ := binary.Uvarint(rest[w+1:])
				numbers[int(number)] = true
			}
			rest = rest[w+int(n):]
		}
		alone, err := New(Options{})
		if err != nil {
			return err
		}
		if err := alone.Restore(rec); err != nil {
			return err
		}
		for i := range alone.Shards() {
			if err := alone.Range(i, func(k, v []byte) error {
				total++
				if !bytes.Equal(model[string(k)], v) {
					t.Errorf("%q: got %q, want %q", k, v, model[string(k)])
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if records < 3 || len(numbers) < 2 || total != keys {
		t.Errorf("%d entries in %d records with %d codes", total, records, len(numbers))
	}
}

// TestAGlanceIsAtThePieceThatIsAskedFor looks at whole buckets, and at damaged ones, which may give anything.
func TestAGlanceIsAtThePieceThatIsAskedFor(t *testing.T) {
	c, err := newCoder("deflate", 0)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := c.encode(bigPairs(5), 5, new(scratch))
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.parsePieces(bytesOf(bucket), maxRaw)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.entries {
		first := 0
		for f.tag(first) != f.tag(i) {
			first++
		}
		want, err := c.piece(&f, first)
		if got := glance(bucket, f.tag(i)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("piece %d: %x, want %x, %v", i, got, want, err)
		}
	}
	for n := range len(bucket) {
		glance(bucket[:n], f.tag(4))
		for bit := range 8 {
			b := []byte(bucket)
			b[n] ^= 1 << bit
			glance(string(b), f.tag(4))
		}
	}
}
