package serialize_test

import (
	"fmt"
	"strings"
	"testing"

	"kvmark/storage"
	"kvmark/storage/serialize"
	"kvmark/storage/serialize/codec"
	"kvmark/storage/storagetest"
)

func open(t testing.TB, o serialize.Options) *serialize.Store {
	t.Helper()
	s, err := serialize.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	for _, o := range []serialize.Options{{}, {Codec: "shared"}, {Codec: "s2", BucketEntries: 1}, {Codec: "none", BucketEntries: 3}} {
		t.Run(fmt.Sprintf("codec=%s/entries=%d", o.Codec, o.BucketEntries), func(t *testing.T) {
			storagetest.Run(t, func(testing.TB) storagetest.Open {
				return func() (storage.Store, error) { return serialize.New(o) }
			})
		})
	}
}

func TestHotPathAllocations(t *testing.T) {
	for _, tt := range []struct {
		codec    string
		set, get float64
	}{
		// The new bucket's bytes.
		{"none", 1, 0},
		{"s2", 1, 0},
		{"zstd", 1, 0},
		{"deflate", 1, 0},
		{"zlib", 1, 0},
		{"shared", 1, 0},
	} {
		t.Run(tt.codec, func(t *testing.T) {
			storagetest.Allocations(t, open(t, serialize.Options{Codec: tt.codec}), tt.set, tt.get)
		})
	}
}

func key(i int) []byte { return fmt.Appendf(nil, "DataSaveKey123456789ABC_%d_pfx_%d", i%8, i) }

func value(i int) []byte {
	return fmt.Appendf(nil, "DataSaveValue_0987654321DEFGHIJKLMN0123456789_%d_pfx_%d", i%8, i)
}

func TestBucketsHoldAboutAsManyEntriesAsAskedFor(t *testing.T) {
	for _, entries := range []int{2, 8, 24} {
		t.Run(fmt.Sprint(entries), func(t *testing.T) {
			s := open(t, serialize.Options{BucketEntries: entries, Codec: "s2"})
			// From full to twice as full, so that it is not a matter of luck
			// how full buckets are at one number of keys.
			n, sum, samples := 0, 0.0, 0
			for ; n < 256*entries*16; n++ {
				if err := s.Set(key(n), value(n)); err != nil {
					t.Fatal(err)
				}
				if n >= 256*entries*8 && n%(256*entries/4) == 0 {
					sum += float64(n+1) / float64(s.Stats().Buckets)
					samples++
				}
			}
			if mean := sum / float64(samples); mean < 0.85*float64(entries) || mean > 1.15*float64(entries) {
				t.Errorf("%.2f entries a bucket, want about %d", mean, entries)
			}
			for i := range n {
				if _, err := s.Delete(key(i)); err != nil {
					t.Fatal(err)
				}
			}
			if st := s.Stats(); st.Buckets != 0 || st.StoredBytes != 0 || st.IndexBytes > 256*64 {
				t.Errorf("emptied: %d buckets of %d bytes and %d bytes of index are left", st.Buckets, st.StoredBytes, st.IndexBytes)
			}
		})
	}
}

func TestClassicDataShrinks(t *testing.T) {
	for _, name := range codec.Names() {
		t.Run(name, func(t *testing.T) {
			s := open(t, serialize.Options{Codec: name})
			for i := range 20_000 {
				if err := s.Set(key(i), value(i)); err != nil {
					t.Fatal(err)
				}
			}
			st := s.Stats()
			ratio := float64(st.KeyBytes+st.ValueBytes) / float64(st.StoredBytes)
			t.Logf("ratio %.2f", ratio)
			if least := map[string]float64{"deflate": 2.5, "zlib": 2.5, "zip": 1.5, "zstd": 2.5, "s2": 2, "shared": 2, "none": 0.9}[name]; ratio < least {
				t.Errorf("ratio %.2f, want at least %.2f", ratio, least)
			}
		})
	}
}

func TestBigValuesStandAlone(t *testing.T) {
	s := open(t, serialize.Options{})
	big := make([]byte, 1<<20)
	for i := range 20 {
		if err := s.Set(key(i), big); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stats(); st.Buckets != 20 {
		t.Errorf("20 values of 1 MiB are in %d buckets", st.Buckets)
	}
}

func TestACheckpointIsRestoredByAnotherCodec(t *testing.T) {
	for _, from := range codec.Names() {
		for _, to := range codec.Names() {
			a, b := open(t, serialize.Options{Codec: from}), open(t, serialize.Options{Codec: to, BucketEntries: 3})
			for i := range 500 {
				if err := a.Set(key(i), value(i)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := a.Checkpoint(b.Restore); err != nil {
				t.Fatalf("from %s to %s: %v", from, to, err)
			}
			for i := range 500 {
				if v, ok, err := b.Get(nil, key(i)); err != nil || !ok || string(v) != string(value(i)) {
					t.Fatalf("from %s to %s: got %q, %v, %v", from, to, v, ok, err)
				}
			}
			if b.Count() != 500 {
				t.Errorf("from %s to %s: %d entries, want 500", from, to, b.Count())
			}
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		o    serialize.Options
		want string
	}{
		{serialize.Options{Codec: "rar"}, "unknown codec"},
		{serialize.Options{Level: 10}, "1..9"},
		{serialize.Options{BucketEntries: -1}, "1..65536"},
		{serialize.Options{BucketEntries: 1 << 20}, "1..65536"},
	} {
		if _, err := serialize.New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got error %v, want one with %q", tt.o, err, tt.want)
		}
	}
}

func BenchmarkStore(b *testing.B) {
	for _, name := range codec.Names() {
		storagetest.Benchmark(b, "mode=serialize/codec="+name, func(t testing.TB) storage.Store {
			return open(t, serialize.Options{Codec: name})
		})
	}
}

func BenchmarkBytesPerKey(b *testing.B) {
	storagetest.BytesPerKey(b, "mode=serialize", func(t testing.TB) storage.Store { return open(t, serialize.Options{}) })
}
