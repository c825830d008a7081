package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"kvmark/client/compare"
	"kvmark/client/result"
)

// comparePage shows what was found, then the intervals behind it, then what the settings buy, and at the end the comparison's own
// report. Without a study, as of an older result, that is what cells and verdicts show.
func comparePage(f *result.File, study *Study) page {
	p := startPage(f)
	p.judge(f)
	p.Ran = ran(f)
	metrics := []string{}
	for _, c := range f.Comparisons {
		if !slices.Contains(metrics, c.Metric) {
			metrics = append(metrics, c.Metric)
		}
	}
	for _, name := range metrics {
		m, _ := compare.LookupMetric(name)
		fo := forest{Title: "change of " + m.Title}
		if i := slices.IndexFunc(f.Comparisons, func(c result.Comparison) bool { return c.Base != f.Comparisons[0].Base }); i < 0 {
			fo.Title += " against " + f.Comparisons[0].Base
		}
		if slices.ContainsFunc(f.Comparisons, func(c result.Comparison) bool { return c.Metric == name && c.CILow != nil && c.CIHigh != nil }) {
			fo.Title += ", 95 % intervals"
		} else {
			fo.Title += "; too few rounds for intervals"
		}
		for _, c := range f.Comparisons {
			if c.Metric == name && c.Ratio != nil {
				fo.Effects = append(fo.Effects, effectOf(c))
			}
		}
		p.Lead = append(p.Lead, fo.svg())
	}
	p.Findings = findingWords(f.Comparisons)
	all := slices.DeleteFunc(groups(f), func(g group) bool { return g.cells[0].Config["control"] != "" })
	study.inOrder(all, f.Plan.Modes)
	p.LeadCharts = frontiers(all, study)
	p.Bars = throughput(all)
	if study != nil {
		p.Ran, p.Sections = nil, study.sections()
		return p
	}
	var modes []string
	for _, g := range all {
		if !slices.Contains(modes, g.mode) {
			modes = append(modes, g.mode)
		}
	}
	for _, mode := range modes {
		s := &htmlSection{Heading: Heading(mode, f.Plan)}
		s.Caption = s.Heading
		s.tabulate(slices.DeleteFunc(slices.Clone(all), func(g group) bool { return g.mode != mode }), f,
			func(g group) string { return strings.TrimSpace(opName(g.op) + " " + g.config) })
		p.Sections = append(p.Sections, s)
	}
	return p
}

// judge says of how many samples the comparison is made. Single ones that are INVALID are left out of it, and do no harm as long as
// there are others.
func (p *page) judge(f *result.File) {
	all, invalid := groups(f), 0
	for _, g := range all {
		valid := 0
		for _, c := range g.cells {
			if c.Valid {
				valid++
			}
		}
		if invalid += len(g.cells) - valid; valid == 0 {
			return // as startPage has it
		}
	}
	if invalid > 0 {
		p.Valid = true
		p.Verdict = fmt.Sprintf("VALID: %d of %s are used; in %d a check failed, and they are left out", len(f.Cells)-invalid, Plural(len(f.Cells), "measurement"), invalid)
	}
}

func effectOf(c result.Comparison) effect {
	percent := func(ratio *float64) *float64 {
		if ratio == nil {
			return nil
		}
		return result.Number(100 * (*ratio - 1))
	}
	cell := strings.Trim(c.Mode+"/"+c.Op, "/")
	e := effect{
		name:  strings.TrimSpace(cell + " " + c.Other),
		words: fmt.Sprintf("%s: %s against %s: %s", cell, c.Other, c.Base, c.Verdict),
		at:    percent(c.Ratio), low: percent(c.CILow), high: percent(c.CIHigh),
	}
	m, _ := compare.LookupMetric(c.Metric)
	e.proven = m.Better != compare.Neutral && (c.Verdict == "higher" || c.Verdict == "lower")
	e.better = (c.Verdict == "higher") == (m.Better == compare.HigherIsBetter)
	if e.at != nil {
		e.name += ": " + signed(*e.at)
		e.words += ", " + signed(*e.at)
		if e.low != nil && e.high != nil {
			e.words += fmt.Sprintf(", 95 %% interval %s to %s", signed(*e.low), signed(*e.high))
		}
	}
	e.name += ", " + c.Verdict
	return e
}

// findingWords sums up: what is proven, a line each, and how much is not.
func findingWords(all []result.Comparison) (lines []string) {
	same, open := 0, 0
	for _, c := range all {
		switch {
		case c.Verdict == "higher" || c.Verdict == "lower":
			m, _ := compare.LookupMetric(c.Metric)
			lines = append(lines, m.Title+" of "+effectOf(c).words)
		case strings.HasPrefix(c.Verdict, "same"):
			same++
		default:
			open++
		}
	}
	if len(all) > 0 {
		lines = append(lines, fmt.Sprintf("Of %s %d proved a difference, %d that there is none that matters, %d are inconclusive.",
			Plural(len(all), "question"), len(all)-same-open, same, open))
	}
	return lines
}

// leastForFrontier is how many settings make a choice among them worth a picture.
const leastForFrontier = 3

// frontiers draw QPS over memory and over p99 for each mode and operation with several settings.
func frontiers(all []group, study *Study) (charts []template.HTML) {
	type setting struct {
		compare.Point
		low, high *float64
		cheapest  bool
	}
	type cost struct {
		words string
		of    func(compare.Point) float64
	}
	for len(all) > 0 {
		mode, op := all[0].mode, all[0].op
		ours := func(g group) bool { return g.mode == mode && g.op == op }
		var points []compare.Point
		var settings []setting
		for _, g := range all {
			rate, rss, p99 := g.median(qps), g.median(func(c result.Cell) *float64 { return c.Server.RSSPeakBytes }),
				g.median(func(c result.Cell) *float64 { return c.LatencyUS.P99 })
			if ours(g) && rate != nil && rss != nil && p99 != nil {
				s := setting{Point: compare.Point{Name: g.config, QPS: *rate, RSS: *rss, P99: *p99}}
				s.low, s.high = g.intervalEnds()
				s.cheapest = study != nil && study.Cheapest != nil && study.Cheapest(g.mode, g.op, g.cells[0].Config)
				points, settings = append(points, s.Point), append(settings, s)
			}
		}
		all = slices.DeleteFunc(slices.Clone(all), ours)
		if len(points) < leastForFrontier {
			continue
		}
		front := compare.Frontier(points)
		for i, x := range []cost{
			{"peak RSS, MB", func(p compare.Point) float64 { return p.RSS / 1e6 }},
			{"p99, us", func(p compare.Point) float64 { return p.P99 }},
		} {
			best, rest := curve{name: "beaten by no other", loose: i > 0}, curve{name: "beaten", loose: true}
			cheapest := curve{name: "cheapest", loose: true, ring: true}
			for _, p := range settings {
				s := spot{x: x.of(p.Point), y: p.QPS, name: p.Name, low: p.low, high: p.high}
				if p.cheapest {
					cheapest.points = append(cheapest.points, s)
				}
				if slices.Contains(front, p.Point) {
					best.points = append(best.points, s)
				} else {
					rest.points = append(rest.points, s)
				}
			}
			slices.SortFunc(best.points, func(a, b spot) int { return cmp.Compare(a.x, b.x) })
			if !slices.IsSortedFunc(best.points, func(a, b spot) int { return cmp.Compare(a.y, b.y) }) {
				best.loose = true // some of them are beaten here, and not in the other cost
			}
			c := chart{Title: fmt.Sprintf("%s/%s: QPS over %s", mode, op, x.words), X: x.words, Dots: true, Free: true}
			c.Lines = slices.DeleteFunc([]curve{best, rest, cheapest}, func(l curve) bool { return len(l.points) == 0 })
			charts = append(charts, c.svg())
		}
	}
	return charts
}
