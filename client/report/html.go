package report

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"kvmark/client/result"
)

// WriteHTML writes results as one page that needs nothing else: no script, no font, no network.
func WriteHTML(w io.Writer, files ...*result.File) error {
	var pages []page
	for _, f := range files {
		switch f.Command {
		case "chat":
			pages = append(pages, chatPage(f))
		case "conns":
			pages = append(pages, connsPage(f))
		default:
			pages = append(pages, newPage(f))
		}
	}
	return document.Execute(w, pages)
}

type page struct {
	Started     string
	Interrupted bool
	Ran, Ending []string
	Facts       [][2]string // name and value
	Sections    []*htmlSection
	Bars        template.HTML
}

// htmlSection is a mode, or what stands for one.
type htmlSection struct {
	Heading, Storage string
	Columns          []string
	Rows             []htmlRow
	Facts            [][2]string
}

type htmlRow struct {
	Cells  []string
	Valid  bool
	Notes  []string
	Charts []template.HTML
}

func newPage(f *result.File) page {
	p := startPage(f)
	p.Ran = ran(f)
	var bars []bar
	for _, g := range groups(f) {
		h := g.heading(f.Plan)
		if n := len(p.Sections); n == 0 || p.Sections[n-1].Heading != h {
			p.Sections = append(p.Sections, &htmlSection{Heading: h, Columns: append([]string{"op"}, columns[1:]...)})
		}
		s := p.Sections[len(p.Sections)-1]
		s.Storage = storage(g.mode, g.cells[len(g.cells)-1], f.Plan, f.Env.Host)
		verdict := g.verdict()
		r := htmlRow{Cells: g.row(), Valid: strings.HasPrefix(verdict[0], "VALID"), Notes: append(verdict, g.notes(f.Plan)...)}
		for _, c := range []template.HTML{seconds(g, "QPS", func(r result.Row) *float64 { return r.QPS }), seconds(g, "p99 us", func(r result.Row) *float64 { return r.P99US }), tail(g)} {
			if c != "" {
				r.Charts = append(r.Charts, c)
			}
		}
		s.Rows = append(s.Rows, r)
		if x := g.median(qps); x != nil {
			bars = append(bars, bar{strings.TrimSpace(g.mode + " " + opName(g.op) + " " + g.config), *x})
		}
	}
	p.Bars = barChart("QPS", bars)
	return p
}

// startPage is what all pages have.
func startPage(f *result.File) page {
	p := page{Interrupted: f.Interrupted, Ending: ending(f)}
	if !f.Started.IsZero() {
		p.Started = f.Started.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return p
}

// seconds charts one number of the per-second rows, a line for each repeat.
func seconds(g group, name string, number func(result.Row) *float64) template.HTML {
	c := chart{Title: opName(g.op) + ": " + name + " by second", X: "s"}
	for _, cell := range g.cells {
		var l []spot
		for _, r := range cell.Series {
			if x := number(r); x != nil && r.Seconds >= 0.99 { // a part of a second is no second
				l = append(l, spot{r.T, *x})
			}
		}
		if len(l) > 1 {
			c.Lines = append(c.Lines, curve{"", l})
		}
	}
	return c.svg()
}

// tail charts latency by percentile, on scales that make the tail readable: the x axis counts nines.
func tail(g group) template.HTML {
	c := chart{Title: opName(g.op) + ": latency us by percentile", LogY: true, Ticks: []tick{{0, "0"}, {1, "90 %"}, {2, "99 %"}, {3, "99.9 %"}, {4, "99.99 %"}}}
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
			l = append(l, spot{nines, max(float64(h.ValueAtPercentile(q))/1e3, 0.1)})
		}
		c.Lines = append(c.Lines, curve{name, l})
	}
	for _, cell := range slices.Backward(g.cells) {
		if cell.Valid || len(g.cells) == 1 {
			if cell.Pace != nil {
				add("service", cell.Histogram)
				add("response", cell.Pace.ResponseHistogram)
			} else {
				add("", cell.Histogram)
			}
			break
		}
	}
	return c.svg()
}

var document = template.Must(template.New("report").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width"/><title>kvmark</title>
<style>
body{font:15px/1.45 system-ui,sans-serif;max-width:76em;margin:2em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em;border-top:1px solid #ddd;padding-top:1em}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px}td,th{padding:.2em .55em;text-align:right;white-space:nowrap;border-bottom:1px solid #eee}
th{white-space:normal;vertical-align:bottom}td:first-child,th:first-child{text-align:left}.facts{margin:.8em 0}.facts td{text-align:left!important;white-space:normal;border:0;padding:.1em .55em}.facts td:first-child{color:#666}.note{text-align:left;white-space:normal;color:#555;font-size:.92em}
.bad{color:#b00020;font-weight:600}svg{margin:.5em 1em .5em 0;font:11px system-ui,sans-serif}
</style></head><body>
{{define "facts"}}{{with .}}<table class="facts">{{range .}}<tr><td>{{index . 0}}</td><td>{{index . 1}}</td></tr>{{end}}</table>
{{end}}{{end}}{{range .}}<h1>kvmark {{.Started}}</h1>
{{template "facts" .Facts}}{{range .Ran}}<p>{{.}}</p>
{{end}}{{if .Interrupted}}<p class="bad">INTERRUPTED: what follows is what there is</p>
{{end}}{{.Bars}}
{{range .Sections}}{{$columns := .Columns}}{{with .Heading}}<h2>{{.}}</h2>
{{end}}<div class="scroll"><table><tr>{{range $columns}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .Cells}}<td>{{.}}</td>{{end}}</tr>
{{$valid := .Valid}}{{range $i, $n := .Notes}}<tr><td class="note{{if and (eq $i 0) (not $valid)}} bad{{end}}" colspan="{{len $columns}}">{{$n}}</td></tr>
{{end}}{{end}}</table></div>
{{with .Storage}}<p>{{.}}</p>
{{end}}{{template "facts" .Facts}}{{range .Rows}}{{range .Charts}}{{.}}
{{end}}{{end}}{{end}}{{range .Ending}}<p>{{.}}</p>
{{end}}{{end}}</body></html>
`))

type bar struct {
	name  string
	value float64
}

// barChart compares one number of things.
func barChart(what string, bars []bar) template.HTML {
	if len(bars) == 0 {
		return ""
	}
	most := 0.0
	for _, b := range bars {
		most = max(most, b.value)
	}
	var s strings.Builder
	const height, left, width = 20, 260, 420
	fmt.Fprintf(&s, `<svg width="%d" height="%d" role="img" aria-label="%s"><text x="%d" y="13" font-weight="600">%[3]s</text>`,
		left+width+90, height*(len(bars)+1)+4, template.HTMLEscapeString(what), left)
	for i, b := range bars {
		i++ // below the title
		long := 0.0
		if most > 0 {
			long = b.value / most * width
		}
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="14" fill="%s"/><text x="%.1f" y="%d">%.0f</text>`,
			left-8, i*height+14, template.HTMLEscapeString(plain(b.name)), left, i*height+3, long, colour(0), left+long+6, i*height+14, b.value)
	}
	return template.HTML(s.String() + "</svg>")
}
