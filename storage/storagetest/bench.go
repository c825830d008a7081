package storagetest

import (
	"fmt"
	"runtime"
	"testing"

	"kvmark/storage"
)

// classicKey and classicValue are data as the benchmark's clients send them.
func classicKey(dst []byte, i int) []byte {
	return fmt.Appendf(dst, "DataSaveKey123456789ABC_%d_pfx_%d", i%8, i)
}

func classicValue(dst []byte, i, size int) []byte {
	dst = fmt.Appendf(dst, "DataSaveValue_0987654321DEFGHIJKLMN0123456789_%d_pfx_%d", i%8, i)
	for len(dst) < size {
		dst = fmt.Appendf(dst, "_%d", i*len(dst))
	}
	return dst[:max(size, 1)]
}

// Allocations checks what one overwriting Set and one Get allocate in a warm
// store: at most so many each.
func Allocations(t *testing.T, s storage.Store, perSet, perGet float64) {
	t.Helper()
	if raceEnabled {
		t.Skip("SKIPPED: the race detector has sync.Pool drop what it is given, at random")
	}
	var keys, values [][]byte
	for i := range 2000 {
		keys = append(keys, classicKey(nil, i))
		values = append(values, classicValue(nil, i, 60))
	}
	i := 0
	set := func() {
		if err := s.Set(keys[i%len(keys)], values[i%len(values)]); err != nil {
			t.Fatal(err)
		}
		i++
	}
	for range 3 * len(keys) {
		set()
	}
	if got := testing.AllocsPerRun(4000, set); got > perSet {
		t.Errorf("Set allocates %v times, want at most %v", got, perSet)
	}
	buf := make([]byte, 0, 1024)
	got := testing.AllocsPerRun(4000, func() {
		v, ok, err := s.Get(buf, keys[i%len(keys)])
		if err != nil || !ok || len(v) != len(values[i%len(values)]) {
			t.Fatalf("get: %d bytes, %v, %v", len(v), ok, err)
		}
		i++
	})
	if got > perGet {
		t.Errorf("Get allocates %v times, want at most %v", got, perGet)
	}
	missing := []byte("missing")
	if got := testing.AllocsPerRun(1000, func() { _, _, _ = s.Get(buf, missing) }); got > perGet {
		t.Errorf("Get of a missing key allocates %v times, want at most %v", got, perGet)
	}
}

// Benchmark measures overwriting Sets and Gets. name is key=value.
func Benchmark(b *testing.B, name string, open func(testing.TB) storage.Store) {
	const keys = 100_000
	for _, size := range []int{60, 1024} {
		s := open(b)
		var ks [][]byte
		value := make([]byte, 0, size)
		for i := range keys {
			ks = append(ks, classicKey(nil, i))
			if err := s.Set(ks[i], classicValue(value, i, size)); err != nil {
				b.Fatal(err)
			}
		}
		value = classicValue(value[:0], 1, size)
		step := 7919 // a prime: visits all keys in an order that is not theirs
		b.Run(fmt.Sprintf("%s/op=set/size=%d", name, size), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := s.Set(ks[i%keys], value); err != nil {
					b.Fatal(err)
				}
				i += step
			}
		})
		b.Run(fmt.Sprintf("%s/op=get/size=%d", name, size), func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 2*size)
			i := 0
			for b.Loop() {
				if _, ok, err := s.Get(buf, ks[i%keys]); err != nil || !ok {
					b.Fatal(ok, err)
				}
				i += step
			}
		})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BytesPerKey measures the heap that a store of 1,000,000 keys takes.
func BytesPerKey(b *testing.B, name string, open func(testing.TB) storage.Store) {
	const keys = 1_000_000
	for _, size := range []int{60} {
		b.Run(fmt.Sprintf("%s/keys=%d/size=%d", name, keys, size), func(b *testing.B) {
			for b.Loop() {
				before := heap()
				s := open(b)
				var key, value []byte
				for i := range keys {
					key, value = classicKey(key[:0], i), classicValue(value[:0], i, size)
					if err := s.Set(key, value); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(heap()-before)/keys, "heap-bytes/key")
				st := s.Stats()
				b.ReportMetric(float64(st.KeyBytes+st.ValueBytes)/keys, "logical-bytes/key")
				b.ReportMetric(float64(st.StoredBytes)/keys, "stored-bytes/key")
				b.ReportMetric(float64(st.IndexBytes)/keys, "index-bytes/key")
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // pools keep what they have for one more cycle
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
