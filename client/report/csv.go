package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"kvmark/client/result"
)

// writeCSV writes one line a cell. Numbers keep all their digits; an undefined one is empty.
func writeCSV(w io.Writer, f *result.File) error {
	c := csv.NewWriter(w)
	header := []string{
		"mode", "config", "op", "repeat", "wal_sync", "go", "gogc", "gomemlimit", "gomaxprocs", "workers", "pipeline", "keys", "seed",
		"seconds", "ok", "late", "errors", "misses", "wrong", "qps", "mean_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us",
		"server_cpu_us_per_op", "rss_peak_bytes", "gc_cycles", "gc_cpu_share", "alloc_bytes_per_op", "alloc_objects_per_op",
		"wal_records", "wal_bytes", "wal_syncs", "client_cpu_us_per_op", "ceiling_qps", "bound", "valid", "failed_checks",
		"asked", "sent", "response_p50_us", "response_p99_us", "response_p999_us", "response_max_us", "lateness_p99_us", "open", "late_max_us", "io", "client_gomaxprocs",
		"within_run_qps_low", "within_run_qps_high", "within_run_server_cpu_low", "within_run_server_cpu_high", "within_run_course",
	}
	if err := c.Write(header); err != nil {
		return err
	}
	for _, x := range f.Cells {
		var failed []string
		for _, check := range x.Checks {
			if !check.Pass {
				failed = append(failed, check.Name)
			}
		}
		s, l, p := x.Server, x.LatencyUS, f.Plan
		row := []string{
			x.Mode, configWords(x.Config), x.Op, strconv.Itoa(x.Repeat), s.WALSync, s.Go, s.GOGC, s.GOMEMLIMIT, s.GOMAXPROCS,
			strconv.Itoa(p.Workers), strconv.Itoa(p.Pipeline), strconv.Itoa(p.Keys), strconv.FormatUint(p.Seed, 10),
			trim(x.Seconds), integer(x.OK), integer(x.Late), integer(x.Errors), integer(x.Misses), integer(x.Wrong),
			exact(x.QPS), exact(l.Mean), exact(l.P50), exact(l.P90), exact(l.P99), exact(l.P999), exact(l.Max),
			exact(s.CPUPerOp), exact(s.RSSPeakBytes), exact(s.GCCycles), exact(s.GCCPUShare), exact(s.AllocBytesOp), exact(s.AllocObjectsOp),
			exact(s.WALRecords), exact(s.WALBytes), exact(s.WALSyncs), exact(x.Client.CPUPerOp), exact(x.Client.CeilingQPS), x.Client.Bound,
			strconv.FormatBool(x.Valid), strings.Join(failed, " "),
		}
		if p := x.Pace; p != nil {
			r := p.ResponseUS
			row = append(row, integer(p.Asked), integer(p.Sent), exact(r.P50), exact(r.P99), exact(r.P999), exact(r.Max), exact(p.LatenessUS.P99))
		} else {
			row = append(row, "", "", "", "", "", "", "")
		}
		row = append(row, integer(x.Open), exact(x.LateMaxUS), s.IO, strconv.Itoa(x.Client.GOMAXPROCS))
		if in := x.WithinRun; in != nil {
			row = append(row, exact(in.QPSLow), exact(in.QPSHigh), exact(in.CPULow), exact(in.CPUHigh), in.Course)
		} else {
			row = append(row, "", "", "", "", "")
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }

func exact(x *float64) string {
	if x == nil {
		return ""
	}
	return trim(*x)
}
