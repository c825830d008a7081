package compare

import (
	"math"
	"slices"
)

// Up to these sizes p values and intervals come from the exact distributions; beyond, the normal approximation is
// good to the third digit and the exact one only costs time.
const (
	exactPairs  = 50 // signed-rank: pairs; Mann-Kendall: runs
	exactPooled = 60 // Mann-Whitney: runs of both sides together
)

// midranks returns twice the rank of each value, where ties share the mean of their ranks (doubling keeps these whole),
// and the sum of t^3-t over all groups of t ties.
func midranks(xs []float64) (doubled []int, ties float64) {
	order := make([]int, len(xs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case xs[a] < xs[b]:
			return -1
		case xs[a] > xs[b]:
			return 1
		}
		return 0
	})
	doubled = make([]int, len(xs))
	for i := 0; i < len(order); {
		j := i + 1
		for j < len(order) && xs[order[j]] == xs[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			doubled[k] = i + 1 + j // first rank i+1, last rank j
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	return doubled, ties
}

// pmf is a distribution over 0, 1, 2, ...: pmf[k] is the weight of k. Weights need not sum to 1.
type pmf []float64

// atMost returns P(X <= k).
func (d pmf) atMost(k int) float64 {
	var part, whole float64
	for i, w := range d {
		if i <= k {
			part += w
		}
		whole += w
	}
	return part / whole
}

// atLeast returns P(X >= k), summed from its own end so that small tails keep their digits.
func (d pmf) atLeast(k int) float64 {
	var part, whole float64
	for i, w := range slices.Backward(d) {
		if i >= k {
			part += w
		}
		whole += w
	}
	return part / whole
}

// twoSided returns the p value of k: twice the smaller tail, at most 1.
func (d pmf) twoSided(k int) float64 {
	return min(1, 2*min(d.atMost(k), d.atLeast(k)))
}

// cut returns the largest c for which X < c and its mirror image at the other end together have a probability of at most
// alpha, and that probability. d must be symmetric. 0: even the outermost outcome is likelier than alpha.
func (d pmf) cut(alpha float64) (c int, tails float64) {
	var whole, sum float64
	for _, w := range d {
		whole += w
	}
	for 2*(sum+d[c]) <= alpha*whole { // ends before d does, since alpha < 1
		sum += d[c]
		c++
	}
	return c, 2 * sum / whole
}

// signedRankDist is the null distribution of the sum of ranks with a positive sign: every rank is in it or not.
func signedRankDist(ranks []int) pmf {
	d := pmf{1}
	for _, r := range ranks {
		next := make(pmf, len(d)+r)
		for s, w := range d {
			next[s] += w / 2
			next[s+r] += w / 2
		}
		d = next
	}
	return d
}

// rankSumDist is the null distribution of the sum of the ranks of m runs drawn from all.
func rankSumDist(ranks []int, m int) pmf {
	total := 0
	for _, r := range ranks {
		total += r
	}
	ways := make([]pmf, m+1) // ways[k][s]: choices of k ranks with sum s
	for k := range ways {
		ways[k] = make(pmf, total+1)
	}
	ways[0][0] = 1
	seen := 0
	for _, r := range ranks {
		seen += r
		for k := m; k > 0; k-- {
			from, to := ways[k-1], ways[k]
			for s := r; s <= seen; s++ {
				to[s] += from[s-r]
			}
		}
	}
	return ways[m]
}

// signedRankP returns the two-sided p of Wilcoxon's signed-rank test that differences d lie around 0. Zeros say nothing
// about the direction and are left out, as Wilcoxon did. No difference at all: p = 1.
func signedRankP(d []float64) float64 {
	var sizes []float64
	var positive []bool
	for _, x := range d {
		if x != 0 {
			sizes = append(sizes, math.Abs(x))
			positive = append(positive, x > 0)
		}
	}
	ranks, ties := midranks(sizes)
	sum := 0
	for i, r := range ranks {
		if positive[i] {
			sum += r
		}
	}
	if len(sizes) <= exactPairs {
		return signedRankDist(ranks).twoSided(sum)
	}
	n := float64(len(sizes))
	return normalP(float64(sum)/2-n*(n+1)/4, 0.5, n*(n+1)*(2*n+1)/24-ties/48)
}

// mannWhitneyP returns the two-sided p of the Mann-Whitney U test that a and b come from one distribution.
func mannWhitneyP(a, b []float64) float64 {
	if len(a) > len(b) {
		a, b = b, a // the smaller side is cheaper to enumerate; p is the same
	}
	ranks, ties := midranks(slices.Concat(a, b))
	sum := 0
	for _, r := range ranks[:len(a)] {
		sum += r
	}
	if len(ranks) <= exactPooled {
		return rankSumDist(ranks, len(a)).twoSided(sum)
	}
	m, n := float64(len(a)), float64(len(b))
	all := m + n
	return normalP(float64(sum)/2-m*(all+1)/2, 0.5, m*n/12*(all+1-ties/(all*(all-1))))
}

// normalP returns the two-sided p of a deviation from its expectation, moved towards it by the continuity correction
// step, under the normal approximation. No variance: p = 1.
func normalP(deviation, step, variance float64) float64 {
	if variance <= 0 {
		return 1
	}
	z := max(0, math.Abs(deviation)-step) / math.Sqrt(variance)
	return math.Erfc(z / math.Sqrt2)
}

// normalQuantile returns the z below which a standard normal variable falls with probability p.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// walshCut returns which Walsh average of n pairs, counted from either end (1 = outermost), bounds the interval at
// 1-alpha, and the alpha that it really has. 0: n is too small.
func walshCut(n int, alpha float64) (c int, attained float64) {
	if n <= exactPairs {
		return signedRankDist(oneTo(n)).cut(alpha)
	}
	x := float64(n)
	return normalCut(x*(x+1)/4, x*(x+1)*(2*x+1)/24, alpha), alpha
}

// shiftCut is walshCut for the m*n differences of two independent samples.
func shiftCut(m, n int, alpha float64) (c int, attained float64) {
	if m > n {
		m, n = n, m
	}
	if m+n <= exactPooled {
		lowest := m * (m + 1) / 2
		return rankSumDist(oneTo(m+n), m)[lowest:].cut(alpha)
	}
	a, b := float64(m), float64(n)
	return normalCut(a*b/2, a*b*(a+b+1)/12, alpha), alpha
}

func normalCut(mean, variance, alpha float64) int {
	return max(0, int(math.Floor(mean-normalQuantile(1-alpha/2)*math.Sqrt(variance))))
}

func oneTo(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i + 1
	}
	return ranks
}
