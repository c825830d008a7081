// Package stats measures the process it runs in, for the reader of an INFO reply: the Go runtime, CPU time, memory and
// device reads. It starts no goroutine: everything is read when asked for.
package stats

import (
	"fmt"
	"math"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
)

// The metrics that are read. A name that this runtime does not know reads as 0.
const (
	gogc        = "/gc/gogc:percent"
	memLimit    = "/gc/gomemlimit:bytes"
	heapObjects = "/memory/classes/heap/objects:bytes"
	heapLive    = "/gc/heap/live:bytes"
	heapGoal    = "/gc/heap/goal:bytes"
	gcCycles    = "/gc/cycles/total:gc-cycles"
	gcForced    = "/gc/cycles/forced:gc-cycles"
	gcCPU       = "/cpu/classes/gc/total:cpu-seconds"
	gcAssist    = "/cpu/classes/gc/mark/assist:cpu-seconds"
	gcIdle      = "/cpu/classes/gc/mark/idle:cpu-seconds"
	cpuTotal    = "/cpu/classes/total:cpu-seconds"
	gcPauses    = "/sched/pauses/total/gc:seconds"
	allocBytes  = "/gc/heap/allocs:bytes"
	allocCount  = "/gc/heap/allocs:objects"
	schedLat    = "/sched/latencies:seconds"
	mutexWait   = "/sync/mutex/wait/total:seconds"
	gcLimiter   = "/gc/limiter/last-enabled:gc-cycle"
	goroutines  = "/sched/goroutines:goroutines"
)

var names = []string{
	gogc, memLimit, heapObjects, heapLive, heapGoal, gcCycles, gcForced, gcCPU, gcAssist, gcIdle, cpuTotal, gcPauses, allocBytes, allocCount, schedLat,
	mutexWait, gcLimiter, goroutines,
}

// Sampler reads the process's own figures. Its methods may be called from any goroutine.
type Sampler struct {
	build Build

	mu        sync.Mutex
	read      reading
	pauseBase []uint64 // counts of the histograms at the last Reset
	schedBase []uint64
	peak      uint64 // of the heap's bytes, as far as it was looked at, since the last Reset
}

// New returns a sampler whose "since" figures begin now.
func New() *Sampler {
	s := &Sampler{build: ReadBuild(), read: make(reading, len(names))}
	for i, name := range names {
		s.read[i].Name = name
	}
	s.Reset()
	return s
}

// Build returns how the program was built.
func (s *Sampler) Build() Build { return s.build }

// Reset begins anew what is counted since a reset: the pause and scheduling histograms, and the peak of the resident
// memory where the system can do that. Everything else stays cumulative.
func (s *Sampler) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	metrics.Read(s.read)
	s.pauseBase = slices.Clone(s.read.histogram(gcPauses).Counts)
	s.schedBase = slices.Clone(s.read.histogram(schedLat).Counts)
	s.peak = s.read.uint(heapObjects)
	resetPeak()
}

// Observe looks how big the heap is, for its peak.
func (s *Sampler) Observe() {
	heap := []metrics.Sample{{Name: heapObjects}}
	metrics.Read(heap)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peak = max(s.peak, reading(heap)[0].Value.Uint64())
}

// The names of the sections that [Sampler.Append] can write.
const (
	SectionGo     = "Go"
	SectionMemory = "Memory"
	SectionCPU    = "CPU"
	SectionGC     = "GC"
	SectionIO     = "IO"
)

// Append writes one of the sections named above. A figure that the system does not give is left out.
func (s *Sampler) Append(t *Text, section string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	metrics.Read(s.read)
	switch section {
	case SectionGo:
		s.appendGo(t, &s.read)
	case SectionMemory:
		s.appendMemory(t)
	case SectionCPU:
		t.Section("CPU")
		if u, ok := readUsage(); ok {
			t.Seconds("used_cpu_sys", u.system.Seconds())
			t.Seconds("used_cpu_user", u.user.Seconds())
		}
	case SectionGC:
		s.appendGC(t)
	case SectionIO:
		appendIO(t)
	}
}

func (s *Sampler) appendMemory(t *Text) {
	t.Section("Memory")
	used := s.read.uint(heapObjects)
	s.peak = max(s.peak, used)
	t.Uint("used_memory", used)
	t.Str("used_memory_human", human(used))
	t.Uint("used_memory_peak", s.peak)
	t.Str("used_memory_peak_human", human(s.peak))
	t.Str("used_memory_peak_perc", fmt.Sprintf("%.2f%%", 100*float64(used)/float64(max(1, s.peak))))
	if rss, peak, ok := readMemory(); ok {
		if rss > 0 {
			t.Int("used_memory_rss", rss)
			t.Str("used_memory_rss_human", human(uint64(rss)))
		}
		t.Int("rss_peak_bytes", peak)
	}
	if total := systemMemory(); total > 0 {
		t.Int("total_system_memory", total)
		t.Str("total_system_memory_human", human(uint64(total)))
	}
	t.Uint("heap_live_bytes", s.read.uint(heapLive))
	t.Str("heap_goal_bytes", orOff(s.read.uint(heapGoal), 1<<60))
}

// human writes bytes as Redis does in its fields *_human.
func human(n uint64) string {
	v, unit := float64(n), 0
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%dB", n)
	}
	return fmt.Sprintf("%.2f%c", v, units[unit])
}

const units = "BKMGTPE"

// appendGC writes the collector's figures. The runtime brings the CPU seconds up to date only at the end of a cycle: they
// are 0 before the first one, and comparable among themselves only. A forced cycle at both ends makes a difference exact.
func (s *Sampler) appendGC(t *Text) {
	r := &s.read
	t.Section("GC")
	t.Uint("gc_cycles", r.uint(gcCycles))
	t.Uint("gc_cycles_forced", r.uint(gcForced))
	t.Seconds("gc_cpu_seconds", r.float(gcCPU))
	t.Seconds("gc_assist_seconds", r.float(gcAssist))
	t.Seconds("gc_idle_seconds", r.float(gcIdle))
	t.Seconds("cpu_total_seconds", r.float(cpuTotal))
	pauses := since(r.histogram(gcPauses), s.pauseBase)
	t.Micros("gc_pause_p50_us", pauses.quantile(0.50))
	t.Micros("gc_pause_p99_us", pauses.quantile(0.99))
	t.Micros("gc_pause_max_us", pauses.quantile(1))
	t.Uint("alloc_bytes", r.uint(allocBytes))
	t.Uint("alloc_objects", r.uint(allocCount))
	sched := since(r.histogram(schedLat), s.schedBase)
	t.Micros("sched_latency_p50_us", sched.quantile(0.50))
	t.Micros("sched_latency_p99_us", sched.quantile(0.99))
	t.Seconds("mutex_wait_seconds", r.float(mutexWait))
	t.Uint("gc_limiter_last", r.uint(gcLimiter))
	t.Uint("goroutines", r.uint(goroutines))
}

// orOff writes a setting of the runtime. It reports "no limit" as a number near the end of its range.
func orOff(v, off uint64) string {
	if v >= off {
		return "off"
	}
	return strconv.FormatUint(v, 10)
}

// reading is one read of all metrics.
type reading []metrics.Sample

func (r reading) value(name string) metrics.Value { return r[slices.Index(names, name)].Value }

func (r reading) uint(name string) uint64 {
	if v := r.value(name); v.Kind() == metrics.KindUint64 {
		return v.Uint64()
	}
	return 0
}

func (r reading) float(name string) float64 {
	if v := r.value(name); v.Kind() == metrics.KindFloat64 {
		return v.Float64()
	}
	return 0
}

func (r reading) histogram(name string) *metrics.Float64Histogram {
	if v := r.value(name); v.Kind() == metrics.KindFloat64Histogram {
		return v.Float64Histogram()
	}
	return new(metrics.Float64Histogram)
}

// distribution is what a runtime histogram counted within an interval.
type distribution struct {
	counts []uint64
	bounds []float64 // bucket i lies between bounds[i] and bounds[i+1]
}

func since(h *metrics.Float64Histogram, base []uint64) distribution {
	d := distribution{counts: slices.Clone(h.Counts), bounds: h.Buckets}
	for i := range min(len(base), len(d.counts)) {
		d.counts[i] -= base[i]
	}
	return d
}

// quantile returns the upper bound of the bucket that holds the q-quantile: the value lies below it by up to a quarter.
// It returns 0 when nothing was counted, and the lower bound of a bucket without end.
func (d distribution) quantile(q float64) float64 {
	var total uint64
	for _, c := range d.counts {
		total += c
	}
	if total == 0 {
		return 0
	}
	rank := max(1, uint64(math.Ceil(q*float64(total))))
	var seen uint64
	for i, c := range d.counts {
		if seen += c; seen >= rank {
			if up := d.bounds[i+1]; !math.IsInf(up, 1) {
				return up
			}
			return d.bounds[i]
		}
	}
	return 0
}
