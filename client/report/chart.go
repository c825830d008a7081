package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// chart is a small line chart, drawn as SVG.
type chart struct {
	Title, X string
	Lines    []curve
	LogY     bool
	Ticks    []tick // of the x axis; nil: its ends
	Mark     *tick  // a place on the x axis to point at; nil: none
	Dots     bool   // each point is a measurement of its own
}

type curve struct {
	name   string
	points []spot
}

type spot struct{ x, y float64 }

type tick struct {
	x    float64
	name string
}

// The size of a chart and of the margins around its lines, in pixels.
const (
	chartWidth, chartHeight            = 420, 190
	marginLeft, marginTop, marginRight = 58, 22, 14
	marginBottom                       = 24
	plotWidth, plotHeight              = chartWidth - marginLeft - marginRight, chartHeight - marginTop - marginBottom
)

func colour(i int) string {
	colours := []string{"#1f6fb2", "#d1495b", "#3a8f5c", "#8a5fb0", "#c7801f", "#5b6b73"}
	return colours[i%len(colours)]
}

// svg draws the chart; nothing for one without lines.
func (c chart) svg() template.HTML {
	if len(c.Lines) == 0 {
		return ""
	}
	left, right, low, high := math.Inf(1), math.Inf(-1), math.Inf(1), 0.0
	for _, l := range c.Lines {
		for _, p := range l.points {
			left, right = min(left, p.x), max(right, p.x)
			low, high = min(low, p.y), max(high, p.y)
		}
	}
	if c.Ticks != nil {
		left, right = c.Ticks[0].x, c.Ticks[len(c.Ticks)-1].x
	}
	scale := func(y float64) float64 { return y / high }
	if c.LogY {
		low, high = pow10(math.Floor(math.Log10(low))), pow10(math.Ceil(math.Log10(high*1.0001)))
		scale = func(y float64) float64 { return math.Log(y/low) / math.Log(high/low) }
	} else {
		low, high = 0, high*1.08
	}
	if high <= low || right <= left {
		return ""
	}
	x := func(v float64) float64 { return marginLeft + (v-left)/(right-left)*plotWidth }
	y := func(v float64) float64 { return marginTop + plotHeight*(1-scale(v)) }
	var s strings.Builder
	title := template.HTMLEscapeString(c.Title)
	fmt.Fprintf(&s, `<svg width="%d" height="%d" role="img" aria-label="%s"><text x="%d" y="13" font-weight="600">%s</text>`, chartWidth, chartHeight, title, marginLeft, title)
	grid := func(v float64) {
		fmt.Fprintf(&s, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			marginLeft, y(v), chartWidth-marginRight, marginLeft-5, y(v)+4, shortNumber(v))
	}
	if c.LogY {
		for v := low; v <= high*1.0001; v *= 10 {
			grid(v)
		}
	} else {
		for i := range 5 {
			grid(high * float64(i) / 4)
		}
	}
	ticks := c.Ticks
	if ticks == nil {
		ticks = []tick{{left, shortNumber(left)}, {right, shortNumber(right) + " " + c.X}}
	}
	for i, t := range ticks {
		anchor := "middle"
		if i == len(ticks)-1 { // or it would be cut off
			anchor = "end"
		}
		fmt.Fprintf(&s, `<text x="%.1f" y="%d" text-anchor="%s">%s</text>`, x(t.x), chartHeight-7, anchor, template.HTMLEscapeString(t.name))
	}
	if c.Mark != nil {
		anchor, dx := "start", 4
		if c.Mark.x > (left+right)/2 {
			anchor, dx = "end", -4
		}
		fmt.Fprintf(&s, `<path d="M%.1f %dV%d" stroke="#b00020" stroke-dasharray="4 3"/><text x="%.1f" y="%d" text-anchor="%s" fill="#b00020">%s</text>`,
			x(c.Mark.x), marginTop, marginTop+plotHeight, x(c.Mark.x)+float64(dx), marginTop+plotHeight-6, anchor, template.HTMLEscapeString(c.Mark.name))
	}
	for i, l := range c.Lines {
		s.WriteString(`<polyline fill="none" stroke-width="1.5" stroke="` + colour(i) + `" points="`)
		for _, p := range l.points {
			fmt.Fprintf(&s, "%.1f,%.1f ", x(p.x), y(p.y))
		}
		s.WriteString(`"/>`)
		for _, p := range l.points {
			if c.Dots {
				fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, x(p.x), y(p.y), colour(i))
			}
		}
	}
	s.WriteString(`<text x="` + fmt.Sprint(chartWidth-marginRight) + `" y="13" text-anchor="end">`)
	for i, l := range c.Lines {
		fmt.Fprintf(&s, `<tspan dx="8" fill="%s">%s</tspan>`, colour(i), template.HTMLEscapeString(l.name))
	}
	s.WriteString("</text>")
	return template.HTML(s.String() + "</svg>")
}

func pow10(x float64) float64 { return math.Pow(10, x) }

// shortNumber prints three digits and a unit of thousands.
func shortNumber(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= unit.size {
			return fmt.Sprintf("%.3g%s", x/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.3g", x)
}
