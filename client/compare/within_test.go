package compare

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// noisy is n slices of 0.1 s with the given rate, a tenth of it replies; their noise is an autoregression of the first order
// whose standard deviation is sigma of the rate.
func noisy(rng *rand.Rand, n int, sigma, phi float64, rate func(at float64) float64) (ok, seconds []float64) {
	x := rng.NormFloat64()
	for i := range n {
		ok = append(ok, 0.1*rate(float64(i)/float64(n))*(1+sigma*x))
		seconds = append(seconds, 0.1)
		x = phi*x + math.Sqrt(1-phi*phi)*rng.NormFloat64()
	}
	return ok, seconds
}

func constantRate(float64) float64 { return 1000 }

func TestIntervalWithinAWindowCoversAsItSays(t *testing.T) {
	for _, tt := range []struct {
		name       string
		n          int
		phi, least float64
	}{
		{"independent, 1 s", 10, 0, 0.94},
		{"independent, 5 s", 50, 0, 0.94},
		{"independent, 60 s", 600, 0, 0.94},
		{"correlated, 5 s", 50, 0.5, 0.93},
		{"correlated, 60 s", 600, 0.8, 0.93},
		{"strongly correlated, 60 s", 600, 0.95, 0.92}, // over 2 s
		{"strongly correlated, 5 s", 50, 0.9, 0.85},    // a window of 2.5 times the memory tells little
	} {
		rng := rand.New(rand.NewPCG(1, uint64(tt.n)))
		const windows = 2000
		hits := 0
		for range windows {
			ok, seconds := noisy(rng, tt.n, 0.05, tt.phi, constantRate)
			if i := Within(ok, seconds); i.OK && i.Low <= 1000 && 1000 <= i.High {
				hits++
			}
		}
		t.Logf("%s: %.1f %%", tt.name, 100*float64(hits)/windows)
		if got := float64(hits) / windows; got < tt.least || got > 0.995 {
			t.Errorf("%s: the interval covers the rate in %.1f %% of windows, want %.0f %% to 99.5 %%", tt.name, 100*got, 100*tt.least)
		}
	}
}

func TestIntervalWithinAWindowNeedsSlices(t *testing.T) {
	ok, seconds := noisy(rand.New(rand.NewPCG(1, 2)), MinSlices-1, 0.01, 0, constantRate)
	if i := Within(ok, seconds); i.OK {
		t.Errorf("%d slices give %v", MinSlices-1, i)
	}
	if c := FindCourse(ok, seconds); c.String() != "" {
		t.Errorf("%d slices give %q", MinSlices-1, c)
	}
	zero := make([]float64, 20)
	if i := Within(zero, zero); i.OK {
		t.Errorf("nothing over nothing is %v", i)
	}
	if c := FindCourse(zero, slices.Repeat([]float64{0.1}, 20)); c.Word != "" {
		t.Errorf("no reply at all is %q", c)
	}
}

func TestCourseOfAWindowIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		rate       func(at float64) float64
	}{
		{"level", "steady (", constantRate},
		{"a drift of 10 %", "drift: -", func(at float64) float64 { return 1000 * (1 - 0.1*at) }},
		{"a drift of 10 % upwards", "drift: +", func(at float64) float64 { return 1000 * (1 + 0.1*at) }},
		{"a decay", "decay: -", func(at float64) float64 { return 800 * (1 + 0.4*math.Exp(-at*12)) }},
		{"a jump", "jump: -", func(at float64) float64 { return 1000 - 150*math.Floor(at+0.4) }},
		{"a hole", "jumps: -", func(at float64) float64 {
			if at > 0.3 && at < 0.6 {
				return 800
			}
			return 1000
		}},
	} {
		const windows = 100
		named := 0
		last := ""
		for seed := range uint64(windows) {
			c := FindCourse(noisy(rand.New(rand.NewPCG(3, seed)), 50, 0.02, 0.3, tt.rate))
			if strings.HasPrefix(c.String(), tt.want) {
				named++
			} else {
				last = c.String()
			}
		}
		t.Logf("%s: %d of %d; otherwise such as %q", tt.name, named, windows, last)
		if named < 90 {
			t.Errorf("%s: %d of %d windows are called %q..., want 90; one was called %q", tt.name, named, windows, tt.want, last)
		}
	}
}

// recorded are runs of one binary with one configuration, one after the other on a machine with 2 cores, 8 workers, 1.5 s of Set and 1.5 s of Get each, while
// the machine also did other things.
func recorded(t *testing.T) (byOp map[string][]record) {
	t.Helper()
	text, err := os.ReadFile("testdata/aa.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []record
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	byOp = map[string][]record{}
	for _, r := range all {
		byOp[r.Op] = append(byOp[r.Op], r)
	}
	return byOp
}

type record struct {
	Op    string    `json:"op"`
	Slice float64   `json:"slice_seconds"`
	OK    []float64 `json:"ok"`
	CPU   []float64 `json:"server_cpu_us"`
}

func (r record) seconds() []float64 { return slices.Repeat([]float64{r.Slice}, len(r.OK)) }

// coverage is how many intervals hold the median of all other runs.
func coverage(runs []record, above, below func(record) []float64) (hits int) {
	for i, r := range runs {
		var others []float64
		for j, o := range runs {
			if j != i {
				others = append(others, total(above(o))/total(below(o)))
			}
		}
		m := median(others)
		if in := Within(above(r), below(r)); in.OK && in.Low <= m && m <= in.High {
			hits++
		}
	}
	return hits
}

// What the interval says is about its own window. Between runs of the same binary there is more, which it leaves out: how often
// it holds the median of all other runs shows how much, and is what testdata/docs/numbers.md says.
func TestIntervalWithinARunAgainstOtherRuns(t *testing.T) {
	ok := func(r record) []float64 { return r.OK }
	cpu := func(r record) []float64 { return r.CPU }
	hitsQPS, hitsCPU, n := 0, 0, 0
	for _, runs := range recorded(t) {
		n += len(runs)
		hitsQPS += coverage(runs, ok, record.seconds)
		hitsCPU += coverage(runs, cpu, ok)
	}
	t.Logf("of %d intervals of one run, %d of QPS and %d of CPU per operation hold the median of the other runs", n, hitsQPS, hitsCPU)
	if n != 12 || hitsQPS != 5 || hitsCPU != 4 {
		t.Errorf("%d runs, %d and %d hits; testdata/docs/numbers.md says 12, 5 and 4", n, hitsQPS, hitsCPU)
	}
}

// A drift of 10 % is put into recorded windows, whose noise is that of a real machine.
func TestADriftInRecordedRunsIsNamed(t *testing.T) {
	quiet, found, n := 0, 0, 0
	for _, runs := range recorded(t) {
		for _, r := range runs {
			n++
			if FindCourse(r.OK, r.seconds()).Word != "steady" {
				continue
			}
			quiet++
			slower := slices.Clone(r.OK)
			for i := range slower {
				slower[i] *= 1 - 0.1*(float64(i)+0.5)/float64(len(slower))
			}
			if c := FindCourse(slower, r.seconds()); c.Word != "steady" && c.Change.Float < 0 {
				found++
			}
		}
	}
	t.Logf("of %d recorded windows %d are steady; with a drift of 10 %%, %d of those are not", n, quiet, found)
	if quiet != 2 || found != 1 {
		t.Errorf("%d steady, of which %d are told to drift; it was 2 and 1", quiet, found)
	}
}
