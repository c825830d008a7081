package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheTableHasEveryServerAndSaysWhichHasNoLog(t *testing.T) {
	for _, program := range []string{"redis-server", "memcached"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s here", program)
		}
	}
	var out bytes.Buffer
	args := []string{"-servers", "memcached,memcached:threads=2@workers=1,redis", "-rounds", "2", "-slice", "20ms", "-keys", "50", "-workers", "2", "-pipeline", "4"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var got []string
	for _, line := range lines[2:] {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	for i, op := range []string{"ping", "set", "get"} {
		for j, server := range []string{"memcached (no log) ", "memcached:threads=2@workers=1 (no log) ", "redis "} {
			if n := 3*i + j; n >= len(got) || !strings.HasPrefix(got[n], op+" "+server) {
				t.Errorf("line %d is not of %s, %s:\n%s", n, op, server, out.String())
			}
		}
	}
}

func TestWhatCannotBeComparedIsRefused(t *testing.T) {
	tests := []struct{ name, servers, base, want string }{
		{"a base that is not there", "memcached", "redis", `the base "redis" is not among the servers`},
		{"an unknown setting", "memcached@threads=2", "memcached@threads=2", "@threads=2: want workers"},
		{"a server that is not installed", "memcached", "memcached", `start memcached: exec: "memcached": executable file not found`},
	}
	t.Setenv("PATH", t.TempDir())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := run(t.Context(), []string{"-servers", tt.servers, "-base", tt.base}, new(bytes.Buffer))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
