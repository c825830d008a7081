package experiment

import (
	"kvmark/client/compare"
	"kvmark/client/result"
)

// column is a metric of a cell: what it is called, and where it is.
type column struct {
	name string
	of   func(result.Cell) *float64
}

// columns are the metrics that a cell holds.
func columns() []column {
	return []column{
		{"qps", func(c result.Cell) *float64 { return c.QPS }},
		{"p50", func(c result.Cell) *float64 { return c.LatencyUS.P50 }},
		{"p90", func(c result.Cell) *float64 { return c.LatencyUS.P90 }},
		{"p99", func(c result.Cell) *float64 { return c.LatencyUS.P99 }},
		{"p999", func(c result.Cell) *float64 { return c.LatencyUS.P999 }},
		{"max", func(c result.Cell) *float64 { return c.MaxUS() }},
		{"cpu_us_per_op", func(c result.Cell) *float64 { return c.Server.CPUPerOp }},
		{"cpu_user_us_per_op", func(c result.Cell) *float64 { return c.Server.CPUUserPerOp }},
		{"cpu_sys_us_per_op", func(c result.Cell) *float64 { return c.Server.CPUSysPerOp }},
		{"rss_peak_bytes", func(c result.Cell) *float64 { return c.Server.RSSPeakBytes }},
		{"heap_live_bytes", func(c result.Cell) *float64 { return c.Server.HeapLiveBytes }},
		{"gc_cycles", func(c result.Cell) *float64 { return c.Server.GCCycles }},
		{"gc_cpu_share", func(c result.Cell) *float64 { return c.Server.GCCPUShare }},
		{"gc_pause_p50", func(c result.Cell) *float64 { return c.Server.GCPauseUS.P50 }},
		{"gc_pause_p99", func(c result.Cell) *float64 { return c.Server.GCPauseUS.P99 }},
		{"gc_pause_max", func(c result.Cell) *float64 { return c.Server.GCPauseUS.Max }},
		{"alloc_bytes_per_op", func(c result.Cell) *float64 { return c.Server.AllocBytesOp }},
		{"alloc_objects_per_op", func(c result.Cell) *float64 { return c.Server.AllocObjectsOp }},
		{"sched_latency_p50", func(c result.Cell) *float64 { return c.Server.SchedP50US }},
		{"sched_latency_p99", func(c result.Cell) *float64 { return c.Server.SchedP99US }},
		{"gc_assist_share", func(c result.Cell) *float64 { return c.Server.GCAssistShare }},
		{"gc_limited", func(c result.Cell) *float64 { return c.Server.GCLimited }},
		{"mutex_wait_us_per_op", func(c result.Cell) *float64 { return c.Server.MutexWaitPerOp }},
		{"minor_faults_per_op", func(c result.Cell) *float64 { return c.Server.MinorFaultsPerOp }},
		{"instructions_per_op", func(c result.Cell) *float64 { return c.Server.InstructionsPerOp }},
	}
}

// lookupMetric returns the metric of that name, with its direction. ok is false if nothing measures it.
func lookupMetric(name string) (m compare.Metric, ok bool) {
	m, _ = compare.LookupMetric(name)
	for _, n := range metricNames() {
		if n == m.Name {
			if m.Title == m.Name && m.Name != "gc_cycles" { // compare does not know it, but all of them are costs
				m.Better = compare.LowerIsBetter
			}
			return m, true
		}
	}
	return m, false
}

func metricNames() []string {
	var names []string
	for _, c := range columns() {
		names = append(names, c.name)
	}
	return names
}

// metric returns a number of one operation of a sample.
func (s Sample) metric(op int, name string) *float64 {
	for _, c := range columns() {
		if c.name == name {
			return c.of(s.Cells[op])
		}
	}
	return nil
}

// pace reports whether a metric follows the pace of the load, which the load generator may have set.
func pace(metric string) bool {
	switch metric {
	case "qps", "p50", "p90", "p99", "p999", "max":
		return true
	}
	return false
}

// atRate reports whether QPS is that of a schedule: servers that keep up with it are equal in that, and may be in nothing else.
func atRate(c result.Cell) bool {
	return c.Pace != nil || c.Conns != nil && c.Conns.Offered != nil
}
