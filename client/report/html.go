package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"kvmark/client/result"
)

// page is what a result becomes: what was found first, then how it was found.
type page struct {
	Title       string
	Verdict     string // whether the numbers may be used; "" where there are none
	Valid       bool
	Interrupted bool
	Findings    []string
	Lead        []template.HTML // what is seen first
	LeadCharts  []template.HTML
	Bars        template.HTML
	Ran, Ending []string
	Facts       [][2]string // name and value
	Sections    []*htmlSection
	Origin      [][2]string // machine, versions, command line, dates
}

// htmlSection is a mode, or what stands for one.
type htmlSection struct {
	Heading, Storage string
	Caption          string // of the table, for those who do not see it
	Columns          []string
	Rows             []htmlRow
	Facts            [][2]string
	Lines            []string
	Charts           []template.HTML
}

type htmlRow struct {
	Cells []string
	Valid bool
	Notes []string
}

func newPage(f *result.File) page {
	p := startPage(f)
	p.Ran = ran(f)
	all := groups(f)
	p.Bars = throughput(all)
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].heading(f.Plan) == all[0].heading(f.Plan) {
			n++
		}
		p.Sections = append(p.Sections, modeSection(f, all[:n]))
		all = all[n:]
	}
	return p
}

// modeSection is the operations of one mode and configuration: a row each, and charts in which they lie over each other.
func modeSection(f *result.File, ops []group) *htmlSection {
	s := &htmlSection{Heading: ops[0].heading(f.Plan)}
	s.Caption = s.Heading
	s.tabulate(ops, f, func(g group) string { return opName(g.op) })
	for _, number := range []struct {
		name  string
		value func(result.Row) *float64
	}{
		{"QPS by second", func(r result.Row) *float64 { return r.QPS }},
		{"p99 by second, us", func(r result.Row) *float64 { return r.P99US }},
	} {
		c := chart{Title: number.name, X: "s"}
		for _, g := range ops {
			c.Lines = append(c.Lines, seconds(g, number.value)...)
		}
		s.Charts = append(s.Charts, c.svg())
	}
	tails := chart{Title: "latency by percentile, us", X: "of requests", LogY: true, Ticks: []tick{{0, "0"}, {1, "90 %"}, {2, "99 %"}, {3, "99.9 %"}, {4, "99.99 %"}}}
	for _, g := range ops {
		tails.Lines = append(tails.Lines, tail(g)...)
	}
	s.Charts = slices.DeleteFunc(append(s.Charts, tails.svg()), func(c template.HTML) bool { return c == "" })
	last := ops[len(ops)-1]
	s.Storage = storage(last.mode, last.cells[len(last.cells)-1], f.Plan, f.Env.Host)
	return s
}

// tabulate fills the table; columns without any value are left out.
func (s *htmlSection) tabulate(all []group, f *result.File, name func(group) string) {
	rows := [][]string{append([]string{"op"}, columns[1:]...)}
	for _, g := range all {
		row := g.row()
		row[0] = name(g)
		rows = append(rows, row)
	}
	rows = filled(rows)
	s.Columns = rows[0]
	for i, g := range all {
		verdict := g.verdict()
		s.Rows = append(s.Rows, htmlRow{Cells: rows[i+1], Valid: strings.HasPrefix(verdict[0], "VALID"), Notes: append(verdict, g.notes(f.Plan)...)})
	}
}

// throughput is the bars of QPS: a group for each mode and configuration, a bar for each operation.
func throughput(all []group) template.HTML {
	b := bars{Title: "QPS"}
	ops := []string{}
	for _, g := range all {
		if !slices.Contains(ops, g.op) {
			ops = append(ops, g.op)
			b.Series = append(b.Series, opName(g.op))
		}
	}
	index := map[string]int{}
	for _, g := range all {
		name := strings.TrimSpace(g.mode + " " + g.config)
		i, ok := index[name]
		if !ok {
			i = len(b.Groups)
			index[name] = i
			b.Groups = append(b.Groups, barGroup{name, make([]bar, len(ops))})
		}
		low, high := g.intervalEnds()
		b.Groups[i].values[slices.Index(ops, g.op)] = bar{g.median(qps), low, high}
	}
	return b.svg()
}

// startPage is what all pages have.
func startPage(f *result.File) page {
	p := page{Title: strings.TrimSpace("kvmark " + f.Command), Interrupted: f.Interrupted, Ending: ending(f), Origin: origin(f)}
	valid := 0
	for _, c := range f.Cells {
		if c.Valid {
			valid++
		}
	}
	p.Valid = valid == len(f.Cells)
	switch {
	case len(f.Cells) == 0:
	case p.Valid:
		p.Verdict = fmt.Sprintf("VALID: every check of %s passed", Plural(len(f.Cells), "measurement"))
	default:
		p.Verdict = fmt.Sprintf("INVALID: in %d of %s a check failed", len(f.Cells)-valid, Plural(len(f.Cells), "measurement"))
	}
	return p
}

// origin says where and when the numbers come from.
func origin(f *result.File) (facts [][2]string) {
	add := func(name, value string) {
		if value = strings.TrimSpace(plain(value)); value != "" {
			facts = append(facts, [2]string{name, value})
		}
	}
	add("Machine", machine(f.Env.Host))
	add("Server", strings.TrimSpace(cmp.Or(f.Plan.Target, "kvserver")+" "+f.Env.Server.Words()))
	add("Client", "kvmark "+f.Env.Client.Words())
	if !f.Started.IsZero() {
		when := f.Started.UTC().Format("2006-01-02 15:04:05")
		if !f.Finished.IsZero() {
			when += f.Finished.UTC().Format(" to 15:04:05")
		}
		add("When", when+" UTC")
	}
	add("Command", f.CommandLine)
	return facts
}

// seconds are the lines of one number of the per-second rows, one for each repeat.
func seconds(g group, number func(result.Row) *float64) (lines []curve) {
	for _, cell := range g.cells {
		var l []spot
		for _, r := range cell.Series {
			if x := number(r); x != nil && r.Seconds >= 0.99 { // a part of a second is no second
				l = append(l, spot{x: r.T, y: *x})
			}
		}
		if len(l) > 1 {
			lines = append(lines, curve{name: opName(g.op), points: l})
		}
	}
	return lines
}

// tail is the lines of latency by percentile, where x counts nines; with a schedule that of response times beside it.
func tail(g group) (lines []curve) {
	add := func(name, encoded string) {
		h, err := hdr.Decode([]byte(encoded))
		if err != nil || h.TotalCount() < 10 {
			return
		}
		var l []spot
		for nines := 0.0; nines <= 4; nines += 0.1 {
			q := 100 * (1 - pow10(-nines))
			if float64(h.TotalCount())*(1-q/100) < 1 {
				break
			}
			l = append(l, spot{x: nines, y: max(float64(h.ValueAtPercentile(q))/1e3, 0.1)})
		}
		lines = append(lines, curve{name: name, points: l})
	}
	for _, cell := range slices.Backward(g.cells) {
		if cell.Valid || len(g.cells) == 1 {
			name := opName(g.op)
			if cell.Pace != nil {
				add(name+" service", cell.Histogram)
				add(name+" response", cell.Pace.ResponseHistogram)
			} else {
				add(name, cell.Histogram)
			}
			break
		}
	}
	return lines
}

//go:embed page.html
var pageText string

var document = template.Must(template.New("report").Parse(pageText))
