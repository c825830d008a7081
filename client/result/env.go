package result

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Env is where the measurement ran.
type Env struct {
	Host   Host    `json:"host"`
	Client Process `json:"client"`
	Server Process `json:"server"` // of the first cell; each cell names its own where they may differ
	Binary Process `json:"binary"` // the server's file as its build describes it; empty: none was started, or it is no Go program
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
	SHA256         string `json:"sha256,omitempty"` // of the file, where that was read
	IO             string `json:"io,omitempty"`     // how kvserver moves bytes: loop or goroutine
}

// Host is the machine. Fields that the system does not tell are empty.
type Host struct {
	GOOS         string `json:"goos"`
	Kernel       string `json:"kernel"`
	CPU          string `json:"cpu"`
	CPUs         int    `json:"cpus"`
	Governor     string `json:"governor"`
	SMT          string `json:"smt"` // 1: CPUs share cores
	MemoryBytes  int64  `json:"memory_bytes"`
	DataDir      string `json:"data_dir"`
	FileSystem   string `json:"file_system"` // of the data directory
	MountOptions string `json:"mount_options"`
	FsyncUS      Fsync  `json:"fsync_us"`       // what making 4 KiB durable costs in the data directory
	CgroupCPU    string `json:"cgroup_cpu_max"` // quota and period in us, or max
	CgroupMemory string `json:"cgroup_memory_max"`
}

// Room is how much there is for data at this moment. 0: not known.
type Room struct {
	Memory int64 // that processes could get without swapping, and our cgroup may have
	Disk   int64 // free in a directory
}

// Fsync is the cost of a small durable write in microseconds.
type Fsync struct {
	P50 *float64 `json:"p50"`
	Max *float64 `json:"max"`
}

// Load is what else the machine was doing.
type Load struct {
	Average       string `json:"load_average"` // 1, 5, 15 minutes
	StealTicks    *int64 `json:"steal_ticks"`  // time stolen by the hypervisor since boot, all CPUs, usually 1/100 s
	NrThrottled   *int64 `json:"nr_throttled"` // periods in which our cgroup used up its CPU quota
	ThrottledUsec *int64 `json:"throttled_usec"`
	BusyTicks     *int64 `json:"busy_ticks"` // as StealTicks: all that is not idle, nor waiting for a device, nor stolen
	TotalTicks    *int64 `json:"total_ticks"`
	SwapPages     *int64 `json:"swap_pages"` // moved in and out since boot
}

// Since tells what the machine did between an earlier reading and this one, of which ours seconds of CPU time were the
// measurement's own.
func (l Load) Since(earlier Load, ours float64) Others {
	var s LoadSum
	s.Add(earlier, l)
	return s.Others(ours)
}

// LoadSum is what the machine did in several stretches of time, in ticks and pages.
type LoadSum struct{ busy, total, steal, swap sum }

// sum adds differences; it is not known once one was not.
type sum struct {
	n       float64
	unknown bool
}

func (s *sum) add(from, to *int64) {
	if from == nil || to == nil {
		s.unknown = true
		return
	}
	s.n += float64(*to - *from)
}

func (s sum) number() *float64 {
	if s.unknown {
		return nil
	}
	return Number(s.n)
}

// Add adds what happened between two readings.
func (s *LoadSum) Add(from, to Load) {
	s.busy.add(from.BusyTicks, to.BusyTicks)
	s.total.add(from.TotalTicks, to.TotalTicks)
	s.steal.add(from.StealTicks, to.StealTicks)
	s.swap.add(from.SwapPages, to.SwapPages)
}

// Others is the part of it that was not ours, which used so many seconds of CPU time.
func (s LoadSum) Others(ours float64) Others {
	busy, total := s.busy.number(), s.total.number()
	if busy != nil {
		busy = Number(max(0, *busy-ours*ticksPerSecond))
	}
	return Others{CPUShare: Ratio(busy, total), StealShare: Ratio(s.steal.number(), total), SwapPages: s.swap.number()}
}

// ticksPerSecond is what the kernel shows to programs on every system that Go runs on.
const ticksPerSecond = 100

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
		p.built(info, []byte(stamp))
	}
	return p
}

// ReadBinary describes a program by what its file says. What only a running process has is empty.
func ReadBinary(path string) (Process, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return Process{}, fmt.Errorf("result: %w", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Process{}, fmt.Errorf("result: %w", err)
	}
	p := Process{Go: info.GoVersion, SHA256: fmt.Sprintf("%x", sha256.Sum256(content))}
	p.built(info, content)
	return p, nil
}

// built enters what the build left in the program; of program only the stamp counts, for builds that the go command gave none.
func (p *Process) built(info *debug.BuildInfo, program []byte) {
	p.Version = info.Main.Version
	var settings []string
	if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" }) {
		settings = commit(program)
	}
	for _, s := range info.Settings {
		settings = append(settings, s.Key+"="+s.Value)
		switch s.Key {
		case "GOEXPERIMENT":
			p.GOEXPERIMENT = s.Value
		case "DefaultGODEBUG":
			p.DefaultGODEBUG = s.Value
		case "GOOS":
			p.GOOS = s.Value
		case "GOARCH":
			p.GOARCH = s.Value
		case "-pgo":
			p.PGO = s.Value
		}
	}
	p.BuildSettings = strings.Join(settings, ";")
}

// MeasureFsync writes 4 KiB and syncs them, n times, in a file in dir that it removes.
func MeasureFsync(dir string, n int) (Fsync, error) {
	f, err := os.CreateTemp(dir, "kvmark-fsync-")
	if err != nil {
		return Fsync{}, fmt.Errorf("result: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var took []float64
	block := make([]byte, 4096)
	for range n {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return Fsync{}, fmt.Errorf("result: %w", err)
		}
		if err := f.Sync(); err != nil {
			return Fsync{}, fmt.Errorf("result: %w", err)
		}
		took = append(took, float64(time.Since(begin).Nanoseconds())/1e3)
	}
	if n == 0 {
		return Fsync{}, nil
	}
	slices.Sort(took)
	return Fsync{Number(took[n/2]), Number(took[n-1])}, nil
}

// Words name the program: its version, the commit that it was built from, and the toolchain.
func (p Process) Words() string {
	words := []string{}
	if p.Version != "" {
		words = append(words, p.Version)
	}
	if c := p.Commit(); c != "" {
		words = append(words, "commit "+c)
	}
	if p.Go != "" {
		words = append(words, p.Go)
	}
	return strings.Join(words, ", ")
}

// Commit is the one that the program was built from, shortened, and whether files differed from it; "": not known.
func (p Process) Commit() string {
	set := p.settings()
	hash := set["vcs.revision"]
	hash = hash[:min(12, len(hash))]
	if hash != "" && set["vcs.modified"] == "true" {
		hash += " with changes"
	}
	return hash
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
