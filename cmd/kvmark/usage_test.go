package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kvmark/client/load"
	"kvmark/client/load/loadtest"
	"kvmark/client/result"
	"kvmark/client/workload"
)

func TestSettingsOfTheEnvironmentThatARuntimeMisreadsAreUsageErrors(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"GOGC", "foo", `GOGC="foo": want a whole number or off`},
		{"GOGC", "-5", "write off"},
		{"GOMEMLIMIT", "xx", "servers would not start"},
		{"GOMEMLIMIT", "100", "has no unit"},
		{"GOMAXPROCS", "many", "silently use every CPU"},
	} {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			t.Setenv(tt.name, tt.value)
			out := filepath.Join(t.TempDir(), "out")
			for _, command := range []string{"run", "compare"} {
				if code, _, stderr := kvmark(t, command, "--out", out); code != exitUsage || !strings.Contains(stderr, tt.want) {
					t.Errorf("%s: exit %d, stderr %q, want one with %q", command, code, stderr, tt.want)
				}
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("the directory of the result was made")
			}
		})
	}
}

func TestTheEnvironmentsGCSettingsAreTheServersAlone(t *testing.T) {
	args := serverIs(t, loadtest.Behaviour{})
	out := t.TempDir()
	cmd := exec.Command(args[2], append(args, "--out", out, "--duration", "300ms")...)
	cmd.Env = append(os.Environ(), asKvmark+"=1", "GOGC=400", "GOMEMLIMIT=3GiB", "KVMARK_PASSWORD=secret")
	if text, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != exitInvalid {
		t.Fatalf("%v: %s", err, text)
	}
	f, err := result.Read(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	if c, s := f.Env.Client, f.Env.Server; c.GOGC != "100" || c.GOMEMLIMIT != "off" || s.GOGC != "400" {
		t.Errorf("client GOGC %s, GOMEMLIMIT %s; server GOGC %s", c.GOGC, c.GOMEMLIMIT, s.GOGC)
	}
}

func TestEveryLineOnStderrSaysWhoSpeaks(t *testing.T) {
	args := serverIs(t, loadtest.Behaviour{Lie: loadtest.Die, After: 5})
	_, stdout, stderr := kvmark(t, append(args, "--out", t.TempDir())...)
	if !strings.Contains(stderr, "out of luck") || !strings.Contains(stdout, "not measured: the server was lost in set") {
		t.Fatalf("stdout %s, stderr %s", stdout, stderr)
	}
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "kvmark: ") {
			t.Errorf("the line %q", line)
		}
	}
}

// full is a standard output that takes nothing.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestAnOutputThatTakesNothingIsAFailureAndTheResultIsSaved(t *testing.T) {
	args := serverIs(t, loadtest.Behaviour{})
	out := t.TempDir()
	var stderr bytes.Buffer
	code := run(t.Context(), append([]string{"kvmark"}, append(args, "--out", out)...), full{}, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), errFull.Error()) {
		t.Errorf("exit %d, stderr %s", code, &stderr)
	}
	if _, err := result.Read(filepath.Join(out, "result.json")); err != nil {
		t.Error(err)
	}
	t.Run("report takes the directory", func(t *testing.T) {
		_, want, _ := kvmark(t, "report", filepath.Join(out, "result.json"))
		if code, got, stderr := kvmark(t, "report", out); code != exitGood || got != want || want == "" {
			t.Errorf("exit %d, stderr %s, stdout %s", code, stderr, got)
		}
		if code := run(t.Context(), []string{"kvmark", "report", out}, full{}, &stderr); code != exitFailed {
			t.Errorf("report to a full disk: exit %d", code)
		}
	})
	t.Run("a directory without a result", func(t *testing.T) {
		if code, _, stderr := kvmark(t, "report", t.TempDir()); code != exitFailed || !strings.Contains(stderr, resultName) {
			t.Errorf("exit %d, stderr %s", code, stderr)
		}
	})
}

func TestDataBeyondThisMachineAreRefusedWithTheNumbers(t *testing.T) {
	room := result.Room{Memory: 1 << 30, Disk: 4 << 30}
	for _, tt := range []struct {
		name, mode  string
		keys, value int
		want        string // "": it fits
	}{
		{"what fits", "memory", 1000, 1 << 10, ""},
		{"memory", "memory", 300_000, 1 << 10, "of memory in mode memory, 1.0 GiB are available"},
		{"on disk it would fit", "file", 100_000, 1 << 10, ""},
		{"the log and the values", "file", 300_000, 1 << 10, "of disk in mode file, 4.0 GiB are free in"},
		{"the log of tables", "lsm", 600_000, 1 << 10, "of disk in mode lsm"},
		{"buckets", "serialize", 300_000, 1 << 10, "in mode serialize"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := load.Default()
			c.Modes, c.Workload = []string{tt.mode}, workload.Config{Workers: 8, Keys: tt.keys, ValueSize: workload.Size{Min: tt.value, Max: tt.value}}
			err := checkSize(c, room)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if err := checkSize(c, result.Room{}); err != nil {
				t.Errorf("refused where nothing is known: %v", err)
			}
		})
	}
}

func TestTheEstimateNamesWhatItLeavesOut(t *testing.T) {
	c := load.Default()
	if got, want := estimate(c), "6 measurements of 1m0s, about 6m54s in all, plus starting servers, plus filling up to 800000 keys 3 times"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.Modes, c.Ops = c.Modes[:1], []string{"set"}
	if got := estimate(c); strings.Contains(got, "filling") {
		t.Errorf("%q", got)
	}
	if got, want := progressLine(load.Progress{Mode: "file", Op: "get", Stage: "fill", OK: 123, Keys: 456}), "file get: fill, 123 of 456 keys"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
