package compare

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// around returns n values whose logarithms are evenly spread over ±spread around log(center).
func around(n int, center, spread float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		// A fixed shuffle: 7 is coprime to every n used here.
		out[i] = center * math.Exp(spread*(2*float64(i*7%n)/float64(max(1, n-1))-1))
	}
	return out
}

func constant(n int, x float64) []float64 { return slices.Repeat([]float64{x}, n) }

func metric(name string) Metric { m, _ := LookupMetric(name); return m }

func question(mode, op, name string, base, other []float64) Question {
	return Question{
		Mode: mode, Op: op, Metric: metric(name), Paired: true,
		Base: Sample{Name: "go1.26.8", Values: base}, Other: Sample{Name: "go1.27.3", Values: other},
	}
}

func TestVerdictsInWords(t *testing.T) {
	flat := constant(12, 1000)
	with := func(q Question, change func(*Question)) Question { change(&q); return q }
	for _, tt := range []struct {
		name        string
		q           Question
		verdict     string
		words       string
		moreInGroup int // copies of the question that join the family
	}{
		{
			"a clear gain", question("memory", "set", "qps", flat, around(12, 1031, 0.01)), "higher",
			"memory/set: go1.27.3 is 3.1 % faster than go1.26.8 (95 % CI 2.6..3.6 %, n = 12 pairs, p = 0.0005)", 0,
		},
		{
			"a clear loss", question("memory", "set", "qps", flat, around(12, 950, 0.01)), "lower",
			"memory/set: go1.27.3 is 5.0 % slower than go1.26.8 (95 % CI 4.6..5.4 %, n = 12 pairs, p = 0.0005)", 0,
		},
		{
			"latency that falls is better", question("file", "get", "p99", flat, around(12, 900, 0.01)), "lower",
			"file/get p99 latency: go1.27.3 is 10.0 % lower (better) than go1.26.8 (95 % CI 9.6..10.4 %, n = 12 pairs, p = 0.0005)", 0,
		},
		{
			"memory that grows is worse", question("file", "", "rss", flat, around(12, 1100, 0.01)), "higher",
			"file peak RSS: go1.27.3 is 10.0 % higher (worse) than go1.26.8 (95 % CI 9.5..10.5 %, n = 12 pairs, p = 0.0005)", 0,
		},
		{
			"a neutral metric is not judged", question("", "", "gc_cycles", flat, around(12, 1100, 0.01)), "higher",
			"GC cycles: go1.27.3 is 10.0 % higher than go1.26.8 (95 % CI 9.5..10.5 %, n = 12 pairs, p = 0.0005)", 0,
		},
		{
			"independent runs print both sizes", with(question("memory", "set", "qps", flat, around(11, 1031, 0.01)), func(q *Question) { q.Paired = false }), "higher",
			"memory/set: go1.27.3 is 3.1 % faster than go1.26.8 (95 % CI 2.5..3.7 %, n = 12 + 11, p < 0.0001)", 0,
		},
		{
			"a family is told", question("memory", "set", "qps", flat, around(12, 1031, 0.01)), "higher",
			"memory/set: go1.27.3 is 3.1 % faster than go1.26.8 (95 % CI 2.6..3.6 %, n = 12 pairs, p = 0.003 after Holm over 6)", 5,
		},
		{
			"equal as far as one can see", question("serialize", "get", "qps", flat, around(12, 1000, 0.02)), "same within 1.0 %",
			"serialize/get: no difference larger than 1.0 % between go1.27.3 and go1.26.8 (n = 12 pairs)", 0,
		},
		{
			"identical", question("serialize", "get", "alloc_bytes_per_op", flat, flat), "same within 0.0 %",
			"serialize/get allocated bytes per operation: no difference larger than 0.0 % between go1.27.3 and go1.26.8 (n = 12 pairs)", 0,
		},
		{
			"equal, but the floor bounds what can be excluded", with(question("a", "b", "qps", flat, flat), func(q *Question) { q.Floor = Defined(0.015) }), "same within 1.6 %",
			"a/b: no difference larger than 1.6 % between go1.27.3 and go1.26.8 (n = 12 pairs)", 0,
		},
		{
			"too noisy", question("file", "get", "qps", flat, around(12, 1000, 0.1)), "inconclusive",
			"file/get: inconclusive: ±4.7 %; 52 more rounds would give ±2.0 %", 0,
		},
		{
			"precise but off centre", question("file", "get", "qps", flat, around(12, 1009, 0.025)), "inconclusive",
			"file/get: inconclusive: ±1.1 %; 36 more rounds would give ±0.6 %", 0,
		},
		{
			"below the floor", with(question("a", "b", "qps", flat, around(12, 1031, 0.01)), func(q *Question) { q.Floor = Defined(0.04) }), "inconclusive",
			"a/b: inconclusive: +3.1 % is below the noise floor: the control shows up to 4.1 % without any difference", 0,
		},
		{
			"no difference, but a floor that hides one", with(question("a", "b", "qps", flat, flat), func(q *Question) { q.Floor = Defined(0.04) }), "inconclusive",
			"a/b: inconclusive: the noise floor of 4.1 % is above the margin of 2.0 %", 0,
		},
		{
			"equal at the ceiling of the client proves nothing", with(question("a", "b", "qps", flat, flat), func(q *Question) { q.Base.ClientBound = true }), "inconclusive",
			"a/b: inconclusive: client-bound: the load generator set the pace, so the servers may differ unseen", 0,
		},
		{
			"different even at the ceiling", with(question("a", "b", "qps", flat, around(12, 1031, 0.01)), func(q *Question) { q.Other.ClientBound = true }), "higher",
			"a/b: go1.27.3 is 3.1 % faster than go1.26.8 (95 % CI 2.6..3.6 %, n = 12 pairs, p = 0.0005); client-bound: the servers may differ more than this", 0,
		},
		{
			"six rounds cannot carry a family", question("a", "b", "qps", constant(6, 1000), around(6, 1100, 0.01)), "inconclusive",
			"a/b: inconclusive: +10.0 % (95 % CI 8.9..11.1 %) is not proof enough among 4 comparisons: p = 0.031, adjusted p = 0.12; at least 2 more rounds are needed", 3,
		},
		{
			"five rounds give no interval", question("a", "b", "qps", constant(5, 1000), around(5, 1100, 0.01)), "inconclusive",
			"a/b: inconclusive: n = 5 pairs is too few for a 95 % interval; at least 1 more round is needed before a difference can be claimed", 0,
		},
		{
			"three and three independent runs", with(question("a", "b", "qps", constant(3, 1000), around(3, 1100, 0.01)), func(q *Question) { q.Paired = false }), "inconclusive",
			"a/b: inconclusive: n = 3 + 3 is too few for a 95 % interval; at least 1 more round is needed before a difference can be claimed", 0,
		},
		{"no runs", question("a", "b", "qps", nil, nil), "inconclusive", "a/b: inconclusive: no round has all sides", 0},
		{
			"one side without runs", with(question("a", "b", "qps", flat, nil), func(q *Question) { q.Paired = false }), "inconclusive",
			"a/b: inconclusive: one side has no runs", 0,
		},
		{"zero against something", question("a", "b", "qps", flat, constant(12, 0)), "inconclusive", "a/b: inconclusive: there is no ratio to zero", 0},
		{"zero against zero", question("a", "b", "qps", constant(12, 0), constant(12, 0)), "same within 0.0 %", "a/b: no difference larger than 0.0 % between go1.27.3 and go1.26.8 (n = 12 pairs)", 0},
		{"a few zeros", question("a", "b", "qps", flat, append(constant(3, 0), flat[:9]...)), "inconclusive", "a/b: inconclusive: values of zero leave the interval without an end", 0},
		{
			"values that span all of float64", question("a", "b", "qps", constant(8, 1), []float64{1e-300, 1e300, 1e-300, 1e300, 1e-300, 1e300, 1, 1}), "inconclusive",
			"a/b: inconclusive: ±1e+302 %", 0,
		},
		{"not a number", question("a", "b", "qps", flat, []float64{1, math.NaN()}), "inconclusive", "a/b: inconclusive: run 2 of go1.27.3 is NaN: a measured value is zero or more", 0},
		{"negative", question("a", "b", "qps", []float64{-1}, flat), "inconclusive", "a/b: inconclusive: run 1 of go1.26.8 is -1: a measured value is zero or more", 0},
		{
			"blocks that do not fit", with(question("a", "b", "qps", flat, flat), func(q *Question) { q.Other.Blocks = []int{1} }), "inconclusive",
			"a/b: inconclusive: 12 values but 1 blocks", 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Family(slices.Repeat([]Question{tt.q}, 1+tt.moreInGroup), 0)[0]
			if got := c.VerdictText(); got != tt.verdict {
				t.Errorf("verdict = %q, want %q", got, tt.verdict)
			}
			if diff := cmp.Diff(tt.words, c.String()); diff != "" {
				t.Errorf("words (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUndefinedIsNullNotZero(t *testing.T) {
	if p := (Value{}).Ptr(); p != nil {
		t.Errorf("undefined points to %v", *p)
	}
	if p := Defined(0).Ptr(); p == nil || *p != 0 {
		t.Errorf("zero is %v", p)
	}
	if m, ok := LookupMetric("rss"); !ok || m.Name != "rss_peak_bytes" {
		t.Errorf("rss is %v, %v", m, ok)
	}
	if m, ok := LookupMetric("wal_syncs"); ok || m != (Metric{"wal_syncs", "wal_syncs", Neutral}) {
		t.Errorf("an unknown metric is %v, %v", m, ok)
	}
}

func TestPairsAreFormedByBlockNotByPlace(t *testing.T) {
	base := Sample{Values: []float64{100, 200, 400, 800}, Blocks: []int{1, 2, 3, 4}}
	other := Sample{Values: []float64{880, 440, 110, 999}, Blocks: []int{4, 3, 1, 7}} // no run in block 2; 7 has no base
	e := Paired(base, other)
	near(t, "ratio", e.Ratio.Float, 1.1, 1e-12)
	if e.N() != 3 {
		t.Errorf("n = %d, want the 3 blocks with both sides", e.N())
	}
	near(t, "p", e.P.Float, 0.25, 1e-12) // three equal ratios are a tie in spite of their last bits

	twice := Sample{Values: []float64{90, 250, 160, 400, 800}, Blocks: []int{1, 2, 2, 3, 4}}
	e = Paired(base, twice)
	near(t, "p of 0.9, 1, 1, 1", e.P.Float, 1, 1e-12) // block 2 is sqrt(250*160) = 200
}

func TestPairingCancelsWhatABlockDoes(t *testing.T) {
	rounds := around(12, 1000, 0.5) // the machine varies by a factor of 2.7
	faster := make([]float64, len(rounds))
	for i, x := range rounds {
		faster[i] = x * 1.03 * (1 + 0.001*float64(i%3))
	}
	q := question("m", "op", "qps", rounds, faster)
	if c := Family([]Question{q}, 0)[0]; c.Verdict != Higher {
		t.Errorf("paired: %v, want higher", c)
	}
	q.Paired = false
	if c := Family([]Question{q}, 0)[0]; c.Verdict != Inconclusive {
		t.Errorf("unpaired: %v, want inconclusive", c)
	}
}

func TestInteraction(t *testing.T) {
	rounds := around(10, 1000, 0.4)
	times := func(x float64) Sample {
		s := Sample{}
		for _, r := range rounds {
			s.Values = append(s.Values, r*x)
		}
		return s
	}
	e := Interaction(times(1), times(1.10), times(1.05), times(1.05*1.10*1.04))
	near(t, "ratio of ratios", e.Ratio.Float, 1.04, 1e-9)
	near(t, "low", e.Interval.Low, 1.04, 1e-9)
	near(t, "p", e.P.Float, 2.0/1024, 1e-12)

	e = Interaction(times(1), times(1.10), times(1.05), times(1.05*1.10))
	near(t, "ratio without interaction", e.Ratio.Float, 1, 1e-9)
	near(t, "p without interaction", e.P.Float, 1, 0)

	zero := Sample{Values: constant(10, 0)}
	if e := Interaction(zero, zero, zero, zero); e.Ratio != Defined(1) {
		t.Errorf("all zero: ratio %+v, want 1", e.Ratio)
	}
	if e := Interaction(times(1), times(1), times(1), Sample{}); e.Ratio.OK || e.Note == "" {
		t.Errorf("without one setting: %+v, want undefined with a note", e)
	}
}

func TestNoiseFloorIsTheLargestThatAControlShows(t *testing.T) {
	exact := Paired(Sample{Values: constant(8, 100)}, Sample{Values: constant(8, 103)})       // off by 3 %, no spread
	noisy := Paired(Sample{Values: constant(12, 100)}, Sample{Values: around(12, 100, 0.04)}) // on 1, some spread
	few := Paired(Sample{Values: constant(3, 100)}, Sample{Values: constant(3, 200)})
	near(t, "floor of an offset", NoiseFloor(exact).Float, math.Log(1.03), 1e-9)
	near(t, "floor of a spread", NoiseFloor(noisy).Float, math.Log(noisy.Interval.High/noisy.Interval.Low)/2, 1e-12)
	if got := NoiseFloor(noisy, few, exact); got != NoiseFloor(exact) {
		t.Errorf("floor of all = %+v, want the largest with an interval, %+v", got, NoiseFloor(exact))
	}
	if got := NoiseFloor(few); got.OK {
		t.Errorf("floor of 3 rounds = %+v, want undefined", got)
	}
	if got := NoiseFloor(); got.OK {
		t.Errorf("floor of nothing = %+v, want undefined", got)
	}
}

func TestRoundsAndPower(t *testing.T) {
	e := Paired(Sample{Values: constant(12, 100)}, Sample{Values: around(12, 100, 0.1)})
	half := math.Expm1(math.Log(e.Interval.High/e.Interval.Low) / 2)
	if n, ok := e.RoundsFor(half); !ok || n != 12 {
		t.Errorf("rounds for the width that is there = %d, %v, want 12", n, ok)
	}
	if n, ok := e.RoundsFor(math.Expm1(math.Log1p(half) / 2)); !ok || n != 48 {
		t.Errorf("rounds for half that width = %d, %v, want four times 12", n, ok)
	}
	if _, ok := e.RoundsFor(0); ok {
		t.Error("rounds for ±0 are not undefined")
	}
	if e80, e90 := e.Detectable(12, 0.8, 0.05), e.Detectable(12, 0.9, 0.05); !(0 < e80.Float && e80.Float < e90.Float) {
		t.Errorf("detectable at 80 %% and 90 %% = %+v, %+v, want the second to be larger", e80, e90)
	}
	if got := e.Detectable(5, 0.8, 0.05); got.OK {
		t.Errorf("detectable with 5 rounds = %+v, want undefined: p cannot fall below 0.06", got)
	}
	for _, tt := range []struct {
		paired       bool
		family, want int
	}{{true, 1, 6}, {true, 4, 8}, {true, 12, 9}, {false, 1, 4}, {false, 12, 6}, {true, 0, 6}} {
		if got := MinRounds(tt.paired, tt.family); got != tt.want {
			t.Errorf("MinRounds(%v, %d) = %d, want %d", tt.paired, tt.family, got, tt.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	values := []float64{50, 10, 40, 20, 30, 60}
	got := Describe(values)
	want := Summary{
		N: 6, Median: Defined(35), Interval: Interval{10, 60, got.Interval.Level, true}, Min: Defined(10), Max: Defined(60),
		Spread: Defined(25.0 / 35), Trimmed: Defined(35), Last3: Defined(110.0 / 3),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	near(t, "level", got.Interval.Level, 1-2.0/64, 1e-12)
	if !slices.Equal(values, []float64{50, 10, 40, 20, 30, 60}) {
		t.Errorf("Describe changed its argument to %v", values)
	}
	for n, wantDefined := range []string{"", "median", "median", "median trimmed", "median spread trimmed last3", "median spread trimmed last3", "median interval spread trimmed last3"} {
		s := Describe(values[:n])
		var defined []string
		for _, f := range []struct {
			name string
			ok   bool
		}{{"median", s.Median.OK}, {"interval", s.Interval.OK}, {"spread", s.Spread.OK}, {"trimmed", s.Trimmed.OK}, {"last3", s.Last3.OK}} {
			if f.ok {
				defined = append(defined, f.name)
			}
		}
		if got := strings.Join(defined, " "); got != wantDefined {
			t.Errorf("n = %d defines %q, want %q", n, got, wantDefined)
		}
		if (s.Note == "") != s.Interval.OK {
			t.Errorf("n = %d: note %q with interval %+v", n, s.Note, s.Interval)
		}
	}
	if s := Describe([]float64{1, math.Inf(1)}); s.Median.OK || s.Note == "" {
		t.Errorf("with an infinite run: %+v, want undefined with a note", s)
	}
	if s := Describe(constant(6, 0)); s.Spread.OK || s.Median != Defined(0) {
		t.Errorf("zeros: %+v, want median 0 without a relative spread", s)
	}
}

func TestDriftInWords(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []float64
		want   string
	}{
		{"a trend", []float64{100, 99, 98, 97, 96, 95, 94, 93, 92, 91}, "drift: the value falls by 1.0 % a run over 10 runs (Mann-Kendall p < 0.0001)"},
		{"a level", []float64{101, 103, 100, 102, 104, 99, 111, 114, 110, 112, 115, 113}, "drift: the level rises by 10.8 % after run 6 of 12 (Pettitt p = 0.002)"},
		{"nothing", []float64{3, 1, 4, 1, 5, 9, 2, 6}, "drift: none seen in 8 runs (trend p = 0.21, level p = 0.26)"},
		{"constant", constant(10, 5), "drift: none seen in 10 runs (trend p = 1.00, level p = 1.00)"},
		{"too few", []float64{1, 2, 3}, "drift: not tested (n = 3, 4 runs are needed)"},
		{"not finite", []float64{1, 2, 3, math.NaN()}, "drift: not tested (n = 4, 4 runs are needed)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := FindDrift(tt.values).String(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestFrontier(t *testing.T) {
	points := []Point{
		{"GOGC=50", 900, 40, 2},
		{"GOGC=100", 1000, 50, 1.5},
		{"worse than 100", 990, 51, 1.5},
		{"GOGC=400", 1040, 90, 1.2},
		{"off", 1050, 400, 1},
		{"same as 100", 1000, 50, 1.5},
		{"broken", math.NaN(), 0, 0},
	}
	var names []string
	for _, p := range Frontier(points) {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"GOGC=50", "GOGC=100", "GOGC=400", "off", "same as 100"}, names); diff != "" {
		t.Errorf("frontier (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		within float64
		want   string
	}{{0, "off"}, {0.01, "GOGC=400"}, {0.05, "GOGC=100"}, {0.5, "GOGC=50"}} {
		if p, ok := Cheapest(points, tt.within); !ok || p.Name != tt.want {
			t.Errorf("cheapest within %v = %v, want %s", tt.within, p, tt.want)
		}
	}
	if p, ok := Cheapest(points[6:], 0.5); ok {
		t.Errorf("cheapest of no usable point = %v", p)
	}
	if p, _ := Cheapest([]Point{{"a", 10, 5, 3}, {"b", 11, 5, 9}, {"c", 11, 5, 2}}, 0.5); p.Name != "c" {
		t.Errorf("of equal RSS the cheapest is %v, want the fastest, then the lowest p99", p)
	}
}
