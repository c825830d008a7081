package compare

import (
	"fmt"
	"math"
)

// What one window says about itself: an interval of a rate or a cost, and whether the rate was steady. Both look at the
// window's slices, such as tenths of a second. Nothing here knows what another process, run or day would give; only repeats do.

const (
	// MinSlices is how many slices an interval takes at least.
	MinSlices = 10
	// batches is how many batches slices are gathered in. Schmeiser (Batch Size Effects in the Analysis of Simulation Output,
	// Operations Research 30, 1982) shows that more than 30 gain next to nothing, and that fewer and longer ones depend less on
	// each other.
	batches = 20
	// maxCorrelation bounds the correction: beyond it the window is too short to tell noise from a trend.
	maxCorrelation = 0.9
)

// Within returns a 95 % confidence interval of the sum of above over the sum of below, such as replies over seconds or CPU
// time over replies, from the slices of one window. It is undefined for fewer than [MinSlices].
//
// The method is batch means: slices are gathered in up to 20 batches, and the interval is Student's for the mean of the
// batches' residuals from the common ratio (linearised, as for every ratio estimate). Batches next to each other are alike
// in a program with a memory (a collection, a full queue), which would make the interval too short; so the variance is that
// of a first order autoregression, (1+r)/(1-r) times as large for the correlation r of neighbours, and the degrees of
// freedom fall by as much, as in Skart (Tafazzoli, Wilson: A skewness- and autoregression-adjusted batch-means procedure for
// simulation analysis, IIE Transactions 43, 2011). Of so few batches r comes out too small; Kendall's correction adds (1+3r)/n.
func Within(above, below []float64) Interval {
	if len(above) != len(below) || len(above) < MinSlices {
		return Interval{}
	}
	as, bs := gather(above), gather(below)
	a, b := total(as), total(bs)
	if b <= 0 {
		return Interval{}
	}
	ratio, n := a/b, float64(len(as))
	residuals := make([]float64, len(as))
	for i := range as {
		residuals[i] = (as[i] - ratio*bs[i]) / (b / n)
	}
	variance, more := spreadOf(residuals)
	df := max(1, n/more-1)
	half := studentQuantile(df, 0.975) * math.Sqrt(variance*more/n)
	return interval(ratio-half, ratio+half, Level)
}

// spreadOf is the variance of residuals, whose mean is 0, and by how much their correlation multiplies that of their mean.
func spreadOf(residuals []float64) (variance, more float64) {
	squares, products, n := 0.0, 0.0, float64(len(residuals))
	for i, x := range residuals {
		squares += x * x
		if i > 0 {
			products += x * residuals[i-1]
		}
	}
	if squares == 0 {
		return 0, 1
	}
	r := products / squares
	r = min(max(r+(1+3*r)/n, 0), maxCorrelation)
	return squares / (n - 1), (1 + r) / (1 - r)
}

// gather adds slices up to at most batches of them, of as equal length as can be.
func gather(xs []float64) []float64 {
	k := min(len(xs), batches)
	sums := make([]float64, k)
	for i := range sums {
		sums[i] = total(xs[i*len(xs)/k : (i+1)*len(xs)/k])
	}
	return sums
}

func total(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x
	}
	return sum
}

// minMove is the change of a rate within a window below which it is called steady.
const minMove = 0.03

// maxUnclear is the change from the first third to the last that no steady rate has, also where noise hides its shape.
const maxUnclear = 0.05

// Course is how a rate went within a window.
type Course struct {
	Word   string // steady, drift, decay, jump, jumps; noisy: the thirds differ, and no shape stands out
	Change Value  // last third over first third, minus 1
	Detail string // of a rate that was not steady
}

// FindCourse tells how the rate ok/seconds went over the slices of a window. Five shapes are fitted to the means of up to
// 20 batches by least squares: a level, a line (drift), a level that is approached from above or below (decay), and one or two
// jumps. The best by Schwarz's criterion is named (Estimating the dimension of a model, Annals of Statistics 6, 1978), with
// each parameter counted twice, since batches depend on each other a little; what moves by less than 3 % is steady, unless the
// last third differs from the first by more than 5 %: then noise hides how it went. It is undefined (no Word) for fewer than [MinSlices].
func FindCourse(ok, seconds []float64) Course {
	if len(ok) != len(seconds) || len(ok) < MinSlices {
		return Course{}
	}
	counts, times := gather(ok), gather(seconds)
	n := len(counts)
	ys, ends := make([]float64, n), make([]float64, n)
	at, mean := 0.0, total(ok)/total(seconds)
	if !(mean > 0) {
		return Course{}
	}
	for i := range ys {
		at += times[i]
		ys[i], ends[i] = counts[i]/times[i]/mean, at
	}
	c := Course{Word: "steady"}
	third := n / 3
	if first := total(ys[:third]); first > 0 {
		c.Change = Defined(total(ys[n-third:])/first - 1)
	}
	best := math.Inf(1)
	consider := func(s shape) {
		score := float64(n)*math.Log(s.squares/float64(n)+1e-12) + 2*float64(s.parameters)*math.Log(float64(n))
		if score < best {
			best = score
			c.Word, c.Detail = s.words(ends)
		}
	}
	consider(flat(ys))
	consider(line(ys))
	for tau := 1.0; tau <= float64(n)/4; tau *= 1.5 {
		consider(decay(ys, tau))
	}
	for _, s := range jumps(ys) {
		consider(s)
	}
	if c.Word == "steady" && math.Abs(c.Change.Float) > maxUnclear {
		c.Word = "noisy"
	}
	return c
}

// String says it in words.
func (c Course) String() string {
	switch {
	case c.Word == "":
		return ""
	case !c.Change.OK:
		return c.Word
	}
	words := c.Word
	if c.Detail != "" {
		words += ": " + c.Detail
	}
	return fmt.Sprintf("%s (last third %+.1f %% of the first)", words, 100*c.Change.Float)
}

// shape is a curve fitted to the batches of a window.
type shape struct {
	kind       string
	parameters int
	squares    float64 // of the residuals
	fitted     []float64
	cuts       []int // batches before each jump
}

// words names the shape and how far it goes, unless that is too little to be named.
func (s shape) words(ends []float64) (word, detail string) {
	first, last := s.fitted[0], s.fitted[len(s.fitted)-1]
	if s.kind == "jump" || s.kind == "jumps" {
		most, text := 0.0, ""
		for i, cut := range s.cuts {
			step := s.fitted[cut]/s.fitted[cut-1] - 1
			most = max(most, math.Abs(step))
			if i > 0 {
				text += ", "
			}
			text += fmt.Sprintf("%+.0f %% at %.1f s", 100*step, ends[cut-1])
		}
		if !(most >= minMove) {
			return "steady", ""
		}
		return s.kind, text
	}
	move := last/first - 1
	if !(math.Abs(move) >= minMove) {
		return "steady", ""
	}
	if s.kind == "decay" {
		settled := 0
		for settled < len(s.fitted)-1 && math.Abs(s.fitted[settled]-last) > 0.1*math.Abs(first-last) {
			settled++
		}
		return s.kind, fmt.Sprintf("%+.0f %% until %.1f s, level then", 100*move, ends[settled])
	}
	return s.kind, fmt.Sprintf("%+.0f %% from start to end", 100*move)
}

func flat(ys []float64) shape { return linear("level", 1, ys, func(int) float64 { return 0 }) }

func line(ys []float64) shape {
	return linear("drift", 2, ys, func(i int) float64 { return float64(i) })
}

// decay goes towards a level, to 1/e of the distance in tau batches.
func decay(ys []float64, tau float64) shape {
	return linear("decay", 3, ys, func(i int) float64 { return math.Exp(-float64(i) / tau) })
}

// linear fits a + b x(i).
func linear(kind string, parameters int, ys []float64, x func(i int) float64) shape {
	n := float64(len(ys))
	var sx, sy, sxx, sxy float64
	for i, y := range ys {
		v := x(i)
		sx, sy, sxx, sxy = sx+v, sy+y, sxx+v*v, sxy+v*y
	}
	b := 0.0
	if d := n*sxx - sx*sx; d > 0 {
		b = (n*sxy - sx*sy) / d
	}
	a := (sy - b*sx) / n
	s := shape{kind: kind, parameters: parameters, fitted: make([]float64, len(ys))}
	for i := range ys {
		s.fitted[i] = a + b*x(i)
	}
	s.squares = squares(ys, s.fitted)
	return s
}

// minPiece is how many batches a level lasts at least: one batch alone is a slow moment, not a level.
const minPiece = 2

// jumps are the best fits with one and with two changes of level.
func jumps(ys []float64) []shape {
	one, two := shape{squares: math.Inf(1)}, shape{squares: math.Inf(1)}
	try := func(best *shape, kind string, parameters int, cuts ...int) {
		fitted := make([]float64, len(ys))
		from := 0
		for _, to := range append(cuts, len(ys)) {
			level := total(ys[from:to]) / float64(to-from)
			for i := from; i < to; i++ {
				fitted[i] = level
			}
			from = to
		}
		if s := squares(ys, fitted); s < best.squares {
			*best = shape{kind, parameters, s, fitted, cuts}
		}
	}
	for i := minPiece; i <= len(ys)-minPiece; i++ {
		try(&one, "jump", 3, i)
		for j := i + minPiece; j <= len(ys)-minPiece; j++ {
			try(&two, "jumps", 5, i, j)
		}
	}
	return []shape{one, two}
}

func squares(ys, fitted []float64) (sum float64) {
	for i, y := range ys {
		sum += (y - fitted[i]) * (y - fitted[i])
	}
	return sum
}
