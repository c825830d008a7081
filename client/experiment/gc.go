package experiment

import (
	"fmt"
	"slices"
	"strings"

	"kvmark/client/compare"
)

// GCView is what the memory settings buy in one operation of one mode.
type GCView struct {
	Mode, Op  string
	Points    []GCPoint // in the order of the plan
	Within    float64
	Cheapest  string   // the variant with the least memory whose QPS is within Within of the best, Unbounded ones left out; "": none
	Unbounded []string // variants that never collect: their memory is that of so long a run, and no choice for a server that goes on
	Limit     string   // the smallest GOMEMLIMIT that is safe and within Within of the best; "": none was tried, or none is
	LimitNote string
	Known     compare.Value // half the width of the widest interval of a QPS shown, as a part of it
	Warnings  []string
}

// GCPoint is one variant: what it gives and what it takes. Undefined numbers were not measured.
type GCPoint struct {
	compare.Point
	Variant    int
	Interval   compare.Interval // of QPS
	Frontier   bool             // no other variant beats it
	CPU        compare.Value    // us of server CPU per operation, which is also seconds per million operations
	GCShare    compare.Value    // of GOMAXPROCS x time
	Cycles     compare.Value
	Limited    bool          // in some sample the runtime had to hold the collector back
	OverNoGC   compare.Value // CPU per operation over that with GOGC=off, minus 1
	OutOfBound bool          // RSS above the limit that was asked for
}

// Signs of a server that works for its collector instead of its clients: the share of all CPU time that GC takes (the
// runtime itself stops at one half), and the CPU per operation over that of the best setting.
const (
	spiralShare = 0.25
	spiralCPU   = 2.0
)

// gcViews makes a view for every mode and operation, if GOGC or GOMEMLIMIT is varied.
func gcViews(o *Outcome, cells []Summary, within float64) []GCView {
	if !varied(o.Plan.Variants, "GOGC") && !varied(o.Plan.Variants, "GOMEMLIMIT") {
		return nil
	}
	var views []GCView
	for _, mode := range o.Plan.Modes {
		for _, op := range o.Plan.Ops {
			v := GCView{Mode: mode, Op: op, Within: within}
			for _, c := range cells {
				if c.Mode == mode && c.Op == op && c.Valid > 0 && o.Plan.Variants[c.Variant].Control == "" {
					v.Points = append(v.Points, gcPoint(o.Plan.Variants[c.Variant], c))
					if q := c.Metrics["qps"]; q.Interval.OK && q.Median.Float > 0 {
						v.Known = compare.Defined(max(v.Known.Float, (q.Interval.High-q.Interval.Low)/2/q.Median.Float))
					}
				}
			}
			if len(v.Points) > 0 {
				v.conclude(o.Plan)
				views = append(views, v)
			}
		}
	}
	return views
}

func gcPoint(v Variant, c Summary) GCPoint {
	median := func(name string) compare.Value { return c.Metrics[name].Median }
	p := GCPoint{
		Point:   compare.Point{Name: v.Name, QPS: median("qps").Float, RSS: median("rss_peak_bytes").Float, P99: median("p99").Float},
		Variant: c.Variant, Interval: c.Metrics["qps"].Interval, CPU: median("cpu_us_per_op"), GCShare: median("gc_cpu_share"), Cycles: median("gc_cycles"),
	}
	p.Limited = c.Metrics["gc_limited"].Max.Float > 0
	if limit := v.Get("GOMEMLIMIT"); limit != Default {
		if bytes, err := parseMemoryLimit(limit); err == nil {
			p.OutOfBound = p.RSS > float64(bytes)
		}
	}
	return p
}

func (v *GCView) conclude(plan Plan) {
	points := make([]compare.Point, len(v.Points))
	for i, p := range v.Points {
		points[i] = p.Point
	}
	front := compare.Frontier(points)
	best, leastCPU := 0.0, 0.0
	for _, p := range v.Points {
		best = max(best, p.QPS)
	}
	var good []compare.Point // enough, and with a bound
	for _, p := range v.Points {
		if variant := plan.Variants[p.Variant]; variant.Get("GOGC") == "off" && (variant.Get("GOMEMLIMIT") == Default || variant.Get("GOMEMLIMIT") == "off") {
			v.Unbounded = append(v.Unbounded, p.Name)
		} else if p.QPS >= best*(1-v.Within) {
			good = append(good, p.Point)
		}
	}
	if cheapest, ok := compare.Cheapest(good, v.Within); ok {
		v.Cheapest = cheapest.Name
	}
	for i := range v.Points {
		p := &v.Points[i]
		p.Frontier = slices.Contains(front, p.Point)
		if p.CPU.OK && (leastCPU == 0 || p.CPU.Float < leastCPU) {
			leastCPU = p.CPU.Float
		}
		// Against the same variant with the collector off, which may not have run at all.
		off := plan.Variants[p.Variant].with("GOGC", "off")
		for _, q := range v.Points {
			if slices.Equal(plan.Variants[q.Variant].Settings, off.Settings) && q.CPU.OK && q.CPU.Float > 0 && p.CPU.OK {
				p.OverNoGC = compare.Defined(p.CPU.Float/q.CPU.Float - 1)
			}
		}
	}
	smallest := int64(0)
	for i, p := range v.Points {
		variant := plan.Variants[p.Variant]
		why := p.spiral(leastCPU)
		if why != "" {
			v.Warnings = append(v.Warnings, fmt.Sprintf("%s: the collector eats the CPU (%s): give it more memory", p.Name, why))
		}
		limit := variant.Get("GOMEMLIMIT")
		bytes, err := parseMemoryLimit(limit)
		if limit == Default || limit == "off" || err != nil {
			continue
		}
		if p.OutOfBound {
			v.Warnings = append(v.Warnings, fmt.Sprintf("%s: %.0f MB of memory are above the limit: it is soft, and too small", p.Name, p.RSS/1e6))
		}
		if why == "" && v.Points[i].QPS >= best*(1-v.Within) && (smallest == 0 || bytes < smallest) {
			smallest, v.Limit = bytes, limit
			if variant.Get("GOGC") != Default {
				v.Limit += " with GOGC=" + variant.Get("GOGC")
			}
		}
	}
	if varied(plan.Variants, "GOMEMLIMIT") && v.Limit == "" {
		v.LimitNote = fmt.Sprintf("no GOMEMLIMIT that was tried is both safe and within %.0f %% of the best QPS", 100*v.Within)
	}
}

// spiral says why the setting is a death spiral; "": it is none.
func (p GCPoint) spiral(leastCPU float64) string {
	var signs []string
	if p.GCShare.OK && p.GCShare.Float >= spiralShare {
		signs = append(signs, fmt.Sprintf("%.0f %% of the time of all CPUs", 100*p.GCShare.Float))
	}
	if p.Limited {
		signs = append(signs, "the runtime had to limit it")
	}
	if p.CPU.OK && leastCPU > 0 && p.CPU.Float >= spiralCPU*leastCPU && p.GCShare.Float >= spiralShare/2 {
		signs = append(signs, fmt.Sprintf("%.1f times the CPU of the best setting", p.CPU.Float/leastCPU))
	}
	return strings.Join(signs, ", ")
}
