package result

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func example() *File {
	return &File{
		Schema: Schema, Command: "run", Version: "v1", Started: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC), Finished: time.Date(2026, 11, 30, 1, 3, 3, 0, time.UTC),
		Plan: Plan{Modes: []string{"memory"}, Workers: 8, Seed: math.MaxUint64},
		Cells: []Cell{{
			Mode: "memory", Op: "set", Repeat: 1, Seconds: 60, OK: 1045091, QPS: Number(17418.183), Valid: true,
			Checks: []Check{{Name: "errors", Pass: true, Detail: "0"}}, Series: []Row{{T: 0, Seconds: 1, OK: 17418}},
		}},
		Comparisons: []Comparison{},
	}
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "result.json")
	want := example()
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	files, _ := os.ReadDir(filepath.Dir(path))
	if len(files) != 1 {
		t.Errorf("%d files in the directory, want the result alone", len(files))
	}
}

// The names are a contract with scripts: this fails when one is renamed or goes away.
func TestTheContractsNamesAreThere(t *testing.T) {
	f := example()
	f.Comparisons = []Comparison{{}}
	b, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"schema", "plan.seed", "env.host.cpu", "env.server.gogc", "env.client.go", "env.before.load_average",
		"cells.0.mode", "cells.0.op", "cells.0.repeat", "cells.0.seconds", "cells.0.ok", "cells.0.errors", "cells.0.misses", "cells.0.wrong", "cells.0.qps",
		"cells.0.latency_us.p50", "cells.0.latency_us.p90", "cells.0.latency_us.p99", "cells.0.latency_us.p999", "cells.0.latency_us.max",
		"cells.0.valid", "cells.0.checks.0.name", "cells.0.checks.0.pass", "cells.0.checks.0.detail",
		"cells.0.server.cpu_us_per_op", "cells.0.server.rss_peak_bytes", "cells.0.server.gc_cycles", "cells.0.server.gc_cpu_share",
		"cells.0.server.gc_pause_us.p50", "cells.0.server.gc_pause_us.p99", "cells.0.server.gc_pause_us.max", "cells.0.server.heap_live_bytes",
		"cells.0.server.wal_records", "cells.0.server.wal_bytes", "cells.0.server.wal_syncs",
		"cells.0.client.cpu_us_per_op", "cells.0.client.ceiling_qps", "cells.0.client.bound",
		"cells.0.series.0.t", "cells.0.series.0.ok", "cells.0.series.0.qps", "cells.0.series.0.p99_us",
		"comparisons.0.mode", "comparisons.0.op", "comparisons.0.metric", "comparisons.0.base", "comparisons.0.other", "comparisons.0.ratio",
		"comparisons.0.ci_low", "comparisons.0.ci_high", "comparisons.0.n", "comparisons.0.p", "comparisons.0.p_holm", "comparisons.0.verdict",
	} {
		at := got
		for name := range strings.SplitSeq(path, ".") {
			ok := false
			switch x := at.(type) {
			case map[string]any:
				at, ok = x[name]
			case []any:
				at, ok = x[0], len(x) > 0
			}
			if !ok {
				t.Errorf("%s is missing", path)
				break
			}
		}
	}
}

func TestListsAreNeverNull(t *testing.T) {
	b, err := (&File{}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"cells": []`, `"comparisons": []`, `"schema": "kvmark/1"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}

func TestNumbersThatAreNoneAreNull(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if Number(x) != nil {
			t.Errorf("Number(%v) is not nil", x)
		}
	}
	if Ratio(Number(1), Number(0)) != nil || Ratio(nil, Number(1)) != nil || Ratio(Number(1), nil) != nil {
		t.Error("an undefined ratio is not nil")
	}
	if r := Ratio(Number(1), Number(4)); r == nil || *r != 0.25 {
		t.Errorf("1/4 is %v", r)
	}
	f := example()
	nan := math.NaN()
	f.Cells[0].QPS = &nan
	path := filepath.Join(t.TempDir(), "result.json")
	if err := f.Write(path); err == nil {
		t.Error("NaN was written")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was left")
	}
}

func TestReadingIsStrict(t *testing.T) {
	b, err := example().Encode()
	if err != nil {
		t.Fatal(err)
	}
	good := string(b)
	change := func(old, text string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %s to change", old)
		}
		return strings.Replace(good, old, text, 1)
	}
	tests := []struct{ name, text, want string }{
		{"an empty file", "", "unexpected end"},
		{"a file cut short", good[:len(good)/2], "line "},
		{"two documents", good + good, "line "},
		{"another program's file", `{"cells":[]}`, "not a result file of kvmark"},
		{"no object", `[1]`, "cannot unmarshal"},
		{"a later schema", change("kvmark/1", "kvmark/2"), `schema "kvmark/2": this kvmark reads "kvmark/1"`},
		{"an unknown field", change(`"ok": 1045091`, `"okay": 1`), `unknown field "okay"`},
		{"a word for a number", change(`"ok": 1045091`, `"ok": "many"`), "line "},
		{"NaN", change(`"ok": 1045091`, `"ok": NaN`), "line "},
		{"a negative count", change(`"ok": 1045091`, `"ok": -1`), "negative"},
		{"a cell without mode", change(`"mode": "memory"`, `"mode": ""`), "no mode"},
		{"valid in spite of a failed check", change(`"pass": true`, `"pass": false`), "marked valid, but its check errors failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "result.json")
			if err := os.WriteFile(path, []byte(tt.text), 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := Read(path)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with %q and the path", err, tt.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	b, err := example().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add(`{"schema":"kvmark/1","cells":[{"mode":"m","op":"set","qps":1e999}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Decode(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := got.Encode()
		if err != nil {
			t.Fatalf("read, but cannot be written: %v", err)
		}
		if _, err := Decode(strings.NewReader(string(again))); err != nil {
			t.Fatalf("written, but cannot be read: %v", err)
		}
	})
}

func TestWriteLeavesTheOldFileWhenItFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "result.json")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := example().Write(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one with the path", err)
	}
	files, _ := os.ReadDir(dir)
	if len(files) != 1 {
		t.Errorf("%d entries, want no temporary file left", len(files))
	}
}

func TestValidity(t *testing.T) {
	tests := []struct {
		name   string
		change func(*File)
		want   bool
	}{
		{"as it is", func(*File) {}, true},
		{"interrupted", func(f *File) { f.Interrupted = true }, false},
		{"an invalid cell", func(f *File) { f.Cells[0].Valid = false }, false},
		{"no cells", func(f *File) { f.Cells = nil }, false},
	}
	for _, tt := range tests {
		f := example()
		if tt.change(f); f.Valid() != tt.want {
			t.Errorf("%s: valid is %v", tt.name, f.Valid())
		}
	}
}

func TestCapture(t *testing.T) {
	p := CaptureProcess()
	if p.Go != runtime.Version() || p.GOMAXPROCS == "" || p.GOGC == "" || p.GOMEMLIMIT == "" {
		t.Errorf("incomplete: %+v", p)
	}
	h := CaptureHost(t.TempDir())
	if h.CPUs < 1 || h.GOOS != runtime.GOOS {
		t.Errorf("incomplete: %+v", h)
	}
	if runtime.GOOS == "linux" && (h.FileSystem == "" || h.Kernel == "" || h.MemoryBytes == 0 || CaptureLoad().Average == "") {
		t.Errorf("incomplete: %+v, %+v", h, CaptureLoad())
	}
}
