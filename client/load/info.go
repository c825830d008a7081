package load

import (
	"fmt"
	"strconv"
	"strings"

	"kvmark/client"
	"kvmark/client/result"
)

// info is what a server says about itself: INFO's lines of "name:value".
type info map[string]string

func readInfo(c *client.Conn) (info, error) {
	return readSection(c, "all") // Redis leaves command counts out otherwise
}

func readSection(c *client.Conn, name string) (info, error) {
	r, err := c.Do("INFO", name)
	if err != nil {
		return nil, err
	}
	in := info{}
	for line := range strings.Lines(string(r.Bytes)) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok && !strings.HasPrefix(name, "#") {
			in[name] = value
		}
	}
	return in, nil
}

// number is the value of a field; nil where there is none or it is not a number.
func (in info) number(name string) *float64 {
	x, err := strconv.ParseFloat(in[name], 64)
	if err != nil {
		return nil
	}
	return result.Number(x)
}

// counts reports whether the server tells at all how often it has executed commands.
func (in info) counts() bool {
	for name := range in {
		if strings.HasPrefix(name, "cmdstat_") {
			return true
		}
	}
	return false
}

// calls is how often the server has executed a command. A command that never came has no line.
//
//	cmdstat_set:calls=123,usec=...,failed_calls=0,rejected_calls=0
func (in info) calls(command string) (int64, error) {
	line, ok := in["cmdstat_"+command]
	if !ok {
		return 0, nil
	}
	for part := range strings.SplitSeq(line, ",") {
		if digits, ok := strings.CutPrefix(part, "calls="); ok {
			return strconv.ParseInt(digits, 10, 64)
		}
	}
	return 0, fmt.Errorf("INFO's cmdstat_%s has no calls: %q", command, line)
}

// integer is a counter that must be there.
func (in info) integer(name string) (int64, error) {
	s, ok := in[name]
	if !ok {
		return 0, fmt.Errorf("INFO has no %s", name)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("INFO's %s is %q, want a whole number", name, s)
	}
	return n, nil
}

// process is the server's description of its own build and settings.
func (in info) process() result.Process {
	version := in["kvmark_version"]
	if v := in["redis_version"]; version == "" && v != "" {
		version = "redis " + v
	}
	return result.Process{
		Version: version, Go: in["go_version"], GOOS: in["goos"], GOARCH: in["goarch"],
		BuildSettings: in["build_settings"], GOEXPERIMENT: in["goexperiment"], GODEBUG: in["godebug"], DefaultGODEBUG: in["default_godebug"],
		GOGC: in["gogc"], GOMEMLIMIT: in["gomemlimit"], GOMAXPROCS: in["gomaxprocs"], NumCPU: in["num_cpu"], PGO: in["pgo"], IO: in["io"],
	}
}

// server turns the readings at both ends of a window, in which ops commands were executed, into columns.
// Counters are differences; percentiles and peaks are those since the reset before the window.
func (after info) server(before info, ops int64) result.Server {
	delta := func(name string) *float64 {
		a, b := after.number(name), before.number(name)
		if a == nil || b == nil {
			return nil
		}
		return result.Number(*a - *b)
	}
	perOp := func(x *float64, scale float64) *float64 {
		if x == nil || ops == 0 {
			return nil
		}
		return result.Number(*x * scale / float64(ops))
	}
	sum := func(a, b *float64) *float64 {
		if a == nil || b == nil {
			return nil
		}
		return result.Number(*a + *b)
	}
	s := result.Server{
		Go: after["go_version"], GOGC: after["gogc"], GOMEMLIMIT: after["gomemlimit"], GOMAXPROCS: after["gomaxprocs"],
		WALSync: after["wal_policy"], IO: after["io"], RunID: after["run_id"],

		CPUUserPerOp: perOp(delta("used_cpu_user"), 1e6), CPUSysPerOp: perOp(delta("used_cpu_sys"), 1e6),
		CPUPerOp: perOp(sum(delta("used_cpu_user"), delta("used_cpu_sys")), 1e6),

		RSSPeakBytes: after.number("rss_peak_bytes"), HeapLiveBytes: after.number("heap_live_bytes"), HeapGoalBytes: after.number("heap_goal_bytes"),
		GCCycles:     delta("gc_cycles"),
		AllocBytesOp: perOp(delta("alloc_bytes"), 1), AllocObjectsOp: perOp(delta("alloc_objects"), 1),
		SchedP50US: after.number("sched_latency_p50_us"), SchedP99US: after.number("sched_latency_p99_us"),
		MutexWaitPerOp: perOp(delta("mutex_wait_seconds"), 1e6), MinorFaultsPerOp: perOp(delta("minor_faults"), 1),

		WALRecords: delta("wal_records"), WALBytes: delta("wal_bytes"), WALWrites: delta("wal_writes"), WALSyncs: delta("wal_syncs"),
		WALSyncP50US: after.number("wal_sync_p50_us"), WALSyncP99US: after.number("wal_sync_p99_us"), WALSyncMaxUS: after.number("wal_sync_max_us"),

		Checkpoints: delta("checkpoints"), CheckpointSeconds: delta("checkpoint_seconds"),
		DeviceReadBytes: delta("read_bytes"), DeviceWriteBytes: delta("write_bytes"), MajorFaults: delta("major_faults"),

		Keys: after.number("keys"), StoredBytes: after.number("stored_bytes"), IndexBytes: after.number("index_bytes"),
		DiskBytes: after.number("disk_bytes"), CompressionRatio: after.number("compression_ratio"),
	}
	// The runtime refreshes its CPU classes when a cycle ends: without a cycle within the window there is nothing to
	// tell, and pauses are not the window's own.
	if s.GCCycles != nil && *s.GCCycles == 0 {
		s.HeapLiveBytes = nil // it is known after a cycle: this would be the heap of some time before the window
	}
	if s.GCCycles != nil && *s.GCCycles > 0 {
		work := delta("gc_cpu_seconds")
		if idle := delta("gc_idle_seconds"); work != nil && idle != nil {
			work = result.Number(*work - *idle) // marking on idle CPUs takes nothing from the program
		}
		s.GCCPUShare = result.Ratio(work, delta("cpu_total_seconds"))
		s.GCAssistShare = result.Ratio(delta("gc_assist_seconds"), delta("cpu_total_seconds"))
		s.GCPauseUS = result.Pauses{P50: after.number("gc_pause_p50_us"), P99: after.number("gc_pause_p99_us"), Max: after.number("gc_pause_max_us")}
	}
	if cycle := delta("gc_limiter_last"); cycle != nil { // the number of the last cycle in which it was
		s.GCLimited = result.Number(0)
		if *cycle > 0 {
			s.GCLimited = result.Number(1)
		}
	}
	if s.RSSPeakBytes == nil {
		s.RSSPeakBytes = after.number("used_memory_rss") // of a server that does not know its peak: at the end
	}
	s.PID, _ = strconv.Atoi(after["process_id"])
	return s
}
