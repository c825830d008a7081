package report

import (
	"regexp"
	"strings"
	"testing"
)

func TestOneOfAThingIsNotSeveral(t *testing.T) {
	for n, want := range map[int]string{0: "0 rounds", 1: "1 round", 2: "2 rounds", 11: "11 rounds"} {
		if got := Plural(n, "round"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	f := examples()["good"]
	f.Plan.Workers, f.Plan.Keys, f.Env.Host.CPUs = 1, 1, 1
	f.Env.Host.CPU = "Some CPU"
	several := regexp.MustCompile(`\b1 [a-z]+s\b`)
	for _, line := range introduction(f, ran(f)) {
		if bad := several.FindAllString(line, -1); len(bad) > 0 && strings.Join(bad, "") != "1 s" {
			t.Errorf("%q in %q", bad, line)
		}
	}
	f.Plan.Target = "redis://127.0.0.1:1"
	if line := ran(f)[0]; several.MatchString(line) {
		t.Errorf("of a target: %q", line)
	}
}
