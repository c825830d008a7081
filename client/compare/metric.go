package compare

import "strings"

// Direction says which way a metric is better.
type Direction int8

// The directions. A Neutral metric explains, it does not judge.
const (
	LowerIsBetter  Direction = -1
	Neutral        Direction = 0
	HigherIsBetter Direction = 1
)

// Metric is a measured quantity.
type Metric struct {
	Name   string // as in flags and result files, "p99"
	Title  string // as in sentences, "p99 latency"
	Better Direction
}

// metrics are those that have a direction or a title of their own. A function, so that nobody can change the table.
func metrics() []Metric {
	return []Metric{
		{"qps", "QPS", HigherIsBetter},
		{"p50", "p50 latency", LowerIsBetter},
		{"p90", "p90 latency", LowerIsBetter},
		{"p99", "p99 latency", LowerIsBetter},
		{"p999", "p99.9 latency", LowerIsBetter},
		{"max", "maximum latency", LowerIsBetter},
		{"cpu_us_per_op", "server CPU per operation", LowerIsBetter},
		{"rss_peak_bytes", "peak RSS", LowerIsBetter},
		{"heap_live_bytes", "live heap", LowerIsBetter},
		{"alloc_bytes_per_op", "allocated bytes per operation", LowerIsBetter},
		{"alloc_objects_per_op", "allocations per operation", LowerIsBetter},
		{"gc_cpu_share", "CPU share of GC", LowerIsBetter},
		{"gc_pause_p50", "p50 GC pause", LowerIsBetter},
		{"gc_pause_p99", "p99 GC pause", LowerIsBetter},
		{"gc_pause_max", "longest GC pause", LowerIsBetter},
		{"gc_cycles", "GC cycles", Neutral},
	}
}

// LookupMetric returns the metric of that name, where rss is short for rss_peak_bytes. ok is false if the package does not
// know it, and the metric is then neutral with its name for a title.
func LookupMetric(name string) (m Metric, ok bool) {
	if name == "rss" {
		name = "rss_peak_bytes"
	}
	for _, m := range metrics() {
		if m.Name == name {
			return m, true
		}
	}
	return Metric{Name: name, Title: name}, false
}

// metricNames lists the known names for messages.
func metricNames() string {
	var names []string
	for _, m := range metrics() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}
