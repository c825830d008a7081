package experiment

import (
	"bytes"
	"encoding/csv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"kvmark/client/compare"
	"kvmark/client/load"
	"kvmark/client/result"
)

// made is an experiment whose samples come from a formula: QPS and CPU per operation by variant, times the mood of the
// machine in that round.
type made struct {
	factors []Factor
	modes   []string
	rounds  int
	qps     func(v Variant) float64
	change  func(*Sample)
}

func (m made) outcome(t testing.TB) *Outcome {
	t.Helper()
	variants := product(m.factors)
	base := variants[0]
	variants = append(variants, Variant{Name: base.Name + " (A/A)", Settings: base.Settings, Control: "A/A"})
	if m.modes == nil {
		m.modes = []string{"memory"}
	}
	o := &Outcome{Plan: Plan{Variants: variants, Factors: m.factors, Modes: m.modes, Ops: []string{"set", "get"}, Seconds: 1, Seed: 3}, Blocks: m.rounds, Ended: "made"}
	rng := rand.New(rand.NewPCG(1, 2))
	var live []int
	for i := range variants {
		live = append(live, i)
	}
	for block := range m.rounds {
		mood := 0.5 + rng.Float64() // far larger than any effect
		for place, cell := range order(3, block, live, m.modes) {
			v := variants[cell.Variant]
			s := Sample{Block: block, Variant: cell.Variant, Mode: cell.Mode, Order: place, Seconds: 3, Process: result.Process{Go: "go1.26.8", GOGC: v.Get("GOGC")}}
			for _, op := range o.Plan.Ops {
				q := m.qps(v) * mood * (1 + 0.004*(rng.Float64()-0.5))
				c := result.Cell{
					Mode: cell.Mode, Op: op, Repeat: block + 1, Valid: true, OK: int64(q), Seconds: 1, QPS: result.Number(q),
					LatencyUS: result.Latency{P99: result.Number(1e6 / q)}, Client: result.Client{Bound: "server"},
				}
				c.Server.CPUPerOp = result.Number(1e6 / m.qps(v) * (1 + 0.002*(rng.Float64()-0.5)))
				c.Server.RSSPeakBytes = result.Number(20e6)
				c.Server.GCLimited = result.Number(0)
				s.Cells = append(s.Cells, c)
			}
			if m.change != nil {
				m.change(&s)
			}
			o.Samples = append(o.Samples, s)
		}
	}
	return o
}

func (m made) analysis(t testing.TB) *Analysis {
	t.Helper()
	a, err := Analyze(m.outcome(t), nil, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var twoGo = []Factor{{"go", []string{"go1.26.8", "go1.27.3"}}}

// faster makes the second toolchain that much faster.
func faster(by float64) func(Variant) float64 {
	return func(v Variant) float64 {
		if v.Get("go") == "go1.27.3" {
			return 50_000 * (1 + by)
		}
		return 50_000
	}
}

func TestADifferenceIsFoundThroughTheMoodOfTheMachine(t *testing.T) {
	a := made{factors: twoGo, rounds: 12, qps: faster(0.03)}.analysis(t)
	if len(a.Comparisons) != 4 { // two operations, two metrics
		t.Fatalf("%d comparisons", len(a.Comparisons))
	}
	c := a.Comparisons[0]
	if c.Verdict != compare.Higher || math.Abs(c.Ratio.Float-1.03) > 0.002 || c.N() != 12 || !c.Floor.OK || c.Floor.Float > 0.003 {
		t.Errorf("%+v", c)
	}
	if got := c.String(); !strings.HasPrefix(got, "memory/set: go1.27.3 is 3.0 % faster than go1.26.8 (95 % CI ") {
		t.Error(got)
	}
	if c := a.Comparisons[1]; c.Verdict != compare.Lower || c.Metric.Name != "cpu_us_per_op" {
		t.Errorf("%+v", c)
	}
	if d := a.Detectable; len(d) != 2 || !d[0].Change.OK || d[0].Change.Float > 0.01 {
		t.Errorf("detectable %+v", d)
	}
}

func TestEqualsAreNotCalledDifferent(t *testing.T) {
	a := made{factors: twoGo, rounds: 12, qps: faster(0)}.analysis(t)
	for _, c := range a.Comparisons {
		if c.Verdict != compare.Same {
			t.Errorf("%s", c)
		}
	}
}

func TestClientBoundCellsAreNotCalledEqualButTheirCPUMayBe(t *testing.T) {
	a := made{factors: twoGo, rounds: 12, qps: faster(0), change: func(s *Sample) {
		if s.Block == 3 {
			s.Cells[0].Client.Bound = "client"
		}
	}}.analysis(t)
	want := []compare.Verdict{compare.Inconclusive, compare.Same, compare.Same, compare.Same}
	for i, c := range a.Comparisons {
		if c.Verdict != want[i] {
			t.Errorf("%s, want %s", c, want[i])
		}
	}
}

func TestServersThatKeepUpWithARateAreNotCalledEqual(t *testing.T) {
	for name, change := range map[string]func(*Sample){
		"open loop": func(s *Sample) { s.Cells[0].Pace = &result.Pace{Asked: 5} },
		"conns":     func(s *Sample) { s.Cells[0].Conns = &result.Conns{Offered: result.Number(5)} },
	} {
		a := made{factors: twoGo, rounds: 12, qps: faster(0), change: change}.analysis(t)
		if c := a.Comparisons[0]; c.Verdict != compare.Inconclusive || !strings.Contains(c.Reason, "set the pace") {
			t.Errorf("%s: %s", name, c)
		}
		if c := a.Comparisons[1]; c.Verdict != compare.Same {
			t.Errorf("%s: its CPU: %s", name, c)
		}
	}
}

func TestInvalidAndFailedSamplesAreLeftOutAndCounted(t *testing.T) {
	a := made{factors: twoGo, rounds: 12, qps: faster(0.03), change: func(s *Sample) {
		switch {
		case s.Block == 2 && s.Variant == 1:
			s.Cells[0].Valid, s.Cells[0].QPS = false, result.Number(1)
		case s.Block == 5 && s.Variant == 0:
			*s = Sample{Block: s.Block, Mode: s.Mode, Failed: "it died"}
		}
	}}.analysis(t)
	if a.Invalid != 3 { // one operation, and both of the sample that failed
		t.Errorf("%d invalid", a.Invalid)
	}
	if n := []int{a.Comparisons[0].N(), a.Comparisons[2].N()}; !slices.Equal(n, []int{10, 11}) {
		t.Errorf("n = %v", n)
	}
	if math.Abs(a.Comparisons[0].Ratio.Float-1.03) > 0.002 {
		t.Errorf("%s", a.Comparisons[0])
	}
}

func TestEachFactorIsComparedWhereTheOthersStand(t *testing.T) {
	factors := []Factor{{"go", []string{"go1.26.8", "go1.27.3"}}, {"GOGC", []string{"50", "100", "200"}}}
	m := made{factors: factors, rounds: 12, qps: func(v Variant) float64 {
		q := faster(0.05)(v)
		if v.Get("GOGC") == "200" {
			q *= 1.10
			if v.Get("go") == "go1.27.3" {
				q *= 1.04 // and more than that on the newer one
			}
		}
		return q
	}}
	a := m.analysis(t)
	var pairs []string
	for _, c := range a.Comparisons {
		if c.Op == "set" && c.Metric.Name == "qps" {
			pairs = append(pairs, c.Other+" / "+c.Base)
		}
	}
	want := []string{
		"go1.27.3 (at GOGC=50) / go1.26.8", "go1.27.3 (at GOGC=100) / go1.26.8", "go1.27.3 (at GOGC=200) / go1.26.8",
		"GOGC=100 (at go1.26.8) / GOGC=50", "GOGC=200 (at go1.26.8) / GOGC=50", "GOGC=100 (at go1.27.3) / GOGC=50", "GOGC=200 (at go1.27.3) / GOGC=50",
	}
	if diff := cmp.Diff(want, pairs); diff != "" {
		t.Error(diff)
	}
	if len(a.Interactions) != 2*2*2 { // GOGC=100 and 200, times operations, times metrics
		t.Fatalf("%d interactions", len(a.Interactions))
	}
	for _, in := range a.Interactions {
		found := in.PHolm.OK && in.PHolm.Float < compare.Alpha
		if found != (in.B[1].Value == "200") {
			t.Errorf("%s", in)
		}
		if !found || in.Metric.Name != "qps" {
			continue
		}
		words := in.String()
		if math.Abs(in.Ratio.Float-1.04) > 0.003 || !strings.Contains(words, "the step from GOGC=50 to GOGC=200 is worth +") || !strings.Contains(words, " % more with go1.27.3 than with go1.26.8") {
			t.Error(in.String())
		}
	}
}

func TestVariantsThatAreNotAvailableAreShownAndOthersStillCompared(t *testing.T) {
	factors := []Factor{{"go", []string{"go1.26.8", "go1.27.3"}}, {"GOEXPERIMENT", []string{"mapsplitgroup", Default}}}
	o := made{factors: factors, rounds: 8, qps: faster(0.05)}.outcome(t)
	o.Plan.Variants[0].NA = "unknown GOEXPERIMENT mapsplitgroup"
	o.Base = 1
	o.Samples = slices.DeleteFunc(o.Samples, func(s Sample) bool { return s.Variant == 0 })
	a, err := Analyze(o, []string{"qps"}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Comparisons) != 2*2 { // the toolchains at default, the experiment at go1.27.3
		t.Errorf("%d comparisons: %v", len(a.Comparisons), a.Comparisons)
	}
	var b bytes.Buffer
	if err := a.WriteTable(&b); err != nil || !strings.Contains(b.String(), "n/a: go1.26.8 GOEXPERIMENT=mapsplitgroup: unknown") || strings.Count(b.String(), "  n/a\n") != 2 {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// In each pair of turns both arms meet the same machine, but one turn of the other arm stalls.
func TestSlicesPairTurnByTurn(t *testing.T) {
	m := made{factors: twoGo, rounds: 8, qps: faster(0.05), change: func(s *Sample) {
		for range s.Cells {
			var parts []load.Slice
			for turn := range 10 {
				n := 5000 * float64(1+turn)
				if s.Variant == 1 {
					if n *= 1.05; turn == 4 {
						n /= 10
					}
				}
				parts = append(parts, load.Slice{OK: int64(n), Seconds: 0.5})
			}
			s.Slices = append(s.Slices, parts)
		}
	}}
	o := m.outcome(t)
	o.Plan.Slice = 0.5
	a, err := Analyze(o, []string{"qps"}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Comparisons[0].Ratio.Float; math.Abs(got-1.05) > 1e-9 {
		t.Errorf("ratio %v, want 1.05", got)
	}
}

func TestTheGCView(t *testing.T) {
	type numbers struct{ qps, rss, p99, cpu, share float64 }
	byGOGC := map[string]numbers{
		"10":  {20_000, 20e6, 900, 40, 0.30}, // a death spiral
		"50":  {48_000, 24e6, 400, 14, 0.06},
		"100": {50_000, 30e6, 400, 12, 0.03},
		"200": {49_000, 45e6, 500, 12, 0.02}, // beaten by 100
		"off": {51_000, 99e6, 390, 11, 0},
	}
	a := made{
		factors: []Factor{{"GOGC", []string{"10", "50", "100", "200", "off"}}}, rounds: 8,
		qps: func(Variant) float64 { return 1 },
		change: func(s *Sample) {
			n := byGOGC[s.Process.GOGC]
			for i := range s.Cells {
				c := &s.Cells[i]
				c.QPS, c.LatencyUS.P99, c.Server.CPUPerOp, c.Server.RSSPeakBytes = &n.qps, &n.p99, &n.cpu, &n.rss
				if c.Server.GCCPUShare = &n.share; n.share == 0 {
					c.Server.GCCPUShare = nil
				}
			}
		},
	}.analysis(t)
	if len(a.GC) != 2 {
		t.Fatalf("%d views", len(a.GC))
	}
	v := a.GC[0]
	var front []string
	for _, p := range v.Points {
		if p.Frontier {
			front = append(front, p.Name)
		}
	}
	if diff := cmp.Diff([]string{"GOGC=10", "GOGC=50", "GOGC=100", "GOGC=off"}, front); diff != "" {
		t.Error(diff)
	}
	if v.Cheapest != "GOGC=100" { // 48000 is more than 5 % below 51000
		t.Errorf("cheapest %q", v.Cheapest)
	}
	if !slices.Equal(v.Unbounded, []string{"GOGC=off"}) {
		t.Errorf("without a bound: %q", v.Unbounded)
	}
	if len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], "GOGC=10: the collector eats the CPU (30 % of the time of all CPUs, 3.6 times the CPU of the best setting)") {
		t.Errorf("warnings %q", v.Warnings)
	}
	if over := v.Points[2].OverNoGC; !over.OK || math.Abs(over.Float-1.0/11) > 1e-12 {
		t.Errorf("cost against off: %v", over)
	}
	is := a.Study().Cheapest
	if is == nil || !is("memory", v.Op, map[string]string{"GOGC": "100"}) || is("memory", v.Op, map[string]string{"GOGC": "200"}) {
		t.Error("the page does not mark the cheapest setting")
	}
}

func TestTheSmallestSafeMemoryLimit(t *testing.T) {
	a := made{
		factors: []Factor{{"GOMEMLIMIT", []string{Default, "16MiB", "32MiB", "64MiB"}}}, rounds: 8,
		qps: func(Variant) float64 { return 50_000 },
		change: func(s *Sample) {
			if s.Variant == 1 {
				for i := range s.Cells {
					s.Cells[i].Server.GCLimited = result.Number(1)
				}
			}
		},
	}.analysis(t)
	v := a.GC[0]
	if v.Limit != "32MiB" || len(v.Warnings) != 2 || !strings.Contains(v.Warnings[0], "GOMEMLIMIT=16MiB: the collector eats") || !strings.Contains(v.Warnings[1], "above the limit") {
		t.Errorf("limit %q, warnings %q", v.Limit, v.Warnings)
	}
}

// The medians that benchstat prints: the same file format, the same statistics.
func TestBenchstatReadsTheSameMedians(t *testing.T) {
	factors := []Factor{{"GOGC", []string{"50", "off"}}}
	a := made{factors: factors, rounds: 9, modes: []string{"memory", "file"}, qps: func(v Variant) float64 {
		return 40_000 + 1000*float64(len(v.Get("GOGC")))
	}, change: func(s *Sample) { s.Cells[1].Valid = s.Block != 4 }}.analysis(t)
	var b bytes.Buffer
	if err := a.WriteBench(&b); err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	r := benchfmt.NewReader(&b, "bench.txt")
	for r.Scan() {
		res, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		_, parts := res.Name.Parts()
		if res.GetConfig("toolchain") != "go1.26.8" || !strings.Contains(string(res.Name.Full()), "/gogc=") {
			t.Fatalf("%s with toolchain %q", res.Name, res.GetConfig("toolchain"))
		}
		if strings.Contains(res.Name.String(), "/control=A_A") {
			continue
		}
		if len(parts) < 3 {
			t.Fatalf("%s: parts %q", res.Name, parts)
		}
		for _, u := range benchUnits {
			if x, ok := res.Value(u.unit); ok {
				key := res.Name.String() + " " + u.unit
				got[key] = append(got[key], x)
			}
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	const units = 4 // that made-up cells have
	if len(got) != 2*2*2*units {
		t.Fatalf("%d benchmarks: %v", len(got), got)
	}
	for _, c := range a.Cells {
		v := a.Plan.Variants[c.Variant]
		if v.Control != "" {
			continue
		}
		name := "Kvmark/mode=" + c.Mode + "/op=" + c.Op + "/gogc=" + v.Get("GOGC")
		for _, u := range benchUnits {
			q, ok := c.Metrics[u.metric]
			if !ok {
				continue
			}
			sum := benchmath.AssumeNothing.Summary(benchmath.NewSample(got[name+" "+u.unit], &benchmath.DefaultThresholds), 0.95)
			if sum.Center != q.Median.Float || sum.Lo != q.Interval.Low || sum.Hi != q.Interval.High {
				t.Errorf("%s %s: benchstat has %v %v..%v, we have %+v", name, u.unit, sum.Center, sum.Lo, sum.Hi, q)
			}
		}
	}
}

func TestTheResultFileAndTheTable(t *testing.T) {
	a := made{factors: twoGo, rounds: 8, qps: faster(0.03)}.analysis(t)
	f := &result.File{Command: "compare"}
	a.Result(f)
	if len(f.Cells) != 8*3*2 || len(f.Comparisons) != 4 || f.Comparisons[0].Verdict != "higher" || f.Comparisons[0].CILow == nil || f.Plan.Seed != 3 {
		t.Errorf("%d cells, comparisons %+v", len(f.Cells), f.Comparisons)
	}
	if f.Cells[0].Config["go"] == "" || f.Plan.Extra["order"] == "" || f.Plan.Extra["vary go"] != "go1.26.8,go1.27.3" {
		t.Errorf("config %v, extra %v", f.Cells[0].Config, f.Plan.Extra)
	}
	text, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := result.Decode(bytes.NewReader(text)); err != nil {
		t.Error(err)
	}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"table": func(b *bytes.Buffer) error { return a.WriteTable(b) }, "markdown": func(b *bytes.Buffer) error { return a.WriteMarkdown(b) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"memory/set", "% faster than go1.26.8", "noise floor of memory/get QPS", "8 rounds", "in short", "(+"} {
			if !strings.Contains(strings.ReplaceAll(b.String(), `\`, ""), want) {
				t.Errorf("%s has no %q:\n%s", name, want, b.String())
			}
		}
	}
	var b bytes.Buffer
	if err := a.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 1+8*3*2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	at := slices.Index(rows[0], "qps")
	if x, err := strconv.ParseFloat(rows[1][at], 64); err != nil || x != *a.Samples[0].Cells[0].QPS {
		t.Errorf("qps %v, %v", rows[1][at], err)
	}
}
