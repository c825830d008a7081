package experiment

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"kvmark/client/load"
	"kvmark/client/result"
)

// WriteCSV writes a line for each operation of each sample, in the order of time. Numbers keep all their digits; an undefined
// one is empty.
func (a *Analysis) WriteCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	header := []string{"round", "order", "mode", "op", "variant", "control"}
	settings := a.settings()
	header = append(header, settings...)
	header = append(header, "saw_go", "saw_gogc", "saw_gomemlimit", "saw_gomaxprocs", "link_order", "seconds", "ok")
	header = append(append(header, metricNames()...), "client_bound", "valid", "why_not")
	if err := w.Write(header); err != nil {
		return err
	}
	for _, s := range a.Samples {
		v := a.Plan.Variants[s.Variant]
		for op, name := range a.Plan.Ops {
			row := []string{strconv.Itoa(s.Block + 1), strconv.Itoa(s.Order + 1), s.Mode, name, v.Name, v.Control}
			for _, setting := range settings {
				row = append(row, v.Get(setting))
			}
			row = append(row, s.Process.Go, s.Process.GOGC, s.Process.GOMEMLIMIT, s.Process.GOMAXPROCS, strconv.FormatUint(s.Layout, 10))
			if s.Failed != "" {
				row = append(row, make([]string, 2+len(metricNames())+1)...)
				row = append(row, "false", s.Failed)
			} else {
				c := s.Cells[op]
				row = append(row, strconv.FormatFloat(c.Seconds, 'g', -1, 64), strconv.FormatInt(c.OK, 10))
				for _, m := range metricNames() {
					text := ""
					if x := s.metric(op, m); x != nil {
						text = strconv.FormatFloat(*x, 'g', -1, 64)
					}
					row = append(row, text)
				}
				row = append(row, strconv.FormatBool(c.Client.Bound == "client"), strconv.FormatBool(c.Valid), whyNot(c))
			}
			if err := w.Write(row); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}

func whyNot(c result.Cell) string {
	var failed []string
	for _, check := range c.Checks {
		if !check.Pass {
			failed = append(failed, check.Name+": "+check.Detail)
		}
	}
	return strings.Join(failed, "; ")
}

// settings are the names of everything that any variant but the controls sets, in the order of the plan.
func (a *Analysis) settings() []string {
	var names []string
	seen := map[string]bool{}
	for _, v := range a.Plan.Variants {
		if v.Control != "" {
			continue
		}
		for _, s := range v.Settings {
			if !seen[s.Name] {
				seen[s.Name] = true
				names = append(names, s.Name)
			}
		}
	}
	return names
}

// benchUnits are the columns of the benchmark format, all in units of the Go tools, where a smaller number is better
// unless said otherwise. Units that end in -ns or -sec would be scaled by benchstat; bytes and the rest are left alone.
var benchUnits = []struct {
	metric, unit string
	scale        float64
	better       string
}{
	{"qps", "op/s", 1, "higher"},
	{"cpu_us_per_op", "server-CPU-us/op", 1, "lower"},
	{"p50", "p50-us", 1, "lower"},
	{"p99", "p99-us", 1, "lower"},
	{"rss_peak_bytes", "peak-RSS-bytes", 1, "lower"},
	{"gc_cpu_share", "GC-CPU-share", 1, "lower"},
	{"alloc_objects_per_op", "server-allocs/op", 1, "lower"},
}

// WriteBench writes a line for each valid operation of each sample, round by round in the order of the plan, so that the
// base is the first column. What is varied is in the names,
// toolchains are a key before the lines, and so is what is the same for all; each only once, or benchstat would make a
// table for each value of what its columns already show:
//
//	benchstat -col toolchain bench.txt
//	benchstat -col /gogc -row /mode,/op -filter '/control:""' bench.txt
func (a *Analysis) WriteBench(out io.Writer) error {
	w := bufio.NewWriter(out)
	for _, u := range benchUnits {
		fmt.Fprintf(w, "Unit %s better=%s\n", u.unit, u.better)
	}
	settings := a.settings()
	last := map[string]string{}
	key := func(name, value string) {
		if last[name] != value {
			fmt.Fprintf(w, "%s: %s\n", name, strings.Map(printable, value))
			last[name] = value
		}
	}
	samples := slices.Clone(a.Samples)
	slices.SortStableFunc(samples, func(x, y Sample) int { return cmp.Or(x.Block-y.Block, x.Variant-y.Variant) })
	for _, s := range samples {
		v := a.Plan.Variants[s.Variant]
		for op, name := range a.Plan.Ops {
			if s.Failed != "" || !s.Cells[op].Valid || s.Cells[op].OK == 0 {
				fmt.Fprintf(w, "# INVALID, not used: round %d %s %s %s\n", s.Block+1, s.Mode, name, v.Name)
				continue
			}
			toolchain := s.Process.Go
			if slices.Contains(settings, "GOEXPERIMENT") {
				toolchain = plainVersion(toolchain)
			}
			key("toolchain", toolchain)
			for _, setting := range []Setting{
				{"GOGC", s.Process.GOGC}, {"GOMEMLIMIT", s.Process.GOMEMLIMIT}, {"GOMAXPROCS", s.Process.GOMAXPROCS}, {"GODEBUG", s.Process.GODEBUG},
			} {
				if !slices.Contains(settings, setting.Name) {
					key(strings.ToLower(setting.Name), setting.Value)
				}
			}
			fmt.Fprintf(w, "BenchmarkKvmark")
			if s.Mode != "" {
				fmt.Fprintf(w, "/mode=%s", s.Mode)
			}
			fmt.Fprintf(w, "/op=%s", name)
			for _, setting := range settings {
				if setting != "go" {
					fmt.Fprintf(w, "/%s=%s", strings.ToLower(setting), strings.Map(nameRune, v.Get(setting)))
				}
			}
			if v.Control != "" {
				fmt.Fprintf(w, "/control=%s", strings.Map(nameRune, v.Control))
			}
			fmt.Fprintf(w, " %d", s.Cells[op].OK)
			for _, u := range benchUnits {
				if x := s.metric(op, u.metric); x != nil {
					fmt.Fprintf(w, " %s %s", strconv.FormatFloat(*x*u.scale, 'g', -1, 64), u.unit)
				}
			}
			fmt.Fprintln(w)
		}
	}
	return w.Flush()
}

func printable(r rune) rune {
	if unicode.IsControl(r) {
		return -1
	}
	return r
}

// nameRune keeps a value from ending a benchmark's name or a part of it.
func nameRune(r rune) rune {
	switch {
	case unicode.IsSpace(r) || r == '/':
		return '_'
	case unicode.IsControl(r):
		return -1
	}
	return r
}

// Result fills the result file's plan, cells and comparisons. Every operation of every sample is a cell, its round is its
// repeat.
func (a *Analysis) Result(f *result.File) (err error) {
	if f.Experiment, err = a.record(); err != nil {
		return fmt.Errorf("experiment: %w", err)
	}
	f.Interrupted = a.Interrupted
	f.Plan.Repeat, f.Plan.Seed, f.Plan.Server = a.Blocks, a.Plan.Seed, ""
	f.Plan.Extra = map[string]string{"ended": a.Ended, "slice_seconds": short(a.Plan.Slice), "link_orders": strconv.Itoa(max(1, a.Plan.Layouts))}
	for _, factor := range a.Plan.Factors {
		f.Plan.Extra["vary "+factor.Name] = strings.Join(factor.Values, ",")
		hideVaried(&f.Plan, factor)
	}
	for _, v := range a.Plan.Variants {
		if v.NA != "" {
			f.Plan.Extra["n/a "+v.Name] = v.NA
		}
	}
	for _, b := range a.Plan.Binaries {
		f.Plan.Extra["binary "+b.Variant] = b.Version + " sha256:" + b.SHA256
	}
	for _, floor := range a.Floors {
		if floor.Floor.OK {
			f.Plan.Extra["noise floor "+strings.Trim(floor.Mode+"/"+floor.Op, "/")+" "+floor.Metric.Name] = strconv.FormatFloat(floor.Floor.Float, 'g', 6, 64)
		}
	}
	order := make([]string, 0, len(a.Samples))
	for _, s := range a.Samples {
		v := a.Plan.Variants[s.Variant]
		order = append(order, strings.TrimPrefix(s.Mode+":"+v.Name, ":"))
		config := v.config()
		if f.Env.Server.Go == "" {
			f.Env.Server = s.Process
		}
		if s.Failed != "" {
			for _, op := range a.Plan.Ops {
				f.Cells = append(f.Cells, result.Cell{
					Mode: s.mode(v), Op: op, Repeat: s.Block + 1, Config: config, ClosedLoop: true, Series: []result.Row{},
					Checks: []result.Check{{Name: "completed", Detail: s.Failed}},
				})
			}
			continue
		}
		for _, c := range s.Cells {
			c.Config = config
			f.Cells = append(f.Cells, c)
		}
	}
	f.Plan.Extra["order"] = strings.Join(order, "; ")
	for _, c := range a.Comparisons {
		r := result.Comparison{
			Mode: c.Mode, Op: c.Op, Metric: c.Metric.Name, Base: c.Base, Other: c.Other, Ratio: c.Ratio.Ptr(), N: c.N(),
			P: c.P.Ptr(), PHolm: c.PHolm.Ptr(), Verdict: c.VerdictText(),
		}
		if c.Interval.OK {
			r.CILow, r.CIHigh = result.Number(c.Interval.Low), result.Number(c.Interval.High)
		}
		f.Comparisons = append(f.Comparisons, r)
	}
	return nil
}

// hideVaried takes out of a plan the single value of what has several.
func hideVaried(p *result.Plan, f Factor) {
	switch f.Name {
	case "mode":
		p.Modes = f.Values
	case "workers":
		p.Workers = 0
	case "keys":
		p.Keys = 0
	case "pipeline":
		p.Pipeline = 0
	case "value-size":
		p.ValueSize, p.ValueBytes = result.Varied, 0
	case "compressibility":
		p.Compressibility = 0
	case "distribution":
		p.Distribution = result.Varied
	case "mix":
		p.Mix = result.Varied
	case "rate":
		p.Rate, p.Arrivals = result.Varied, load.Constant
	case "wal-sync":
		p.WALSync = result.Varied
	case "io":
		p.IO = result.Varied
	case "codec":
		p.Codec = result.Varied
	case "level":
		p.Level = nil
	case "bucket-entries":
		p.BucketEntries = 0
	}
}

// mode is the storage mode of a sample of v.
func (s Sample) mode(v Variant) string {
	if s.Mode == "" {
		return v.Get("mode")
	}
	return s.Mode
}
