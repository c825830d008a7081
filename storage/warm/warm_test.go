package warm_test

import (
	"slices"
	"testing"

	"kvmark/storage/warm"
)

func TestASetOfShardsIsInAscendingOrder(t *testing.T) {
	var s warm.Shards
	for _, i := range []uint64{255, 0, 64, 63, 64, 128} {
		s.Add(i)
	}
	if got, want := slices.Collect(s.All()), []int{0, 63, 64, 128, 255}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for i := range s.All() {
		if i > 0 {
			t.Errorf("%d after the end", i)
		}
		break
	}
}

func TestEveryKeyHasItsTurn(t *testing.T) {
	for _, n := range []int{0, 1, warm.AtOnce, warm.AtOnce + 1, 3*warm.AtOnce + 2} {
		keys := make([][]byte, n)
		seen := 0
		warm.InTurn(keys, func(some [][]byte) {
			if len(some) == 0 || len(some) > warm.AtOnce {
				t.Errorf("%d at once", len(some))
			}
			seen += len(some)
		})
		if seen != n {
			t.Errorf("%d of %d", seen, n)
		}
	}
}
