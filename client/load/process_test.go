package load

import (
	"slices"
	"strings"
	"testing"
)

// A server takes every flag once, and none that has no effect in its mode.
func TestServerArgsNameEveryFlagOnce(t *testing.T) {
	level := 3
	for _, tc := range []struct {
		name, mode   string
		extra        []string
		with, absent string
	}{
		{"the usual number of clients", "memory", nil, "--max-clients 10000", "--codec"},
		{"clients that are varied", "memory", []string{"--max-clients=500"}, "--max-clients=500", "--max-clients 10000"},
		{"another flag that is varied", "file", []string{"--segment-bytes=1MiB"}, "--segment-bytes=1MiB", "--level"},
		{"flags of serialize", "serialize", nil, "--codec deflate --bucket-entries 8 --level 3", "--loops"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			c.Level, c.ServerArgs = &level, tc.extra
			args := c.serverArgs(tc.mode, "dir", "id")
			line := strings.Join(args, " ")
			if !strings.Contains(line, tc.with) || strings.Contains(line, tc.absent) {
				t.Errorf("got %q, want %q in it and not %q", line, tc.with, tc.absent)
			}
			var names []string
			for _, a := range args {
				if name, _, _ := strings.Cut(a, "="); strings.HasPrefix(name, "--") {
					if slices.Contains(names, name) {
						t.Errorf("%s is there twice: %q", name, line)
					}
					names = append(names, name)
				}
			}
		})
	}
}

func TestTheBeginningOfACrashIsNotLostAmongStacks(t *testing.T) {
	var words tail
	for _, line := range append([]string{"kvserver: replayed 0 records\n", "panic: no heap for you\n", "\n", "goroutine 1 [running]:\n"}, strings.Split(strings.Repeat("goroutine 7 [select]:\n", 5000), "")...) {
		_, _ = words.Write([]byte(line))
	}
	if got := words.String(); !strings.HasPrefix(got, "panic: no heap for you\n\ngoroutine 1 [running]:") || strings.Count(got, "\n") > 10 {
		t.Errorf("last words %q", got)
	}
}
