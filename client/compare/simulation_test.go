package compare

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// trials is how often a simulation repeats: enough to see a broken method, or with KVMARK_LONG=1 a slightly wrong one.
func trials() int {
	if os.Getenv("KVMARK_LONG") == "1" {
		return 40000
	}
	if testing.Short() {
		return 500
	}
	return 2000
}

// within fails unless hits/n agrees with a chance between low and high; four standard deviations of the binomial are
// chance, and the seeds are fixed.
func within(t *testing.T, what string, hits, n int, low, high float64) {
	t.Helper()
	got := float64(hits) / float64(n)
	slack := func(p float64) float64 { return 4 * math.Sqrt(p*(1-p)/float64(n)) }
	if got < low-slack(low) || got > high+slack(high) {
		t.Errorf("%s: %d of %d = %.4f, want %.4f..%.4f", what, hits, n, got, low, high)
	}
}

// machine draws runs as a shared machine makes them: a level per block that varies far more than the effect, a
// heavy-tailed error per run.
type machine struct{ *rand.Rand }

func (m machine) blocks(n int) []float64 {
	levels := make([]float64, n)
	for i := range levels {
		levels[i] = 1000 * math.Exp(0.2*m.NormFloat64())
	}
	return levels
}

func (m machine) runs(levels []float64, ratio, noise float64) Sample {
	s := Sample{}
	for _, level := range levels {
		e := noise * m.NormFloat64()
		if m.IntN(20) == 0 {
			e *= 4
		}
		s.Values = append(s.Values, level*ratio*math.Exp(e))
	}
	return s
}

func (m machine) flat(n int, ratio, noise float64) Sample {
	levels := make([]float64, n)
	for i := range levels {
		levels[i] = 1000
	}
	return m.runs(levels, ratio, noise)
}

func TestIntervalsCoverTheTruth(t *testing.T) {
	m := machine{rand.New(rand.NewPCG(1, 2))}
	n := trials()
	// The level attained is that of the exact distribution: 10 pairs 0.9512, 8 + 9 runs 0.9535, 55 pairs nominal.
	_, paired10 := walshCut(10, 0.05)
	_, unpaired := shiftCut(8, 9, 0.05)
	var hits10, hits55, hitsU int
	for i := range n {
		levels := m.blocks(10)
		if i := Paired(m.runs(levels, 1, 0.02), m.runs(levels, 1.03, 0.02)).Interval; i.Low <= 1.03 && 1.03 <= i.High {
			hits10++
		}
		if i := Unpaired(m.flat(8, 1, 0.02), m.flat(9, 1.03, 0.02)).Interval; i.Low <= 1.03 && 1.03 <= i.High {
			hitsU++
		}
		if i%4 != 0 {
			continue // many pairs take long
		}
		levels = m.blocks(55)
		if i := Paired(m.runs(levels, 1, 0.02), m.runs(levels, 1.03, 0.02)).Interval; i.Low <= 1.03 && 1.03 <= i.High {
			hits55++
		}
	}
	within(t, "10 pairs", hits10, n, 1-paired10, 1-paired10)
	within(t, "8 + 9 runs", hitsU, n, 1-unpaired, 1-unpaired)
	within(t, "55 pairs, normal approximation", hits55, n/4, 0.95, 0.955)
}

func TestFalseClaimsStayRare(t *testing.T) {
	m := machine{rand.New(rand.NewPCG(3, 4))}
	n := trials() / 4
	var false1, falseFamily, falseFloor, falseSame int
	claims := func(cs []Comparison) int {
		for _, c := range cs {
			if c.Verdict == Higher || c.Verdict == Lower {
				return 1
			}
		}
		return 0
	}
	for range n {
		var qs []Question
		for range 6 {
			levels := m.blocks(12)
			qs = append(qs, Question{Metric: metric("qps"), Paired: true, Base: m.runs(levels, 1, 0.02), Other: m.runs(levels, 1, 0.02)})
		}
		falseFamily += claims(Family(qs, 0))
		false1 += claims(Family(qs[:1], 0))

		control := Paired(qs[1].Base, qs[1].Other)
		qs[0].Floor = NoiseFloor(control)
		falseFloor += claims(Family(qs[:1], 0))

		// A true difference of just the margin is called "same" no more often than the interval is wrong on that side.
		levels := m.blocks(12)
		q := Question{Metric: metric("qps"), Paired: true, Base: m.runs(levels, 1, 0.01), Other: m.runs(levels, 1.0201, 0.01)}
		if Family([]Question{q}, 0)[0].Verdict == Same {
			falseSame++
		}
	}
	_, attained := walshCut(12, 0.05)
	within(t, "one comparison", false1, n, attained, attained)
	within(t, "any of a family of six", falseFamily, n, 0.01, 0.05)
	within(t, "with a noise floor", falseFloor, n, 0, attained/2)
	within(t, "same at the margin", falseSame, n, 0, 0.025)
}

func TestDetectableIsDetected(t *testing.T) {
	m := machine{rand.New(rand.NewPCG(5, 6))}
	n := trials() / 4
	// The noise is taken from a long control, then used to plan a short run.
	levels := m.blocks(400)
	control := Paired(m.runs(levels, 1, 0.02), m.runs(levels, 1, 0.02))
	flat := Unpaired(m.flat(400, 1, 0.02), m.flat(400, 1, 0.02))
	for _, power := range []float64{0.8, 0.9} {
		pairedEffect, flatEffect := control.Detectable(12, power, 0.05), flat.Detectable(10, power, 0.05)
		hitsP, hitsU := 0, 0
		for range n {
			levels := m.blocks(12)
			if Paired(m.runs(levels, 1, 0.02), m.runs(levels, 1+pairedEffect.Float, 0.02)).P.Float < 0.05 {
				hitsP++
			}
			if Unpaired(m.flat(10, 1, 0.02), m.flat(10, 1+flatEffect.Float, 0.02)).P.Float < 0.05 {
				hitsU++
			}
		}
		within(t, "paired", hitsP, n, power-0.06, power+0.06)
		within(t, "unpaired", hitsU, n, power-0.06, power+0.06)
	}
}

func TestDriftIsSeldomSeenWhereThereIsNone(t *testing.T) {
	m := machine{rand.New(rand.NewPCG(7, 8))}
	n := trials() / 20
	var still, trend, level int
	for range n {
		values := m.flat(12, 1, 0.02).Values
		if FindDrift(values).Seen() {
			still++
		}
		for i := range values {
			values[i] *= math.Pow(1.01, float64(i))
		}
		if FindDrift(values).Seen() {
			trend++
		}
		values = m.flat(12, 1, 0.01).Values
		for i := range values[6:] {
			values[6+i] *= 1.05
		}
		if FindDrift(values).Seen() {
			level++
		}
	}
	within(t, "no drift", still, n, 0.005, 0.05)
	within(t, "1 % a run under 2 % noise", trend, n, 0.8, 1)
	within(t, "a step of 5 % under 1 % noise", level, n, 0.9, 1)
}
