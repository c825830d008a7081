package report

import (
	"fmt"
	"html/template"
	"strings"

	"kvmark/client/result"
)

// chatPage shows the runs of each configuration, or the rooms of a ladder.
func chatPage(f *result.File) page {
	p := startPage(f)
	p.Facts = system(f)
	all, ladder := chatGroups(f)
	for _, g := range all {
		rows := filled(chatRows(g))
		s := &htmlSection{Heading: g.config, Columns: rows[0]}
		for i, c := range g.cells {
			s.Rows = append(s.Rows, htmlRow{Cells: rows[i+1], Valid: c.Valid})
		}
		last := &s.Rows[len(s.Rows)-1]
		last.Notes = append(chatVerdict(g), misprints(g)...)
		last.Valid = strings.HasPrefix(last.Notes[0], "VALID")
		if ladder {
			s.Facts = [][2]string{{"Highest level", highest(g.cells)}}
		} else {
			s.Facts = familiar(g, f.Plan)
		}
		s.Charts = chatCharts(g, ladder)
		headline := s.Facts[len(s.Facts)-1]
		p.Findings = append(p.Findings, strings.TrimPrefix(g.config+": ", ": ")+headline[0]+": "+headline[1])
		if len(all) == 1 {
			p.Bars, s.Charts = s.Charts[0], s.Charts[1:]
		}
		p.Sections = append(p.Sections, s)
	}
	if len(all) == 0 {
		p.Ran = append(p.Ran, "nothing was measured")
	}
	if !ladder {
		p.Ending = append(differences(all), p.Ending...)
	}
	return p
}

func chatCharts(g group, ladder bool) (charts []template.HTML) {
	delivery := func(q func(result.Latency) *float64) func(result.Cell) *float64 {
		return func(c result.Cell) *float64 { return q(c.LatencyUS) }
	}
	p50, p99 := delivery(func(l result.Latency) *float64 { return l.P50 }), delivery(func(l result.Latency) *float64 { return l.P99 })
	if !ladder {
		b := bars{Title: "messages/s", Series: []string{""}}
		for _, c := range g.cells {
			if c.QPS != nil {
				b.Groups = append(b.Groups, barGroup{fmt.Sprintf("run %d", c.Repeat), []bar{{value: c.QPS}}})
			}
		}
		charts = append(charts, b.svg())
	}
	at := func(i int) float64 { return float64(g.cells[i].Repeat) }
	axis := "run"
	if ladder {
		at, axis = func(i int) float64 { return float64(chatOf(g.cells[i]).Rooms) }, "rooms"
		c := chart{Title: "messages/s by rooms", X: axis, Dots: true, Lines: cellCurves(g.cells, at, []string{""}, qps)}
		for i, cell := range g.cells {
			if !cell.Valid {
				c.Mark = &tick{at(i), "first to fail"}
				break
			}
		}
		charts = append(charts, c.svg())
	}
	return append(charts, chart{Title: "delivery us by " + axis, X: axis, Dots: true, LogY: true, Lines: cellCurves(g.cells, at, []string{"p99", "p50"}, p99, p50)}.svg())
}

// cellCurves are numbers of cells, a curve for each.
func cellCurves(cells []result.Cell, at func(int) float64, names []string, numbers ...func(result.Cell) *float64) (lines []curve) {
	for i, number := range numbers {
		l := curve{name: names[i]}
		for j, c := range cells {
			if x := number(c); x != nil && *x > 0 {
				l.points = append(l.points, spot{x: at(j), y: *x})
			}
		}
		if len(l.points) > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}

// connsPage shows all points, and curves of each sweep.
func connsPage(f *result.File) page {
	p := startPage(f)
	p.Ran = connsIntro(f)
	all := groups(f)
	if len(all) == 0 {
		p.Ran = append(p.Ran, "nothing was measured")
		return p
	}
	rows := [][]string{connsColumns()}
	for _, g := range all {
		rows = append(rows, g.connsRow())
	}
	rows = filled(rows)
	s := &htmlSection{Columns: rows[0]}
	for i, g := range all {
		notes := g.connsFailures()
		s.Rows = append(s.Rows, htmlRow{Cells: rows[i+1], Notes: notes, Valid: len(notes) == 0})
	}
	interval := f.Plan.Extra["interval"] != ""
	for _, sweep := range sweeps(all, interval) {
		s.Charts = append(s.Charts, sweep.charts()...)
	}
	p.Sections = append(p.Sections, s)
	p.Findings = findings(all, interval)
	return p
}

// charts draws what was received beside what was offered, and what it cost.
func (s sweep) charts() (charts []template.HTML) {
	curves := func(names []string, numbers ...func(group) *float64) (lines []curve) {
		for i, number := range numbers {
			l := curve{name: names[i]}
			for _, g := range s.points {
				if x := number(g); x != nil {
					l.points = append(l.points, spot{x: s.along(g), y: *x})
				}
			}
			if len(l.points) > 0 {
				lines = append(lines, l)
			}
		}
		return lines
	}
	received := chart{Title: "by " + strings.TrimPrefix(strings.TrimPrefix(s.words, "of "), "the "), X: s.axis, Dots: true, Lines: curves([]string{"received", "offered"}, group.received, group.offered)}
	if g := s.knee(); g != nil {
		received.Mark = &tick{s.along(*g), "knee: " + shortNumber(s.along(*g))}
	}
	cost := chart{Title: "server CPU us/message" + strings.TrimPrefix(strings.TrimPrefix(s.words, "of connections"), "of the rate"), X: s.axis, Dots: true, Lines: curves([]string{""}, func(g group) *float64 {
		return g.median(func(c result.Cell) *float64 { return c.Server.CPUPerOp })
	})}
	return []template.HTML{received.svg(), cost.svg()}
}

// filled leaves out columns without any text below their heading.
func filled(rows [][]string) [][]string {
	widths := columnWidths(rows)
	out := make([][]string, len(rows))
	for i, row := range rows {
		for j, text := range row {
			if widths[j] > 0 {
				out[i] = append(out[i], text)
			}
		}
	}
	return out
}
