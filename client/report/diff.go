package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"kvmark/client/compare"
	"kvmark/client/result"
)

// WriteDiff compares two results: first what differs in plan and environment, since that alone may explain all that
// follows, then each operation's numbers. names are what to call them.
func WriteDiff(out io.Writer, a, b *result.File, names [2]string) error {
	w := bufio.NewWriter(out)
	differ := 0
	for _, part := range []struct {
		name string
		a, b any
	}{
		{"plan", a.Plan, b.Plan},
		{"env.host", a.Env.Host, b.Env.Host},
		{"env.server", a.Env.Server, b.Env.Server},
		{"env.client", a.Env.Client, b.Env.Client},
	} {
		one, err := flatten(part.name, part.a)
		if err != nil {
			return err
		}
		two, err := flatten(part.name, part.b)
		if err != nil {
			return err
		}
		all := maps.Clone(one)
		maps.Copy(all, two)
		for _, k := range slices.Sorted(maps.Keys(all)) {
			if one[k] == two[k] || measured(k) {
				continue
			}
			if differ == 0 {
				fmt.Fprintln(w, "what differs:")
			}
			differ++
			fmt.Fprintf(w, "  %-28s %s -> %s\n", k, orNone(plain(one[k])), orNone(plain(two[k])))
		}
	}
	if differ == 0 {
		fmt.Fprintln(w, "plan and environment are the same")
	}
	questions := questions(a, b, names)
	if len(questions) == 0 {
		fmt.Fprintln(w, "\nno operation was validly measured in both")
	} else {
		fmt.Fprintf(w, "\n%s -> %s\n", names[0], names[1])
		writeComparisons(w, questions)
	}
	for i, f := range []*result.File{a, b} {
		for _, c := range f.Cells {
			if !c.Valid {
				fmt.Fprintf(w, "%s: %s %s, repeat %d is INVALID and has no part in this\n", names[i], c.Mode, c.Op, c.Repeat)
			}
		}
	}
	return w.Flush()
}

// measured reports whether a field of plan or environment differs from run to run by itself.
func measured(name string) bool {
	switch name {
	case "env.host.fsync_us.p50", "env.host.fsync_us.max":
		return true
	}
	return false
}

// writeComparisons prints the medians, and what may be said about them.
func writeComparisons(w io.Writer, questions []compare.Question) {
	for i, c := range compare.Family(questions, 0) {
		q := questions[i]
		one, two := compare.Describe(q.Base.Values), compare.Describe(q.Other.Values)
		ratio := result.Ratio(two.Median.Ptr(), one.Median.Ptr())
		fmt.Fprintf(w, "  %-24s %s -> %s (x%s, p %s): %s\n", q.Mode+" "+q.Op+" "+q.Metric.Name,
			micros(one.Median.Ptr()), micros(two.Median.Ptr()), shape(ratio, "%.3f", 1), shape(c.P.Ptr(), "%.3f", 1), c.String())
	}
}

// questions are about every group that both results hold, by QPS, p99 and the server's CPU.
func questions(a, b *result.File, names [2]string) []compare.Question {
	others := map[[3]string]group{}
	for _, g := range groups(b) {
		others[[3]string{g.mode, g.config, g.op}] = g
	}
	metrics := []struct {
		name   string
		number func(result.Cell) *float64
	}{
		{"qps", qps},
		{"p99", func(c result.Cell) *float64 { return c.LatencyUS.P99 }},
		{"cpu_us_per_op", func(c result.Cell) *float64 { return c.Server.CPUPerOp }},
	}
	var qs []compare.Question
	for _, g := range groups(a) {
		other := others[[3]string{g.mode, g.config, g.op}]
		for _, m := range metrics {
			base, bound := g.valid(m.name, m.number)
			vary, otherBound := other.valid(m.name, m.number)
			if len(base) == 0 || len(vary) == 0 {
				continue
			}
			metric, _ := compare.LookupMetric(m.name)
			qs = append(qs, compare.Question{
				Mode: g.mode, Op: g.op, Metric: metric,
				Base:  compare.Sample{Name: names[0], Values: base, ClientBound: bound},
				Other: compare.Sample{Name: names[1], Values: vary, ClientBound: otherBound},
			})
		}
	}
	return qs
}

// valid is the valid cells' numbers, and whether the client set the pace in any: then equal numbers prove nothing.
func (g group) valid(metric string, number func(result.Cell) *float64) (xs []float64, paced bool) {
	for _, c := range g.cells {
		if x := number(c); c.Valid && x != nil {
			xs = append(xs, *x)
			switch c.Client.Bound {
			case "client":
				paced = paced || metric == "qps" || metric == "p99"
			case "rate":
				paced = paced || metric == "qps"
			}
		}
	}
	return xs, paced
}

// flatten turns a struct into the names and values of its JSON form, names joined by dots.
func flatten(name string, v any) (map[string]string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // print them as they are
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	flat := map[string]string{}
	var walk func(name string, v any)
	walk = func(name string, v any) {
		if m, ok := v.(map[string]any); ok {
			for k, v := range m {
				walk(name+"."+k, v)
			}
			return
		}
		if v != nil && v != "" {
			flat[name] = fmt.Sprint(v)
		}
	}
	walk(name, tree)
	return flat, nil
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}
