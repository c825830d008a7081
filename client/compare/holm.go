package compare

import (
	"cmp"
	"slices"
)

// Holm adjusts the p values of a family of tests so that the chance of even one false claim below a level stays below
// that level. Undefined values are no tests: they stay undefined and do not count among the tests returned.
func Holm(p []Value) (adjusted []Value, tests int) {
	var order []int
	for i, v := range p {
		if v.OK {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a].Float, p[b].Float) })
	adjusted = make([]Value, len(p))
	floor := 0.0 // a larger p never gets a smaller adjusted p
	for rank, i := range order {
		floor = max(floor, min(1, p[i].Float*float64(len(order)-rank)))
		adjusted[i] = Defined(floor)
	}
	return adjusted, len(order)
}
