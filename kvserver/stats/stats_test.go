package stats

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fields returns a section's fields, and fails for a line that is none.
func fields(t *testing.T, s *Sampler, section string) map[string]string {
	t.Helper()
	var text Text
	s.Append(&text, section)
	lines := strings.Split(strings.TrimSuffix(string(text.Bytes()), "\r\n"), "\r\n")
	if lines[0] != "# "+section {
		t.Fatalf("section %s begins with %q", section, lines[0])
	}
	m := map[string]string{}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			t.Fatalf("section %s: %q is no field", section, line)
		}
		m[name] = value
	}
	return m
}

func number(t *testing.T, m map[string]string, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(m[name], 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		t.Fatalf("%s:%q is no number", name, m[name])
	}
	return v
}

func TestEverySectionHasItsFields(t *testing.T) {
	s := New()
	runtime.GC()
	for section, want := range map[string]string{
		SectionGo:     "go_version goos goarch goamd64 goexperiment godebug default_godebug gogc gomemlimit gomaxprocs num_cpu build_settings pgo",
		SectionMemory: "used_memory used_memory_rss rss_peak_bytes heap_live_bytes heap_goal_bytes",
		SectionCPU:    "used_cpu_user used_cpu_sys",
		SectionGC: "gc_cycles gc_cycles_forced gc_cpu_seconds gc_assist_seconds gc_idle_seconds cpu_total_seconds gc_pause_p50_us gc_pause_p99_us gc_pause_max_us " +
			"alloc_bytes alloc_objects sched_latency_p50_us sched_latency_p99_us mutex_wait_seconds gc_limiter_last",
		SectionIO: "read_bytes write_bytes rchar wchar minor_faults major_faults voluntary_ctxt nonvoluntary_ctxt",
	} {
		if runtime.GOOS != "linux" && (section == SectionMemory || section == SectionIO || section == SectionCPU) {
			continue
		}
		if section == SectionIO {
			if _, err := os.ReadFile("/proc/self/io"); err != nil {
				t.Logf("section IO not tested: %v", err)
				continue
			}
		}
		m := fields(t, s, section)
		for _, name := range strings.Fields(want) {
			value, ok := m[name]
			if !ok {
				t.Errorf("section %s lacks %s", section, name)
			}
			if section != SectionGo && value != "off" {
				number(t, m, name)
			}
		}
	}
}

// Renaming a metric in a later toolchain must not silently turn a figure into 0.
func TestThisRuntimeKnowsEveryMetric(t *testing.T) {
	var known []string
	for _, d := range metrics.All() {
		known = append(known, d.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			t.Errorf("unknown metric %s", name)
		}
	}
}

func TestNoLimitReadsAsOff(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	s := New()
	if m := fields(t, s, SectionGo); m["gogc"] != "off" || m["gomemlimit"] != "off" {
		t.Errorf("got gogc %q and gomemlimit %q, want off", m["gogc"], m["gomemlimit"])
	}
	debug.SetGCPercent(150)
	debug.SetMemoryLimit(1 << 40)
	if m := fields(t, s, SectionGo); m["gogc"] != "150" || m["gomemlimit"] != "1099511627776" {
		t.Errorf("got gogc %q and gomemlimit %q, want 150 and 1099511627776", m["gogc"], m["gomemlimit"])
	}
}

func TestCyclesCountAndPausesBeginAnewWithReset(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	s := New()
	before := fields(t, s, SectionGC)
	runtime.GC()
	after := fields(t, s, SectionGC)
	if d := number(t, after, "gc_cycles_forced") - number(t, before, "gc_cycles_forced"); d != 1 {
		t.Errorf("%v forced cycles, want 1", d)
	}
	if number(t, after, "gc_pause_max_us") <= 0 {
		t.Errorf("a cycle without a pause: %v", after)
	}
	if number(t, after, "cpu_total_seconds") <= 0 {
		t.Errorf("no CPU seconds after a cycle: %v", after)
	}
	s.Reset()
	if m := fields(t, s, SectionGC); m["gc_pause_max_us"] != "0.0" || number(t, m, "gc_cycles") < number(t, after, "gc_cycles") {
		t.Errorf("after Reset: pause %s (want 0.0), cycles %s (want them to stay)", m["gc_pause_max_us"], m["gc_cycles"])
	}
}

func TestQuantileIsTheUpperBoundOfItsBucket(t *testing.T) {
	h := &metrics.Float64Histogram{Counts: []uint64{5, 90, 9, 1}, Buckets: []float64{0, 1, 2, 3, math.Inf(1)}}
	for _, tc := range []struct {
		name string
		base []uint64
		q    float64
		want float64
	}{
		{"the median of all", nil, 0.5, 2},
		{"the lowest", nil, 0.01, 1},
		{"the 99th of a hundred", nil, 0.99, 3},
		{"the largest has no upper bound", nil, 1, 3},
		{"only what came since counts", []uint64{5, 90, 8, 1}, 0.5, 3},
		{"nothing since", []uint64{5, 90, 9, 1}, 0.99, 0},
	} {
		if got := since(h, tc.base).quantile(tc.q); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// page keeps the memory of the test below from being optimised away.
var page []byte

func TestPeakOfMemoryBeginsAnewWithReset(t *testing.T) {
	if f, err := os.OpenFile("/proc/self/clear_refs", os.O_WRONLY, 0); err != nil {
		t.Skipf("the peak cannot be reset here: %v", err)
	} else if _, err := f.WriteString("5"); err != nil {
		t.Skipf("the peak cannot be reset here: %v", err)
	} else {
		f.Close()
	}
	const size = 64 << 20
	s := New()
	page = make([]byte, size)
	for i := 0; i < size; i += 4096 {
		page[i] = 1
	}
	high := number(t, fields(t, s, SectionMemory), "rss_peak_bytes")
	page = nil
	debug.FreeOSMemory()
	s.Reset()
	if low := number(t, fields(t, s, SectionMemory), "rss_peak_bytes"); low > high-size/2 {
		t.Errorf("peak %v after Reset, %v before", low, high)
	}
}

func TestTextIsOneLineAField(t *testing.T) {
	var text Text
	text.Section("A")
	text.Str("name", "two\r\nlines")
	text.Section("B")
	text.Int("n", -1)
	text.Seconds("s", 1.5)
	text.Micros("us", 0.0000015)
	if got, want := string(text.Bytes()), "# A\r\nname:two  lines\r\n\r\n# B\r\nn:-1\r\ns:1.500000\r\nus:1.5\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadBuild(t *testing.T) {
	b := ReadBuild()
	if b.GoVersion != runtime.Version() {
		t.Errorf("got %q, want %q", b.GoVersion, runtime.Version())
	}
	if !strings.Contains(b.Settings, "GOOS="+runtime.GOOS) {
		t.Errorf("settings %q lack GOOS", b.Settings)
	}
}
