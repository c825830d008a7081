package workload

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a range of value lengths in bytes, both ends included; each length is equally likely. The zero Size stands
// for the classic value, whose length follows from its text.
type Size struct{ Min, Max int }

// Classic reports whether no size was asked for.
func (s Size) Classic() bool { return s == Size{} }

// String is the form that [ParseSize] reads.
func (s Size) String() string {
	switch {
	case s.Classic():
		return "classic"
	case s.Min == s.Max:
		return strconv.Itoa(s.Min)
	}
	return fmt.Sprintf("%d-%d", s.Min, s.Max)
}

// ParseSize reads "classic", "128", "4KiB" or a range such as "64-1KiB". Units are B, K or KiB (1024), M or MiB.
func ParseSize(s string) (Size, error) {
	if s == "classic" || s == "" {
		return Size{}, nil
	}
	low, high, ranged := strings.Cut(s, "-")
	least, err := parseBytes(low)
	if err != nil {
		return Size{}, fmt.Errorf("value size %q: %w", s, err)
	}
	size := Size{least, least}
	if ranged {
		if size.Max, err = parseBytes(high); err != nil {
			return Size{}, fmt.Errorf("value size %q: %w", s, err)
		}
	}
	if least == 0 {
		return Size{}, fmt.Errorf("value size %q: want at least 1 byte", s)
	}
	return size, size.validate()
}

func (s Size) validate() error {
	if s.Classic() {
		return nil
	}
	if s.Min < 1 || s.Max < s.Min || s.Max > MaxValueSize {
		return fmt.Errorf("value size %d-%d: want 1 <= smallest <= largest <= %d bytes", s.Min, s.Max, MaxValueSize)
	}
	return nil
}

func parseBytes(s string) (int, error) {
	number, unit := strings.TrimRight(s, "BKMi"), 1
	switch s[len(number):] {
	case "", "B":
	case "K", "KiB":
		unit = 1 << 10
	case "M", "MiB":
		unit = 1 << 20
	default:
		return 0, fmt.Errorf("unknown unit %q (use B, KiB, MiB)", s[len(number):])
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
