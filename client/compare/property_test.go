package compare

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func samples(t *rapid.T, label string) []float64 {
	return rapid.SliceOfN(rapid.Float64Range(1, 1e6), 0, 20).Draw(t, label)
}

func estimators() map[string]func(base, other Sample) Estimate {
	return map[string]func(base, other Sample) Estimate{"paired": Paired, "unpaired": Unpaired}
}

func same(t *rapid.T, what string, got, want float64) {
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Fatalf("%s = %v, want %v", what, got, want)
	}
}

func TestExchangedSidesInvertTheRatio(t *testing.T) {
	for name, estimate := range estimators() {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			a, b := Sample{Values: samples(t, "a")}, Sample{Values: samples(t, "b")}
			ab, ba := estimate(a, b), estimate(b, a)
			if ab.Ratio.OK != ba.Ratio.OK || ab.Interval.OK != ba.Interval.OK || ab.P.OK != ba.P.OK {
				t.Fatalf("defined differently: %+v, %+v", ab, ba)
			}
			if ab.Ratio.OK {
				same(t, "ratio", ab.Ratio.Float, 1/ba.Ratio.Float)
				same(t, "p", ab.P.Float, ba.P.Float)
			}
			if ab.Interval.OK {
				same(t, "low", ab.Interval.Low, 1/ba.Interval.High)
				same(t, "high", ab.Interval.High, 1/ba.Interval.Low)
				if r := ab.Ratio.Float; r < ab.Interval.Low || r > ab.Interval.High {
					t.Fatalf("ratio %v is outside of %+v", r, ab.Interval)
				}
			}
		}))
	}
}

func TestTheUnitDoesNotMatter(t *testing.T) {
	for name, estimate := range estimators() {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			a, b := samples(t, "a"), samples(t, "b")
			unit := rapid.SampledFrom([]float64{0x1p-20, 0.5, 8, 0x1p30}).Draw(t, "unit")
			in := func(xs []float64) Sample {
				s := Sample{}
				for _, x := range xs {
					s.Values = append(s.Values, x*unit)
				}
				return s
			}
			plain, scaled := estimate(Sample{Values: a}, Sample{Values: b}), estimate(in(a), in(b))
			same(t, "ratio", scaled.Ratio.Float, plain.Ratio.Float)
			same(t, "low", scaled.Interval.Low, plain.Interval.Low)
			same(t, "high", scaled.Interval.High, plain.Interval.High)
			same(t, "p", scaled.P.Float, plain.P.Float)
		}))
	}
}

func TestHolmIsMonotoneAndNeverKinder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ps []Value
		for _, p := range rapid.SliceOf(rapid.Float64Range(-0.1, 1)).Draw(t, "p") {
			ps = append(ps, Value{max(0, p), p >= 0})
		}
		adjusted, tests := Holm(ps)
		var order []int
		for i, p := range ps {
			if p.OK != adjusted[i].OK {
				t.Fatalf("p %+v became %+v", p, adjusted[i])
			}
			if p.OK {
				order = append(order, i)
				if a := adjusted[i].Float; a < p.Float || a > min(1, p.Float*float64(tests)) {
					t.Fatalf("p %v of %d became %v", p.Float, tests, a)
				}
			}
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(ps[a].Float, ps[b].Float) })
		for k := 1; k < len(order); k++ {
			if lower, upper := adjusted[order[k-1]].Float, adjusted[order[k]].Float; lower > upper {
				t.Fatalf("adjusted %v before %v", lower, upper)
			}
		}
	})
}

func TestNothingIsEverNaN(t *testing.T) {
	odd := rapid.OneOf(
		rapid.SampledFrom([]float64{0, 0, 1, 1, 2, -1, math.NaN(), math.Inf(1), math.MaxFloat64, math.SmallestNonzeroFloat64}),
		rapid.Float64Range(0, 10),
	)
	finite := func(t *rapid.T, xs ...float64) {
		for i, x := range xs {
			if !Defined(x).OK {
				t.Fatalf("number %d of %v is not finite", i, xs)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(odd, 0, 14)
		blocks := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 14)
		draw := func(name string) Sample {
			s := Sample{Name: name, Values: values.Draw(t, name)}
			if rapid.Bool().Draw(t, "blocks") {
				s.Blocks = blocks.Draw(t, "block")
			}
			return s
		}
		var questions []Question
		for range rapid.IntRange(0, 3).Draw(t, "questions") {
			questions = append(questions, Question{
				Metric: metric("qps"), Base: draw("a"), Other: draw("b"), Paired: rapid.Bool().Draw(t, "paired"),
				Floor: Defined(rapid.SampledFrom([]float64{0, 0.01, math.NaN()}).Draw(t, "floor")),
			})
		}
		for _, c := range Family(questions, rapid.SampledFrom([]float64{0, 0.05, -1, math.NaN()}).Draw(t, "margin")) {
			sigma, detectable := c.Sigma(), c.Detectable(12, 0.8, 0.05)
			finite(t, c.Ratio.Float, c.Interval.Low, c.Interval.High, c.P.Float, c.PHolm.Float, c.Within.Float, sigma.Float, detectable.Float)
			if (c.Verdict == Inconclusive) != (c.Reason != "") || (c.Verdict == Same) != c.Within.OK || c.String() == "" {
				t.Fatalf("half an answer: %+v", c)
			}
			if c.Verdict != Inconclusive && !c.Interval.OK {
				t.Fatalf("a claim without an interval: %+v", c)
			}
		}
		s := draw("cell").Values
		d := Describe(s)
		finite(t, d.Median.Float, d.Interval.Low, d.Interval.High, d.Spread.Float, d.Trimmed.Float, d.Last3.Float)
		f := FindDrift(s)
		finite(t, f.Tau.Float, f.Slope.Float, f.TrendP.Float, f.Shift.Float, f.ShiftP.Float)
	})
}

func TestFrontierKeepsExactlyTheUnbeaten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Map(rapid.IntRange(0, 4), func(i int) float64 { return float64(i) })
		points := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Point {
			return Point{"", small.Draw(t, "qps"), small.Draw(t, "rss"), small.Draw(t, "p99")}
		})).Draw(t, "points")
		front := Frontier(points)
		for _, p := range points {
			beaten := slices.ContainsFunc(front, func(q Point) bool { return q.beats(p) })
			if beaten == slices.Contains(front, p) {
				t.Fatalf("%v: beaten by the frontier %v and on it: %v", p, front, beaten)
			}
		}
		if p, ok := Cheapest(points, 1); ok && slices.ContainsFunc(points, func(q Point) bool { return q.RSS < p.RSS }) {
			t.Fatalf("%v is not the cheapest of %v", p, points)
		}
	})
}
