package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/perf/benchmath"

	"kvmark/client/result"
)

// group is the repeats of one operation in one mode with one configuration.
type group struct {
	mode, config, op string
	cells            []result.Cell
}

// groups gathers repeats, in the order in which modes and operations first appear.
func groups(f *result.File) []group {
	var all []group
	index := map[string]int{}
	for _, c := range f.Cells {
		g := group{mode: c.Mode, config: configWords(c.Config), op: c.Op}
		key := strings.Join([]string{g.mode, g.config, g.op}, "\x00")
		i, ok := index[key]
		if !ok {
			i = len(all)
			index[key] = i
			all = append(all, g)
		}
		all[i].cells = append(all[i].cells, c)
	}
	return all
}

func configWords(config map[string]string) string {
	var words []string
	for _, k := range slices.Sorted(maps.Keys(config)) {
		words = append(words, k+"="+config[k])
	}
	return strings.Join(words, " ")
}

func (g group) heading(p result.Plan) string {
	h := Heading(g.mode, p)
	if g.config != "" {
		h += " [" + g.config + "]"
	}
	return h
}

// counted returns the cells whose numbers may be shown as the group's: the valid ones, or all when none is.
func (g group) counted() []result.Cell {
	var valid []result.Cell
	for _, c := range g.cells {
		if c.Valid {
			valid = append(valid, c)
		}
	}
	if valid == nil {
		return g.cells
	}
	return valid
}

// median is that of one number over the counted cells; nil where no cell has it.
func (g group) median(number func(result.Cell) *float64) *float64 {
	xs := g.values(number)
	if len(xs) == 0 {
		return nil
	}
	slices.Sort(xs)
	m := (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
	return &m
}

func (g group) values(number func(result.Cell) *float64) []float64 {
	var xs []float64
	for _, c := range g.counted() {
		if x := number(c); x != nil {
			xs = append(xs, *x)
		}
	}
	return xs
}

// minForInterval is how many repeats a 95 % interval of the median takes.
const minForInterval = 6

// spread is how far the repeats' QPS lie apart; empty for one.
func (g group) spread() string {
	xs := g.values(qps)
	if len(xs) < 2 {
		return ""
	}
	return fmt.Sprintf("%.0f..%.0f", slices.Min(xs), slices.Max(xs))
}

// interval is a 95 % confidence interval of the median QPS; empty for fewer repeats than it takes.
func (g group) interval() string {
	low, high := g.intervalEnds()
	if low == nil || high == nil {
		return ""
	}
	return fmt.Sprintf("%.0f..%.0f", *low, *high)
}

// intervalEnds are nil where there is no interval.
func (g group) intervalEnds() (low, high *float64) {
	xs := g.values(qps)
	if len(xs) < minForInterval {
		return nil, nil
	}
	sum := benchmath.AssumeNothing.Summary(benchmath.NewSample(xs, &benchmath.DefaultThresholds), 0.95)
	return result.Number(sum.Lo), result.Number(sum.Hi)
}

func qps(c result.Cell) *float64 { return c.QPS }

// plain takes control codes out of text that another program may have written.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return -1
		}
		return r
	}, s)
}

// storage says how the mode keeps the data, where that is not plain, after its last operation.
func storage(mode string, c result.Cell, p result.Plan, host result.Host) string {
	s := c.Server
	perKey := result.Ratio(s.StoredBytes, s.Keys)
	switch {
	case perKey == nil:
	case mode == "serialize":
		asked := ""
		if p.ValueSize != "classic" && p.Codec != "none" {
			asked = fmt.Sprintf(" (keys and buckets included; values alone were made for %s by %s)", ratioWords(p.Compressibility), p.Codec)
		}
		return fmt.Sprintf("%s keys in %.0f bytes each, compressed %sx%s", count(s.Keys), *perKey, shape(s.CompressionRatio, "%.2f", 1), asked)
	case mode == "file", mode == "lsm":
		// Data much smaller than the memory are read from the system's cache, whatever the mode is called.
		perGet := ""
		if c.Gets > 0 && s.DeviceReadBytes != nil {
			perGet = fmt.Sprintf(", %.0f bytes a Get", *s.DeviceReadBytes/float64(c.Gets))
		}
		return fmt.Sprintf("%s keys, %s MB on disk of a machine with %d MB of memory; %s MB read from the device in the window%s",
			count(s.Keys), megabytes(s.DiskBytes), host.MemoryBytes/1e6, megabytes(s.DeviceReadBytes), perGet)
	}
	return ""
}

// verdict says whether the numbers may be used, and what limits them.
func (g group) verdict() []string {
	var failed []string
	valid := 0
	bounds := map[string]int{}
	unchecked := false
	for _, c := range g.cells {
		if c.Valid {
			valid++
		}
		bounds[c.Client.Bound]++
		for _, check := range c.Checks {
			unchecked = unchecked || check.Name == "books_commands" && strings.HasPrefix(check.Detail, result.NoCounters)
			if !check.Pass {
				where := ""
				if len(g.cells) > 1 {
					where = fmt.Sprintf("repeat %d: ", c.Repeat)
				}
				failed = append(failed, fmt.Sprintf("%s%s: %s", where, check.Name, plain(check.Detail)))
			}
		}
	}
	word := "VALID"
	if valid < len(g.cells) {
		word = "INVALID"
	}
	if len(g.cells) > 1 {
		word += fmt.Sprintf(" (%d of %d repeats)", valid, len(g.cells))
	}
	if unchecked {
		word += ", but for the books of commands: " + result.NoCounters
	}
	if share := g.median(func(c result.Cell) *float64 { return c.Client.CeilingShare }); share != nil {
		bound := "server-bound"
		switch {
		case *share > 1: // no ceiling
			return append([]string{word + ", bound unknown: PING ran slower than this, so something else disturbed its measurement"}, failed...)
		case bounds["rate"] > 0:
			bound = "paced"
		case bounds["client"] == len(g.cells):
			bound = "client-bound"
		case bounds[""] > 0:
			bound = fmt.Sprintf("bound unknown in %d of %d", bounds[""], len(g.cells))
		case bounds["client"] > 0:
			bound = fmt.Sprintf("client-bound in %d of %d", bounds["client"], len(g.cells))
		}
		word += fmt.Sprintf(", %s (%.0f %% of the client's PING ceiling)", bound, 100**share)
	}
	return append([]string{word}, failed...)
}

// ratioWords is the ratio that values of that compressibility have.
func ratioWords(compressibility float64) string {
	if compressibility >= 1 {
		return "as much as can be"
	}
	return fmt.Sprintf("%.2fx", 1/(1-compressibility))
}
