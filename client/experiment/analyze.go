package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"kvmark/client/compare"
)

// Analysis is what an experiment says.
type Analysis struct {
	*Outcome
	Metrics      []compare.Metric
	Cells        []Summary
	Comparisons  []compare.Comparison // by mode, operation, pair, metric
	Pairs        [][2]int             // of variants, base and other, that are compared
	Interactions []Interaction
	Floors       []Floor
	Drifts       []Drift
	Detectable   []Detectable
	GC           []GCView
	Invalid      int // operations of samples that failed a check, or came to nothing
	Margin       float64
	Within       float64
}

// Summary describes one operation of one cell.
type Summary struct {
	Variant int
	Mode    string
	Op      string
	Valid   int // samples used
	Invalid int
	Bound   string // client or server, "": not known
	Metrics map[string]compare.Summary
	Seen    Sample // the first valid sample, for its settings; zero: none
}

// Floor is what the controls of this run show although nothing differs.
type Floor struct {
	Mode, Op string
	Metric   compare.Metric
	Floor    compare.Value // in |log ratio|
	Controls []Control
}

// Control is one control arm against the base.
type Control struct {
	Name     string // A/A, A/A'
	Estimate compare.Estimate
}

// Drift is what a cell did over time.
type Drift struct {
	Cell string
	compare.Drift
}

// Detectable is the smallest change of QPS that so many rounds, with this noise, find four times in five.
type Detectable struct {
	Mode, Op string
	Rounds   int
	Change   compare.Value
}

// Interaction says whether the effect of one factor depends on another.
type Interaction struct {
	Mode, Op string
	Metric   compare.Metric
	A, B     [2]Setting // the two factors, each at its first value and another
	At       string     // where the other factors stand; "": there are no others
	compare.Estimate
	PHolm  compare.Value // over all interactions
	Family int
}

// analysis is one under construction.
type analysis struct {
	*Outcome
	floors map[string]compare.Value
}

// DefaultMetrics are compared unless others are asked for.
func DefaultMetrics() []string { return []string{"qps", "cpu_us_per_op"} }

func metricsOr(metrics []string) []string {
	if len(metrics) == 0 {
		return DefaultMetrics()
	}
	return metrics
}

// DefaultWithin is the loss of QPS for which a GC setting may be called cheap.
const DefaultWithin = 0.05

// Analyze draws the conclusions. metrics empty: [DefaultMetrics]. margin is the change too small to matter, 0:
// compare.DefaultMargin. within is the loss of QPS that a cheaper GC setting may cost, 0: [DefaultWithin].
func Analyze(o *Outcome, metrics []string, margin, within float64) (*Analysis, error) {
	metrics = metricsOr(metrics)
	if margin == 0 {
		margin = compare.DefaultMargin
	}
	if within == 0 {
		within = DefaultWithin
	}
	a := &Analysis{Outcome: o, Margin: margin, Within: within}
	for _, name := range metrics {
		m, ok := lookupMetric(name)
		if !ok {
			return nil, fmt.Errorf("metric %q is unknown; known are %s", name, strings.Join(metricNames(), ", "))
		}
		if !slices.Contains(a.Metrics, m) {
			a.Metrics = append(a.Metrics, m)
		}
	}
	an := &analysis{Outcome: o, floors: map[string]compare.Value{}}
	a.Cells = an.summaries()
	for _, c := range a.Cells {
		a.Invalid += c.Invalid
	}
	a.Floors, a.Pairs = an.measureFloors(a.Metrics), an.pairs()
	a.Comparisons = compare.Family(an.questions(a.Metrics), margin)
	a.Interactions = an.interactions(a.Metrics)
	a.Drifts, a.Detectable = an.drifts(), detectable(a.Comparisons)
	a.GC = gcViews(o, a.Cells, within)
	return a, nil
}

// ordinary are the variants that are no control and can be measured.
func (a *analysis) ordinary() []int {
	var all []int
	for i, v := range a.Plan.Variants {
		if v.Control == "" && v.NA == "" {
			all = append(all, i)
		}
	}
	return all
}

// values are the valid samples' numbers of one cell's operation, in the order of time.
func (a *analysis) values(cell Cell, op int, metric string) compare.Sample {
	s := compare.Sample{Name: a.Plan.Variants[cell.Variant].Name}
	for _, sample := range a.Samples {
		if sample.Cell() != cell || sample.Failed != "" || !sample.Cells[op].Valid {
			continue
		}
		x := sample.metric(op, metric)
		if x == nil {
			continue
		}
		s.Values = append(s.Values, *x)
		s.Blocks = append(s.Blocks, sample.Block)
		c := sample.Cells[op]
		s.ClientBound = s.ClientBound || pace(metric) && c.Client.Bound == "client" || metric == "qps" && atRate(c)
	}
	return s
}

// question asks how the variant other differs from base. Of QPS measured in slices the two are compared slice by slice.
func (a *analysis) question(base, other int, mode string, op int, m compare.Metric) compare.Question {
	q := compare.Question{
		Mode: mode, Op: a.Plan.Ops[op], Metric: m, Paired: true,
		Base: a.values(Cell{base, mode}, op, m.Name), Other: a.values(Cell{other, mode}, op, m.Name),
		Floor: a.floors[floorKey(mode, op, m)],
	}
	if m.Name == "qps" && a.Plan.Slice > 0 {
		a.bySlices(&q, Cell{base, mode}, Cell{other, mode}, op)
	}
	q.Base.Name, q.Other.Name = a.contrast(base, other)
	return q
}

// bySlices replaces other's values so that its ratio to base within each block is the median over the pairs of turns
// (ABBA): a stall of the machine then spoils one pair of turns and not the sample.
func (a *analysis) bySlices(q *compare.Question, base, other Cell, op int) {
	ratios := map[int]float64{}
	parts := map[int]Sample{}
	for _, s := range a.Samples {
		if s.Cell() == base && s.Failed == "" {
			parts[s.Block] = s
		}
	}
	for _, s := range a.Samples {
		b, ok := parts[s.Block]
		if s.Cell() != other || s.Failed != "" || !ok || len(s.Slices) <= op || len(b.Slices) <= op {
			continue
		}
		x, y := b.Slices[op], s.Slices[op]
		var logs []float64
		for i := 0; i+1 < min(len(x), len(y)); i += 2 {
			rate := func(s Sample) float64 {
				pair := s.Slices[op][i : i+2]
				return float64(pair[0].OK+pair[1].OK) / (pair[0].Seconds + pair[1].Seconds)
			}
			if l := math.Log(rate(s) / rate(b)); !math.IsNaN(l) && !math.IsInf(l, 0) {
				logs = append(logs, l)
			}
		}
		if len(logs) > 0 {
			ratios[s.Block] = math.Exp(middle(logs))
		}
	}
	at := map[int]float64{}
	for i, block := range q.Base.Blocks {
		at[block] = q.Base.Values[i]
	}
	for i, block := range q.Other.Blocks {
		if r, ok := ratios[block]; ok {
			if b, ok := at[block]; ok {
				q.Other.Values[i] = b * r
			}
		}
	}
}

func middle(xs []float64) float64 {
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

// contrast names two variants by what they differ in, and by the rest if there is a rest.
func (a *analysis) contrast(base, other int) (string, string) {
	b, o := a.Plan.Variants[base], a.Plan.Variants[other]
	if len(a.Plan.Factors) == 0 || o.Control != "" {
		return b.Name, o.Name
	}
	var differ, common []string
	var left string
	for _, s := range o.Settings {
		if v := b.Get(s.Name); v != s.Value {
			differ = append(differ, settingWord(s))
			left = settingWord(Setting{s.Name, v})
		} else {
			common = append(common, settingWord(s))
		}
	}
	if len(differ) != 1 || len(common) == 0 {
		return b.Name, o.Name
	}
	return left, fmt.Sprintf("%s (at %s)", differ[0], strings.Join(common, " "))
}

// pairs are the variants to compare. In a product each is compared with the one that differs from it in one factor
// only, which there has its first value that can be measured: the effect of that factor, where the others stand as they
// do. Named cells are compared with the base.
func (a *analysis) pairs() [][2]int {
	live := a.ordinary()
	var pairs [][2]int
	if len(a.Plan.Factors) == 0 {
		for _, v := range live {
			if v != a.Base {
				pairs = append(pairs, [2]int{a.Base, v})
			}
		}
		return pairs
	}
	for _, f := range a.Plan.Factors {
		for _, v := range live {
			variant := a.Plan.Variants[v]
			for _, value := range f.Values {
				if value == variant.Get(f.Name) {
					break
				}
				if base := a.find(variant.with(f.Name, value)); base >= 0 {
					pairs = append(pairs, [2]int{base, v})
					break
				}
			}
		}
	}
	return pairs
}

// find returns the live variant with the same settings, or -1.
func (a *analysis) find(want Variant) int {
	for _, i := range a.ordinary() {
		if slices.Equal(a.Plan.Variants[i].Settings, want.Settings) {
			return i
		}
	}
	return -1
}

// questions are all that is asked of the samples, in the order of the report.
func (a *analysis) questions(metrics []compare.Metric) []compare.Question {
	var qs []compare.Question
	for _, mode := range a.Plan.Modes {
		for op := range a.Plan.Ops {
			for _, p := range a.pairs() {
				for _, m := range metrics {
					qs = append(qs, a.question(p[0], p[1], mode, op, m))
				}
			}
		}
	}
	return qs
}

func floorKey(mode string, op int, m compare.Metric) string {
	return fmt.Sprintf("%s/%d/%s", mode, op, m.Name)
}

// measureFloors compares the controls with the base, per mode, operation and metric.
func (a *analysis) measureFloors(metrics []compare.Metric) []Floor {
	var floors []Floor
	for _, mode := range a.Plan.Modes {
		for op := range a.Plan.Ops {
			for _, m := range metrics {
				f := Floor{Mode: mode, Op: a.Plan.Ops[op], Metric: m}
				var estimates []compare.Estimate
				for i, v := range a.Plan.Variants {
					if v.Control == "" || v.NA != "" {
						continue
					}
					q := a.question(a.Base, i, mode, op, m)
					e := compare.Paired(q.Base, q.Other)
					f.Controls = append(f.Controls, Control{v.Control, e})
					estimates = append(estimates, e)
				}
				if len(estimates) == 0 {
					continue
				}
				f.Floor = compare.NoiseFloor(estimates...)
				a.floors[floorKey(mode, op, m)] = f.Floor
				floors = append(floors, f)
			}
		}
	}
	return floors
}

// summaries describes every cell's operations.
func (a *analysis) summaries() []Summary {
	var all []Summary
	for _, mode := range a.Plan.Modes {
		for op, name := range a.Plan.Ops {
			for i, v := range a.Plan.Variants {
				if v.NA != "" {
					continue
				}
				s := Summary{Variant: i, Mode: mode, Op: name, Metrics: map[string]compare.Summary{}}
				for _, sample := range a.Samples {
					if sample.Cell() != (Cell{i, mode}) {
						continue
					}
					if sample.Failed != "" || !sample.Cells[op].Valid {
						s.Invalid++
						continue
					}
					if s.Valid++; s.Valid == 1 {
						s.Seen = sample
					}
					if bound := sample.Cells[op].Client.Bound; bound == "client" || s.Bound == "" {
						s.Bound = bound
					}
				}
				for _, m := range metricNames() {
					if values := a.values(Cell{i, mode}, op, m).Values; len(values) > 0 {
						s.Metrics[m] = compare.Describe(values)
					}
				}
				all = append(all, s)
			}
		}
	}
	return all
}

// interactions asks, for every two factors and every two values of each against the first, whether the effects multiply.
func (a *analysis) interactions(metrics []compare.Metric) []Interaction {
	var all []Interaction
	for _, mode := range a.Plan.Modes {
		for op, name := range a.Plan.Ops {
			for _, m := range metrics {
				for i, f := range a.Plan.Factors {
					for _, g := range a.Plan.Factors[i+1:] {
						for _, v := range a.ordinary() {
							in, ok := a.interaction(v, f, g, mode, op, m)
							if ok {
								in.Mode, in.Op, in.Metric = mode, name, m
								all = append(all, in)
							}
						}
					}
				}
			}
		}
	}
	ps := make([]compare.Value, len(all))
	for i, in := range all {
		ps[i] = in.P
	}
	adjusted, family := compare.Holm(ps)
	for i := range all {
		all[i].PHolm, all[i].Family = adjusted[i], family
	}
	return all
}

// interaction takes v as the corner where both factors have moved.
func (a *analysis) interaction(v int, f, g Factor, mode string, op int, m compare.Metric) (Interaction, bool) {
	variant := a.Plan.Variants[v]
	fv, gv := variant.Get(f.Name), variant.Get(g.Name)
	if fv == f.Values[0] || gv == g.Values[0] {
		return Interaction{}, false
	}
	corner := func(fValue, gValue string) compare.Sample {
		i := a.find(variant.with(f.Name, fValue).with(g.Name, gValue))
		if i < 0 {
			return compare.Sample{}
		}
		return a.values(Cell{i, mode}, op, m.Name)
	}
	in := Interaction{
		A: [2]Setting{{f.Name, f.Values[0]}, {f.Name, fv}}, B: [2]Setting{{g.Name, g.Values[0]}, {g.Name, gv}},
		Estimate: compare.Interaction(corner(f.Values[0], g.Values[0]), corner(f.Values[0], gv), corner(fv, g.Values[0]), corner(fv, gv)),
	}
	var at []string
	for _, s := range variant.Settings {
		if s.Name != f.Name && s.Name != g.Name {
			at = append(at, settingWord(s))
		}
	}
	in.At = strings.Join(at, " ")
	return in, in.N() > 0
}

// String says it in one sentence.
func (in Interaction) String() string {
	s := strings.Trim(in.Mode+"/"+in.Op, "/")
	if in.Metric.Name != "qps" {
		s += " " + in.Metric.Title
	}
	if in.At != "" {
		s += " at " + in.At
	}
	a, b := settingWord(in.A[1]), settingWord(in.B[1])
	from := settingWord(in.B[0])
	switch {
	case !in.Ratio.OK || !in.Interval.OK || !in.PHolm.OK:
		return fmt.Sprintf("%s: whether %s changes what %s does cannot be said yet (%s)", s, a, b, in.Note)
	case in.PHolm.Float < compare.Alpha && (in.Interval.Low > 1 || in.Interval.High < 1):
		return fmt.Sprintf("%s: the step from %s to %s is worth %+.1f %% more with %s than with %s (95 %% CI %+.1f..%+.1f %%, n = %d, p = %.3g after Holm over %d)",
			s, from, b, 100*(in.Ratio.Float-1), a, settingWord(in.A[0]), 100*(in.Interval.Low-1), 100*(in.Interval.High-1), in.N(), in.PHolm.Float, in.Family)
	default:
		return fmt.Sprintf("%s: no sign that the step from %s to %s depends on %s (%+.1f %%, 95 %% CI %+.1f..%+.1f %%, n = %d)",
			s, from, b, a, 100*(in.Ratio.Float-1), 100*(in.Interval.Low-1), 100*(in.Interval.High-1), in.N())
	}
}

// drifts looks at each cell's QPS over time.
func (a *analysis) drifts() []Drift {
	var all []Drift
	for _, mode := range a.Plan.Modes {
		for op, name := range a.Plan.Ops {
			for _, v := range a.ordinary() {
				d := compare.FindDrift(a.values(Cell{v, mode}, op, "qps").Values)
				if d.Seen() {
					all = append(all, Drift{strings.TrimSpace(strings.Trim(mode+"/"+name, "/") + " " + a.Plan.Variants[v].Name), d})
				}
			}
		}
	}
	return all
}

// detectable says, per mode and operation, what the worst comparison of QPS could have found.
func detectable(cs []compare.Comparison) []Detectable {
	var all []Detectable
	for _, c := range cs {
		if c.Metric.Name != "qps" {
			continue
		}
		d := Detectable{c.Mode, c.Op, c.N(), c.Estimate.Detectable(c.N(), 0.8, compare.Alpha/float64(max(1, c.Family)))}
		i := slices.IndexFunc(all, func(x Detectable) bool { return x.Mode == c.Mode && x.Op == c.Op })
		switch {
		case i < 0:
			all = append(all, d)
		case all[i].Change.OK && (!d.Change.OK || d.Change.Float > all[i].Change.Float):
			all[i] = d
		}
	}
	return all
}
