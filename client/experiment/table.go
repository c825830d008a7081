package experiment

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"

	"kvmark/client/compare"
	"kvmark/client/report"
)

// section is a part of the report: a heading, then a table or lines.
type section struct {
	heading string
	columns []string
	rows    [][]string
	lines   []string
}

// WriteTable writes the report as text for a terminal.
func (a *Analysis) WriteTable(out io.Writer) error {
	w := bufio.NewWriter(out)
	for i, s := range a.sections() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if s.heading != "" {
			fmt.Fprintln(w, s.heading)
		}
		writeAligned(w, s)
		for _, line := range s.lines {
			fmt.Fprintln(w, "  "+line)
		}
	}
	return w.Flush()
}

// terminal knows how many columns characters take, whatever the locale.
var terminal = &runewidth.Condition{}

// writeAligned writes the first column to the left and the others to the right, so that digits stand below each other.
func writeAligned(w io.Writer, s section) {
	if len(s.rows) == 0 {
		return
	}
	widths := make([]int, len(s.columns))
	for _, row := range append([][]string{s.columns}, s.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], terminal.StringWidth(cell))
		}
	}
	for _, row := range append([][]string{s.columns}, s.rows...) {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-terminal.StringWidth(cell))
			if i == 0 {
				line.WriteString("  " + cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// WriteMarkdown writes the report for a page.
func (a *Analysis) WriteMarkdown(out io.Writer) error {
	w := bufio.NewWriter(out)
	for i, s := range a.sections() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if s.heading != "" {
			fmt.Fprintf(w, "### %s\n\n", escape(s.heading))
		}
		if len(s.rows) > 0 {
			fmt.Fprintf(w, "|%s|\n|%s|\n", strings.Join(s.columns, "|"), "---"+strings.Repeat("|--:", len(s.columns)-1))
			for _, row := range s.rows {
				for i := range row {
					row[i] = escape(row[i])
				}
				fmt.Fprintf(w, "|%s|\n", strings.Join(row, "|"))
			}
		}
		if len(s.rows) > 0 && len(s.lines) > 0 {
			fmt.Fprintln(w)
		}
		for _, line := range s.lines {
			fmt.Fprintf(w, "- %s\n", escape(line))
		}
	}
	return w.Flush()
}

// escape keeps text from being taken for markup, and a row in its line.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "*", `\*`, "_", `\_`, "<", "&lt;", "&", "&amp;", "`", "\\`", "[", `\[`).Replace(s)
}

// sections are what both forms show.
func (a *Analysis) sections() []section {
	all := []section{a.summarySection()}
	for _, mode := range a.Plan.Modes {
		for _, op := range a.Plan.Ops {
			all = append(all, a.cellSection(mode, op))
		}
	}
	all = append(all, a.verdictSection())
	for _, v := range a.GC {
		all = append(all, a.gcSection(v))
	}
	return append(all, a.trustSection(), a.shortSection("in short: QPS", "qps", "%.0f"), a.shortSection("in short: server CPU us/op", "cpu_us_per_op", "%.2f"))
}

func (a *Analysis) summarySection() section {
	p := a.Plan
	how := fmt.Sprintf("a fresh process for each sample, %s s of each operation after %s s of warm-up, rounds in random order and back", short(p.Seconds), short(p.Warmup))
	if p.Slice > 0 {
		how = fmt.Sprintf("servers of a mode side by side, fresh in each round, driven in turns of %s s to and fro, %s s of each operation after %s s of warm-up",
			short(p.Slice), short(p.Seconds), short(p.Warmup))
	}
	var s section
	if a.Interrupted {
		s.lines = append(s.lines, "INTERRUPTED: what follows is what there is; the same command goes on from here")
	}
	rounds := report.Plural(a.Blocks, "round")
	if a.Ended != rounds && a.Ended != "" {
		rounds += fmt.Sprintf(" (%s)", a.Ended)
	}
	s.lines = append(s.lines, rounds+": "+how, fmt.Sprintf("%s; seed %d", p.Options, p.Seed))
	if !strings.HasPrefix(p.Options, "chat") && !strings.HasPrefix(p.Options, "conns") {
		s.lines = append(s.lines, "every server holds all keys before its first operation (with run, Sets begin on an empty one)")
	}
	if words := a.division(); words != "" {
		s.lines = append(s.lines, words)
	}
	for _, v := range p.Variants {
		if v.NA != "" {
			s.lines = append(s.lines, fmt.Sprintf("n/a: %s: %s", v.Name, v.NA))
		}
	}
	if a.Invalid > 0 {
		words := "1 measurement was INVALID and is not used"
		if a.Invalid > 1 {
			words = fmt.Sprintf("%d measurements were INVALID and are not used", a.Invalid)
		}
		s.lines = append(s.lines, words)
	}
	s.heading = "kvmark compare"
	return s
}

// division says how servers moved bytes, and which part of the machine each side had, as the samples saw it.
func (a *Analysis) division() string {
	var paths, clients, servers []string
	add := func(to *[]string, word string) {
		if word != "" && word != "0" && !slices.Contains(*to, word) {
			*to = append(*to, word)
		}
	}
	for _, s := range a.Samples {
		add(&paths, s.Process.IO)
		add(&servers, s.Process.GOMAXPROCS)
		for _, c := range s.Cells {
			add(&clients, fmt.Sprint(c.Client.GOMAXPROCS))
		}
	}
	if len(clients) == 0 {
		return ""
	}
	return fmt.Sprintf("I/O %s; GOMAXPROCS of servers %s, of the client %s", strings.Join(paths, "|"), strings.Join(servers, "|"), strings.Join(clients, "|"))
}

// cellSection is the table of one operation in one mode.
func (a *Analysis) cellSection(mode, op string) section {
	s := section{
		heading: strings.Trim(mode+"/"+op, "/") + " (each column is the median of its own over the rounds)",
		columns: []string{"", "QPS", "95 % interval", "n", "CPU us/op", "user", "sys", "p50 us", "p99 us", "p99.9 us", "RSS MB", "live MB", "GC cycles", "GC CPU", "assist", "pause p99 us", "allocs/op", "sched p99 us"},
	}
	instructions := false
	for _, c := range a.Cells {
		_, has := c.Metrics["instructions_per_op"]
		instructions = instructions || has
	}
	if instructions {
		s.columns = append(s.columns, "instr/op")
	}
	for i, v := range a.Plan.Variants {
		if v.NA != "" {
			row := make([]string, len(s.columns))
			row[0], row[1] = v.Name, "n/a"
			s.rows = append(s.rows, row)
			continue
		}
		for _, c := range a.Cells {
			if c.Variant == i && c.Mode == mode && c.Op == op {
				row := a.cellRow(c)
				if instructions {
					row = append(row, number(c.Metrics["instructions_per_op"].Median, "%.0f", 1))
				}
				s.rows = append(s.rows, row)
			}
		}
	}
	return s
}

func (a *Analysis) cellRow(c Summary) []string {
	m := c.Metrics
	median := func(name, format string, scale float64) string { return number(m[name].Median, format, scale) }
	interval := "-"
	if i := m["qps"].Interval; i.OK {
		interval = fmt.Sprintf("%.0f..%.0f", i.Low, i.High)
	}
	n := fmt.Sprint(c.Valid)
	if c.Invalid > 0 {
		n += fmt.Sprintf(" (%d INVALID)", c.Invalid)
	}
	name := a.Plan.Variants[c.Variant].Name
	if c.Bound == "client" {
		name += " [client-bound]"
	}
	return []string{
		name, median("qps", "%.0f", 1), interval, n,
		median("cpu_us_per_op", "%.2f", 1), median("cpu_user_us_per_op", "%.2f", 1), median("cpu_sys_us_per_op", "%.2f", 1),
		median("p50", "%.0f", 1), median("p99", "%.0f", 1), median("p999", "%.0f", 1),
		median("rss_peak_bytes", "%.1f", 1e-6), median("heap_live_bytes", "%.1f", 1e-6),
		median("gc_cycles", "%.0f", 1), median("gc_cpu_share", "%.1f %%", 100), median("gc_assist_share", "%.2f %%", 100),
		median("gc_pause_p99", "%.0f", 1), median("alloc_objects_per_op", "%.2f", 1), median("sched_latency_p99", "%.0f", 1),
	}
}

func number(v compare.Value, format string, scale float64) string {
	if !v.OK {
		return "-"
	}
	return fmt.Sprintf(format, v.Float*scale)
}

func short(x float64) string { return strings.TrimSuffix(fmt.Sprintf("%.4g", x), ".0") }

// verdictSection says what was found, in sentences.
func (a *Analysis) verdictSection() section {
	s := section{heading: "verdicts"}
	few, why := 0, "" // comparisons of which, with so few rounds, nothing can be said
	for _, c := range a.Comparisons {
		if c.Estimate.Note != "" && strings.Contains(c.Estimate.Note, compare.TooFew) {
			few, why = few+1, c.Estimate.Note
			continue
		}
		line := c.String()
		if c.Verdict == compare.Inconclusive { // it names no variants
			line = strings.Replace(line, ": ", fmt.Sprintf(": %s against %s: ", c.Other, c.Base), 1)
		}
		if effect := c.Effect(); effect != "" && !strings.Contains(line, " CI ") {
			line += " (" + effect + ")"
		}
		s.lines = append(s.lines, line)
	}
	if few > 0 {
		s.lines = append(s.lines, fmt.Sprintf("%d of %d comparisons are inconclusive: %s, which takes %d rounds", few, len(a.Comparisons), why, compare.MinRounds(true, 1)))
	}
	for _, in := range a.Interactions {
		s.lines = append(s.lines, in.String())
	}
	if len(a.Comparisons) > 0 {
		s.lines = append(s.lines, "each change is the middle of those within rounds, where both sides met the same machine: it need not be the ratio of the medians in the tables")
	}
	return s
}

// gcSection is the trade of memory for speed.
func (a *Analysis) gcSection(v GCView) section {
	s := section{
		heading: fmt.Sprintf("%s: what memory buys (* on the frontier: no other setting is at least as good in QPS, memory and p99; each column is the median of its own over the rounds)", strings.Trim(v.Mode+"/"+v.Op, "/")),
		columns: []string{"", "", "QPS", "RSS MB", "p99 us", "CPU s per million ops", "CPU over GOGC=off", "GC CPU", "GC cycles"},
	}
	for _, p := range v.Points {
		star := ""
		if p.Frontier {
			star = "*"
		}
		s.rows = append(s.rows, []string{
			p.Name, star, fmt.Sprintf("%.0f", p.QPS), fmt.Sprintf("%.1f", p.RSS/1e6), fmt.Sprintf("%.0f", p.P99),
			number(p.CPU, "%.2f", 1), number(p.OverNoGC, "%+.1f %%", 100), number(p.GCShare, "%.1f %%", 100), number(p.Cycles, "%.0f", 1),
		})
	}
	if v.Cheapest != "" {
		s.lines = append(s.lines, fmt.Sprintf("least memory within %.0f %% of the best QPS: %s", 100*v.Within, v.Cheapest))
	}
	if len(v.Unbounded) > 0 {
		s.lines = append(s.lines, strings.Join(v.Unbounded, ", ")+": never collects, so its memory is that of so long a run, and is no choice without GOMEMLIMIT")
	}
	if v.Limit != "" {
		s.lines = append(s.lines, fmt.Sprintf("smallest safe GOMEMLIMIT within %.0f %% of the best QPS: %s", 100*v.Within, v.Limit))
	}
	if v.LimitNote != "" {
		s.lines = append(s.lines, v.LimitNote)
	}
	if !v.Known.OK {
		s.lines = append(s.lines, fmt.Sprintf("these QPS have no interval yet, that takes %d rounds: do not choose by them", compare.MinRounds(true, 1)))
	}
	if v.Known.Float > v.Within {
		s.lines = append(s.lines, fmt.Sprintf("these QPS are only known to ±%.0f %%: take more rounds before choosing", 100*v.Known.Float))
	}
	for _, w := range v.Warnings {
		s.lines = append(s.lines, "WARNING: "+w)
	}
	return s
}

// shortSection is the table that the experiment is named after: a row for each mode and operation, one number of each variant,
// and beside it what is known about it against the one it is compared with.
func (a *Analysis) shortSection(heading, metric, format string) section {
	s := section{heading: heading, columns: []string{""}}
	for _, v := range a.Plan.Variants {
		if v.Control == "" {
			s.columns = append(s.columns, v.Name)
		}
	}
	for m, mode := range a.Plan.Modes {
		for o, op := range a.Plan.Ops {
			row := []string{strings.Trim(mode+"/"+op, "/")}
			for i, v := range a.Plan.Variants {
				switch {
				case v.Control != "":
				case v.NA != "":
					row = append(row, "n/a")
				default:
					row = append(row, a.shortCell(i, mode, op, metric, format, (m*len(a.Plan.Ops)+o)*len(a.Pairs)*len(a.Metrics)))
				}
			}
			s.rows = append(s.rows, row)
		}
	}
	return s
}

// shortCell is one variant's median. The comparisons of its mode and operation begin at first.
func (a *Analysis) shortCell(variant int, mode, op, name, format string, first int) string {
	i := slices.IndexFunc(a.Cells, func(c Summary) bool { return c.Variant == variant && c.Mode == mode && c.Op == op })
	text := number(a.Cells[i].Metrics[name].Median, format, 1)
	for p, pair := range a.Pairs {
		for m, metric := range a.Metrics {
			c := a.Comparisons[first+p*len(a.Metrics)+m]
			if pair[1] != variant || pair[0] != a.Base || metric.Name != name {
				continue
			}
			switch c.Verdict {
			case compare.Inconclusive:
				text += " (inconclusive)"
			case compare.Same:
				text += " (" + c.VerdictText() + ")"
			default:
				text += fmt.Sprintf(" (%+.1f %%)", 100*(c.Ratio.Float-1))
			}
		}
	}
	return text
}

// trustSection says what this machine did by itself, and what could have been found.
func (a *Analysis) trustSection() section {
	s := section{heading: "how far to trust this"}
	unknown := 0
	for _, f := range a.Floors {
		words := strings.Trim(f.Mode+"/"+f.Op, "/") + " " + f.Metric.Title
		if !f.Floor.OK {
			unknown++
			continue
		}
		var arms []string
		for _, c := range f.Controls {
			if e := c.Estimate; e.Interval.OK {
				arms = append(arms, fmt.Sprintf("%s %+.1f %%, 95 %% CI %+.1f..%+.1f %%", c.Name, 100*(e.Ratio.Float-1), 100*(e.Interval.Low-1), 100*(e.Interval.High-1)))
			}
		}
		s.lines = append(s.lines, fmt.Sprintf("noise floor of %s: %.1f %% (%s)", words, 100*math.Expm1(f.Floor.Float), strings.Join(arms, "; ")))
	}
	if unknown > 0 {
		s.lines = append(s.lines, fmt.Sprintf("%d of %d noise floors are not known yet: the controls have too few rounds", unknown, len(a.Floors)))
	}
	if len(a.Floors) == 0 {
		s.lines = append(s.lines, "no control was measured: what this machine shows between equals is not known")
	}
	for _, d := range a.Detectable {
		words := strings.Trim(d.Mode+"/"+d.Op, "/")
		if d.Change.OK {
			s.lines = append(s.lines, fmt.Sprintf("%s: %s with this noise find a change of QPS of %.1f %% four times in five", words, report.Plural(d.Rounds, "round"), 100*d.Change.Float))
		} else {
			s.lines = append(s.lines, fmt.Sprintf("%s: with %s no change of QPS, however large, is proof among %d comparisons: that takes %d",
				words, report.Plural(d.Rounds, "round"), len(a.Comparisons), compare.MinRounds(true, len(a.Comparisons))))
		}
	}
	for _, d := range a.Drifts {
		s.lines = append(s.lines, d.Cell+": "+d.Drift.String()+"; the pairs cancel it")
	}
	if a.Blocks%2 == 1 {
		s.lines = append(s.lines, "the number of rounds is odd: one more would mirror the order of the last")
	}
	return s
}
