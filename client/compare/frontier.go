package compare

// Point is one setting with what it gives and what it costs. All numbers are zero or more; a point with a number that is
// not finite is ignored.
type Point struct {
	Name string
	QPS  float64 // more is better
	RSS  float64 // peak bytes, less is better
	P99  float64 // latency, less is better
}

func (p Point) usable() bool {
	return Defined(p.QPS).OK && Defined(p.RSS).OK && Defined(p.P99).OK
}

// beats reports whether p is nowhere worse than q and somewhere better.
func (p Point) beats(q Point) bool {
	return p.QPS >= q.QPS && p.RSS <= q.RSS && p.P99 <= q.P99 && (p.QPS > q.QPS || p.RSS < q.RSS || p.P99 < q.P99)
}

// Frontier returns the points that no other beats (the Pareto frontier), in the given order: every other setting can be
// replaced by one of them at no loss.
func Frontier(points []Point) []Point {
	var front []Point
next:
	for _, p := range points {
		if !p.usable() {
			continue
		}
		for _, q := range points {
			if q.usable() && q.beats(p) {
				continue next
			}
		}
		front = append(front, p)
	}
	return front
}

// Cheapest returns the point with the smallest RSS among those whose QPS is within the given part of the best (0.05:
// at least 95 % of it). Of equal ones the faster wins, then the one with the lower P99. ok is false without points.
func Cheapest(points []Point, within float64) (cheapest Point, ok bool) {
	best := 0.0
	for _, p := range points {
		if p.usable() {
			best = max(best, p.QPS)
		}
	}
	for _, p := range points {
		if !p.usable() || p.QPS < best*(1-within) {
			continue
		}
		if !ok || p.RSS < cheapest.RSS || p.RSS == cheapest.RSS && (p.QPS > cheapest.QPS || p.QPS == cheapest.QPS && p.P99 < cheapest.P99) {
			cheapest, ok = p, true
		}
	}
	return cheapest, ok
}
