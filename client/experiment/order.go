package experiment

import (
	"math/rand/v2"
	"slices"
)

// order returns the cells of one block (block 0 is the first) in the order in which they are measured: every cell once,
// all variants of a mode next to one another, since they are compared. Even blocks are drawn from the seed, and an odd
// block is the one before it turned around, so that whatever changes evenly over time falls on all cells alike.
//
//	block 0   file/B file/A   memory/A memory/B
//	block 1   memory/B memory/A   file/A file/B
func order(seed uint64, block int, variants []int, modes []string) []Cell {
	rng := rand.New(rand.NewPCG(seed, uint64(block/2)))
	cells := make([]Cell, 0, len(variants)*len(modes))
	for _, m := range rng.Perm(len(modes)) {
		for _, v := range rng.Perm(len(variants)) {
			cells = append(cells, Cell{variants[v], modes[m]})
		}
	}
	if block%2 == 1 {
		slices.Reverse(cells)
	}
	return cells
}

// group cuts the cells of a block into the servers that live side by side: those of one mode.
func group(cells []Cell) [][]Cell {
	var groups [][]Cell
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].Mode == cells[0].Mode {
			n++
		}
		groups = append(groups, cells[:n])
		cells = cells[n:]
	}
	return groups
}
