package memory_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"unsafe"
	"weak"

	"kvmark/storage"
	"kvmark/storage/memory"
	"kvmark/storage/storagetest"
)

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(testing.TB) storagetest.Open {
		return func() (storage.Store, error) { return memory.New(), nil }
	})
}

// TestSetLetsTheOldEntryGo holds the runtime to replacing the key of a map
// entry together with its value: otherwise an overwritten entry would keep two
// allocations alive, the first for its key.
func TestSetLetsTheOldEntryGo(t *testing.T) {
	letsTheOldEntryGo(t, memory.New(), []byte("a key long enough not to share an allocation"), make([]byte, 200))
}

func letsTheOldEntryGo(t *testing.T, s *memory.Store, key, value []byte) {
	t.Helper()
	if err := s.Set(key, value); err != nil {
		t.Fatal(err)
	}
	var old weak.Pointer[byte]
	for shard := range s.Shards() {
		_ = s.Range(shard, func(k, v []byte) error {
			if !bytes.Equal(k, key) {
				return nil
			}
			const between = 2 // bytes of the value's length
			if unsafe.Add(unsafe.Pointer(unsafe.SliceData(k)), len(k)+between) != unsafe.Pointer(unsafe.SliceData(v)) {
				t.Error("key and value are not in one allocation")
			}
			old = weak.Make(unsafe.SliceData(k))
			return nil
		})
	}
	runtime.GC()
	if old.Value() == nil {
		t.Fatal("the entry was collected while it was stored")
	}
	if err := s.Set(key, value); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	if old.Value() != nil {
		t.Error("the overwritten entry is still in memory")
	}
	runtime.KeepAlive(s)
}

// TestTwinsConformance lets keys share eight hashes, so that nearly all of them
// are twins.
func TestTwinsConformance(t *testing.T) {
	storagetest.Run(t, func(testing.TB) storagetest.Open {
		return func() (storage.Store, error) { return memory.NewWithTwins(7), nil }
	})
}

// TestSetLetsTheOldTwinGo is the same for a key that is among the twins.
func TestSetLetsTheOldTwinGo(t *testing.T) {
	s := memory.NewWithTwins(0)
	value := make([]byte, 200)
	for _, key := range []string{"the key that has the hash", "the key that is its twin and long enough"} {
		if err := s.Set([]byte(key), value); err != nil {
			t.Fatal(err)
		}
		letsTheOldEntryGo(t, s, []byte(key), value)
	}
}

func TestHotPathAllocations(t *testing.T) {
	storagetest.Allocations(t, memory.New(), 1, 0)
}

func BenchmarkStore(b *testing.B) {
	storagetest.Benchmark(b, "mode=memory", func(testing.TB) storage.Store { return memory.New() })
}

func BenchmarkBytesPerKey(b *testing.B) {
	storagetest.BytesPerKey(b, "mode=memory", func(testing.TB) storage.Store { return memory.New() })
}

func Example() {
	s := memory.New()
	_ = s.Set([]byte("key"), []byte("value"))
	value, ok, _ := s.Get([]byte("got "), []byte("key"))
	fmt.Println(string(value), ok)
	// Output: got value true
}
