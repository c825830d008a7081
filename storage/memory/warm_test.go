package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"kvmark/storage/memory"
)

// BenchmarkWarm shows what an operation costs, with its share of a Warm of so
// many keys before: 0 = none. Making up the keys and values is in it.
func BenchmarkWarm(b *testing.B) {
	for _, keys := range scales() {
		s := filled(b, memory.New(), keys)
		for _, op := range []string{"get", "set"} {
			for _, atOnce := range []int{0, 2, 8, 16, 32} {
				b.Run(fmt.Sprintf("keys=%d/op=%s/warm=%d", keys, op, atOnce), func(b *testing.B) {
					r := rand.New(rand.NewPCG(1, 2))
					ks, vs := make([][]byte, max(1, atOnce)), make([][]byte, max(1, atOnce))
					var got []byte
					for i := 0; b.Loop(); i++ {
						n := i % len(ks)
						if n == 0 {
							for j := range ks {
								ks[j], vs[j] = classic(ks[j], vs[j], r.IntN(keys))
							}
							if atOnce > 0 {
								s.Warm(ks)
							}
						}
						if op == "set" {
							_ = s.Set(ks[n], vs[n])
						} else if got, _, _ = s.Get(got[:0], ks[n]); len(got) != len(vs[n]) {
							b.Fatalf("%q has %d bytes", ks[n], len(got))
						}
					}
				})
			}
		}
	}
}
