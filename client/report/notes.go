package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kvmark/client/compare"
	"kvmark/client/result"
)

// notes is what there is to say about a group beyond its row and its verdict, one line each.
func (g group) notes(p result.Plan) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if paced := g.pace(); paced != "" {
		add("%s", paced)
	}
	first := g.median(func(c result.Cell) *float64 { return places(c).FirstP50US })
	last := g.median(func(c result.Cell) *float64 { return places(c).LastP50US })
	if first != nil && last != nil {
		add("p50 by place in the batch: first %s us, last %s us; each command counts to its own reply", micros(first), micros(last))
	}
	if len(g.cells) > 1 {
		lines = append(lines, g.repeats(p.Score)...)
	}
	lines = append(lines, g.withinRun()...)
	lines = append(lines, g.open()...)
	lines = append(lines, g.slowSeconds()...)
	for _, c := range g.cells {
		if o := c.SecondOpinion; o != nil {
			share := ""
			if r := result.Ratio(o.QPS, c.QPS); r != nil {
				share = fmt.Sprintf(" (%.2f of ours)", *r)
			}
			add("%s: %s QPS%s, p50 %s us, p99 %s us, %s us CPU/op; %s", plain(o.Tool), count(o.QPS), share, micros(o.P50US), micros(o.P99US), micros(o.CPUPerOp), plain(o.Note))
		}
	}
	return lines
}

func places(c result.Cell) result.Places {
	if c.Places == nil {
		return result.Places{}
	}
	return *c.Places
}

// pace tells of an open loop what was asked, what became of it, and the response times; "" of a closed one.
func (g group) pace() string {
	var asked, sent, done int64
	for _, c := range g.counted() {
		if c.Pace == nil {
			return ""
		}
		asked, sent, done = asked+c.Pace.Asked, sent+c.Pace.Sent, done+c.Pace.Done
	}
	of := func(number func(*result.Pace) *float64) string {
		return micros(g.median(func(c result.Cell) *float64 { return number(c.Pace) }))
	}
	percentiles := func(of func(func(result.Latency) *float64) string) string {
		return fmt.Sprintf("p50 %s, p99 %s, p99.9 %s, max %s us",
			of(func(l result.Latency) *float64 { return l.P50 }), of(func(l result.Latency) *float64 { return l.P99 }),
			of(func(l result.Latency) *float64 { return l.P999 }), of(func(l result.Latency) *float64 { return l.Max }))
	}
	response := percentiles(func(f func(result.Latency) *float64) string {
		return of(func(p *result.Pace) *float64 { return f(p.ResponseUS) })
	})
	late := fmt.Sprintf("p50 %s, p99 %s, max %s us",
		of(func(p *result.Pace) *float64 { return p.LatenessUS.P50 }), of(func(p *result.Pace) *float64 { return p.LatenessUS.P99 }),
		of(func(p *result.Pace) *float64 { return p.LatenessUS.Max }))
	return fmt.Sprintf("response time, from when a request was due: %s (service time above); asked %d, sent %d, done %d; sent late by %s", response, asked, sent, done, late)
}

// repeats says how the repeats differ, and what their number does not allow to say.
func (g group) repeats(score string) []string {
	xs := g.values(qps)
	d := compare.Describe(xs)
	var words []string
	if d.Spread.OK {
		words = append(words, fmt.Sprintf("the middle half of the repeats lies within %.1f %% of the median", 100*d.Spread.Float))
	}
	switch {
	case score == "trimmed" && d.Trimmed.OK:
		words = append(words, fmt.Sprintf("score without best and worst: %.0f", d.Trimmed.Float))
	case score == "last3" && d.Last3.OK:
		words = append(words, fmt.Sprintf("score of the last three: %.0f", d.Last3.Float))
	}
	if d.Note != "" {
		words = append(words, d.Note)
	}
	if len(xs) >= 4 {
		words = append(words, compare.FindDrift(xs).String())
	}
	if len(words) == 0 {
		return nil
	}
	return []string{strings.Join(words, "; ")}
}

// withinRun is the error bar that each run has by itself, and how steady it was. What it leaves out is said with it.
func (g group) withinRun() []string {
	var lines, unsteady []string
	var qpsWidths, cpuWidths []float64
	runs := 0
	for _, c := range g.counted() {
		in := c.WithinRun
		if in == nil {
			continue
		}
		runs++
		where := ""
		if len(g.cells) > 1 {
			where = fmt.Sprintf("repeat %d ", c.Repeat)
		}
		if in.Note != "" && len(g.cells) == 1 {
			return []string{"within this run: n.a., " + plain(in.Note)}
		}
		if in.QPSLow != nil && len(g.cells) == 1 {
			lines = append(lines, fmt.Sprintf("within this run: %s..%s QPS, %s us CPU/op (95 %%); other processes, runs and days differ by more, which --repeat shows",
				count(in.QPSLow), count(in.QPSHigh), span(in.CPULow, in.CPUHigh)))
		}
		qpsWidths = append(qpsWidths, halfWidth(in.QPSLow, in.QPSHigh)...)
		cpuWidths = append(cpuWidths, halfWidth(in.CPULow, in.CPUHigh)...)
		if course := plain(in.Course); course != "" && (len(g.cells) == 1 || !strings.HasPrefix(course, "steady")) {
			unsteady = append(unsteady, where+course)
		}
	}
	if len(g.cells) > 1 && len(qpsWidths) > 0 {
		line := fmt.Sprintf("within one run, median of %d: QPS +-%.1f %%", len(qpsWidths), 100*middle(qpsWidths))
		if len(cpuWidths) > 0 {
			line += fmt.Sprintf(", CPU/op +-%.1f %%", 100*middle(cpuWidths))
		}
		lines = append(lines, line+" (95 %, without what differs between runs)")
		if len(unsteady) == 0 {
			lines[0] += "; all steady"
		}
	}
	for i, words := range unsteady {
		if i == maxSlowSeconds {
			return append(lines, fmt.Sprintf("runs that were not steady in all: %d of %d", len(unsteady), runs))
		}
		lines = append(lines, words)
	}
	return lines
}

// span is an interval of microseconds.
func span(low, high *float64) string {
	if low == nil || high == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f..%.2f", *low, *high)
}

// halfWidth is half of an interval as a part of its middle; empty where there is none.
func halfWidth(low, high *float64) []float64 {
	if low == nil || high == nil || *low+*high <= 0 {
		return nil
	}
	return []float64{(*high - *low) / (*high + *low)}
}

func middle(xs []float64) float64 {
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

// outlier is how many times p99.9 a wait must be to be told by itself.
const outlier = 3

// open tells of requests that were open when the window closed, where one of them waited by far the longest of all.
func (g group) open() []string {
	var lines []string
	for _, c := range g.cells {
		usual := c.LatencyUS.P999
		for _, less := range []*float64{c.LatencyUS.P99, c.LatencyUS.P90, c.LatencyUS.P50} { // of few replies there is no p99.9
			if usual == nil {
				usual = less
			}
		}
		late := number0(c.LateMaxUS)
		if late <= outlier*number0(usual) || late <= number0(c.LatencyUS.Max) {
			continue
		}
		where := ""
		if len(g.cells) > 1 {
			where = fmt.Sprintf("repeat %d: ", c.Repeat)
		}
		lines = append(lines, fmt.Sprintf("%s%d requests were still open at the deadline, the longest waited %.*f ms; max has it, the percentiles do not", where, c.Open, decimals(late), late/1e3))
	}
	return lines
}

// decimals are those of a time in us that is shown in ms.
func decimals(us float64) int {
	if us < 10_000 {
		return 1
	}
	return 0
}

const maxSlowSeconds = 3

// slowSeconds names the seconds that stand out most.
func (g group) slowSeconds() []string {
	type slow struct {
		repeat int
		row    result.Row
	}
	var all []slow
	for _, c := range g.cells {
		for _, r := range c.Series {
			if r.Cause != "" {
				all = append(all, slow{c.Repeat, r})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b slow) int { return cmp.Compare(number0(a.row.QPS), number0(b.row.QPS)) })
	var lines []string
	for i, s := range all {
		if i == maxSlowSeconds {
			lines = append(lines, fmt.Sprintf("slow seconds in all: %d", len(all)))
			break
		}
		where := ""
		if len(g.cells) > 1 {
			where = fmt.Sprintf(" of repeat %d", s.repeat)
		}
		p99 := ""
		if s.row.P99US != nil {
			p99 = ", p99 " + micros(s.row.P99US) + " us"
		}
		lines = append(lines, fmt.Sprintf("slow second %.0f%s: %s QPS%s: %s", s.row.T, where, count(s.row.QPS), p99, plain(s.row.Cause)))
	}
	return lines
}

func number0(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// ending is what concerns the run as a whole: what searches found, and warnings.
func ending(f *result.File) []string {
	var lines []string
	for _, s := range f.Searches {
		line := fmt.Sprintf("%s %s: ", s.Mode, opName(s.Op))
		switch {
		case s.Unfinished:
			line += fmt.Sprintf("the search for the highest rate that keeps %s has not finished", s.SLO) + tried(s)
		case s.Rate == nil && s.Broken == nil:
			line += "nothing was tried; why stands with the cell"
		case s.Rate == nil:
			line += fmt.Sprintf("no rate keeps %s: not even %s requests a second", s.SLO, count(s.Broken))
		case s.Broken == nil:
			line += fmt.Sprintf("%s requests a second keep %s, and so may more", count(s.Rate), s.SLO)
		default:
			line += fmt.Sprintf("%s requests a second keep %s, %s do not", count(s.Rate), s.SLO, count(s.Broken))
		}
		lines = append(lines, fmt.Sprintf("%s (closed loop %s, %d windows)", line, count(s.Closed), len(s.Trials)))
	}
	for _, w := range f.Warnings {
		lines = append(lines, fmt.Sprintf("warning %s: %s (kvmark explain %s)", w.Code, plain(w.Detail), w.Code))
	}
	return lines
}

// tried says what a search that has not finished knows.
func tried(s result.Search) string {
	words := ""
	if s.Rate != nil {
		words += fmt.Sprintf("; %s requests a second keep it", count(s.Rate))
	}
	if s.Broken != nil {
		words += fmt.Sprintf("; %s requests a second do not keep it", count(s.Broken))
	}
	if n := len(s.Trials); n > 0 {
		words += fmt.Sprintf("; last tried: %s", count(&s.Trials[n-1].Rate))
	} else {
		words += "; no rate was tried to the end of its window"
	}
	return words
}
