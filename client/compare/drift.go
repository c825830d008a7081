package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Drift says whether the runs of a cell moved while they were taken. Runs that drift are not repetitions of one
// experiment: only a paired comparison may then be trusted.
type Drift struct {
	N int

	Tau    Value // Kendall's tau of value against order: -1 falls all the time, 1 rises all the time
	Slope  Value // median change per run (Theil-Sen), as a part of the median
	TrendP Value // Mann-Kendall, two-sided

	ShiftAt int   // runs before the most likely single change of level (Pettitt)
	Shift   Value // median after it over median before it, minus 1
	ShiftP  Value
}

// permutations of the runs give the p of the change point up to exactPairs runs: Pettitt's formula is far too
// timid there (with 10 runs it cannot fall below 0.06).
const permutations = 4999

// FindDrift looks for a trend and for one change of level in runs in the order of time. With fewer than 4 runs, or
// values that are not finite, everything is undefined.
func FindDrift(values []float64) Drift {
	n := len(values)
	d := Drift{N: n}
	if n < 4 || (Sample{Values: values}).fault() != "" {
		return d
	}
	var s int
	slopes := make([]float64, 0, n*(n-1)/2)
	for j := range values {
		for i := range values[:j] {
			s += sign(values[j] - values[i])
			slopes = append(slopes, (values[j]-values[i])/float64(j-i))
		}
	}
	ranks, ties := midranks(values)
	pairs := n * (n - 1) / 2
	d.Tau = Defined(float64(s) / float64(pairs))
	d.TrendP = Defined(mannKendallP(s, values, ties > 0))
	if m := median(values); m > 0 {
		d.Slope = Defined(median(slopes) / m)
	}

	k, at := pettitt(ranks)
	d.ShiftAt = at
	if before := median(values[:at]); before > 0 {
		d.Shift = Defined(median(values[at:])/before - 1)
	}
	d.ShiftP = Defined(pettittP(k, ranks))
	return d
}

// mannKendallP returns the two-sided p of s, the number of rising minus falling pairs.
func mannKendallP(s int, values []float64, tied bool) float64 {
	n := len(values)
	if !tied && n <= exactPairs {
		// Every permutation is equally likely; their inversions add up run by run, uniformly from 0 to i.
		d := pmf{1}
		for i := 1; i < n; i++ {
			next := make(pmf, len(d)+i)
			for k, w := range d {
				for j := range i + 1 {
					next[k+j] += w / float64(i+1)
				}
			}
			d = next
		}
		return d.twoSided((n*(n-1)/2 - s) / 2)
	}
	variance := float64(n * (n - 1) * (2*n + 5))
	groups := map[float64]int{}
	for _, x := range values {
		groups[x]++
	}
	for _, t := range groups {
		variance -= float64(t * (t - 1) * (2*t + 5))
	}
	return normalP(float64(s), 1, variance/18)
}

// pettitt returns the largest |U| over all ways to cut the runs in two, and how many runs come before that cut.
func pettitt(doubledRanks []int) (k, at int) {
	n := len(doubledRanks)
	u := 0
	at = 1
	for t, r := range doubledRanks[:n-1] {
		u += r - (n + 1)
		if abs := max(u, -u); abs > k {
			k, at = abs, t+1
		}
	}
	return k, at
}

// pettittP returns the chance of a k that large without any change.
func pettittP(k int, ranks []int) float64 {
	n := len(ranks)
	if n > exactPairs {
		x, m := float64(k), float64(n)
		return min(1, 2*math.Exp(-6*x*x/(m*m*m+m*m)))
	}
	rng := rand.New(rand.NewPCG(uint64(n), 0x6b766d61726b)) // fixed: the same runs give the same p
	shuffled := append([]int(nil), ranks...)
	hits := 1
	for range permutations {
		rng.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if other, _ := pettitt(shuffled); other >= k {
			hits++
		}
	}
	return float64(hits) / (permutations + 1)
}

func sign(x float64) int {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// Seen reports whether either test finds something. Two tests are made, so each must pass at half of [Alpha].
func (d Drift) Seen() bool {
	return d.TrendP.OK && min(d.TrendP.Float, d.ShiftP.Float) < Alpha/2
}

// String says it in words.
func (d Drift) String() string {
	switch {
	case !d.TrendP.OK:
		return fmt.Sprintf("drift: not tested (n = %d, 4 runs are needed)", d.N)
	case !d.Seen():
		return fmt.Sprintf("drift: none seen in %d runs (trend %s, level %s)", d.N, pText(d.TrendP), pText(d.ShiftP))
	case d.ShiftP.Float <= d.TrendP.Float:
		return fmt.Sprintf("drift: the level %s after run %d of %d (Pettitt %s)", move(d.Shift.Float, d.Shift, ""), d.ShiftAt, d.N, pText(d.ShiftP))
	default:
		return fmt.Sprintf("drift: the value %s over %d runs (Mann-Kendall %s)", move(d.Tau.Float, d.Slope, " a run"), d.N, pText(d.TrendP))
	}
}

// move prints a direction, and its size if that is defined.
func move(direction float64, size Value, per string) string {
	word := "rises"
	if direction < 0 {
		word = "falls"
	}
	if !size.OK {
		return word
	}
	return fmt.Sprintf("%s by %s%s", word, percent(math.Abs(size.Float)), per)
}
