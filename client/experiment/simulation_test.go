package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"kvmark/client/compare"
	"kvmark/client/result"
)

// The two simulations here measure for a quarter of an hour each and run only with KVMARK_LONG=1:
//
//	TestTrust   the same server against itself, 300 rounds one at a time and 300 side by side
//	TestPower   a server against one that is slower by 1, 2, 3 and 5 %, 100 rounds of each side by side
//
//	KVMARK_SIM_OUT=DIR    where records and servers are kept: what was cut short goes on there, with the same servers
//	KVMARK_SIM_FOR=TIME   record no longer than this now
//	KVMARK_SIM_BLOCKS=N   rounds of each record
//
// A record is the journal of an ordinary experiment. It is cut into disjoint comparisons, each as long as a budget, and those that
// call a difference are counted. There are few of them, so many more are drawn: their rounds are taken from the record at random,
// with replacement. For trust the record is first moved so that its two sides are equal, or every comparison drawn would
// inherit what the record as a whole shows by chance; and since drawing forgets the order of time, there is a comparison from
// every start too.
//
// The slower server is built with the tag kvmark_slow and burns KVMARK_SLOW per cent more CPU for each command. What that really
// costs shows in the record, which is also moved so that it costs exactly that.

// Short samples, so that many processes fit into a budget: the process is the unit, and its own luck is averaged out.
const (
	simDuration = 200 * time.Millisecond
	simWarmup   = 50 * time.Millisecond
	simSlice    = 25 * time.Millisecond
	simKeys     = 1000
	simDraws    = 1000
)

type simulation struct {
	dir      string
	blocks   int
	deadline time.Time // zero: none
}

func long(t *testing.T, blocks int) simulation {
	t.Helper()
	if os.Getenv("KVMARK_LONG") == "" {
		t.Skip("measures for a quarter of an hour: KVMARK_LONG=1")
	}
	s := simulation{dir: os.Getenv("KVMARK_SIM_OUT"), blocks: blocks}
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	if n := os.Getenv("KVMARK_SIM_BLOCKS"); n != "" {
		var err error
		if s.blocks, err = strconv.Atoi(n); err != nil || s.blocks < 1 {
			t.Fatalf("KVMARK_SIM_BLOCKS=%s: want a number of rounds", n)
		}
	}
	if d := os.Getenv("KVMARK_SIM_FOR"); d != "" {
		limit, err := time.ParseDuration(d)
		if err != nil {
			t.Fatalf("KVMARK_SIM_FOR: %v", err)
		}
		s.deadline = time.Now().Add(limit)
	}
	if err := os.MkdirAll(s.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return s
}

// server builds kvserver with a build tag, unless an earlier run has: a record goes on with the servers that it began with.
func (s simulation) server(t *testing.T, tag string) string {
	t.Helper()
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kvserver-"+tag)
	if info, err := os.Stat(path); err == nil {
		fmt.Printf("going on with the servers of %s in %s\n", info.ModTime().Format(time.DateTime), s.dir)
		return path
	}
	source, err := FindSource(".")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-pgo=off", "-tags="+tag, "-o", path, "./cmd/kvserver")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// record measures two servers, as far as the deadline allows. whole is whether all rounds are there.
func (s simulation) record(t *testing.T, name string, slice time.Duration, env []string, base, other string) (o *Outcome, whole bool) {
	t.Helper()
	seed := uint64(1)
	c := DefaultConfig()
	c.Cells = []Variant{{Name: "base", Settings: []Setting{{"server", base}}}, {Name: "other", Settings: []Setting{{"server", other}}}}
	c.Load.Modes, c.Load.Duration, c.Load.Warmup, c.Load.Workload.Keys, c.Load.ServerEnv = []string{"memory"}, simDuration, simWarmup, simKeys, env
	c.Rounds, c.Slices, c.Control, c.Seed = s.blocks, slice, false, &seed
	c.Out = filepath.Join(s.dir, name)
	if err := os.MkdirAll(c.Out, 0o777); err != nil {
		t.Fatal(err)
	}
	c.Logf = func(format string, args ...any) { fmt.Printf(name+": "+format+"\n", args...) }
	begun, last, before := time.Now(), time.Now(), -1
	c.Progress = func(p Progress) {
		if before < 0 {
			before = p.Done
		}
		if time.Since(last) < 10*time.Second {
			return
		}
		last = time.Now()
		left := "?"
		if n := p.Done - before; n > 0 {
			left = (time.Since(begun) / time.Duration(n) * time.Duration(p.Total-p.Done)).Round(time.Second).String()
		}
		fmt.Printf("%s: %d of %d samples, %s left\n", name, p.Done, p.Total, left)
	}
	ctx, cancel := t.Context(), context.CancelFunc(func() {})
	if !s.deadline.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, s.deadline)
	}
	defer cancel()
	o, err := Run(ctx, c)
	if errors.Is(err, ErrInterrupted) {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return o, !o.Interrupted
}

// rounds are the numbers of one question, both sides of each complete round.
type rounds struct {
	metric      compare.Metric
	base, other []float64
	seconds     float64 // that one round took
}

// roundsOf takes the rounds of one operation and metric out of a record.
func roundsOf(o *Outcome, op int, metric string) rounds {
	m, _ := lookupMetric(metric)
	q := (&analysis{Outcome: o}).question(0, 1, o.Plan.Modes[0], op, m)
	r := rounds{metric: m}
	for i, block := range q.Base.Blocks {
		if j := slices.Index(q.Other.Blocks, block); j >= 0 {
			r.base, r.other = append(r.base, q.Base.Values[i]), append(r.other, q.Other.Values[j])
		}
	}
	total := 0.0
	for _, s := range o.Samples {
		total += s.Seconds
	}
	r.seconds = total / float64(max(1, o.Blocks))
	return r
}

// estimate compares the rounds of those numbers.
func (r rounds) estimate(which []int) compare.Estimate {
	base, other := compare.Sample{Name: "base"}, compare.Sample{Name: "other"}
	for _, i := range which {
		base.Values, other.Values = append(base.Values, r.base[i]), append(other.Values, r.other[i])
	}
	return compare.Paired(base, other)
}

// all is every round.
func (r rounds) all() []int {
	which := make([]int, len(r.base))
	for i := range which {
		which[i] = i
	}
	return which
}

// moved is the record with its other side changed so that as a whole it has the given ratio.
func (r rounds) moved(ratio float64) rounds {
	e := r.estimate(r.all())
	r.other = slices.Clone(r.other)
	for i := range r.other {
		r.other[i] *= ratio / e.Ratio.Float
	}
	return r
}

// of is how many rounds a comparison of that budget has.
func (r rounds) of(budget time.Duration) int {
	return max(compare.MinRounds(true, 1), int(budget.Seconds()/r.seconds))
}

// verdicts are what comparisons of one record say.
type verdicts struct {
	comparisons int
	called      int     // p < 0.05, before any correction
	worse       int     // of these, that other is worse
	among       int     // that other is worse with p < 0.05/4: proof among the four comparisons of two operations and two metrics at worst
	half        float64 // median half width of the interval, as a part of 1
}

// count makes comparisons.
func (r rounds) count(comparisons [][]int) verdicts {
	var v verdicts
	var halves []float64
	for _, which := range comparisons {
		e := r.estimate(which)
		if !e.Interval.OK || !e.P.OK {
			continue
		}
		v.comparisons++
		halves = append(halves, math.Sqrt(e.Interval.High/e.Interval.Low)-1)
		worse := (e.Ratio.Float < 1) == (r.metric.Better == compare.HigherIsBetter)
		if e.P.Float < compare.Alpha {
			v.called++
			if worse {
				v.worse++
			}
		}
		if e.P.Float < compare.Alpha/4 && worse {
			v.among++
		}
	}
	if len(halves) > 0 {
		v.half = middle(halves)
	}
	return v
}

// stretches cuts the record into comparisons of n rounds, one beginning at every step.
func (r rounds) stretches(n, step int) [][]int {
	all := r.all()
	var cs [][]int
	for at := 0; at+n <= len(all); at += step {
		cs = append(cs, all[at:at+n])
	}
	return cs
}

// drawn takes comparisons of n rounds from the record, with replacement.
func (r rounds) drawn(n int) [][]int {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(len(r.base))))
	cs := make([][]int, simDraws)
	for i := range cs {
		for range n {
			cs[i] = append(cs[i], rng.IntN(len(r.base)))
		}
	}
	return cs
}

func share(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}

func half(v verdicts) string {
	if v.comparisons == 0 {
		return "-"
	}
	return fmt.Sprintf("±%.2f %%", 100*v.half)
}

// tooMany reports whether so many calls of a difference among so many comparisons would happen less than once in a hundred
// times, if each had a chance of 5 %.
func tooMany(called, comparisons int) bool {
	p := 0.0 // of that many or more
	for k := called; k <= comparisons; k++ {
		lg := func(n int) float64 { x, _ := math.Lgamma(float64(n + 1)); return x }
		p += math.Exp(lg(comparisons) - lg(k) - lg(comparisons-k) + float64(k)*math.Log(0.05) + float64(comparisons-k)*math.Log(0.95))
	}
	return p < 0.01
}

// page is a text with tables.
type page struct{ bytes.Buffer }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// table writes rows of cells that are separated by |.
func (p *page) table(rows []string) {
	w := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.ReplaceAll(r, "|", "\t"))
	}
	w.Flush()
}

// head says what was measured, and on what.
func (p *page) head(title string, t *testing.T) {
	host := result.CaptureHost(t.TempDir())
	p.line("%s", title)
	p.line("Each sample is a fresh server in mode memory: %v of Set and %v of Get after %v of warm-up, 8 workers, %d keys each.", simDuration, simDuration, simWarmup, simKeys)
	p.line("Machine: %d cores of %s, %s/%s, kernel %s, %s; recorded until %s.",
		host.CPUs, host.CPU, runtime.GOOS, runtime.GOARCH, host.Kernel, host.FileSystem, time.Now().Format(time.DateOnly))
}

// binary says what a server was built with.
func (p *page) binary(o *Outcome) {
	p.line("Servers: built with %s.", o.Plan.Binaries[0].Version)
}

// keep prints the page, and saves it: beside the records, and in the repository if they are whole and as large as they are by
// default.
func (s simulation) keep(t *testing.T, name string, p *page, full bool) {
	t.Helper()
	fmt.Print("\n", p.String())
	paths := []string{filepath.Join(s.dir, name)}
	if full {
		paths = append(paths, filepath.Join("testdata", name))
	}
	for _, path := range paths {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, p.Bytes(), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	if !full {
		fmt.Printf("(not kept in testdata: not all rounds that are wanted are there)\n")
	}
}

const trustBlocks = 300

func TestTrust(t *testing.T) {
	s := long(t, trustBlocks)
	plain := s.server(t, "")
	var p page
	p.head("Trust: kvserver against itself. How often does a comparison call a difference (p < 0.05, before Holm) that is not there?", t)
	whole := true
	for i, design := range []struct {
		name  string
		slice time.Duration
	}{{"one at a time", 0}, {"side by side", simSlice}} {
		o, all := s.record(t, "trust-"+strings.ReplaceAll(design.name, " ", "-"), design.slice, nil, plain, plain)
		whole = whole && all
		if o == nil || o.Blocks == 0 {
			continue
		}
		if i == 0 {
			p.binary(o)
		}
		how := ""
		if design.slice > 0 {
			how = fmt.Sprintf(", driven in turns of %v to and fro", design.slice)
		}
		p.line("\n%s%s: %d rounds of %.2f s, %d measurements INVALID and not used", strings.ToUpper(design.name[:1])+design.name[1:], how, o.Blocks, roundsOf(o, 0, "qps").seconds, invalid(o))
		rows := []string{"|||disjoint||||every start|drawn|", "|budget|rounds|comparisons|call|half width|comparisons|call|call|half width"}
		pooled := verdicts{}
		for op, name := range o.Plan.Ops {
			for _, metric := range DefaultMetrics() {
				for _, budget := range []time.Duration{time.Minute, 3 * time.Minute} {
					r := roundsOf(o, op, metric)
					if len(r.base) == 0 {
						continue
					}
					n := r.of(budget)
					cut, every, drawn := r.count(r.stretches(n, n)), r.count(r.stretches(n, 1)), r.moved(1).count(r.drawn(n))
					rows = append(rows, fmt.Sprintf("memory/%s %s|%.0f s|%d|%d|%d|%s|%d|%s|%s|%s", name, metric, budget.Seconds(), n,
						cut.comparisons, cut.called, half(cut), every.comparisons, share(every.called, every.comparisons), share(drawn.called, drawn.comparisons), half(drawn)))
					pooled.comparisons, pooled.called = pooled.comparisons+cut.comparisons, pooled.called+cut.called
				}
			}
		}
		p.table(append(rows, fmt.Sprintf("all|||%d|%d|%s|||", pooled.comparisons, pooled.called, share(pooled.called, pooled.comparisons))))
		if tooMany(pooled.called, pooled.comparisons) {
			t.Errorf("%s: %d of %d comparisons of a server with itself call a difference", design.name, pooled.called, pooled.comparisons)
		}
	}
	p.line("\nDisjoint: the record cut into comparisons one after the other. Every start: a comparison begins at each round, so that they overlap;")
	p.line("one stretch of bad luck is counted many times. Drawn: %d comparisons whose rounds are taken from the record at random, with", simDraws)
	p.line("replacement, after it was moved so that its sides are equal. Half width: the median over the comparisons.")
	s.keep(t, "trust.txt", &p, whole && s.blocks >= trustBlocks)
}

// invalid counts operations that failed a check or came to nothing.
func invalid(o *Outcome) (n int) {
	for _, s := range o.Samples {
		for op := range o.Plan.Ops {
			if s.Failed != "" || !s.Cells[op].Valid {
				n++
			}
		}
	}
	return n
}

const powerBlocks = 100

func TestPower(t *testing.T) {
	s := long(t, powerBlocks)
	plain, slow := s.server(t, ""), s.server(t, "kvmark_slow")
	const budget = 3 * time.Minute
	want := map[string]map[int]float64{"cpu_us_per_op": {3: 0.90, 5: 0.90}, "qps": {5: 0.80}}
	var p page
	p.head(fmt.Sprintf("Power: kvserver against one that burns more CPU for each command. How often is it found worse in %.0f s?", budget.Seconds()), t)
	rows := []string{"|||as recorded||||moved|||", "asked for||rounds|other/base|95 % interval|found|rounds drawn|other/base|found|found among four|half width|wanted"}
	pace := map[int]float64{} // of an operation: log ratio of QPS for each of CPU, from the slowest server, where both are known best
	whole := true
	for i, percent := range []int{5, 3, 2, 1} {
		o, all := s.record(t, fmt.Sprintf("power-%d", percent), simSlice, []string{"KVMARK_SLOW=" + strconv.Itoa(percent)}, plain, slow)
		whole = whole && all
		if o == nil || o.Blocks == 0 {
			continue
		}
		if i == 0 {
			p.binary(o)
		}
		if o.Plan.Binaries[0].SHA256 == o.Plan.Binaries[1].SHA256 {
			t.Fatal("the tag kvmark_slow makes no difference: this kvserver has no hook for it")
		}
		for op, name := range o.Plan.Ops {
			cpu, qps := roundsOf(o, op, "cpu_us_per_op"), roundsOf(o, op, "qps")
			if len(cpu.base) == 0 || len(qps.base) == 0 {
				continue
			}
			if _, ok := pace[op]; !ok {
				pace[op] = math.Log(qps.estimate(qps.all()).Ratio.Float) / math.Log(cpu.estimate(cpu.all()).Ratio.Float)
			}
			for _, metric := range DefaultMetrics() {
				r, exact := cpu, 1+float64(percent)/100
				if metric == "qps" {
					r, exact = qps, math.Pow(exact, pace[op])
				}
				e := r.estimate(r.all())
				interval := "-"
				if e.Interval.OK {
					interval = fmt.Sprintf("%+.1f..%+.1f %%", 100*(e.Interval.Low-1), 100*(e.Interval.High-1))
				}
				n := r.of(budget)
				recorded, v := r.count(r.drawn(n)), r.moved(exact).count(r.drawn(n))
				wanted := ""
				if least, ok := want[metric][percent]; ok {
					wanted = fmt.Sprintf(">= %.0f %%", 100*least)
					if found := float64(v.worse) / float64(max(1, v.comparisons)); found < least {
						wanted += " MISSED"
						t.Errorf("%d %% slower, %s, %s: found in %.0f %% of the comparisons, want %.0f %%", percent, name, metric, 100*found, 100*least)
					}
				}
				rows = append(rows, fmt.Sprintf("%d %%|memory/%s %s|%d|%+.1f %%|%s|%s|%d|%+.1f %%|%s|%s|%s|%s", percent, name, metric, len(r.base), 100*(e.Ratio.Float-1), interval,
					share(recorded.worse, recorded.comparisons), n, 100*(exact-1), share(v.worse, v.comparisons), share(v.among, v.comparisons), half(v), wanted))
			}
		}
	}
	p.line("Servers live side by side, driven in turns of %v to and fro. %d comparisons are drawn from each record, round by round with", simSlice, simDraws)
	p.line("replacement: as it was recorded, and moved so that the CPU per operation differs by exactly what was asked for, and QPS by as much")
	p.line("less as the slowest server shows. Found: p < 0.05 and worse. Among four (Set and Get, two metrics): p < 0.05/4, the most Holm asks for.")
	p.line("")
	p.table(rows)
	s.keep(t, "power.txt", &p, whole && s.blocks >= powerBlocks)
}

// The judges of the simulations, on records that are made up.
func TestSimulationsCountCallsOfADifference(t *testing.T) {
	equal := roundsOf(made{factors: twoGo, rounds: 240, qps: faster(0)}.outcome(t), 0, "qps")
	if n := equal.of(time.Minute); n != 6 || len(equal.base) != 240 {
		t.Fatalf("a minute has %d of %d rounds of %v s", n, len(equal.base), equal.seconds)
	}
	if v := equal.count(equal.stretches(6, 6)); v.comparisons != 40 || tooMany(v.called, v.comparisons) {
		t.Errorf("equals, cut: %+v", v)
	}
	if v := equal.moved(1).count(equal.drawn(20)); v.comparisons != simDraws || tooMany(v.called, v.comparisons) || v.called == 0 {
		t.Errorf("equals, drawn: %+v", v)
	}
	slower := roundsOf(made{factors: twoGo, rounds: 240, qps: faster(-0.03)}.outcome(t), 1, "cpu_us_per_op")
	if v := slower.count(slower.stretches(10, 10)); v.worse != v.comparisons || v.among != v.worse || v.comparisons != 24 || v.half > 0.01 {
		t.Errorf("slower: %+v", v)
	}
	if v := slower.moved(1).count(slower.drawn(10)); tooMany(v.called, v.comparisons) {
		t.Errorf("slower, made equal: %+v", v)
	}
	for _, tt := range []struct {
		called, comparisons int
		want                bool
	}{{0, 30, false}, {2, 30, false}, {4, 30, false}, {6, 30, true}, {1, 1, false}, {30, 30, true}} {
		if got := tooMany(tt.called, tt.comparisons); got != tt.want {
			t.Errorf("%d of %d: %v", tt.called, tt.comparisons, got)
		}
	}
}
