package compare

import "math"

// Value is a number that may be undefined: too few runs, a zero to divide by. The zero Value is undefined.
type Value struct {
	Float float64 // 0 if undefined
	OK    bool
}

// Defined returns x as a Value; NaN and infinities are undefined.
func Defined(x float64) Value {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return Value{}
	}
	return Value{x, true}
}

// Ptr returns the number, or nil if it is undefined, as JSON wants it for null.
func (v Value) Ptr() *float64 {
	if !v.OK {
		return nil
	}
	return &v.Float
}

// Interval is a confidence interval, closed at both ends; the zero Interval is undefined.
type Interval struct {
	Low, High float64
	Level     float64 // the confidence it really has, at least [Level]: ranks come in steps
	OK        bool
}

// interval returns [low, high], undefined if an end is not finite.
func interval(low, high, level float64) Interval {
	if !Defined(low).OK || !Defined(high).OK {
		return Interval{}
	}
	return Interval{low, high, level, true}
}
