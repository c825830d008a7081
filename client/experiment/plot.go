package experiment

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
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
// in the order of what they cost.
func (v GCView) WriteSVG(w io.Writer) error {
	title := strings.Trim(v.Mode+"/"+v.Op, "/")
	memory, err := v.panel(title+": QPS against memory", "peak RSS, MB", true, func(p GCPoint) float64 { return p.RSS / 1e6 })
	if err != nil {
		return err
	}
	latency, err := v.panel(title+": QPS against latency", "p99, us", false, func(p GCPoint) float64 { return p.P99 })
	if err != nil {
		return err
	}
	canvas := vgsvg.New(30*vg.Centimeter, 13*vg.Centimeter)
	plots := [][]*plot.Plot{{memory, latency}}
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: 8 * vg.Millimeter, PadTop: 3 * vg.Millimeter, PadBottom: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 3 * vg.Millimeter}
	for i, c := range plot.Align(plots, tiles, draw.New(canvas))[0] {
		plots[0][i].Draw(c)
	}
	_, err = canvas.WriteTo(w)
	return err
}

func (v GCView) panel(title, xLabel string, joined bool, cost func(GCPoint) float64) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, xLabel, "QPS"
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.DefaultTicks{}, plot.DefaultTicks{}
	var front, rest, all plotter.XYs
	var names []string
	for _, point := range v.Points {
		at := plotter.XY{X: cost(point), Y: point.QPS}
		all, names = append(all, at), append(names, point.Name)
		if point.Frontier {
			front = append(front, at)
		} else {
			rest = append(rest, at)
		}
	}
	slices.SortFunc(front, func(a, b plotter.XY) int {
		switch {
		case a.X < b.X:
			return -1
		case a.X > b.X:
			return 1
		}
		return 0
	})
	p.Add(plotter.NewGrid())
	if len(front) > 0 {
		line, points, err := plotter.NewLinePoints(front)
		if err != nil {
			return nil, err
		}
		points.Shape, points.Radius = draw.CircleGlyph{}, vg.Points(4)
		if joined {
			p.Add(line)
		}
		p.Add(points)
	}
	if len(rest) > 0 {
		points, err := plotter.NewScatter(rest)
		if err != nil {
			return nil, err
		}
		points.Shape, points.Radius = draw.RingGlyph{}, vg.Points(4)
		p.Add(points)
	}
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: all, Labels: names})
	if err != nil {
		return nil, err
	}
	labels.Offset = vg.Point{X: vg.Points(6), Y: vg.Points(4)}
	p.Add(labels)
	// Room for the labels, and a range even where all points are one.
	p.X.Min, p.X.Max = widen(p.X.Min, p.X.Max, 0.05, 0.30)
	p.Y.Min, p.Y.Max = widen(p.Y.Min, p.Y.Max, 0.08, 0.12)
	return p, nil
}

func widen(low, high, below, above float64) (float64, float64) {
	span := high - low
	if !(span > 0) {
		span = max(1, high)
	}
	return low - below*span, high + above*span
}
