package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"kvmark/client/compare"
	"kvmark/client/result"
)

// The rules by which the runs of a chat become one number; part of the result file, under "score".
const (
	Last3   = "last3"   // the first of four runs warms up; mean of the others
	Trimmed = "trimmed" // without the best and the worst of five runs, the mean
)

// writeChat writes what ran, a row for each run, and the lines that readers of VolanoMark's reports know; where several
// configurations were measured, what can be said of their difference.
func writeChat(out io.Writer, f *result.File) error {
	w := bufio.NewWriter(out)
	for _, line := range introduction(f, nil) {
		fmt.Fprintln(w, line)
	}
	for _, l := range system(f) {
		fmt.Fprintf(w, "%-18s = %s\n", l[0], l[1])
	}
	if f.Interrupted {
		fmt.Fprintln(w, "INTERRUPTED: what follows is what there is")
	}
	all, ladder := chatGroups(f)
	for _, g := range all {
		fmt.Fprintln(w)
		if g.config != "" {
			fmt.Fprintln(w, g.config)
		}
		writeGrid(w, chatRows(g))
		for _, line := range append(chatVerdict(g), misprints(g)...) {
			fmt.Fprintf(w, "  %s\n", line)
		}
		fmt.Fprintln(w)
		if ladder {
			fmt.Fprintf(w, "%-18s = %s\n", "Highest level", highest(g.cells))
			continue
		}
		for _, l := range familiar(g, f.Plan) {
			fmt.Fprintf(w, "%-18s = %s\n", l[0], l[1])
		}
	}
	if len(f.Cells) == 0 {
		fmt.Fprintln(w, "\nnothing was measured")
	}
	if !ladder {
		for _, line := range differences(all) {
			fmt.Fprintf(w, "\n%s\n", line)
		}
	}
	return w.Flush()
}

// chatGroups are the configurations; of a ladder of ever more rooms, all of it is one.
func chatGroups(f *result.File) (all []group, ladder bool) {
	if len(f.Cells) > 0 && strings.Contains(f.Plan.Extra["rooms"], "..") {
		return []group{{cells: f.Cells}}, true
	}
	return groups(f), false
}

// system is what VolanoMark printed of Java and the system, of Go.
func system(f *result.File) [][2]string {
	s, c, h := f.Env.Server, f.Env.Client, f.Env.Host
	lines := [][2]string{{"kvmark version", withCommit(cmp.Or(f.Version, "unknown"), c)}}
	add := func(name, value string) {
		if strings.TrimSpace(value) != "" {
			lines = append(lines, [2]string{name, plain(value)})
		}
	}
	add("server", cmp.Or(f.Plan.Target, f.Plan.Server))
	add("server version", withCommit(s.Version, s))
	add("server go", strings.TrimSpace(s.Go+" "+s.GOEXPERIMENT))
	if s.GOGC != "" {
		add("server GC", fmt.Sprintf("GOGC %s, GOMEMLIMIT %s, GOMAXPROCS %s", s.GOGC, s.GOMEMLIMIT, s.GOMAXPROCS))
	}
	add("server I/O", s.IO)
	add("client go", c.Go)
	add("shares", division(f))
	add("os.name", cmp.Or(h.GOOS, s.GOOS))
	add("os.version", h.Kernel)
	add("os.arch", cmp.Or(s.GOARCH, c.GOARCH))
	add("cpu", h.CPU)
	if h.CPUs > 0 {
		add("cpus", fmt.Sprint(h.CPUs))
	}
	p := f.Plan.Extra
	what := fmt.Sprintf("%s rooms of %s users, %s messages each", p["rooms"], p["users"], p["messages"])
	if p["messages"] == "0" {
		what = fmt.Sprintf("%s rooms of %s users, for %s s", p["rooms"], p["users"], trim(f.Plan.DurationSeconds))
	}
	add("chat", fmt.Sprintf("%s, pace %s, text of %s bytes, %s", what, p["pace"], p["text_size"], p["protocol"]))
	return lines
}

func chatRows(g group) [][]string {
	rows := [][]string{{"run", "rooms", "sent", "received", "total", "seconds", "messages/s", "delivery p50 us", "p99 us", "turn p50 us", "p99 us", "CPU us/message", "RSS MB", "GC cycles"}}
	for _, c := range g.cells {
		chat := chatOf(c)
		rooms := ""
		if chat.Rooms > 0 {
			rooms = fmt.Sprint(chat.Rooms)
		}
		name := fmt.Sprint(c.Repeat)
		if !c.Valid {
			name += " INVALID"
		}
		rows = append(rows, []string{
			name, rooms, fmt.Sprint(chat.Sent), fmt.Sprint(chat.Received), fmt.Sprint(c.OK), fmt.Sprintf("%.3f", c.Seconds), count(c.QPS),
			given(c.LatencyUS.P50, micros), given(c.LatencyUS.P99, micros), given(chat.TurnUS.P50, micros), given(chat.TurnUS.P99, micros),
			given(c.Server.CPUPerOp, micros2), given(c.Server.RSSPeakBytes, megabytes), given(c.Server.GCCycles, count),
		})
	}
	return rows
}

// given is empty where there is no number, so that a column without any is left out.
func given(x *float64, shape func(*float64) string) string {
	if x == nil {
		return ""
	}
	return shape(x)
}

func micros2(x *float64) string { return shape(x, "%.2f", 1) }

func chatOf(c result.Cell) result.Chat {
	if c.Chat == nil {
		return result.Chat{}
	}
	return *c.Chat
}

// familiar is VolanoMark's report over the runs of a group.
func familiar(g group, p result.Plan) [][2]string {
	last := g.cells[len(g.cells)-1]
	mean, words := score(g.values(qps), p.Extra["score"])
	lines := [][2]string{
		{"Messages sent", fmt.Sprint(chatOf(last).Sent)},
		{"Messages received", fmt.Sprint(chatOf(last).Received)},
		{"Total messages", fmt.Sprint(last.OK)},
	}
	if len(g.cells) == 1 {
		lines = append(lines, [2]string{"Elapsed time", fmt.Sprintf("%.3f seconds", last.Seconds)})
	} else {
		var each []string
		for _, c := range g.cells {
			each = append(each, fmt.Sprintf("%.3f", c.Seconds))
		}
		lines = append(lines, [2]string{"Elapsed time", strings.Join(each, ", ") + " seconds"})
	}
	return append(lines, [2]string{"Average throughput", fmt.Sprintf("%.0f messages per second%s", mean, words)})
}

// chatVerdict says whether the runs kept the laws, and which of them did not.
func chatVerdict(g group) []string {
	lines := []string{g.verdict()[0]}
	for _, c := range g.cells {
		for _, check := range c.Checks {
			if !check.Pass {
				lines = append(lines, fmt.Sprintf("failed in run %d of %d rooms: %s: %s", c.Repeat, chatOf(c).Rooms, check.Name, plain(check.Detail)))
			}
		}
	}
	return lines
}

// misprints tells of rates that are not those of their count and time: reports of other programs have had them.
func misprints(g group) (lines []string) {
	for _, c := range g.cells {
		if c.QPS == nil || c.Seconds == 0 {
			continue
		}
		if rate := float64(c.OK) / c.Seconds; math.Abs(rate-*c.QPS) > 1 {
			lines = append(lines, fmt.Sprintf("run %d: a rate of %.0f is given, but %d messages in %.3f s are %.0f a second", c.Repeat, *c.QPS, c.OK, c.Seconds, rate))
		}
	}
	return lines
}

// score is the runs' throughput by the rule of the old reports.
func score(xs []float64, rule string) (mean float64, words string) {
	s := compare.Describe(xs)
	switch {
	case len(xs) == 0:
		return 0, " (no run)"
	case len(xs) == 1:
		return xs[0], ""
	case rule == Last3 && s.Last3.OK:
		return s.Last3.Float, fmt.Sprintf(" (mean of the last 3 of %d runs)", len(xs))
	case rule == Trimmed && s.Trimmed.OK:
		return s.Trimmed.Float, fmt.Sprintf(" (mean of %d runs without the best and the worst)", len(xs))
	}
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	return mean, fmt.Sprintf(" (mean of %d runs)", len(xs))
}

// highest is the score of a ladder: the level below the first that failed.
func highest(cells []result.Cell) string {
	best := "none"
	for _, c := range cells {
		if !c.Valid {
			break
		}
		chat := chatOf(c)
		best = fmt.Sprintf("%s, %s, %s messages per second", Plural(chat.Rooms, "room"), Plural(chat.Rooms*chat.Users, "connection"), count(c.QPS))
	}
	return best
}

// differences says of all configurations against the first what their runs prove, with all runs and, since the first
// run of each warms up, without it.
func differences(all []group) []string {
	if len(all) < 2 {
		return nil
	}
	metric, _ := compare.LookupMetric("qps")
	metric.Title = "messages/s"
	var lines []string
	for _, drop := range []int{0, 1} {
		var questions []compare.Question
		for _, g := range all[1:] {
			base, other := all[0].values(qps), g.values(qps)
			if len(base) < 3 || len(other) < 3 || all[0].op != g.op {
				continue
			}
			questions = append(questions, compare.Question{
				Op: g.op, Metric: metric, Base: compare.Sample{Name: all[0].config, Values: base[drop:]}, Other: compare.Sample{Name: g.config, Values: other[drop:]},
			})
		}
		for _, c := range compare.Family(questions, 0) {
			words := "all runs"
			if drop > 0 {
				words = "without the first run of each"
			}
			finding := "the difference is not significant"
			if c.Verdict == compare.Higher || c.Verdict == compare.Lower {
				finding = "the difference is significant"
			}
			lines = append(lines, fmt.Sprintf("%s against %s, %s (n = %d + %d): ratio %.3f, p = %.3f: %s",
				c.Other, c.Base, words, c.NOther, c.NBase, c.Ratio.Float, c.P.Float, finding))
		}
	}
	return lines
}

// writeGrid writes rows under their heading; a column without any text below its heading is left out.
func writeGrid(w io.Writer, rows [][]string) {
	widths := columnWidths(rows)
	for _, row := range rows {
		writeRow(w, row, widths)
	}
}
