package result

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Env is where the measurement ran.
type Env struct {
	Host   Host    `json:"host"`
	Client Process `json:"client"`
	Server Process `json:"server"` // of the first cell; each cell names its own where they may differ
	Before Load    `json:"before"`
	After  Load    `json:"after"`
}

// Process is a Go program as it saw itself at run time.
type Process struct {
	Version        string `json:"version"`
	Go             string `json:"go"`
	GOOS           string `json:"goos"`
	GOARCH         string `json:"goarch"`
	BuildSettings  string `json:"build_settings"`  // k=v;k=v
	GOEXPERIMENT   string `json:"goexperiment"`    // of the build
	GODEBUG        string `json:"godebug"`         // of the environment
	DefaultGODEBUG string `json:"default_godebug"` // of the build
	GOGC           string `json:"gogc"`            // a number, or off
	GOMEMLIMIT     string `json:"gomemlimit"`      // bytes, or off
	GOMAXPROCS     string `json:"gomaxprocs"`
	NumCPU         string `json:"num_cpu"`
	PGO            string `json:"pgo"`
}

// Host is the machine. Fields that the system does not tell are empty.
type Host struct {
	GOOS         string `json:"goos"`
	Kernel       string `json:"kernel"`
	CPU          string `json:"cpu"`
	CPUs         int    `json:"cpus"`
	Governor     string `json:"governor"`
	MemoryBytes  int64  `json:"memory_bytes"`
	DataDir      string `json:"data_dir"`
	FileSystem   string `json:"file_system"` // of the data directory
	MountOptions string `json:"mount_options"`
	CgroupCPU    string `json:"cgroup_cpu_max"` // quota and period in us, or max
	CgroupMemory string `json:"cgroup_memory_max"`
}

// Load is what else the machine was doing.
type Load struct {
	Average       string `json:"load_average"` // 1, 5, 15 minutes
	StealTicks    *int64 `json:"steal_ticks"`  // time stolen by the hypervisor since boot, all CPUs, usually 1/100 s
	NrThrottled   *int64 `json:"nr_throttled"` // periods in which our cgroup used up its CPU quota
	ThrottledUsec *int64 `json:"throttled_usec"`
}

// CaptureProcess describes the running program.
func CaptureProcess() Process {
	p := Process{
		Go: runtime.Version(), GOOS: runtime.GOOS, GOARCH: runtime.GOARCH,
		GODEBUG:    os.Getenv("GODEBUG"),
		GOMAXPROCS: strconv.Itoa(runtime.GOMAXPROCS(0)),
		NumCPU:     strconv.Itoa(runtime.NumCPU()),
	}
	samples := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(samples)
	p.GOGC, p.GOMEMLIMIT = limit(samples[0], 1<<31), limit(samples[1], 1<<62)
	if info, ok := debug.ReadBuildInfo(); ok {
		p.Version = info.Main.Version
		var settings []string
		for _, s := range info.Settings {
			settings = append(settings, s.Key+"="+s.Value)
			switch s.Key {
			case "GOEXPERIMENT":
				p.GOEXPERIMENT = s.Value
			case "DefaultGODEBUG":
				p.DefaultGODEBUG = s.Value
			case "-pgo":
				p.PGO = s.Value
			}
		}
		p.BuildSettings = strings.Join(settings, ";")
	}
	return p
}

// limit is the sample's value, or off where it is so large that it limits nothing.
func limit(s metrics.Sample, off uint64) string {
	if s.Value.Kind() != metrics.KindUint64 {
		return ""
	}
	if v := s.Value.Uint64(); v < off {
		return strconv.FormatUint(v, 10)
	}
	return "off"
}
