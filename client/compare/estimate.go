package compare

import (
	"fmt"
	"math"
	"slices"
)

// Estimate is the ratio other/base of one metric, how sure it is, and how it was found.
type Estimate struct {
	Ratio    Value    // Hodges-Lehmann estimate
	Interval Interval // of Ratio, belonging to the same rank test as P
	P        Value    // two-sided, that base and other do not differ
	Paired   bool
	NBase    int    // runs used; of a paired estimate the pairs
	NOther   int    // as NBase
	Note     string // why something is undefined
}

// N is the number of pairs, or of runs of the side that has fewer.
func (e Estimate) N() int { return min(e.NBase, e.NOther) }

// Paired compares runs that share a block: what the machine did to a whole block cancels. Blocks that lack a side are
// left out; several runs of a side within a block count as one, their geometric mean.
func Paired(base, other Sample) Estimate { return paired([]Sample{other}, []Sample{base}) }

// Interaction asks whether the effect of B depends on A, for example whether a larger GOGC pays more on the newer
// toolchain. The Ratio is (a1b1/a1b0) / (a0b1/a0b0): 1 if the effects just multiply, 1.02 if B gains 2 % more under a1
// than under a0. Only blocks with all four settings count.
func Interaction(a0b0, a0b1, a1b0, a1b1 Sample) Estimate {
	return paired([]Sample{a1b1, a0b0}, []Sample{a1b0, a0b1})
}

// paired estimates the product of the above samples over the product of as many below, block by block.
func paired(above, below []Sample) Estimate {
	e := Estimate{Paired: true}
	logs := map[int]float64{}
	counts := map[int]int{}
	take := func(s Sample, sign float64) bool {
		e.Note = s.fault()
		if e.Note != "" {
			return false
		}
		for block, x := range s.logsByBlock() {
			logs[block] = add(logs[block], sign*x)
			counts[block]++
		}
		return true
	}
	for i := range above { // in turn, so that zero over zero cancels at once
		if !take(above[i], 1) || !take(below[i], -1) {
			return e
		}
	}
	var d []float64
	for block, x := range logs {
		if counts[block] == 2*len(above) {
			d = append(d, math.Round(x/grain)*grain)
		}
	}
	slices.Sort(d) // maps have no order; nothing below depends on it
	n := len(d)
	e.NBase, e.NOther = n, n
	if n == 0 {
		e.Note = "no round has all sides"
		return e
	}
	e.P = Defined(signedRankP(d))
	averages := make([]float64, 0, n*(n+1)/2)
	for i := range d {
		for _, y := range d[i:] {
			averages = append(averages, add(d[i], y)/2)
		}
	}
	c, attained := walshCut(n, 1-Level)
	e.fromLogs(averages, c, attained)
	return e
}

// grain is the step to which log-ratios are rounded. Equal ratios of different numbers, 110/100 and 220/200, differ in
// the last bits of their logarithms; they must count as ties. Measurements have no digits this far down.
const grain = 1e-12

// maxLog is the logarithm beyond which a ratio no longer fits a float64; that of zero, or to zero, is infinite.
const maxLog = 700

// Unpaired compares independent runs.
func Unpaired(base, other Sample) Estimate {
	e := Estimate{NBase: len(base.Values), NOther: len(other.Values)}
	for _, s := range []Sample{base, other} {
		if e.Note = s.fault(); e.Note != "" {
			return e
		}
	}
	if e.N() == 0 {
		e.Note = "one side has no runs"
		return e
	}
	e.P = Defined(mannWhitneyP(base.Values, other.Values))
	shifts := make([]float64, 0, e.NBase*e.NOther)
	for _, x := range base.Values {
		for _, y := range other.Values {
			shifts = append(shifts, add(math.Log(y), -math.Log(x)))
		}
	}
	c, attained := shiftCut(e.NBase, e.NOther, 1-Level)
	e.fromLogs(shifts, c, attained)
	return e
}

// TooFew stands in the note of an estimate that has no interval for want of rounds.
const TooFew = "is too few"

// fromLogs takes the ratio from the median of logs, and its interval from the c-th of them from either end.
func (e *Estimate) fromLogs(logs []float64, c int, attained float64) {
	slices.Sort(logs)
	n := len(logs)
	middle := add(logs[(n-1)/2], logs[n/2]) / 2
	if math.Abs(middle) > maxLog {
		e.Note = "there is no ratio to zero"
		return
	}
	e.Ratio = Defined(math.Exp(middle))
	if c == 0 {
		e.Note = fmt.Sprintf("n = %s %s for a %.0f %% interval", e.sizes(), TooFew, 100*Level)
		return
	}
	low, high := logs[c-1], logs[n-c]
	if max(-low, high) > maxLog {
		e.Note = "values of zero leave the interval without an end"
		return
	}
	e.Interval = interval(math.Exp(low), math.Exp(high), 1-attained)
}

// sizes prints n as it was: pairs, or both sides.
func (e Estimate) sizes() string {
	if e.Paired {
		return fmt.Sprintf("%d pairs", e.NBase)
	}
	return fmt.Sprintf("%d + %d", e.NBase, e.NOther)
}

// add is a+b for logarithms, where log 0 = -Inf: opposite infinities, zero over zero, cancel.
func add(a, b float64) float64 {
	if a == -b {
		return 0
	}
	return a + b
}

// fault says why a sample cannot be used at all; a metric is never negative.
func (s Sample) fault() string {
	if s.Blocks != nil && len(s.Blocks) != len(s.Values) {
		return fmt.Sprintf("%d values but %d blocks", len(s.Values), len(s.Blocks))
	}
	for i, x := range s.Values {
		if !(x >= 0) || math.IsInf(x, 0) {
			return fmt.Sprintf("run %d of %s is %v: a measured value is zero or more", i+1, s.Name, x)
		}
	}
	return ""
}

// logsByBlock returns the mean logarithm of each block's runs.
func (s Sample) logsByBlock() map[int]float64 {
	sums, counts := map[int]float64{}, map[int]float64{}
	for i, x := range s.Values {
		block := i
		if s.Blocks != nil {
			block = s.Blocks[i]
		}
		sums[block] += math.Log(x)
		counts[block]++
	}
	for block := range sums {
		sums[block] /= counts[block]
	}
	return sums
}
