package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// byteSize is the value of a flag in bytes: a number, with KiB, MiB, GiB or TiB behind it if need be.
type byteSize int64

func sizeFlag(name string, value int64, usage string) cli.Flag {
	v := byteSize(value)
	return &cli.GenericFlag{Name: name, Value: &v, Usage: usage + " (`BYTES`, or with KiB, MiB, GiB behind it)"}
}

func size(c *cli.Context, name string) int64 { return int64(*c.Generic(name).(*byteSize)) }

func (b *byteSize) String() string {
	v := int64(*b)
	for _, u := range units {
		if v != 0 && v%u.bytes == 0 {
			return strconv.FormatInt(v/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(v, 10)
}

func (b *byteSize) Set(text string) error {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		for _, suffix := range []string{u.name, u.name[:1] + "B", u.name[:1]} { // GiB, GB and G all mean 2^30 here
			if factor == 1 && len(number) > len(suffix) && strings.EqualFold(number[len(number)-len(suffix):], suffix) {
				number, factor = strings.TrimSpace(number[:len(number)-len(suffix)]), u.bytes
			}
		}
	}
	number = strings.TrimSuffix(number, "B")
	v, err := strconv.ParseInt(number, 10, 64)
	if err != nil || v > math.MaxInt64/factor {
		return fmt.Errorf("%q is no size; want bytes, such as 1048576 or 256MiB", text)
	}
	if v < 0 {
		return fmt.Errorf("%s is negative", text)
	}
	*b = byteSize(v * factor)
	return nil
}

type unit struct {
	name  string
	bytes int64
}

var units = []unit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}
