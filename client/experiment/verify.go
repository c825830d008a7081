package experiment

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"kvmark/client/result"
)

// seen compares the settings of v as the server saw them with those that were asked. A difference means that something
// else was measured than the table would say.
func (v Variant) seen(p result.Process, bin program) error {
	if p.Go != bin.Version {
		return fmt.Errorf("%s: the server runs on %s, its binary says %s", v.Name, p.Go, bin.Version)
	}
	differs := func(name, got string) error {
		return fmt.Errorf("%s: %s=%s was asked, but the server has %s", v.Name, name, v.Get(name), got)
	}
	for _, s := range v.Settings {
		if s.Value == Default {
			continue
		}
		switch s.Name {
		case "GOGC":
			if p.GOGC != s.Value && !sameNumber(p.GOGC, s.Value) {
				return differs(s.Name, p.GOGC)
			}
		case "GOMEMLIMIT":
			want, err := parseMemoryLimit(s.Value)
			if err != nil {
				return err
			}
			if off := want == math.MaxInt64; off != (p.GOMEMLIMIT == "off") || !off && p.GOMEMLIMIT != strconv.FormatInt(want, 10) {
				return differs(s.Name, p.GOMEMLIMIT)
			}
		case "GOMAXPROCS":
			if !sameNumber(p.GOMAXPROCS, s.Value) {
				return differs(s.Name, p.GOMAXPROCS)
			}
		case "GODEBUG":
			if p.GODEBUG != strings.ReplaceAll(s.Value, "+", ",") {
				return differs(s.Name, p.GODEBUG)
			}
		}
	}
	return nil
}

func sameNumber(a, b string) bool {
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	return errX == nil && errY == nil && x == y
}
