package result

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestWarningsNameWhatMaySpoilARun(t *testing.T) {
	ticks := func(n int64) *int64 { return &n }
	quiet := func() *File {
		f := example()
		f.Env.Host = Host{CPUs: 8, Governor: "performance", DataDir: "/data", FileSystem: "ext4", FsyncUS: Fsync{P50: Number(400)}}
		f.Env.Client, f.Env.Server = Process{GOMAXPROCS: "4"}, Process{Go: "go1.26.8", GOMAXPROCS: "8", BuildSettings: "-tags=x;GOAMD64=v1"}
		f.Env.Binary = Process{Go: "go1.26.8", BuildSettings: "-tags=x;GOAMD64=v1"}
		f.Cells[0].Others = Others{CPUShare: Number(0.05), StealShare: Number(0.01), SwapPages: Number(0)}
		f.Cells[0].Client = Client{Bound: "server", CeilingShare: Number(0.5)}
		return f
	}
	tests := []struct {
		code   string
		change func(*File)
	}{
		{"", func(*File) {}},
		{"other-load", func(f *File) { f.Cells[0].Others.CPUShare = Number(0.3) }},
		{"steal", func(f *File) { f.Cells[0].Others.StealShare = Number(0.03) }},
		{"swap", func(f *File) { f.Cells[0].Others.SwapPages = Number(1) }},
		{"throttled", func(f *File) { f.Env.Before.ThrottledUsec, f.Env.After.ThrottledUsec = ticks(5), ticks(6) }},
		{"few-cores", func(f *File) { f.Env.Host.CPUs = 2 }},
		{"governor", func(f *File) { f.Env.Host.Governor = "powersave" }},
		{"build-differs", func(f *File) { f.Env.Binary.Go = "go1.27.3" }},
		{"build-slow", func(f *File) { f.Env.Server.BuildSettings += ";-race=true"; f.Env.Binary = Process{} }},
		{"build-slow", func(f *File) {
			f.Env.Server.BuildSettings += ";-gcflags=all=-N -l"
			f.Env.Binary.BuildSettings = f.Env.Server.BuildSettings
		}},
		{"build-differs", func(f *File) { f.Env.Server.BuildSettings = "-tags=y;GOAMD64=v1" }},
		{"", func(f *File) { f.Env.Binary = Process{} }},
		{"fsync-free", func(f *File) { f.Env.Host.FsyncUS.P50 = Number(3) }},
		{"fsync-slow", func(f *File) { f.Env.Host.FsyncUS.P50 = Number(5e4) }},
		{"client-bound", func(f *File) { f.Cells[0].Client = Client{Bound: "client", CeilingShare: Number(0.9)} }},
		{"", func(f *File) { f.Plan.Target, f.Env.Host.CPUs = "redis://h", 2 }},
	}
	pages := map[string]bool{}
	for _, e := range Explanations() {
		if pages[e.Code] || e.Says == "" || e.Why == "" || e.Do == "" {
			t.Errorf("page %q is there twice, or not complete", e.Code)
		}
		pages[e.Code] = true
	}
	for _, tt := range tests {
		f := quiet()
		tt.change(f)
		var codes []string
		for _, w := range f.FindWarnings() {
			codes = append(codes, w.Code)
			if w.Detail == "" || !pages[w.Code] {
				t.Errorf("%s has no detail or no page", w.Code)
			}
		}
		if got := strings.Join(codes, " "); got != tt.code {
			t.Errorf("warnings %q, want %q", got, tt.code)
		}
	}
}

func TestWhatOthersUsedIsWhatIsLeftOfTheBusyTime(t *testing.T) {
	at := func(busy, total, steal, swap int64) Load {
		return Load{BusyTicks: &busy, TotalTicks: &total, StealTicks: &steal, SwapPages: &swap}
	}
	o := at(900, 2000, 50, 7).Since(at(100, 1000, 30, 4), 5) // 5 s of ours are 500 ticks
	if *o.CPUShare != 0.3 || *o.StealShare != 0.02 || *o.SwapPages != 3 {
		t.Errorf("%v, %v, %v", *o.CPUShare, *o.StealShare, *o.SwapPages)
	}
	if o := at(900, 2000, 50, 7).Since(at(100, 1000, 30, 4), 99); *o.CPUShare != 0 {
		t.Errorf("%v: ticks are coarse, a share is never negative", *o.CPUShare)
	}
	if o := (Load{}).Since(Load{}, 0); o != (Others{}) {
		t.Errorf("%+v of nothing", o)
	}
}

func TestABinaryIsDescribedByItsFile(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := ReadBinary(self)
	if err != nil {
		t.Fatal(err)
	}
	if what := differs(file, CaptureProcess()); what != "" || file.Go != runtime.Version() {
		t.Errorf("%+v: %s", file, what)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBinary(script); err == nil {
		t.Error("a script was taken for a Go program")
	}
}

func TestFsyncIsMeasuredAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f, err := MeasureFsync(dir, 3)
	if err != nil || f.P50 == nil || *f.P50 <= 0 || *f.Max < *f.P50 {
		t.Errorf("%+v, %v", f, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	if _, err := MeasureFsync(filepath.Join(dir, "none"), 3); err == nil {
		t.Error("no error without a directory")
	}
}
