package serialize

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// recount adds up what the store's sizes must be.
func recount(t *testing.T, s *Store) (sum size, shared int64) {
	t.Helper()
	for shard := range s.shards {
		err := s.buckets(shard, func(bucket string, path uint64, depth int) error {
			raw, n, err := s.decode(nil, bucket, shard, path, depth)
			sum.buckets++
			sum.entries += int64(n)
			sum.rawBytes += int64(len(raw))
			sum.storedBytes += int64(len(bucket))
			if isShared(bucket) {
				shared++
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
	return sum, shared
}

// TestSharedEntriesComeAndGo compares a store with a map, over sizes at which buckets are of codec shared and others, and its
// sizes with what is there.
func TestSharedEntriesComeAndGo(t *testing.T) {
	s, err := New(Options{Codec: "shared"})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	model := map[string]string{}
	text := func() string {
		v := fmt.Appendf(nil, `{"id":%d,"text":"`, r.Uint32())
		for range r.IntN(100) {
			v = append(v, byte('a'+r.IntN(26)))
		}
		n := []int{0, 60, 500, 500, 500, 900}[r.IntN(6)]
		if r.IntN(40) == 0 {
			n = maxShared
		}
		for len(v) < n {
			v = fmt.Appendf(v, `","item":"%d and so on`, r.IntN(1000))
		}
		return string(v)
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
		want, shared := recount(t, s)
		got := s.size()
		want.nodes = got.nodes
		if got != want || got.entries != int64(len(model)) {
			t.Fatalf("sizes are %+v, want %+v", got, want)
		}
		if shared < got.buckets/4 && len(model) > 500 {
			t.Errorf("%d of %d buckets are of codec shared", shared, got.buckets)
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
		other, err := New(Options{Codec: []string{"s2", "zstd", "shared"}[round], BucketEntries: 5})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Checkpoint(other.Restore); err != nil {
			t.Fatal(err)
		}
		if s, err = New(Options{Codec: "shared"}); err != nil {
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

// TestASetReplacesOneBlock holds the store to what codec shared is for: the other entries are copied.
func TestASetReplacesOneBlock(t *testing.T) {
	s, err := New(Options{Codec: "shared"})
	if err != nil {
		t.Fatal(err)
	}
	s.split = 1 << 20
	c := &s.coder
	b, err := c.encode(bigPairs(8), 8, new(scratch))
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.parseShared([]byte(b))
	if err != nil {
		t.Fatal(err)
	}
	block := func(f *sharedBucket, i int) []byte {
		from, to := f.bounds(i)
		return f.blocks[from:to]
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
			done, err := s.putShared(&s.shards[0], at, 0, entry{0, path, []byte(tt.key), []byte("a new value")}, new(scratch))
			if err != nil || !done {
				t.Fatalf("got %v, %v", done, err)
			}
			g, err := c.parseShared([]byte(at.bucket))
			if err != nil {
				t.Fatal(err)
			}
			for i := range f.entries {
				if was, is := block(&f, i), block(&g, i); bytes.Equal(is, was) == (i == tt.at) {
					t.Errorf("block %d: changed %v", i, !bytes.Equal(is, was))
				}
			}
			if want := max(f.entries, tt.at+1); g.entries != want {
				t.Errorf("%d entries, want %d", g.entries, want)
			}
			f = g
		})
	}
}
