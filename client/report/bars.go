package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// bars compares one number of things, each with a bar for every series, and whiskers where an interval is known.
type bars struct {
	Title  string
	Series []string
	Groups []barGroup
}

type barGroup struct {
	name   string
	values []bar // as many as there are series
}

// bar is a value, nil where there is none, and its interval, nil where it is not known.
type bar struct{ value, low, high *float64 }

const (
	barHeight, barGap, barLabel = 18, 3, 18 // in pixels
	barShare                    = 82.0      // per cent of the width; the value stands behind
)

// svg draws the bars; nothing without any.
func (b bars) svg() template.HTML {
	most := 0.0
	height := 0
	for _, g := range b.Groups {
		for _, v := range g.values {
			most = max(most, number0(v.value), number0(v.high))
		}
		height += barLabel + len(b.Series)*(barHeight+barGap) + 8
	}
	if most <= 0 {
		return ""
	}
	var s strings.Builder
	fmt.Fprintf(&s, `<p class="head">%s`, template.HTMLEscapeString(b.Title)) // text of the page wraps, that of a picture is cut off
	for i, name := range b.Series {
		if name != "" {
			fmt.Fprintf(&s, ` <span class="key"><span class="k%d">&#9632;</span> %s</span>`, i%colours, template.HTMLEscapeString(name))
		}
	}
	fmt.Fprintf(&s, `</p><svg class="bars" width="100%%" height="%d" role="img" aria-label="%s">`, height, template.HTMLEscapeString(b.alt()))
	y := 0
	for _, g := range b.Groups {
		fmt.Fprintf(&s, `<text x="0" y="%d">%s</text>`, y+13, template.HTMLEscapeString(plain(g.name)))
		y += barLabel
		for i, v := range g.values {
			if v.value != nil {
				s.WriteString(v.svg(b.Series[i], i, y, most))
			}
			y += barHeight + barGap
		}
		y += 8
	}
	return template.HTML(s.String() + "</svg>")
}

func (v bar) svg(series string, i, y int, most float64) string {
	percent := func(x float64) float64 { return barShare * x / most }
	var s strings.Builder
	end, words := *v.value, fmt.Sprintf("%s %s", series, grouped(*v.value))
	fmt.Fprintf(&s, `<rect class="c%d" x="0" y="%d" width="%.2f%%" height="%d"/>`, i%colours, y, percent(*v.value), barHeight)
	if v.low != nil && v.high != nil {
		s.WriteString(whisker(percent(*v.low), percent(*v.high), y+barHeight/2))
		end, words = max(end, *v.high), fmt.Sprintf("%s, 95 %% interval %s..%s", words, grouped(*v.low), grouped(*v.high))
	}
	fmt.Fprintf(&s, `<text x="%.2f%%" dx="6" y="%d" class="value">%s</text>`, percent(end), y+barHeight-4, grouped(*v.value))
	return "<g><title>" + template.HTMLEscapeString(strings.TrimSpace(words)) + "</title>" + s.String() + "</g>"
}

// whisker is a line from low to high per cent of the width, with ends.
func whisker(low, high float64, y int) string {
	line := func(from, to float64, top, bottom int) string {
		return fmt.Sprintf(`<line class="whisker" x1="%.2f%%" x2="%.2f%%" y1="%d" y2="%d"/>`, from, to, top, bottom)
	}
	return line(low, high, y, y) + line(low, low, y-4, y+4) + line(high, high, y-4, y+4)
}

func (b bars) alt() string {
	words := b.Title
	for _, g := range b.Groups {
		for i, v := range g.values {
			if v.value != nil {
				words += fmt.Sprintf("; %s %s", strings.TrimSpace(g.name+" "+b.Series[i]), grouped(*v.value))
			}
		}
	}
	return plain(words)
}

// grouped is a whole number with its thousands apart.
func grouped(x float64) string {
	digits := fmt.Sprintf("%.0f", math.Abs(x))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if x < 0 && digits != "0" {
		digits = "-" + digits
	}
	return digits
}

// effect is a change in per cent with its interval, as comparisons find it.
type effect struct {
	name, words    string // in short, and in full
	at, low, high  *float64
	better, proven bool
}

// forest draws effects below each other around zero, where nothing has changed.
type forest struct {
	Title   string
	Effects []effect
}

const effectHeight = 40

func (f forest) svg() template.HTML {
	reach := 0.0
	for _, e := range f.Effects {
		for _, x := range []*float64{e.at, e.low, e.high} {
			reach = max(reach, math.Abs(number0(x)))
		}
	}
	if reach == 0 {
		return ""
	}
	scale := fit(-reach, reach, 4)
	scale.high = max(scale.high, -scale.low)
	scale.low = -scale.high
	percent := func(x float64) float64 { return 3 + 94*scale.at(x) }
	bottom := 4 + effectHeight*len(f.Effects)
	var s strings.Builder
	fmt.Fprintf(&s, `<p class="head">%s</p><svg class="bars" width="100%%" height="%d" role="img" aria-label="%s">`,
		template.HTMLEscapeString(f.Title), bottom+20, template.HTMLEscapeString(f.alt()))
	for _, v := range scale.ticks {
		class := "grid"
		if math.Abs(v) < 1e-9 {
			class, v = "zero", 0
		}
		anchor := "middle"
		switch { // or it would be cut off
		case percent(v) < 10:
			anchor = "start"
		case percent(v) > 90:
			anchor = "end"
		}
		fmt.Fprintf(&s, `<line class="%s" x1="%.2f%%" x2="%.2f%%" y1="4" y2="%d"/><text x="%.2f%%" y="%d" text-anchor="%s">%s</text>`,
			class, percent(v), percent(v), bottom, percent(v), bottom+14, anchor, effectTick(v, reach))
	}
	for i, e := range f.Effects {
		y := 4 + effectHeight*i
		class := "unproven"
		if e.proven {
			class = map[bool]string{true: "better", false: "worse"}[e.better]
		}
		fmt.Fprintf(&s, `<g class="%s"><title>%s</title><text class="over" x="0" y="%d">%s</text>`, class,
			template.HTMLEscapeString(plain(e.words)), y+14, template.HTMLEscapeString(plain(e.name)))
		if e.low != nil && e.high != nil {
			s.WriteString(whisker(percent(*e.low), percent(*e.high), y+26))
		}
		if e.at != nil {
			fmt.Fprintf(&s, `<circle cx="%.2f%%" cy="%d" r="5"/>`, percent(*e.at), y+26)
		}
		s.WriteString("</g>")
	}
	return template.HTML(s.String() + "</svg>")
}

// effectTick is the text at a change of v per cent. Long ones between the ends and zero would lie over each other on a narrow screen.
func effectTick(v, reach float64) string {
	text := fmt.Sprintf("%+.6g %%", v)
	switch {
	case v == 0:
		return "0"
	case len(text) > 7 && math.Abs(v) < reach*0.9:
		return ""
	}
	return text
}

func (f forest) alt() string {
	words := f.Title
	for _, e := range f.Effects {
		words += "; " + e.words
	}
	return plain(words)
}

func signed(percent float64) string { return fmt.Sprintf("%+.1f %%", percent) }
