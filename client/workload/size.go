package workload

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a law of value lengths in bytes. With a Median the lengths are lognormal around it, cut at Min and Max: sizes
// of cached objects are, a few large ones among many small. Without, each length from Min to Max is equally likely. The
// zero Size stands for the classic value, whose length follows from its text.
type Size struct {
	Min, Max int
	Median   int     // 0: uniform
	Sigma    float64 // of the logarithm
}

// Classic reports whether no size was asked for.
func (s Size) Classic() bool { return s == Size{} }

// String is the form that [ParseSize] reads.
func (s Size) String() string {
	switch {
	case s.Classic():
		return "classic"
	case s.Median > 0:
		return fmt.Sprintf("lognormal:%d:%s", s.Median, strconv.FormatFloat(s.Sigma, 'f', -1, 64))
	case s.Min == s.Max:
		return strconv.Itoa(s.Min)
	}
	return fmt.Sprintf("%d-%d", s.Min, s.Max)
}

const (
	maxSigma      = 3.0
	lognormalTail = 4.0 // sigmas beyond which lengths are cut
)

// ParseSize reads "classic", "128", "4KiB", a range such as "64-1KiB", or "lognormal:MEDIAN:SIGMA" such as
// "lognormal:1KiB:0.8", cut 4 sigmas from the median. Units are B, K or KiB (1024), M or MiB.
func ParseSize(s string) (Size, error) {
	if s == "classic" {
		return Size{}, nil
	}
	size, err := parseSize(s)
	if err == nil {
		err = size.validate()
	}
	if err != nil {
		return Size{}, fmt.Errorf("value size %q: %w", s, err)
	}
	return size, nil
}

func parseSize(s string) (size Size, err error) {
	if law, ok := strings.CutPrefix(s, "lognormal:"); ok {
		median, sigma, _ := strings.Cut(law, ":")
		if size.Median, err = parseBytes(median); err != nil {
			return size, err
		}
		if size.Sigma, err = strconv.ParseFloat(sigma, 64); err != nil || !(size.Sigma > 0 && size.Sigma <= maxSigma) {
			return size, fmt.Errorf("want lognormal:MEDIAN:SIGMA with 0 < SIGMA <= %v, such as lognormal:1KiB:0.8", maxSigma)
		}
		if size.Median < 1 {
			return size, errors.New("want a median of at least 1 byte")
		}
		reach := math.Exp(lognormalTail * size.Sigma)
		size.Min = max(1, int(float64(size.Median)/reach))
		size.Max = min(MaxValueSize, int(float64(size.Median)*reach))
		return size, nil
	}
	if strings.HasPrefix(s, "-") {
		return size, errors.New("want at least 1 byte")
	}
	low, high, ranged := strings.Cut(s, "-")
	if size.Min, err = parseBytes(low); err != nil {
		return size, err
	}
	if size.Max = size.Min; ranged {
		if size.Max, err = parseBytes(high); err != nil {
			return size, err
		}
	}
	if size.Min == 0 {
		return size, errors.New("want at least 1 byte")
	}
	return size, nil
}

func (s Size) validate() error {
	if s.Classic() {
		return nil
	}
	if s.Min < 1 || s.Max < s.Min || s.Max > MaxValueSize || s.Median < 0 || s.Median > 0 && !(s.Sigma > 0 && s.Sigma <= maxSigma) {
		return fmt.Errorf("value size %v (%d-%d): want 1 <= smallest <= largest <= %d bytes", s, s.Min, s.Max, MaxValueSize)
	}
	return nil
}

// length is the length that belongs to 64 random bits.
func (s Size) length(x uint64) int {
	if s.Median == 0 {
		return s.Min + int(x%uint64(s.Max-s.Min+1))
	}
	p := (float64(x>>11) + 0.5) / (1 << 53) // within 0..1, and never at its ends
	z := math.Sqrt2 * math.Erfinv(2*p-1)
	return min(max(int(math.Round(float64(s.Median)*math.Exp(s.Sigma*z))), s.Min), s.Max)
}

// mean is the mean length, to within a part in a thousand of the lognormal law.
func (s Size) mean() float64 {
	if s.Median == 0 {
		return float64(s.Min+s.Max) / 2
	}
	const steps = 1 << 14
	sum := 0.0
	for i := range uint64(steps) {
		sum += float64(s.length(i<<50 | 1<<49))
	}
	return sum / steps
}

func parseBytes(s string) (int, error) {
	digits := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(s)
	}
	number, unit := s[:digits], 1
	if number == "" {
		return 0, fmt.Errorf("%q does not begin with a number: want bytes such as 128, 4KiB or 1MiB", s)
	}
	switch s[len(number):] {
	case "", "B":
	case "K", "KiB":
		unit = 1 << 10
	case "M", "MiB":
		unit = 1 << 20
	default:
		return 0, fmt.Errorf("unknown unit %q: use B, KiB or MiB; at most %d bytes", s[len(number):], MaxValueSize)
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n*uint64(unit) > MaxValueSize {
		return 0, fmt.Errorf("%q is not a number of bytes up to %d", s, MaxValueSize)
	}
	return int(n) * unit, nil
}

// Mix is the ratio of Sets to Gets in a mixed phase. The zero Mix means that Set and Get have a phase each.
type Mix struct{ Sets, Gets int }

// Mixed reports whether a mix was asked for.
func (m Mix) Mixed() bool { return m != Mix{} }

// String is the form that [ParseMix] reads.
func (m Mix) String() string {
	if !m.Mixed() {
		return ""
	}
	return fmt.Sprintf("%d:%d", m.Sets, m.Gets)
}

// ParseMix reads "SET:GET", two whole numbers of which at least one is not zero, such as "10:90"; "" is the zero Mix.
func ParseMix(s string) (Mix, error) {
	if s == "" {
		return Mix{}, nil
	}
	sets, gets, found := strings.Cut(s, ":")
	a, errA := strconv.ParseUint(sets, 10, 20)
	b, errB := strconv.ParseUint(gets, 10, 20)
	if !found || errA != nil || errB != nil || a+b == 0 {
		return Mix{}, fmt.Errorf("mix %q: want SET:GET, two whole numbers that are not both 0, such as 10:90", s)
	}
	return Mix{int(a), int(b)}, nil
}
