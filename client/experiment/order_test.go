package experiment

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEveryBlockHasEveryCellOnceAndMirrorsTheOneBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		variants := rapid.SliceOfNDistinct(rapid.IntRange(0, 30), 1, 8, rapid.ID).Draw(t, "variants")
		modes := []string{"memory", "serialize", "file", "lsm"}[:rapid.IntRange(1, 4).Draw(t, "modes")]
		var before []Cell
		for block := range 6 {
			cells := order(seed, block, variants, modes)
			seen := map[Cell]bool{}
			for _, c := range cells {
				if seen[c] || !slices.Contains(variants, c.Variant) || !slices.Contains(modes, c.Mode) {
					t.Fatalf("block %d: %v is there twice or foreign", block, c)
				}
				seen[c] = true
			}
			if len(seen) != len(variants)*len(modes) {
				t.Fatalf("block %d has %d cells", block, len(seen))
			}
			if groups := group(cells); len(groups) != len(modes) {
				t.Fatalf("block %d: the modes are not together: %v", block, cells)
			}
			if !slices.Equal(cells, order(seed, block, variants, modes)) {
				t.Fatal("the same seed gives another order")
			}
			mirrored := slices.Clone(before)
			slices.Reverse(mirrored)
			if block%2 == 1 && !slices.Equal(cells, mirrored) {
				t.Fatalf("block %d is %v, not the mirror image of %v", block, cells, before)
			}
			before = cells
		}
	})
}

// A clock that counts samples, and a machine that gets slower with it: over two blocks every cell loses the same.
func TestLinearDriftCancelsExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		variants := []int{0, 1, 2, 3, 4}[:rapid.IntRange(2, 5).Draw(t, "variants")]
		clock, lost := 0, map[Cell]int{}
		for block := range 2 * rapid.IntRange(1, 5).Draw(t, "pairs of blocks") {
			for _, c := range order(seed, block, variants, []string{"memory", "file"}) {
				lost[c] += clock
				clock++
			}
		}
		for c, n := range lost {
			if n != lost[Cell{0, "memory"}] {
				t.Fatalf("%v lost %d, others %d", c, n, lost[Cell{0, "memory"}])
			}
		}
	})
}

func TestDifferentSeedsAndPairsOfBlocksGiveDifferentOrders(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(10) {
		for block := 0; block < 10; block += 2 {
			orders[fmt.Sprint(order(seed, block, []int{0, 1, 2, 3, 4, 5}, []string{"memory"}))] = true
		}
	}
	if len(orders) < 40 { // of 720
		t.Errorf("50 draws gave only %d orders", len(orders))
	}
}

func TestTurnsComeInPairs(t *testing.T) {
	tests := []struct {
		duration, slice time.Duration
		n               int
	}{
		{5 * time.Second, 0, 1},
		{5 * time.Second, 500 * time.Millisecond, 10},
		{5 * time.Second, time.Second, 6},
		{time.Second, 500 * time.Millisecond, 2},
		{time.Second, 300 * time.Millisecond, 4},
	}
	for _, tt := range tests {
		n, length := turns(tt.duration, tt.slice)
		if n != tt.n || tt.slice > 0 && length != tt.slice || tt.slice == 0 && length != tt.duration {
			t.Errorf("%v in %v: %d turns of %v, want %d", tt.duration, tt.slice, n, length, tt.n)
		}
	}
}
