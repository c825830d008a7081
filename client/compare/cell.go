package compare

import (
	"fmt"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Summary describes the runs of one cell for one metric.
type Summary struct {
	N        int
	Median   Value
	Interval Interval // of the median, by order statistics, the same that benchstat prints
	Min, Max Value
	Spread   Value  // interquartile range over the median; needs 4 runs
	Trimmed  Value  // without the best and the worst run, the mean; needs 3 runs
	Last3    Value  // mean of the last three of at least four runs, so that the first ones only warm up
	Note     string // what cannot be said, and why
}

// Describe summarizes runs in the order of time. It does not change values.
func Describe(values []float64) Summary {
	s := Summary{N: len(values)}
	if s.Note = (Sample{Name: "the cell", Values: values}).fault(); s.Note != "" {
		return s
	}
	if s.N == 0 {
		s.Note = "no runs"
		return s
	}
	sorted := slices.Sorted(slices.Values(values))
	s.Min, s.Max = Defined(sorted[0]), Defined(sorted[s.N-1])
	sum := benchmath.AssumeNothing.Summary(benchmath.NewSample(sorted, &benchmath.DefaultThresholds), Level)
	s.Median = Defined(sum.Center)
	s.Interval = interval(sum.Lo, sum.Hi, sum.Confidence)
	if !s.Interval.OK {
		s.Note = fmt.Sprintf("n = %d: a %.0f %% interval of the median needs %d runs", s.N, 100*Level, MinRounds(true, 1))
	}
	if s.N >= 4 && s.Median.Float > 0 {
		s.Spread = Defined((quantile(sorted, 0.75) - quantile(sorted, 0.25)) / s.Median.Float)
	}
	if s.N >= 3 {
		s.Trimmed = Defined(mean(sorted[1 : s.N-1]))
	}
	if s.N >= 4 {
		s.Last3 = Defined(mean(values[s.N-3:]))
	}
	return s
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

func median(xs []float64) float64 { return quantile(slices.Sorted(slices.Values(xs)), 0.5) }

// quantile interpolates between the order statistics around (n-1)q.
func quantile(sorted []float64, q float64) float64 {
	at := float64(len(sorted)-1) * q
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
