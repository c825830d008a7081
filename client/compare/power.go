package compare

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// NoiseFloor returns the largest |log ratio| that controls show although nothing differs: A against A, or against the
// same source linked in another order. Of each control it takes its point and the half width of its interval,
// whichever is larger. Undefined if no control has an interval.
func NoiseFloor(controls ...Estimate) Value {
	var floor Value
	for _, e := range controls {
		if half := e.halfWidth(); half.OK {
			floor = Defined(max(floor.Float, half.Float, math.Abs(math.Log(e.Ratio.Float))))
		}
	}
	return floor
}

// halfWidth returns half the width of the interval on the log scale.
func (e Estimate) halfWidth() Value {
	if !e.Interval.OK || !e.Ratio.OK {
		return Value{}
	}
	return Defined((math.Log(e.Interval.High) - math.Log(e.Interval.Low)) / 2)
}

// Sigma returns the spread of the log-ratio of one round, as the interval shows it: the interval of n rounds is about
// 2 Sigma/sqrt(n) to either side. It is robust where the interval is.
func (e Estimate) Sigma() Value {
	half := e.halfWidth()
	if !half.OK {
		return Value{}
	}
	return Defined(half.Float * math.Sqrt(e.rounds()) / studentQuantile(e.freedom(), (1+e.Interval.Level)/2))
}

// rounds is n per side; of unequal sides the number that equal ones would have for the same precision.
func (e Estimate) rounds() float64 {
	return 2 / (1/float64(e.NBase) + 1/float64(e.NOther))
}

func (e Estimate) freedom() float64 {
	if e.Paired {
		return float64(e.NBase - 1)
	}
	return float64(e.NBase + e.NOther - 2)
}

// RoundsFor returns how many rounds in all would bring the interval to ±half, a part of 1, if the noise stays as it is.
// ok is false if there is no interval yet to judge by, or if no machine could run that many.
func (e Estimate) RoundsFor(half float64) (n int, ok bool) {
	now := e.halfWidth()
	if !now.OK || !(half > 0) {
		return 0, false
	}
	shrink := now.Float / math.Log1p(half)
	rounds := math.Ceil(e.rounds()*shrink*shrink - 1e-9)
	if !(rounds <= math.MaxInt32) {
		return 0, false
	}
	return int(rounds), true
}

// Detectable returns the smallest change, as a part of 1, that n rounds with the noise of e find with the given power
// (0.8, 0.9) at level alpha; for a family of m comparisons, alpha is [Alpha]/m at worst. e may be a control, so that
// it is known beforehand what a run can show. Undefined if e has no interval, or if n rounds can never reach alpha.
func (e Estimate) Detectable(n int, power, alpha float64) Value {
	sigma := e.Sigma()
	if !sigma.OK || n < 2 || !(power > 0 && power < 1) || !(alpha > 0 && alpha < 1) {
		return Value{}
	}
	c, attained := walshCut(n, alpha)
	df := float64(n - 1)
	if !e.Paired {
		c, attained = shiftCut(n, n, alpha)
		df = float64(2*n - 2)
	}
	if c == 0 {
		return Value{}
	}
	steps := studentQuantile(df, 1-attained/2) + studentQuantile(df, power)
	return Defined(math.Expm1(steps * sigma.Float / math.Sqrt(float64(n))))
}

// MinRounds returns the fewest rounds with which a comparison in a family of that many can come out below [Alpha] and
// have an interval, however large the difference.
func MinRounds(paired bool, family int) int {
	alpha := Alpha / float64(max(1, family))
	p := 2.0 // two-sided p when all n rounds point one way
	for n := 1; ; n++ {
		if paired {
			p /= 2 // 2 / 2^n
		} else {
			p *= float64(n) / float64(2*(2*n-1)) // 2 / C(2n, n)
		}
		if p < alpha {
			return n
		}
	}
}

func studentQuantile(df, p float64) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: df}.Quantile(p)
}
