package setting

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

type unit struct {
	name  string
	bytes int64
}

var units = []unit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// FormatBytes writes a number of bytes in the largest unit that holds it exactly.
func FormatBytes(v int64) string {
	for _, u := range units {
		if v != 0 && v%u.bytes == 0 {
			return strconv.FormatInt(v/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(v, 10)
}

// ParseBytes reads a number of bytes, with KiB, MiB, GiB or TiB behind it if need be; GiB, GB and G all mean 2^30.
func ParseBytes(text string) (int64, error) {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		for _, suffix := range []string{u.name, u.name[:1] + "B", u.name[:1]} {
			if factor == 1 && len(number) > len(suffix) && strings.EqualFold(number[len(number)-len(suffix):], suffix) {
				number, factor = strings.TrimSpace(number[:len(number)-len(suffix)]), u.bytes
			}
		}
	}
	number = strings.TrimSuffix(number, "B")
	v, err := strconv.ParseInt(number, 10, 64)
	if err != nil || v > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is no size; want bytes, such as 1048576 or 256MiB", text)
	}
	if v < 0 {
		return 0, fmt.Errorf("%s is negative", text)
	}
	return v * factor, nil
}
