package gomap_test

import (
	"testing"
	"unsafe"

	"kvmark/storage"
	"kvmark/storage/gomap"
	"kvmark/storage/storagetest"
)

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(testing.TB) storagetest.Open {
		return func() (storage.Store, error) { return gomap.New(), nil }
	})
}

// A Set allocates what its name promises: a key and a value.
func TestHotPathAllocations(t *testing.T) {
	s := gomap.New()
	storagetest.Allocations(t, s, 2, 0)
	n := testing.AllocsPerRun(100, func() { _ = s.Set([]byte("a key of some length beyond a small string"), make([]byte, 100)) })
	if n < 2 {
		t.Errorf("a Set allocates %v objects, want a key and a value", n)
	}
}

// A value is an object of its own, so that another Set of its key neither moves nor changes what a scan has.
func TestKeyAndValueAreSeparateObjects(t *testing.T) {
	s := gomap.New()
	first := []byte("first")
	if err := s.Set([]byte("key"), first); err != nil {
		t.Fatal(err)
	}
	for i := range s.Shards() {
		if err := s.Range(i, func(_, value []byte) error {
			if err := s.Set([]byte("key"), []byte("other")); err != nil || string(value) != "first" || unsafe.SliceData(value) == unsafe.SliceData(first) {
				t.Errorf("the value is %q after another Set, %v", value, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkStore(b *testing.B) {
	storagetest.Benchmark(b, "mode=map", func(testing.TB) storage.Store { return gomap.New() })
}

func BenchmarkBytesPerKey(b *testing.B) {
	storagetest.BytesPerKey(b, "mode=map", func(testing.TB) storage.Store { return gomap.New() })
}
