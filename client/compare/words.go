package compare

import (
	"fmt"
	"math"
	"strings"
)

// VerdictText returns the verdict as result files carry it: "higher", "lower", "same within 1.4 %" or "inconclusive".
func (c Comparison) VerdictText() string {
	if c.Verdict == Same {
		return "same within " + percentUp(c.Within.Float)
	}
	return string(c.Verdict)
}

// String says the answer in one sentence, such as
//
//	memory/set: go1.27.3 is 3.1 % faster than go1.26.8 (95 % CI 2.2..4.0 %, n = 12 pairs, p = 0.0005)
//	serialize/get: no difference larger than 1.4 % between go1.27.3 and go1.26.8 (n = 12 pairs)
//	file/get: inconclusive: ±6.0 %; 40 more rounds would give ±2.0 %
func (c Comparison) String() string {
	switch c.Verdict {
	case Higher, Lower:
		s := fmt.Sprintf("%s%s is %s %s than %s (%s)", c.subject(), c.Other,
			percent(math.Abs(c.Ratio.Float-1)), c.adjective(), c.Base, c.evidence())
		if c.ClientBound {
			s += "; client-bound: the servers may differ more than this"
		}
		return s
	case Same:
		return fmt.Sprintf("%sno difference larger than %s between %s and %s (n = %s)",
			c.subject(), percentUp(c.Within.Float), c.Other, c.Base, c.sizes())
	default:
		return fmt.Sprintf("%sinconclusive: %s", c.subject(), c.Reason)
	}
}

// Effect is the estimate with its interval, whatever the verdict: "+1.6 %, 95 % CI -1.1..+4.4 %". Empty: there is no estimate.
func (c Comparison) Effect() string {
	if !c.Ratio.OK {
		return ""
	}
	s := signedPercent(c.Ratio.Float - 1)
	if !c.Interval.OK {
		return s + ", no interval"
	}
	return fmt.Sprintf("%s, %.0f %% CI %+.1f..%+.1f %%", s, 100*Level, 100*(c.Interval.Low-1), 100*(c.Interval.High-1))
}

// subject names the cell, and the metric unless it is the obvious one.
func (c Comparison) subject() string {
	s := c.Mode
	if c.Mode != "" && c.Op != "" {
		s += "/"
	}
	s += c.Op
	if c.Metric.Name != "qps" {
		s = strings.TrimSpace(s + " " + c.Metric.Title)
	}
	if s != "" {
		s += ": "
	}
	return s
}

// adjective says in which way other differs, and whether that is good.
func (c Comparison) adjective() string {
	up := c.Verdict == Higher
	if c.Metric.Name == "qps" {
		if up {
			return "faster"
		}
		return "slower"
	}
	word := "lower"
	if up {
		word = "higher"
	}
	switch {
	case c.Metric.Better == Neutral:
		return word
	case up == (c.Metric.Better == HigherIsBetter):
		return word + " (better)"
	default:
		return word + " (worse)"
	}
}

// evidence prints interval, n and p. The interval has the sign of the claim: "4.0 % slower" lies in 3.0..5.0 %.
func (c Comparison) evidence() string {
	low, high := c.Interval.Low-1, c.Interval.High-1
	if c.Verdict == Lower {
		low, high = -high, -low
	}
	s := fmt.Sprintf("%.0f %% CI %.1f..%.1f %%, n = %s, %s", 100*Level, 100*low, 100*high, c.sizes(), pText(c.PHolm))
	if c.Family > 1 {
		s += fmt.Sprintf(" after Holm over %d", c.Family)
	}
	return s
}

func (c Comparison) whyUndefined() string {
	reason := c.Note
	if need := MinRounds(c.Paired, c.Family) - c.N(); c.Ratio.OK && need > 0 {
		reason += fmt.Sprintf("; at least %s needed before a difference can be claimed", moreRounds(need, "is", "are"))
	}
	return reason
}

func (c Comparison) whyBelowFloor() string {
	return fmt.Sprintf("%s is below the noise floor: the control shows up to %s without any difference",
		signedPercent(c.Ratio.Float-1), percent(math.Expm1(c.Floor.Float)))
}

func (c Comparison) whyFloorTooHigh() string {
	return fmt.Sprintf("the noise floor of %s is above the margin of %s", percent(math.Expm1(c.Floor.Float)), percent(c.Margin))
}

func (c Comparison) whyNotSignificant() string {
	s := fmt.Sprintf("%s (%.0f %% CI %.1f..%.1f %%) is not proof enough among %d comparisons: %s, adjusted %s",
		signedPercent(c.Ratio.Float-1), 100*Level, 100*(c.Interval.Low-1), 100*(c.Interval.High-1), c.Family, pText(c.P), pText(c.PHolm))
	if need := MinRounds(c.Paired, c.Family) - c.N(); need > 0 {
		s += fmt.Sprintf("; at least %s needed", moreRounds(need, "is", "are"))
	}
	return s
}

func (c Comparison) whyWide() string {
	half := math.Expm1(c.halfWidth().Float)
	want := c.Margin
	if want >= half {
		want = half / 2 // precise already, but off centre: only a tighter interval can decide
	}
	s := "±" + percent(half)
	if n, ok := c.RoundsFor(want); ok && n > c.N() {
		s += fmt.Sprintf("; %s give ±%s", moreRounds(n-c.N(), "would", "would"), percent(want))
	}
	return s
}

// moreRounds prints "1 more round VERB" or "n more rounds VERB".
func moreRounds(n int, one, many string) string {
	if n == 1 {
		return "1 more round " + one
	}
	return fmt.Sprintf("%d more rounds %s", n, many)
}

func percent(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.3g %%", 100*x)
	}
	return fmt.Sprintf("%.1f %%", 100*x)
}

// percentUp rounds up: a bound must not be printed smaller than it is.
func percentUp(x float64) string { return percent(max(0, math.Ceil(1000*x-1e-9)/1000)) }

func signedPercent(x float64) string { return fmt.Sprintf("%+.1f %%", 100*x) }

func pText(p Value) string {
	switch {
	case !p.OK:
		return "p undefined"
	case p.Float < 0.0001:
		return "p < 0.0001"
	case p.Float < 0.001:
		return fmt.Sprintf("p = %.4f", p.Float)
	case p.Float < 0.1:
		return fmt.Sprintf("p = %.3f", p.Float)
	default:
		return fmt.Sprintf("p = %.2f", p.Float)
	}
}
