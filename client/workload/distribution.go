package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Distribution is the law by which a worker picks the n of its next request from its own key space.
//
//	uniform      every key equally likely
//	zipf:T       the k-th most popular key in proportion to 1/k^T; popularity is scattered over the key space
//	sequential   0, 1, 2, ... and again from 0
//	latest       Sets go in sequence; a Get takes the key written d Sets ago, d after zipf:0.99
//	hotset:F:P   a share P of the requests goes to a share F of the keys, evenly on either side
//
// The zero Distribution is uniform.
type Distribution struct {
	kind kind
	a, b float64 // zipf: T; hotset: F, P
}

type kind uint8

const (
	uniform kind = iota
	zipf
	sequential
	latest
	hotset
)

const latestTheta = 0.99

// Uniform reports whether every key is equally likely.
func (d Distribution) Uniform() bool { return d.kind == uniform }

// String is the form that [ParseDistribution] reads.
func (d Distribution) String() string {
	switch d.kind {
	case zipf:
		return fmt.Sprintf("zipf:%v", d.a)
	case sequential:
		return "sequential"
	case latest:
		return "latest"
	case hotset:
		return fmt.Sprintf("hotset:%v:%v", d.a, d.b)
	}
	return "uniform"
}

// ParseDistribution reads the name of a law and its parameters; "zipf" alone is zipf:0.99.
func ParseDistribution(s string) (Distribution, error) {
	name, rest, colon := strings.Cut(s, ":")
	var params []float64
	if colon {
		for p := range strings.SplitSeq(rest, ":") {
			x, err := strconv.ParseFloat(p, 64)
			if err != nil {
				return Distribution{}, fmt.Errorf("distribution %q: %q is not a number", s, p)
			}
			params = append(params, x)
		}
	}
	var d Distribution
	want := 0
	switch name {
	case "uniform":
	case "sequential":
		d.kind = sequential
	case "latest":
		d.kind = latest
	case "zipf":
		d.kind, want = zipf, 1
		if len(params) == 0 {
			params = []float64{latestTheta}
		}
	case "hotset":
		d.kind, want = hotset, 2
	default:
		return Distribution{}, fmt.Errorf("distribution %q is unknown: use uniform, zipf:THETA, sequential, latest or hotset:KEYS:REQUESTS", s)
	}
	if len(params) != want {
		return Distribution{}, fmt.Errorf("distribution %q: %s takes %d parameters, got %d", s, name, want, len(params))
	}
	if want > 0 {
		d.a = params[0]
	}
	if want > 1 {
		d.b = params[1]
	}
	return d, d.validate()
}

func (d Distribution) validate() error {
	switch {
	case d.kind == zipf && !(d.a > 0 && d.a <= 10):
		return fmt.Errorf("distribution %v: theta must be above 0 and at most 10", d)
	case d.kind == hotset && !(d.a > 0 && d.a <= 1 && d.b >= 0 && d.b <= 1):
		return fmt.Errorf("distribution %v: want 0 < share of keys <= 1 and 0 <= share of requests <= 1", d)
	}
	return nil
}

// chooser draws from 0..keys-1.
type chooser interface {
	next(op Op, rng *rand.Rand) int
}

func (d Distribution) chooser(keys int) chooser {
	switch d.kind {
	case zipf:
		return &zipfChooser{newZipf(keys, d.a), newScatter(keys)}
	case sequential:
		return &sequenceChooser{keys: keys}
	case latest:
		return &latestChooser{keys: keys, ages: newZipf(keys, latestTheta)}
	case hotset:
		hot := min(keys, max(1, int(math.Round(d.a*float64(keys)))))
		return &hotsetChooser{keys: keys, hot: hot, share: d.b, scatter: newScatter(keys)}
	}
	return uniformChooser{keys}
}

type uniformChooser struct{ keys int }

func (c uniformChooser) next(_ Op, rng *rand.Rand) int { return rng.IntN(c.keys) }

type sequenceChooser struct{ keys, at int }

func (c *sequenceChooser) next(Op, *rand.Rand) int {
	n := c.at
	if c.at++; c.at == c.keys {
		c.at = 0
	}
	return n
}

type zipfChooser struct {
	ranks   zipfSampler
	scatter scatter
}

func (c *zipfChooser) next(_ Op, rng *rand.Rand) int { return c.scatter.place(c.ranks.next(rng)) }

// latestChooser starts as if the key space had just been written in order, which is how the fill leaves it.
type latestChooser struct {
	keys, writes int
	ages         zipfSampler
}

func (c *latestChooser) next(op Op, rng *rand.Rand) int {
	if op == Set {
		n := c.writes
		if c.writes++; c.writes == c.keys {
			c.writes = 0
		}
		return n
	}
	n := c.writes - 1 - c.ages.next(rng)
	if n < 0 {
		n += c.keys
	}
	return n
}

type hotsetChooser struct {
	keys, hot int
	share     float64
	scatter   scatter
}

func (c *hotsetChooser) next(_ Op, rng *rand.Rand) int {
	if c.hot == c.keys || rng.Float64() < c.share {
		return c.scatter.place(rng.IntN(c.hot))
	}
	return c.scatter.place(c.hot + rng.IntN(c.keys-c.hot))
}

// scatter maps ranks to keys one to one, so that popular keys are not neighbours and yet every key has its rank:
// a hash in its place would leave about a third of the keys out.
type scatter struct{ step, keys uint64 }

func newScatter(keys int) scatter {
	n := uint64(keys)
	step := uint64(float64(n)*0.6180339887) | 1 // near the golden section neighbours end up far apart
	for gcd(step, n) != 1 {
		step += 2
	}
	return scatter{step % n, n}
}

func (s scatter) place(rank int) int { return int(uint64(rank) * s.step % s.keys) }

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// zipfSampler draws ranks 0..n-1 with probability in proportion to 1/(rank+1)^theta, exactly and without tables, by
// rejection-inversion (Hörmann and Derflinger, 1996): invert the integral of the continuous law, which lies above the
// discrete one, and reject what falls between the two. Fewer than one draw in five is rejected.
type zipfSampler struct {
	n           float64
	theta       float64
	first, last float64 // integral at the ends of the range
	shortcut    float64 // accept without looking at the density when this near to the rank
}

func newZipf(n int, theta float64) zipfSampler {
	z := zipfSampler{n: float64(n), theta: theta}
	z.first = z.integral(1.5) - 1
	z.last = z.integral(z.n + 0.5)
	z.shortcut = 2 - z.inverse(z.integral(2.5)-z.density(2))
	return z
}

func (z *zipfSampler) next(rng *rand.Rand) int {
	for {
		u := z.last + rng.Float64()*(z.first-z.last)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.shortcut || u >= z.integral(k+0.5)-z.density(k) {
			return int(k) - 1
		}
	}
}

func (z *zipfSampler) density(x float64) float64 { return math.Exp(-z.theta * math.Log(x)) }

// integral is that of the density up to a constant: (x^(1-theta)-1)/(1-theta), and log(x) where theta is 1.
func (z *zipfSampler) integral(x float64) float64 {
	l := math.Log(x)
	return l * expm1Ratio((1-z.theta)*l)
}

func (z *zipfSampler) inverse(y float64) float64 {
	t := max(y*(1-z.theta), -1) // rounding may push it past the end
	return math.Exp(y * log1pRatio(t))
}

// expm1Ratio is (e^x-1)/x and log1pRatio log(1+x)/x, continued at 0.
func expm1Ratio(x float64) float64 {
	if math.Abs(x) < 1e-8 {
		return 1 + x/2
	}
	return math.Expm1(x) / x
}

func log1pRatio(x float64) float64 {
	if math.Abs(x) < 1e-8 {
		return 1 - x/2
	}
	return math.Log1p(x) / x
}
