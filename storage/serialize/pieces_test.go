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
			if isPieces([]byte(bucket)) {
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
	key := []byte("key 3")
	_, path := s.place(key)
	at := &slot{bucket: b}
	for _, tt := range []struct {
		name, key string
		done      bool
	}{
		{"one in the middle is replaced", "key 3", true},
		{"a new one is added", "another key", true},
		{"the first one is not replaced: the others depend on it", "key 0", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, path = s.place([]byte(tt.key))
			done, err := s.putPiece(&s.shards[0], at, 0, entry{0, path, []byte(tt.key), []byte("a new value")}, new(scratch))
			if err != nil || done != tt.done {
				t.Fatalf("got %v, %v; want %v", done, err, tt.done)
			}
			g, err := c.parsePieces([]byte(at.bucket), maxRaw)
			if err != nil {
				t.Fatal(err)
			}
			for i := range f.entries {
				_, was := f.piece(i)
				if _, is := g.piece(i); string(is) != string(was) && i != 3 {
					t.Errorf("piece %d has changed", i)
				}
			}
		})
	}
}

// TestTheFormatOfPiecesStays reads a checkpoint's record that was written when the format was new.
func TestTheFormatOfPiecesStays(t *testing.T) {
	b, err := os.ReadFile("testdata/pieces.bucket")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Codec: "none"})
	if err != nil {
		t.Fatal(err)
	}
	got, n, err := s.coder.decode(nil, b, maxRaw)
	if err != nil || n != 5 || !bytes.Equal(got, bigPairs(5)) {
		t.Errorf("got %d entries of %d bytes, %v", n, len(got), err)
	}
	record := func(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }
	if err := s.Restore(record(b)); err != nil || s.Count() != 5 {
		t.Errorf("%d entries are restored, error %v", s.Count(), err)
	}
	b[0] = kindInMemory
	if err := s.Restore(record(b)); !errors.Is(err, errDamaged) {
		t.Errorf("a bucket without its head was restored: %v", err)
	}
}
