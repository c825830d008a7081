package experiment

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"

	"kvmark/kvserver/setting"
)

// minMemoryLimit is less than any Go server can live in: its runtime alone takes about as much.
const minMemoryLimit = 4 << 20

// checkValue refuses values that the Go runtime or kvmark would take for something else than was meant. Values that only a
// toolchain, a runtime or a server can judge are tried before the run.
func checkValue(name, v string) error {
	if v == Default {
		switch name {
		case "mode", "server", "rate", "workers", "pipeline", "keys":
			return fmt.Errorf("%q is no value of it", v)
		}
		return nil
	}
	switch name {
	default:
		if s, ok := setting.Find(name); ok && kindOf(name) == serverArg {
			_, err := s.Canonical(v)
			return err
		}
	case "go", clientGo:
		if withoutPatch.MatchString(v) {
			return fmt.Errorf("%q: since Go 1.21 a release has three numbers: %s.0", v, v)
		}
	case "GOGC":
		return checkGOGC(v)
	case "GOMEMLIMIT":
		_, err := parseMemoryLimit(v)
		return err
	case "GOMAXPROCS", "workers", "pipeline", "keys":
		if n, err := strconv.ParseInt(v, 10, 32); err != nil || n < 1 {
			hint := ""
			if name == "GOMAXPROCS" {
				hint = "; the runtime would silently use every CPU"
			}
			return fmt.Errorf("%q: want a whole number of 1 or more%s", v, hint)
		}
	case "GODEBUG":
		for part := range strings.SplitSeq(v, "+") {
			if key, value, ok := strings.Cut(part, "="); !ok || key == "" || value == "" {
				return fmt.Errorf("%q: want key=value, several joined by +", part)
			}
		}
	case "GOEXPERIMENT":
		if !regexp.MustCompile(`^[a-z0-9]+(\+[a-z0-9]+)*$`).MatchString(v) {
			return fmt.Errorf("%q: want names such as nogreenteagc, several joined by +", v)
		}
	case "GOAMD64":
		if !regexp.MustCompile(`^v[1-4]$`).MatchString(v) {
			return fmt.Errorf("%q: want v1, v2, v3 or v4; go would silently build v1 and note %s", v, v)
		}
	case "pgo":
		if info, err := os.Stat(v); v != "off" && v != auto && (err != nil || info.IsDir()) {
			return fmt.Errorf("%q: want off, %s, or the path of a CPU profile that is there", v, auto)
		}
	case "layout":
		if _, err := strconv.ParseUint(v, 10, 31); err != nil {
			return fmt.Errorf("%q: want a whole number, the seed of the link order; 0 is the linker's own", v)
		}
	}
	return nil
}

// CheckEnvironment refuses settings in an environment ([os.Getenv]) that the Go runtime of a server would take for something
// else than was meant, or not start with.
func CheckEnvironment(getenv func(string) string) error {
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS"} {
		if v := getenv(name); v != "" {
			if err := checkValue(name, v); err != nil {
				return fmt.Errorf("%s=%w", name, err)
			}
		}
	}
	for part := range strings.SplitSeq(getenv("GODEBUG"), ",") {
		if part = strings.TrimSpace(part); part != "" && !godebug.MatchString(part) {
			return fmt.Errorf("GODEBUG: %q: want key=value, several joined by commas", part)
		}
	}
	return nil
}

// godebug is a part of GODEBUG; a # with a number behind it is for a search of the go command's tools.
var godebug = regexp.MustCompile(`^[A-Za-z0-9_.]+=[A-Za-z0-9_.#+-]*$`)

func checkGOGC(v string) error {
	if v == "off" {
		return nil
	}
	n, err := strconv.ParseInt(v, 10, 32)
	switch {
	case err != nil:
		return fmt.Errorf("%q: want a whole number or off; the runtime would silently take it for 100", v)
	case n < 0:
		return fmt.Errorf("%q: the runtime takes a negative number for off: write off", v)
	case n == 0:
		return fmt.Errorf("%q: the collector would run all the time: want 1 or more, or off", v)
	}
	return nil
}

// parseMemoryLimit reads GOMEMLIMIT as the runtime does, but refuses a number without a unit.
func parseMemoryLimit(v string) (bytes int64, err error) {
	if v == "off" {
		return math.MaxInt64, nil
	}
	if _, err := strconv.ParseInt(v, 10, 64); err == nil {
		return 0, fmt.Errorf("%q has no unit, and the runtime would take it for bytes: write %sMiB or the like", v, v)
	}
	for _, u := range []struct {
		suffix string
		shift  uint
	}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"B", 0}} {
		digits, ok := strings.CutSuffix(v, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64>>u.shift {
			break
		}
		if n <<= u.shift; n < minMemoryLimit {
			return 0, fmt.Errorf("%q is %d bytes, less than the runtime alone takes: want %d MiB or more", v, n, minMemoryLimit>>20)
		}
		return n, nil
	}
	return 0, fmt.Errorf("%q: want a whole number with B, KiB, MiB, GiB or TiB, such as 512MiB, or off; servers would not start", v)
}
