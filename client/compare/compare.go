// Package compare answers, for whoever measured two variants of a server: does one beat the other, by how much,
// and how sure is that?
//
// It holds pure functions over samples: no I/O, no clock, no global state, the same answer for the same numbers.
//
//	Describe                           one cell: median, interval, spread, the scores of older reports
//	Family                             many comparisons: ratio, interval, p, Holm's correction, verdict, words
//	NoiseFloor, FindDrift              what the machine does by itself
//	Interaction, Estimate.Detectable   whether two factors depend on each other; what n rounds can find
//	Frontier, Cheapest, ParseLimits    what to choose, and what to refuse
//
// Nothing is assumed about the shape of the distributions. Ratios are medians of log-ratios in the sense of Hodges
// and Lehmann, with the interval that belongs to the rank test beside them (signed-rank for runs paired in blocks,
// Mann-Whitney for independent runs), so that the interval and p tell the same story. A single run is one value: runs are
// independent processes, and n counts them. Memory grows with the square of n.
//
// Whatever cannot be said is an undefined [Value] or [Interval], never NaN, infinity or a guess.
package compare

import "math"

const (
	// Level is the confidence that every interval of this package has at least.
	Level = 0.95
	// Alpha is the error rate of a whole family of comparisons: a difference is claimed when Holm's adjusted p is below.
	Alpha = 0.05
	// DefaultMargin is the change that is too small to matter in practice, as a part of 1: 2 %.
	DefaultMargin = 0.02
)

// Sample is what the runs of one variant measured for one metric.
type Sample struct {
	Name        string    // what the words call it, "go1.27.3"
	Values      []float64 // one per run, in the order of time
	Blocks      []int     // the block (round) that each run belongs to; nil: run i is of block i
	ClientBound bool      // the load generator, not the server, set the pace of some run: equality would prove nothing
}

// Question asks how other differs from base.
type Question struct {
	Mode, Op    string // where: "memory", "set"; either may be empty
	Metric      Metric
	Base, Other Sample
	Paired      bool  // runs of one block belong together
	Floor       Value // noise floor, see [NoiseFloor]; undefined: no control was measured
}

// Verdict is the answer to a [Question], about the metric's number, not about better or worse.
type Verdict string

// The verdicts. Same always comes with [Comparison.Within].
const (
	Higher       Verdict = "higher"
	Lower        Verdict = "lower"
	Same         Verdict = "same"
	Inconclusive Verdict = "inconclusive"
)

// Comparison is an answered [Question].
type Comparison struct {
	Mode, Op    string
	Metric      Metric
	Base, Other string
	Estimate
	PHolm       Value   // P after Holm's correction over the family
	Family      int     // comparisons in the family that had a p
	Floor       Value   // as asked, in |log ratio|
	Margin      float64 // what counted as too small to matter
	ClientBound bool    // either side was
	Verdict     Verdict
	Within      Value  // of Same: no difference larger than this part of 1 is left
	Reason      string // of Inconclusive: why, and what would help
}

// Family answers questions that are read together, such as all rows of one table: the more of them, the more proof each
// needs. margin is the change too small to matter as a part of 1; 0 means [DefaultMargin].
func Family(questions []Question, margin float64) []Comparison {
	if !(margin > 0) || math.IsInf(margin, 0) {
		margin = DefaultMargin
	}
	cs := make([]Comparison, len(questions))
	ps := make([]Value, len(questions))
	for i, q := range questions {
		estimate := Unpaired
		if q.Paired {
			estimate = Paired
		}
		cs[i] = Comparison{
			Mode: q.Mode, Op: q.Op, Metric: q.Metric, Base: q.Base.Name, Other: q.Other.Name,
			Estimate: estimate(q.Base, q.Other), Floor: q.Floor, Margin: margin,
			ClientBound: q.Base.ClientBound || q.Other.ClientBound,
		}
		ps[i] = cs[i].P
	}
	adjusted, tests := Holm(ps)
	for i := range cs {
		cs[i].PHolm, cs[i].Family = adjusted[i], tests
		cs[i].decide()
	}
	return cs
}

// decide sets Verdict, Within and Reason. A difference needs three proofs: p after the correction, an interval without
// 1, and an effect that the same setup does not show when nothing differs.
func (c *Comparison) decide() {
	c.Verdict = Inconclusive
	if !c.Interval.OK || !c.Ratio.OK || !c.PHolm.OK {
		c.Reason = c.whyUndefined()
		return
	}
	effect, low, high := math.Log(c.Ratio.Float), math.Log(c.Interval.Low), math.Log(c.Interval.High)
	excludes := low > 0 || high < 0
	significant := excludes && c.PHolm.Float < Alpha
	aboveFloor := !c.Floor.OK || math.Abs(effect) > c.Floor.Float

	if significant && aboveFloor {
		c.Verdict = Higher
		if effect < 0 {
			c.Verdict = Lower
		}
		return
	}
	// What the setup shows between equals can never be excluded, so Within is at least the floor.
	within := max(-low, high, c.Floor.Float)
	switch {
	case c.ClientBound:
		c.Reason = "client-bound: the load generator set the pace, so the servers may differ unseen"
	case within <= math.Log1p(c.Margin):
		c.Verdict, c.Within = Same, Defined(math.Expm1(within))
	case significant:
		c.Reason = c.whyBelowFloor()
	case excludes:
		c.Reason = c.whyNotSignificant()
	case c.Floor.Float > math.Log1p(c.Margin) && max(-low, high) <= math.Log1p(c.Margin):
		c.Reason = c.whyFloorTooHigh()
	default:
		c.Reason = c.whyWide()
	}
}
