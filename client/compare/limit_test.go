package compare

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseLimits(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []Limit
	}{
		{"qps<-3%", []Limit{{metric("qps"), -3, false}}},
		{" qps < -3 % , p99 > 10% ,cpu_us_per_op>2.5%", []Limit{{metric("qps"), -3, false}, {metric("p99"), 10, true}, {metric("cpu_us_per_op"), 2.5, true}}},
		{"qps<0%", []Limit{{metric("qps"), 0, false}}},
		{"rss>150%", []Limit{{metric("rss_peak_bytes"), 150, true}}},
		{"gc_cycles>5%,gc_cycles<-5%", []Limit{{metric("gc_cycles"), 5, true}, {metric("gc_cycles"), -5, false}}},
	} {
		got, err := ParseLimits(tt.text)
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
	}
}

func TestParseLimitsRefuses(t *testing.T) {
	const usage = `want METRIC<-N% or METRIC>N%, such as qps<-3% or p99>10%`
	for text, want := range map[string]string{
		"":              `limit "": ` + usage,
		"qps":           `limit "qps": ` + usage,
		"qps<-3%,":      `limit "": ` + usage,
		"qps=-3%":       `limit "qps=-3%": ` + usage,
		"qps<-3":        `limit "qps<-3": "-3" is not a percentage; write it with a % sign`,
		"qps<-x%":       `limit "qps<-x%": "-x" is not a number`,
		"qps<=-3%":      `limit "qps<=-3%": "=-3" is not a number`,
		"qps<nan%":      `limit "qps<nan%": "nan" is not a number`,
		"p99>inf%":      `limit "p99>inf%": "inf" is not a number`,
		"qps<3%":        `limit "qps<3%": after < a number of 0% or less is wanted; did you mean qps<-3%?`,
		"qps>3%":        `limit "qps>3%": a higher QPS is better; a loss is written qps<-N%`,
		"p99<-3%":       `limit "p99<-3%": a lower p99 latency is better; a loss is written p99>N%`,
		"p99>-3%":       `limit "p99>-3%": after > a number of 0% or more is wanted`,
		"qps<-100%":     `limit "qps<-100%": nothing can fall by 100% or more`,
		"p99>10%qps<3%": `limit "p99>10%qps<3%": "10%qps<3" is not a number`,
		"QPS<-3%": `limit "QPS<-3%": unknown metric "QPS"; known are qps, p50, p90, p99, p999, max, cpu_us_per_op, rss_peak_bytes, ` +
			`heap_live_bytes, alloc_bytes_per_op, alloc_objects_per_op, gc_cpu_share, gc_pause_p50, gc_pause_p99, gc_pause_max, gc_cycles`,
	} {
		if got, err := ParseLimits(text); err == nil {
			t.Errorf("%q: accepted as %v", text, got)
		} else if err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestLimitNeedsProofBothWays(t *testing.T) {
	between := func(name string, low, high float64) Comparison {
		return Comparison{Metric: metric(name), Estimate: Estimate{Ratio: Defined(math.Sqrt(low * high)), Interval: Interval{low, high, 0.95, true}}}
	}
	with := func(c Comparison, change func(*Comparison)) Comparison { change(&c); return c }
	for _, tt := range []struct {
		name  string
		limit string
		c     Comparison
		want  Outcome
	}{
		{"the whole interval is a loss", "qps<-3%", between("qps", 0.90, 0.96), Met},
		{"the interval straddles the limit", "qps<-3%", between("qps", 0.95, 0.99), Undecided},
		{"a loss within the limit", "qps<-3%", between("qps", 0.98, 0.99), NotMet},
		{"a gain", "qps<-3%", between("qps", 1.1, 1.2), NotMet},
		{"very wide", "qps<-3%", between("qps", 0.5, 2), Undecided},
		{"latency beyond", "p99>10%", between("p99", 1.11, 1.3), Met},
		{"latency straddles", "p99>10%", between("p99", 1.05, 1.3), Undecided},
		{"latency within", "p99>10%", between("p99", 0.9, 1.05), NotMet},
		{"no interval", "p99>10%", Comparison{Metric: metric("p99"), Estimate: Estimate{Ratio: Defined(2)}}, Undecided},
		{"a loss below the noise floor", "qps<-3%", with(between("qps", 0.94, 0.96), func(c *Comparison) { c.Floor = Defined(0.1) }), Undecided},
		{"a loss above the noise floor", "qps<-3%", with(between("qps", 0.94, 0.96), func(c *Comparison) { c.Floor = Defined(0.01) }), Met},
		{"client-bound and equal proves nothing", "qps<-3%", with(between("qps", 0.99, 1.01), func(c *Comparison) { c.ClientBound = true }), Undecided},
		{"client-bound and yet a loss", "qps<-3%", with(between("qps", 0.90, 0.91), func(c *Comparison) { c.ClientBound = true }), Met},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limits, err := ParseLimits(tt.limit)
			if err != nil {
				t.Fatal(err)
			}
			if got := limits[0].Check(tt.c); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestCheckLimitsMissesNothing(t *testing.T) {
	limits, err := ParseLimits("qps<-3%,p99>10%")
	if err != nil {
		t.Fatal(err)
	}
	cs := Family([]Question{
		question("memory", "set", "qps", constant(8, 100), constant(8, 90)),
		question("memory", "get", "qps", constant(8, 100), constant(8, 100)),
		question("memory", "get", "rss_peak_bytes", constant(8, 100), constant(8, 200)),
	}, 0)
	want := []Finding{{limits[0], &cs[0], Met}, {limits[0], &cs[1], NotMet}, {limits[1], nil, Undecided}}
	if diff := cmp.Diff(want, CheckLimits(limits, cs)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseLimits(f *testing.F) {
	for _, s := range []string{"qps<-3%", "p99>10%,rss>2.5%", "qps<-3", "<%", "gc_cycles>1e300%", "p99>0x1p-3%", ",", "qps<-0%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := ParseLimits(text)
		if (err == nil) != (len(limits) > 0) {
			t.Fatalf("%q: %d limits with error %v", text, len(limits), err)
		}
		for _, l := range limits {
			again, err := ParseLimits(l.String())
			if err != nil || len(again) != 1 || again[0] != l {
				t.Fatalf("%q: %v reads back as %v, %v", text, l, again, err)
			}
		}
	})
}
