package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/perf/benchmath"
)

// Published results that other programs print too, and the tables in the back of textbooks.

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s = %v, want %v (within %v)", what, got, want, tolerance)
	}
}

func TestSignedRankOfPublishedData(t *testing.T) {
	for _, tt := range []struct {
		name string
		d    []float64
		want float64
	}{
		{"Darwin's maize, 15 pairs, two of them ties of sign only", []float64{6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75}, 0.041259765625},
		{"Hamilton depression scale, 9 pairs", []float64{0.952, -0.147, 1.022, 0.430, 0.620, 0.590, 0.490, -0.080, 0.010}, 0.0390625},
		{"all of one sign is 2 in 2^n", []float64{1, 2, 3, 4, 5, 6}, 2.0 / 64},
		{"zeros are left out", []float64{0, 1, 2, 3, 4, 0, 5, 6}, 2.0 / 64},
		{"ties: sums of +-1 +-1 +-1 +-4, all positive", []float64{1, 1, 1, 4}, 2.0 / 16},
		{"ties: one of the three ones is negative", []float64{-1, 1, 1, 4}, 2 * 4.0 / 16},
		{"only zeros", []float64{0, 0, 0}, 1},
		{"one pair", []float64{3}, 1},
		{"balanced", []float64{-1, 1}, 1},
		{"nothing", nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) { near(t, "p", signedRankP(tt.d), tt.want, 1e-12) })
	}
}

func TestMannWhitneyOfPublishedData(t *testing.T) {
	for _, tt := range []struct {
		name      string
		a, b      []float64
		want      float64
		tolerance float64
	}{
		{"age at diagnosis of diabetes, 5 + 4", []float64{19, 22, 16, 29, 24}, []float64{20, 11, 17, 12}, 1.0 / 9, 1e-12},
		{
			"permeability of the placenta, 10 + 5",
			[]float64{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46},
			[]float64{1.15, 0.88, 0.90, 0.74, 1.21},
			0.2544, 0.00011,
		},
		{"separated 4 + 4 is 2 in 70", []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70, 1e-12},
		{"tied 2 + 2: one of the six draws is as low, one as high", []float64{1, 1}, []float64{2, 2}, 2.0 / 6, 1e-12},
		{"tied across: {1,2} of {1,2,2,3}, ranks 1, 2.5 in 2 of 6 draws or lower", []float64{1, 2}, []float64{2, 3}, 2 * 2.0 / 6, 1e-12},
		{"all equal", []float64{7, 7, 7}, []float64{7, 7}, 1, 0},
		{"one each", []float64{1}, []float64{2}, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			near(t, "p", mannWhitneyP(tt.a, tt.b), tt.want, tt.tolerance)
			near(t, "p of the sides exchanged", mannWhitneyP(tt.b, tt.a), tt.want, tt.tolerance)
		})
	}
}

func TestIntervalsFollowTheTablesOfCriticalValues(t *testing.T) {
	// The interval starts one after the largest rank sum that is significant at 5 %, two-sided.
	for n, critical := range map[int]int{6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 11: 10, 12: 13, 13: 17, 14: 21, 15: 25, 16: 29, 20: 52, 25: 89, 30: 137, 40: 264, 50: 434} {
		if c, attained := walshCut(n, 0.05); c != critical+1 || attained > 0.05 || attained < 0.02 {
			t.Errorf("signed-rank n = %d: c = %d (alpha %v), want %d", n, c, attained, critical+1)
		}
	}
	for n := range 6 {
		if c, _ := walshCut(n, 0.05); c != 0 {
			t.Errorf("signed-rank n = %d: c = %d, want none", n, c)
		}
	}
	for sizes, critical := range map[[2]int]int{{4, 4}: 0, {5, 5}: 2, {6, 6}: 5, {7, 7}: 8, {8, 8}: 13, {9, 9}: 17, {10, 10}: 23, {5, 8}: 6, {8, 5}: 6, {12, 12}: 37, {15, 15}: 64, {20, 20}: 127} {
		if c, attained := shiftCut(sizes[0], sizes[1], 0.05); c != critical+1 || attained > 0.05 {
			t.Errorf("Mann-Whitney %v: c = %d (alpha %v), want %d", sizes, c, attained, critical+1)
		}
	}
	if c, _ := shiftCut(3, 3, 0.05); c != 0 {
		t.Errorf("Mann-Whitney 3 + 3: c = %d, want none", c)
	}
}

func TestNormalApproximationJoinsTheExactDistributions(t *testing.T) {
	for _, alpha := range []float64{0.2, 0.05, 0.01} {
		n := exactPairs
		exact, _ := signedRankDist(oneTo(n)).cut(alpha)
		near(t, "signed-rank cut", float64(normalCut(float64(n*(n+1))/4, float64(n*(n+1)*(2*n+1))/24, alpha)), float64(exact), 5)
		m := exactPooled / 2
		exact, _ = shiftCut(m, m, alpha)
		near(t, "Mann-Whitney cut", float64(normalCut(float64(m*m)/2, float64(m*m*(2*m+1))/12, alpha)), float64(exact), 5)
	}
}

// exps turns differences into the ratios of which they are logarithms.
func exps(xs ...float64) []float64 {
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = math.Exp(x)
	}
	return out
}

func TestHodgesLehmannOfPublishedData(t *testing.T) {
	before := exps(1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30)
	after := exps(0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29)
	e := Paired(Sample{Values: before}, Sample{Values: after})
	near(t, "pseudo-median", math.Log(e.Ratio.Float), -0.46, 1e-9)
	near(t, "low", math.Log(e.Interval.Low), -0.786, 1e-9)
	near(t, "high", math.Log(e.Interval.High), -0.010, 1e-9)
	near(t, "level", e.Interval.Level, 0.961, 0.0005)

	term := exps(0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46)
	early := exps(1.15, 0.88, 0.90, 0.74, 1.21)
	e = Unpaired(Sample{Values: early}, Sample{Values: term})
	near(t, "shift", math.Log(e.Ratio.Float), 0.305, 1e-9)
	near(t, "low", math.Log(e.Interval.Low), -0.15, 1e-9)
	near(t, "high", math.Log(e.Interval.High), 0.76, 1e-9)
}

func TestVolanoReports(t *testing.T) {
	mustang1, tiger1 := []float64{8651, 9195, 8876, 9088, 8945}, []float64{8363, 9275, 9464, 9527, 9443}
	mustang2, tiger2 := []float64{8637, 9078, 9068, 9068, 8898}, []float64{8663, 9145, 9435, 9456, 9426}
	for _, tt := range []struct {
		name                  string
		mustang, tiger        []float64
		trimmed, otherTrimmed float64
		p                     float64
	}{
		{"first series", mustang1, tiger1, 8969.667, 9394, 0.151},
		{"after a reboot", mustang2, tiger2, 9011.333, 9335.333, 0.087},
	} {
		t.Run(tt.name, func(t *testing.T) {
			near(t, "trimmed", Describe(tt.mustang).Trimmed.Float, tt.trimmed, 0.0005)
			near(t, "trimmed", Describe(tt.tiger).Trimmed.Float, tt.otherTrimmed, 0.0005)
			near(t, "p with the first run", Unpaired(Sample{Values: tt.mustang}, Sample{Values: tt.tiger}).P.Float, tt.p, 0.0005)
			e := Unpaired(Sample{Values: tt.mustang[1:]}, Sample{Values: tt.tiger[1:]})
			near(t, "p without the first run", e.P.Float, 0.029, 0.0005)
			if !e.Interval.OK || e.Interval.Low <= 1 {
				t.Errorf("interval without the first run = %+v, want all above 1", e.Interval)
			}
		})
	}
	pooled := Unpaired(Sample{Values: append(append([]float64{}, mustang1...), mustang2...)}, Sample{Values: append(append([]float64{}, tiger1...), tiger2...)})
	near(t, "pooled p", pooled.P.Float, 0.017, 0.0006)
	near(t, "last3", Describe([]float64{1, 2, 4, 6}).Last3.Float, 4, 1e-12)
}

func TestHolmOfAWorkedExample(t *testing.T) {
	got, tests := Holm([]Value{Defined(0.04), {}, Defined(0.01), Defined(0.03), Defined(0.02)})
	want := []Value{Defined(0.06), {}, Defined(0.04), Defined(0.06), Defined(0.06)}
	if tests != 4 {
		t.Errorf("tests = %d, want 4", tests)
	}
	for i := range want {
		if got[i].OK != want[i].OK || math.Abs(got[i].Float-want[i].Float) > 1e-15 {
			t.Errorf("adjusted[%d] = %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestKendallOfPublishedData(t *testing.T) {
	// Tuna lightness against panel score, in the order of lightness: tau = 0.444, p = 0.1194.
	d := FindDrift([]float64{2.5, 4.0, 2.6, 3.6, 2.8, 3.1, 5.2, 5.0, 3.8})
	near(t, "tau", d.Tau.Float, 4.0/9, 1e-12)
	near(t, "p", d.TrendP.Float, 0.1194, 0.00005)

	d = FindDrift([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	near(t, "p of a rise", d.TrendP.Float, 2/3628800.0, 1e-12)
	near(t, "slope", d.Slope.Float, 1/5.5, 1e-12)

	// Ties: 12 of the 15 pairs rise; of 6*5*17 = 510 each group of two takes 2*1*9 = 18.
	d = FindDrift([]float64{1, 1, 2, 2, 3, 3})
	near(t, "p with ties", d.TrendP.Float, math.Erfc((12-1)/math.Sqrt(456.0/18)/math.Sqrt2), 1e-12)
}

func TestPettittFindsTheDamInTheNile(t *testing.T) {
	// Annual flow at Aswan 1871-1970; the level falls after 1898, the 28th year.
	nile := []float64{
		1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799, 958, 1140,
		1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020, 1050, 969,
		831, 726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845, 864, 862, 698, 845, 744, 796, 1040, 759,
		781, 865, 845, 944, 984, 897, 822, 1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890,
		744, 749, 838, 1050, 918, 986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740,
	}
	d := FindDrift(nile)
	if d.ShiftAt != 28 || d.ShiftP.Float > 1e-5 || !d.Seen() {
		t.Errorf("all years: %+v, want a shift after run 28 with p < 1e-5", d)
	}
	d = FindDrift(nile[8:48])
	if d.ShiftAt != 20 || d.ShiftP.Float > 0.001 || d.Shift.Float > -0.15 {
		t.Errorf("1879-1918: %+v, want a fall after run 20", d)
	}
}

func TestPettittOfFewRunsIsExact(t *testing.T) {
	// Counted over all orders; the sampled p has a standard deviation of sqrt(p(1-p)/4999).
	for _, tt := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"complete separation of 6 and 6 is 2 in 924", []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 2.0 / 924},
		{"eight digits of pi", []float64{3, 1, 4, 1, 5, 9, 2, 6}, 0.26270},
		{"all equal", constant(8, 1), 1},
	} {
		got := FindDrift(tt.values).ShiftP.Float
		near(t, tt.name, got, tt.want, 4*math.Sqrt(tt.want*(1-tt.want)/permutations)+1e-3/permutations)
	}
}

func TestMannWhitneyAgreesWithBenchmath(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 14))
	draw := func(n int, steps float64) []float64 {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = math.Floor(rng.NormFloat64()*steps + 10*steps)
		}
		return xs
	}
	for _, tt := range []struct {
		name      string
		m, n      int
		steps     float64 // few steps make ties
		tolerance float64
	}{
		{"small without ties", 5, 5, 1e12, 1e-9},
		{"unequal without ties", 4, 11, 1e12, 1e-9},
		{"ten each with ties", 10, 10, 3, 1e-9},
		{"ten each with many ties", 10, 10, 1, 1e-9},
		{"the largest exact ones", 30, 30, 1e12, 1e-9},
		{"normal against exact", 45, 45, 1e12, 0.004},
		{"both normal, ties corrected", 60, 70, 2, 1e-9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 10 {
				a, b := draw(tt.m, tt.steps), draw(tt.n, tt.steps)
				p := mannWhitneyP(a, b)
				thresholds := &benchmath.DefaultThresholds
				c := benchmath.AssumeNothing.Compare(benchmath.NewSample(a, thresholds), benchmath.NewSample(b, thresholds))
				near(t, fmt.Sprintf("p of %v and %v", a, b), p, min(1, c.P), tt.tolerance)
			}
		})
	}
}
