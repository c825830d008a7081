package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"kvmark/storage/memory"
)

// TestSetAllIsSetInOrder compares SetAll with Set where keys come again in one
// call, are there already, or are twins.
func TestSetAllIsSetInOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		mask uint64
	}{
		{"every key has a hash of its own", ^uint64(0)},
		{"keys are twins", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, one := memory.NewWithTwins(tc.mask), memory.New()
			r := rand.New(rand.NewPCG(1, 1))
			for _, n := range []int{0, 1, 5, 1023, 1024, 1025, 5000} {
				var keys, values [][]byte
				for i := range n {
					key := fmt.Appendf(nil, "key %d", r.IntN(max(1, n*3/4)))
					value := fmt.Appendf(nil, "value %d of %d %0*d", i, n, r.IntN(200), 0)
					keys, values = append(keys, key), append(values, value)
					if err := one.Set(key, value); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.SetAll(keys, values); err != nil {
					t.Fatal(err)
				}
			}
			got, want := contents(s), contents(one)
			if len(got) != len(want) {
				t.Errorf("%d entries, want %d", len(got), len(want))
			}
			for key, value := range want {
				if got[key] != value {
					t.Errorf("%q is %.30q, want %.30q", key, got[key], value)
				}
			}
			if got, want := s.Stats(), one.Stats(); got.Keys != want.Keys || got.KeyBytes != want.KeyBytes || got.ValueBytes != want.ValueBytes {
				t.Errorf("stats are %+v, want %+v", got, want)
			}
		})
	}
}

func contents(s *memory.Store) map[string]string {
	m := map[string]string{}
	for shard := range s.Shards() {
		_ = s.Range(shard, func(key, value []byte) error {
			m[string(key)] = string(value)
			return nil
		})
	}
	return m
}
