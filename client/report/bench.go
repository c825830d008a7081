package report

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/perf/benchfmt"

	"kvmark/client/result"
)

// writeBench writes one benchmark line a valid cell, so that benchstat can compare files. An invalid cell is a comment:
// benchstat must not count it.
func writeBench(w io.Writer, f *result.File) error {
	for _, line := range []string{
		"Unit op/s better=higher", "Unit p99-sec better=lower", "Unit response-p99-sec better=lower", "Unit server-cpu-sec/op better=lower", "Unit server-peak-RSS-bytes better=lower",
	} {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	out := benchfmt.NewWriter(w)
	for _, c := range f.Cells {
		if !c.Valid || c.QPS == nil || *c.QPS == 0 {
			if _, err := fmt.Fprintf(w, "# invalid: mode=%s op=%s repeat=%d\n", c.Mode, c.Op, c.Repeat); err != nil {
				return err
			}
			continue
		}
		name := fmt.Sprintf("Kvmark/mode=%s/op=%s/wal=%s", c.Mode, c.Op, c.Server.WALSync)
		if words := configWords(c.Config); words != "" {
			name += "/" + strings.ReplaceAll(words, " ", "/")
		}
		r := benchfmt.Result{Name: benchfmt.Name(name), Iters: int(c.OK)}
		value := func(x *float64, scale float64, unit string) {
			if x != nil {
				r.Values = append(r.Values, benchfmt.Value{Value: *x * scale, Unit: unit})
			}
		}
		value(result.Number(1 / *c.QPS), 1, "sec/op")
		value(c.QPS, 1, "op/s")
		value(c.LatencyUS.P99, 1e-6, "p99-sec")
		if c.Pace != nil {
			value(c.Pace.ResponseUS.P99, 1e-6, "response-p99-sec")
		}
		value(c.Server.CPUPerOp, 1e-6, "server-cpu-sec/op")
		value(c.Server.RSSPeakBytes, 1, "server-peak-RSS-bytes")
		for _, kv := range [][2]string{
			{"goversion", c.Server.Go}, {"gogc", c.Server.GOGC}, {"gomemlimit", c.Server.GOMEMLIMIT}, {"gomaxprocs", c.Server.GOMAXPROCS},
		} {
			r.Config = append(r.Config, benchfmt.Config{Key: kv[0], Value: []byte(kv[1]), File: true})
		}
		if err := out.Write(&r); err != nil {
			return err
		}
	}
	return nil
}
