package experiment

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// WritePictures writes an SVG for each GC view into dir and returns the paths.
func (a *Analysis) WritePictures(dir string) ([]string, error) {
	var paths []string
	for _, v := range a.GC {
		name := "frontier"
		for _, part := range []string{v.Mode, v.Op} {
			if part != "" {
				name += "-" + part
			}
		}
		path := filepath.Join(dir, name+".svg")
		f, err := os.Create(path)
		if err != nil {
			return paths, err
		}
		err = v.WriteSVG(f)
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return paths, fmt.Errorf("picture %s: %w", path, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// WriteSVG draws QPS over peak memory and over p99 side by side. Settings on the frontier are filled, and over memory joined
// in the order of what they cost; the cheapest that is good enough has a ring around it. Bars are 95 % intervals.
func (v GCView) WriteSVG(w io.Writer) error {
	names, by := v.shortNames()
	title := strings.Trim(v.Mode+"/"+v.Op, "/") + by
	memory, err := v.panel(names, title+": QPS against memory", "peak RSS of the server (MB)", true, func(p GCPoint) float64 { return p.RSS / 1e6 })
	if err != nil {
		return err
	}
	latency, err := v.panel(names, title+": QPS against latency", "p99 latency (us)", false, func(p GCPoint) float64 { return p.P99 })
	if err != nil {
		return err
	}
	canvas := vgsvg.New(32*vg.Centimeter, 14*vg.Centimeter)
	area := draw.New(canvas)
	area.SetColor(color.White)
	area.Fill(area.Rectangle.Path())
	plots := [][]*plot.Plot{{memory, latency}}
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: 8 * vg.Millimeter, PadTop: 4 * vg.Millimeter, PadBottom: 4 * vg.Millimeter, PadLeft: 4 * vg.Millimeter, PadRight: 4 * vg.Millimeter}
	for i, c := range plot.Align(plots, tiles, area)[0] {
		plots[0][i].Draw(c)
	}
	_, err = canvas.WriteTo(w)
	return err
}

// shortNames are the names of the points without the factor, if all have the same one, which by then tells.
func (v GCView) shortNames() (names []string, by string) {
	factor := ""
	for _, p := range v.Points {
		name, value, ok := strings.Cut(p.Name, "=")
		if !ok || strings.ContainsAny(p.Name, " ") || factor != "" && name != factor {
			names = names[:0]
			for _, p := range v.Points {
				names = append(names, p.Name)
			}
			return names, ""
		}
		factor, names = name, append(names, value)
	}
	return names, " by " + factor
}

// Colours that a colour-blind reader can tell apart.
var (
	onFrontier = color.RGBA{R: 0, G: 90, B: 160, A: 255}
	beaten     = color.RGBA{R: 130, G: 130, B: 130, A: 255}
	cheapest   = color.RGBA{R: 213, G: 94, B: 0, A: 255}
)

func (v GCView) panel(names []string, title, xLabel string, joined bool, cost func(GCPoint) float64) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, xLabel, "QPS (operations a second)"
	p.Title.TextStyle.Font.Size, p.Title.Padding = vg.Points(14), vg.Points(8)
	p.X.Tick.Marker, p.Y.Tick.Marker = plainTicks{}, plainTicks{}
	p.Legend.Left, p.Legend.YOffs, p.Legend.XOffs, p.Legend.Padding = true, vg.Points(4), vg.Points(4), vg.Points(5)
	p.Legend.TextStyle.Font.Size = vg.Points(10)
	p.Add(plotter.NewGrid())
	var front, rest, knee, all plotter.XYs
	var bars intervals
	for _, point := range v.Points {
		at := plotter.XY{X: cost(point), Y: point.QPS}
		all = append(all, at)
		if point.Frontier {
			front = append(front, at)
		} else {
			rest = append(rest, at)
		}
		if point.Name == v.Cheapest {
			knee = append(knee, at)
		}
		if i := point.Interval; i.OK {
			bars.XYs = append(bars.XYs, at)
			bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{point.QPS - i.Low, i.High - point.QPS})
		}
	}
	if len(bars.XYs) > 0 {
		errorBars, err := plotter.NewYErrorBars(bars)
		if err != nil {
			return nil, err
		}
		errorBars.Color = beaten
		p.Add(errorBars)
	}
	if joined && len(front) > 0 {
		slices.SortFunc(front, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		line, err := plotter.NewLine(front)
		if err != nil {
			return nil, err
		}
		line.Color = onFrontier
		p.Add(line)
	}
	for _, points := range []struct {
		xys  plotter.XYs
		name string
		draw.GlyphStyle
	}{
		{front, "no other setting beats it", draw.GlyphStyle{Color: onFrontier, Radius: vg.Points(4), Shape: draw.CircleGlyph{}}},
		{rest, "another is at least as good in all three", draw.GlyphStyle{Color: beaten, Radius: vg.Points(4), Shape: draw.RingGlyph{}}},
		{knee, fmt.Sprintf("least memory within %.0f %% of the best QPS", 100*v.Within), draw.GlyphStyle{Color: cheapest, Radius: vg.Points(8), Shape: draw.RingGlyph{}}},
	} {
		if len(points.xys) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(points.xys)
		if err != nil {
			return nil, err
		}
		scatter.GlyphStyle = points.GlyphStyle
		p.Add(scatter)
		p.Legend.Add(points.name, scatter)
	}
	// Room for the labels and the legend, and a range even where all points are one.
	p.X.Min, p.X.Max = widen(p.X.Min, p.X.Max, 0.12, 0.15)
	p.Y.Min, p.Y.Max = widen(p.Y.Min, p.Y.Max, 0.35, 0.10)
	for _, label := range place(p, all, names) {
		p.Add(label)
	}
	return p, nil
}

// plainTicks are the usual ones, with numbers that have no more digits than they need.
type plainTicks struct{}

func (plainTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = strconv.FormatFloat(t.Value, 'g', 10, 64)
		}
	}
	return ticks
}

// intervals are points with the ends of their bars.
type intervals struct {
	plotter.XYs
	plotter.YErrors
}

// place puts a name beside each point, on the side where it hides no point and no other name, as far as there is one.
func place(p *plot.Plot, at plotter.XYs, names []string) []*plotter.Labels {
	type box struct{ x, y, w, h float64 } // in parts of the panel
	overlap := func(a, b box) bool { return a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h }
	unit := func(q plotter.XY) (x, y float64) {
		return (q.X - p.X.Min) / (p.X.Max - p.X.Min), (q.Y - p.Y.Min) / (p.Y.Max - p.Y.Min)
	}
	const letter, height, gap = 0.016, 0.042, 0.02
	var taken []box
	for _, q := range at {
		x, y := unit(q)
		taken = append(taken, box{x - gap/2, y - gap/2, gap, gap})
	}
	sides := []*plotter.Labels{}
	for _, side := range []struct{ x, y vg.Length }{{8, -6}, {-8, 6}, {8, 6}, {-8, -6}} {
		sides = append(sides, &plotter.Labels{Offset: vg.Point{X: side.x, Y: side.y}})
	}
	for i, q := range at {
		x, y := unit(q)
		w := letter * float64(len(names[i]))
		best, least := 0, len(taken)+1
		var chosen box
		for s, side := range sides {
			b := box{x + gap, y + gap/2, w, height}
			if side.Offset.X < 0 {
				b.x = x - gap - w
			}
			if side.Offset.Y < 0 {
				b.y = y - gap/2 - height
			}
			hits := 0
			for _, other := range taken {
				if overlap(b, other) {
					hits++
				}
			}
			if b.x < 0 || b.x+b.w > 1 {
				hits += 2
			}
			if hits < least {
				best, least, chosen = s, hits, b
			}
		}
		taken = append(taken, chosen)
		side := sides[best]
		style := text.Style{Color: color.Black, Font: font.From(plot.DefaultFont, vg.Points(11)), Handler: plot.DefaultTextHandler, YAlign: text.YBottom}
		if side.Offset.X < 0 {
			style.XAlign = text.XRight
		}
		if side.Offset.Y < 0 {
			style.YAlign = text.YTop
		}
		side.XYs, side.Labels, side.TextStyle = append(side.XYs, q), append(side.Labels, names[i]), append(side.TextStyle, style)
	}
	return slices.DeleteFunc(sides, func(l *plotter.Labels) bool { return len(l.XYs) == 0 })
}

func widen(low, high, below, above float64) (float64, float64) {
	span := high - low
	if !(span > 0) {
		span = max(1, high)
	}
	return low - below*span, high + above*span
}
