package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"strings"
	"unicode"
)

// The charts of a page are SVG. Their colours are the classes c0, c1 ... of the page's style, which knows a dark scheme. What
// scales with the page's width has a viewBox; bars and intervals have their places in per cent of it instead, so that their text
// keeps its size. Values appear when the pointer rests on a mark.

// chart is a small line chart, drawn as SVG.
type chart struct {
	Title, X string
	Lines    []curve
	LogY     bool
	Ticks    []tick // of the x axis; nil: round numbers
	Mark     *tick  // a place on the x axis to point at; nil: none
	Dots     bool   // each point is a measurement of its own
	Free     bool   // the y axis need not begin with zero
}

// curve is a line. Lines of one name have one colour, and the first of them is in the legend.
type curve struct {
	name   string
	points []spot
	loose  bool // points that no line joins
	ring   bool // around points that other curves have too
}

// spot is a point, with a name beside it where it has one, and the interval of y where that is known.
type spot struct {
	x, y      float64
	name      string
	low, high *float64
}

type tick struct {
	x    float64
	name string
}

// The size of a chart and of the margins around its lines, in pixels where it is as wide as it is drawn for.
const (
	chartWidth, chartHeight            = 400, 220
	marginLeft, marginTop, marginRight = 46, 40, 12
	marginBottom                       = 36
	plotWidth, plotHeight              = chartWidth - marginLeft - marginRight, chartHeight - marginTop - marginBottom
	maxHovers                          = 400 // marks with a value in one chart
)

// colours is how many classes of colours the page's style has.
const colours = 6

// axis maps the numbers from low to high to 0..1.
type axis struct {
	low, high float64
	log       bool
	ticks     []float64
}

func (a axis) at(v float64) float64 {
	if a.log {
		return math.Log(v/a.low) / math.Log(a.high/a.low)
	}
	return (v - a.low) / (a.high - a.low)
}

// fit returns an axis with round ends that holds low and high, and about n round ticks.
func fit(low, high float64, n int) axis {
	if !(high > low) {
		high = low + 1
	}
	step := roundUp((high - low) / float64(n))
	a := axis{low: math.Floor(low/step+1e-9) * step, high: math.Ceil(high/step-1e-9) * step}
	for i := 0.0; a.low+i*step <= a.high+step/2; i++ {
		a.ticks = append(a.ticks, a.low+i*step)
	}
	return a
}

// fitLog returns an axis whose ends and ticks are 1, 2 or 5 times a power of ten; powers alone where it spans many.
func fitLog(low, high float64) axis {
	a := axis{low: roundDown(low), high: roundUp(high * (1 + 1e-9)), log: true}
	if a.high <= a.low {
		a.high = roundUp(a.low * 1.5)
	}
	few := a.high/a.low > 200
	for v := a.low; v <= a.high*(1+1e-9); v = roundUp(v * 1.5) {
		if exponent := math.Log10(v); !few || math.Abs(exponent-math.Round(exponent)) < 1e-9 {
			a.ticks = append(a.ticks, v)
		}
	}
	return a
}

// roundUp returns the least of 1, 2 and 5 times a power of ten that is not below x.
func roundUp(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, digit := range []float64{1, 2, 5} {
		if v := digit * power; v >= x*(1-1e-9) {
			return v
		}
	}
	return 10 * power
}

func roundDown(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)+1e-9))
	for _, digit := range []float64{5, 2} {
		if v := digit * power; v <= x*(1+1e-9) {
			return v
		}
	}
	return power
}

// axes are those of the chart; ok is false where there is nothing to draw.
func (c chart) axes() (x, y axis, points int, ok bool) {
	left, right, low, high := math.Inf(1), math.Inf(-1), math.Inf(1), 0.0
	for _, l := range c.Lines {
		for _, p := range l.points {
			left, right = min(left, p.x), max(right, p.x)
			low, high = min(low, p.y), max(high, p.y)
			if p.low != nil && p.high != nil {
				low, high = min(low, *p.low), max(high, *p.high)
			}
			points++
		}
	}
	if points == 0 || high <= 0 || c.LogY && low <= 0 {
		return x, y, 0, false
	}
	switch {
	case c.LogY:
		y = fitLog(low, high)
	case c.Free:
		y = fit(low, high, 5)
	default:
		y = fit(0, high, 5)
	}
	if c.Ticks != nil {
		return axis{low: c.Ticks[0].x, high: c.Ticks[len(c.Ticks)-1].x}, y, points, true
	}
	if right <= left && !c.Free {
		return x, y, 0, false
	}
	if x = fit(left, right, 5); !c.Free {
		x.low, x.high = left, right // no room is wasted at the sides
	}
	return x, y, points, true
}

// svg draws the chart; nothing for one without lines.
func (c chart) svg() template.HTML {
	xs, ys, points, ok := c.axes()
	if !ok {
		return ""
	}
	x := func(v float64) float64 { return marginLeft + xs.at(v)*plotWidth }
	y := func(v float64) float64 { return marginTop + plotHeight*(1-ys.at(v)) }
	var s strings.Builder
	title := template.HTMLEscapeString(c.Title)
	fmt.Fprintf(&s, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s"><text x="0" y="13" class="title">%s</text>`,
		chartWidth, chartHeight, template.HTMLEscapeString(c.alt()), title)
	for _, v := range ys.ticks {
		fmt.Fprintf(&s, `<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			marginLeft, y(v), chartWidth-marginRight, marginLeft-5, y(v)+4, shortNumber(v))
	}
	for _, t := range c.ticks(xs) {
		anchor := "middle"
		if x(t.x) > chartWidth-30 { // or it would be cut off
			anchor = "end"
		}
		fmt.Fprintf(&s, `<path class="grid" d="M%.1f %dv4"/><text x="%.1f" y="%d" text-anchor="%s">%s</text>`,
			x(t.x), marginTop+plotHeight, x(t.x), marginTop+plotHeight+16, anchor, template.HTMLEscapeString(t.name))
	}
	fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end">%s</text>`, chartWidth-marginRight, chartHeight-6, template.HTMLEscapeString(c.X))
	if c.Mark != nil {
		anchor, dx := "start", 4.0
		if c.Mark.x > (xs.low+xs.high)/2 {
			anchor, dx = "end", -4
		}
		fmt.Fprintf(&s, `<path class="mark" d="M%.1f %dV%d"/><text class="mark" x="%.1f" y="%d" text-anchor="%s">%s</text>`,
			x(c.Mark.x), marginTop, marginTop+plotHeight, x(c.Mark.x)+dx, marginTop+plotHeight-6, anchor, template.HTMLEscapeString(c.Mark.name))
	}
	names := c.names()
	every := 1 + points/maxHovers
	n := 0
	for _, l := range c.Lines {
		colour := names[l.name]
		if !l.loose {
			fmt.Fprintf(&s, `<polyline class="l%d" points="`, colour)
			for _, p := range l.points {
				fmt.Fprintf(&s, "%.1f,%.1f ", x(p.x), y(p.y))
			}
			s.WriteString(`"/>`)
		}
		for _, p := range l.points {
			if p.low != nil && p.high != nil {
				fmt.Fprintf(&s, `<path class="whisker" d="M%.1f %.1fV%.1f"/>`, x(p.x), y(*p.low), y(*p.high))
			}
			if n++; l.ring {
				fmt.Fprintf(&s, `<circle class="l%d ring" cx="%.1f" cy="%.1f" r="7"/>`, colour, x(p.x), y(p.y))
			} else if c.Dots {
				fmt.Fprintf(&s, `<circle class="c%d" cx="%.1f" cy="%.1f" r="3">%s</circle>`, colour, x(p.x), y(p.y), c.hover(l, p))
			} else if n%every == 0 {
				fmt.Fprintf(&s, `<circle class="hover" cx="%.1f" cy="%.1f" r="6">%s</circle>`, x(p.x), y(p.y), c.hover(l, p))
			}
		}
	}
	c.writeNames(&s, x, y)
	s.WriteString(c.legend(names))
	return template.HTML(s.String() + "</svg>")
}

// box is a part of the chart that something covers.
type box struct{ left, top, right, bottom float64 }

func (b box) hits(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

// textWidth is about how wide text is, rather too large: what font there is, the reader's browser decides.
func textWidth(text string) (width float64) {
	for _, r := range text {
		switch {
		case r >= 0x1100: // of East Asia, if it is a letter at all
			width += 13
		case unicode.IsUpper(r) || strings.ContainsRune("=+%@", r):
			width += 9.8
		default:
			width += 7.7
		}
	}
	return width
}

// writeNames puts names beside their points, each on the side where it hides least: neither a point, nor another name, nor the edge.
func (c chart) writeNames(s *strings.Builder, x, y func(float64) float64) {
	const height, gap = 13, 6 // of the page's font
	var taken []box
	for _, l := range c.Lines {
		for _, p := range l.points {
			taken = append(taken, box{x(p.x) - 4, y(p.y) - 4, x(p.x) + 4, y(p.y) + 4})
		}
	}
	inside := box{marginLeft, marginTop, chartWidth, marginTop + plotHeight}
	for _, l := range c.Lines {
		for _, p := range l.points {
			if p.name == "" || l.ring {
				continue
			}
			px, py, width := x(p.x), y(p.y), textWidth(p.name)
			var best box
			anchor, least := "", math.MaxInt
			for _, dy := range []float64{-4, gap + 8, 4, -5 - height*5/4, gap + 9 + height*5/4, -6 - height*5/2, gap + 10 + height*5/2, -7 - height*15/4} { // of the base line
				for _, side := range []string{"start", "end"} {
					at := box{px + gap, py + dy - height + 3, px + gap + width, py + dy + 3}
					if side == "end" {
						at.left, at.right = px-gap-width, px-gap
					}
					hits := 0
					for _, other := range taken {
						if at.hits(other) {
							hits += 2
						}
					}
					if at.left < inside.left || at.right > inside.right || at.top < inside.top || at.bottom > inside.bottom {
						hits += 100 // it would be cut off
					}
					if side == "end" {
						hits++ // the right side, if both will do
					}
					if hits < least {
						best, anchor, least = at, side, hits
					}
				}
			}
			taken = append(taken, best)
			at := best.left
			if anchor == "end" {
				at = best.right
			}
			fmt.Fprintf(s, `<text class="over" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, at, best.bottom-3, anchor, template.HTMLEscapeString(plain(p.name)))
		}
	}
}

// alt tells in words what the chart shows, for those who do not see it.
func (c chart) alt() string {
	words := c.Title
	told := map[string]bool{}
	for _, l := range c.Lines {
		if told[l.name] || len(l.points) == 0 {
			continue
		}
		told[l.name] = true
		low, high := l.points[0].y, l.points[0].y
		for _, p := range l.points {
			low, high = min(low, p.y), max(high, p.y)
		}
		words += fmt.Sprintf("; %s %s to %s", l.name, shortNumber(low), shortNumber(high))
	}
	return words
}

// ticks are those of the x axis.
func (c chart) ticks(xs axis) []tick {
	if c.Ticks != nil {
		return c.Ticks
	}
	var ticks []tick
	for _, v := range xs.ticks {
		if v >= xs.low-1e-9 && v <= xs.high*(1+1e-9) {
			ticks = append(ticks, tick{v, shortNumber(v)})
		}
	}
	return ticks
}

// hover is the text that appears over a point.
func (c chart) hover(l curve, p spot) string {
	where := shortNumber(p.x) + " " + c.X
	if c.Ticks != nil { // percentiles by nines
		where = fmt.Sprintf("%.5g %%", 100*(1-pow10(-p.x)))
	}
	words := fmt.Sprintf("%s %s: %.6g", cmp.Or(p.name, l.name), where, p.y)
	return "<title>" + template.HTMLEscapeString(plain(strings.TrimSpace(words))) + "</title>"
}

// names gives each name of a line its colour.
func (c chart) names() map[string]int {
	names := map[string]int{}
	for _, l := range c.Lines {
		if _, ok := names[l.name]; !ok {
			names[l.name] = len(names) % colours
		}
	}
	return names
}

func (c chart) legend(names map[string]int) string {
	var s strings.Builder
	fmt.Fprintf(&s, `<text x="%d" y="29">`, marginLeft)
	for _, l := range c.Lines {
		if colour, ok := names[l.name]; ok && l.name != "" {
			fmt.Fprintf(&s, `<tspan dx="6" class="c%d">&#9632;</tspan><tspan dx="4">%s</tspan>`, colour, template.HTMLEscapeString(l.name))
			delete(names, l.name)
		}
	}
	return s.String() + "</text>"
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
