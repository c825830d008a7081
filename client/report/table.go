package report

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"

	"kvmark/client/result"
)

var columns = []string{"", "total", "QPS", "min..max", "95 % interval", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us", "CPU us/op", "RSS MB", "GC cycles (share)", "WAL"}

// row is the cells of the table for one group, as columns names them.
func (g group) row() []string {
	total := g.median(func(c result.Cell) *float64 {
		if c.Seconds == 0 { // there was no window
			return nil
		}
		return result.Number(float64(c.OK))
	})
	policies := map[string]bool{}
	policy := ""
	for _, c := range g.counted() {
		if policies[c.Server.WALSync] = true; len(policies) > 1 {
			policy = "mixed"
			break
		}
		policy = c.Server.WALSync
	}
	return []string{
		opName(g.op), count(total), count(g.median(qps)), g.spread(), g.interval(),
		micros(g.median(func(c result.Cell) *float64 { return c.LatencyUS.P50 })),
		micros(g.median(func(c result.Cell) *float64 { return c.LatencyUS.P90 })),
		micros(g.median(func(c result.Cell) *float64 { return c.LatencyUS.P99 })),
		micros(g.median(func(c result.Cell) *float64 { return c.LatencyUS.P999 })),
		micros(g.median(result.Cell.MaxUS)),
		micros(g.median(func(c result.Cell) *float64 { return c.Server.CPUPerOp })),
		megabytes(g.median(func(c result.Cell) *float64 { return c.Server.RSSPeakBytes })),
		g.gc(), known(policy),
	}
}

// gc is the collector's cycles that ended within the window, and its share of the CPU time. The runtime accounts for a cycle
// when it ends, so without one the share is not known, and with repeats both are those of the windows that had one: where
// some had none it says how many had.
func (g group) gc() string {
	all, some := 0, group{}
	for _, c := range g.counted() {
		if c.Server.GCCycles == nil {
			continue
		}
		all++
		if *c.Server.GCCycles > 0 {
			some.cells = append(some.cells, c)
		}
	}
	cycles := func(c result.Cell) *float64 { return c.Server.GCCycles }
	switch {
	case all == 0:
		return "- (-)"
	case len(some.cells) == 0:
		return "0 (-)"
	}
	text := shape(some.median(cycles), "%.4g", 1) + " (" + percent(some.median(func(c result.Cell) *float64 { return c.Server.GCCPUShare })) + ")"
	if len(some.cells) < all {
		text += fmt.Sprintf(" in %d of %d", len(some.cells), all)
	}
	return text
}

// writeTable writes what ran, then each mode under its heading with a row for each operation, its verdict below.
// Columns line up over all modes.
func writeTable(out io.Writer, f *result.File) error {
	w := bufio.NewWriter(out)
	for _, line := range introduction(f, ran(f)) {
		fmt.Fprintln(w, line)
	}
	if f.Interrupted {
		fmt.Fprintln(w, "INTERRUPTED: what follows is what there is")
	}
	all := groups(f)
	rows := [][]string{columns}
	for _, g := range all {
		rows = append(rows, g.row())
	}
	widths := columnWidths(rows)
	last := ""
	for i, g := range all {
		if h := g.heading(f.Plan); h != last {
			fmt.Fprintf(w, "\n%s\n", h)
			writeRow(w, columns, widths)
			last = h
		}
		writeRow(w, rows[i+1], widths)
		verdict := g.verdict()
		fmt.Fprintf(w, "       %s\n", verdict[0])
		for _, reason := range verdict[1:] {
			fmt.Fprintf(w, "       failed check %s\n", strings.ReplaceAll(reason, "\n", "\n         "))
		}
		for _, note := range g.notes(f.Plan) {
			fmt.Fprintf(w, "       %s\n", note)
		}
		if i+1 == len(all) || all[i+1].heading(f.Plan) != last {
			if words := storage(g.mode, g.cells[len(g.cells)-1], f.Plan, f.Env.Host); words != "" {
				fmt.Fprintf(w, "  %s\n", words)
			}
		}
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "\nnothing was measured")
	}
	for i, line := range ending(f) {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, line)
	}
	return w.Flush()
}

// columnsOf is how many columns of a terminal text takes: characters of East Asia two, those that combine with others none. It does
// not depend on the locale, so that output depends on the result alone.
func columnsOf(s string) int { return terminal.StringWidth(s) }

var terminal = &runewidth.Condition{}

// columnWidths is 0 for a column that is empty in every row but the heading: it is left out.
func columnWidths(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for i := range widths {
		used := false
		for j, row := range rows {
			widths[i] = max(widths[i], columnsOf(row[i]))
			used = used || j > 0 && row[i] != ""
		}
		if !used {
			widths[i] = 0
		}
	}
	return widths
}

func writeRow(w io.Writer, row []string, widths []int) {
	var b strings.Builder
	for i, s := range row {
		if widths[i] == 0 {
			continue
		}
		pad := strings.Repeat(" ", widths[i]-columnsOf(s))
		if i == 0 {
			b.WriteString("  " + s + pad)
		} else {
			b.WriteString("  " + pad + s)
		}
	}
	fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
}

// The shapes of numbers; a dash where there is none.

func count(x *float64) string { return shape(x, "%.0f", 1) }

func micros(x *float64) string {
	if x != nil && *x < 100 {
		return shape(x, "%.1f", 1)
	}
	return shape(x, "%.0f", 1)
}

func megabytes(x *float64) string { return shape(x, "%.1f", 1e-6) }

func percent(x *float64) string { return shape(x, "%.1f %%", 100) }

func shape(x *float64, format string, scale float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, *x*scale)
}

func trim(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
