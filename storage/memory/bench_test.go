package memory_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"kvmark/storage/memory"
)

// classic makes the key and the value of a number as the benchmark's clients do.
func classic(key, value []byte, i int) (k, v []byte) {
	key = append(key[:0], "DataSaveKey123456789ABC_0_0_"...)
	value = append(value[:0], "DataSaveValue_0987654321DEFGHIJKLMN0123456789_0_0_"...)
	return strconv.AppendInt(key, int64(i), 10), strconv.AppendInt(value, int64(i), 10)
}

func filled(b *testing.B, s *memory.Store, keys int) *memory.Store {
	b.Helper()
	var key, value []byte
	for i := range keys {
		key, value = classic(key, value, i)
		if err := s.Set(key, value); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// scales are numbers of keys. KVMARK_LONG adds 10,000,000, which take 1.5 GB and
// more.
func scales() []int {
	sizes := []int{100_000, 1_000_000}
	if os.Getenv("KVMARK_LONG") != "" {
		sizes = append(sizes, 10_000_000)
	}
	return sizes
}

// BenchmarkScale shows what more keys cost each Get and Set: lines of memory that
// are in no cache.
func BenchmarkScale(b *testing.B) {
	for _, keys := range scales() {
		s := filled(b, memory.New(), keys)
		for _, op := range []string{"get", "set"} {
			b.Run(fmt.Sprintf("keys=%d/op=%s", keys, op), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 2))
				var key, value, got []byte
				for b.Loop() {
					key, value = classic(key, value, r.IntN(keys))
					if op == "set" {
						_ = s.Set(key, value)
					} else if got, _, _ = s.Get(got[:0], key); len(got) != len(value) {
						b.Fatalf("%q has %d bytes", key, len(got))
					}
				}
			})
		}
	}
}

// BenchmarkSetAll overwrites 1,000,000 keys at random, one by one and many at once.
func BenchmarkSetAll(b *testing.B) {
	const keys, atOnce = 1_000_000, 1000
	s := filled(b, memory.New(), keys)
	r := rand.New(rand.NewPCG(1, 2))
	ks, vs := make([][]byte, atOnce), make([][]byte, atOnce)
	for _, op := range []string{"set", "setall"} {
		b.Run("op="+op, func(b *testing.B) {
			for b.Loop() {
				for i := range ks {
					ks[i], vs[i] = classic(ks[i], vs[i], r.IntN(keys))
				}
				if op == "setall" {
					_ = s.SetAll(ks, vs)
					continue
				}
				for i, key := range ks {
					_ = s.Set(key, vs[i])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*atOnce), "ns/entry")
		})
	}
}

// BenchmarkShards compares numbers of shards when 64 goroutines for each
// processor use a store at once, half of them writing. -cpu varies the
// processors that Go uses; waits/op are the waits for a shard's lock as the mutex
// profile counts them.
func BenchmarkShards(b *testing.B) {
	const keys = 100_000
	for _, shards := range []int{1, 16, 64, 256, 1024} {
		s := filled(b, memory.NewSharded(shards), keys)
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
			before := lockWaits()
			var seed atomic.Uint64
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				me := seed.Add(1)
				r := rand.New(rand.NewPCG(me, 3))
				var key, value, got []byte
				for pb.Next() {
					key, value = classic(key, value, r.IntN(keys))
					if me%2 == 0 {
						_ = s.Set(key, value)
					} else {
						got, _, _ = s.Get(got[:0], key)
					}
				}
			})
			b.ReportMetric(float64(lockWaits()-before)/float64(b.N), "waits/op")
		})
	}
}

// lockWaits returns how often a lock was waited for since the process began,
// while the profile was on.
func lockWaits() (n int64) {
	records := make([]runtime.BlockProfileRecord, 100)
	for {
		count, ok := runtime.MutexProfile(records)
		if !ok {
			records = make([]runtime.BlockProfileRecord, 2*count)
			continue
		}
		for _, r := range records[:count] {
			n += r.Count
		}
		return n
	}
}
