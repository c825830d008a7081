package compare

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limit is a loss that must not happen: "qps<-3%" is a QPS more than 3 % below the base.
type Limit struct {
	Metric  Metric
	Percent float64 // the change that is still allowed: -3
	Above   bool    // a change above Percent is the loss; otherwise one below it
}

// Outcome is what a comparison says about a [Limit].
type Outcome string

// The outcomes.
const (
	Met       Outcome = "met"          // the loss is proven
	NotMet    Outcome = "not met"      // it is proven that the loss stays within the limit
	Undecided Outcome = "inconclusive" // neither
)

// ParseLimits reads limits separated by commas, each METRIC<-N% or METRIC>N%, such as "qps<-3%,p99>10%". A limit that
// points to the better side is refused, since it would never guard against anything.
func ParseLimits(text string) ([]Limit, error) {
	var limits []Limit
	for part := range strings.SplitSeq(text, ",") {
		l, err := parseLimit(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

func parseLimit(text string) (Limit, error) {
	fail := func(format string, args ...any) (Limit, error) {
		return Limit{}, fmt.Errorf("limit %q: "+format, append([]any{text}, args...)...)
	}
	at := strings.IndexAny(text, "<>")
	if at < 0 {
		return fail("want METRIC<-N%% or METRIC>N%%, such as qps<-3%% or p99>10%%")
	}
	name, number := strings.TrimSpace(text[:at]), strings.TrimSpace(text[at+1:])
	metric, ok := LookupMetric(name)
	if !ok {
		return fail("unknown metric %q; known are %s", name, metricNames())
	}
	digits, ok := strings.CutSuffix(number, "%")
	if !ok {
		return fail("%q is not a percentage; write it with a %% sign", number)
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || !Defined(x).OK {
		return fail("%q is not a number", digits)
	}
	l := Limit{Metric: metric, Percent: x, Above: text[at] == '>'}
	switch {
	case l.Above && metric.Better == HigherIsBetter:
		return fail("a higher %s is better; a loss is written %s<-N%%", metric.Title, name)
	case !l.Above && metric.Better == LowerIsBetter:
		return fail("a lower %s is better; a loss is written %s>N%%", metric.Title, name)
	case l.Above && x < 0:
		return fail("after > a number of 0%% or more is wanted")
	case !l.Above && x > 0:
		return fail("after < a number of 0%% or less is wanted; did you mean %s<-%s%%?", name, digits)
	case !l.Above && x <= -100:
		return fail("nothing can fall by 100%% or more")
	}
	return l, nil
}

// String returns the limit as [ParseLimits] reads it.
func (l Limit) String() string {
	op := "<"
	if l.Above {
		op = ">"
	}
	return l.Metric.Name + op + strconv.FormatFloat(l.Percent, 'g', -1, 64) + "%"
}

// Check judges a comparison of the limit's metric. A loss is proven when the whole interval is beyond the limit and the
// effect is above the noise floor; that there is none, when the whole interval is within and no side was client-bound.
func (l Limit) Check(c Comparison) Outcome {
	if !c.Interval.OK || !c.Ratio.OK {
		return Undecided
	}
	low, high := 100*(c.Interval.Low-1), 100*(c.Interval.High-1)
	beyond, within := high < l.Percent, low >= l.Percent
	if l.Above {
		beyond, within = low > l.Percent, high <= l.Percent
	}
	aboveFloor := !c.Floor.OK || math.Abs(math.Log(c.Ratio.Float)) > c.Floor.Float
	switch {
	case beyond && aboveFloor:
		return Met
	case within && !c.ClientBound:
		return NotMet
	}
	return Undecided
}

// Finding is the outcome of one limit for one comparison.
type Finding struct {
	Limit      Limit
	Comparison *Comparison // nil: no comparison has the limit's metric, so the outcome is Undecided
	Outcome    Outcome
}

// CheckLimits applies every limit to every comparison of its metric. A limit without any such comparison still gets a
// finding: what was not measured is not in order.
func CheckLimits(limits []Limit, comparisons []Comparison) []Finding {
	var findings []Finding
	for _, l := range limits {
		found := false
		for i := range comparisons {
			if c := &comparisons[i]; c.Metric.Name == l.Metric.Name {
				findings = append(findings, Finding{l, c, l.Check(*c)})
				found = true
			}
		}
		if !found {
			findings = append(findings, Finding{Limit: l, Outcome: Undecided})
		}
	}
	return findings
}
