package result

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Warning is a fact about the run or its machine that may spoil its numbers, though no check failed.
type Warning struct {
	Code   string `json:"code"`   // see [Explanations]
	Detail string `json:"detail"` // with the numbers
}

// Bounds of the warnings.
const (
	maxSteal    = 0.02
	maxOthers   = 0.10     // of all CPUs
	fastFsyncUS = 30.0     // no device is that fast
	slowFsyncUS = 20_000.0 // a disk that turns
	enoughCPUs  = 4        // two each for client and server
)

// FindWarnings looks for what may spoil the numbers of f.
func (f *File) FindWarnings() []Warning {
	var all []Warning
	warn := func(code, format string, args ...any) {
		all = append(all, Warning{code, fmt.Sprintf(format, args...)})
	}
	worst := func(number func(Cell) *float64) (x float64, where string) {
		for _, c := range f.Cells {
			if n := number(c); n != nil && *n > x {
				x, where = *n, fmt.Sprintf("%s %s, repeat %d", c.Mode, c.Op, c.Repeat)
			}
		}
		return x, where
	}
	if x, where := worst(func(c Cell) *float64 { return c.Others.CPUShare }); x > maxOthers {
		warn("other-load", "other processes used up to %.0f %% of the CPUs (%s)", 100*x, where)
	}
	if x, where := worst(func(c Cell) *float64 { return c.Others.StealShare }); x > maxSteal {
		warn("steal", "the hypervisor took up to %.1f %% of the CPU time (%s)", 100*x, where)
	}
	if x, where := worst(func(c Cell) *float64 { return c.Others.SwapPages }); x > 0 {
		warn("swap", "the machine moved up to %.0f pages to or from swap (%s)", x, where)
	}
	if a, b := f.Env.Before.ThrottledUsec, f.Env.After.ThrottledUsec; a != nil && b != nil && *b > *a {
		warn("throttled", "the CPU quota of our cgroup (%s) stopped us for %.1f ms in all", f.Env.Host.CgroupCPU, float64(*b-*a)/1e3)
	}
	client, _ := strconv.Atoi(f.Env.Client.GOMAXPROCS)
	server, _ := strconv.Atoi(f.Env.Server.GOMAXPROCS)
	if cpus := f.Env.Host.CPUs; f.Plan.Target == "" && cpus > 0 && cpus < enoughCPUs {
		warn("few-cores", "client (GOMAXPROCS %d) and server (GOMAXPROCS %d) share %d CPUs", client, server, cpus)
	}
	if g := f.Env.Host.Governor; g != "" && g != "performance" {
		warn("governor", "the CPU frequency governor is %s", g)
	}
	if what := differs(f.Env.Binary, f.Env.Server); what != "" {
		warn("build-differs", "%s", what)
	}
	if what := cmp.Or(f.Env.Server.Instrumented(), f.Env.Binary.Instrumented()); what != "" {
		warn("build-slow", "the server was built with %s: its numbers are not those of a server as it is used", what)
	}
	if p50 := f.Env.Host.FsyncUS.P50; p50 != nil && f.Plan.Target == "" {
		switch {
		case *p50 < fastFsyncUS:
			warn("fsync-free", "making 4 KiB durable in %s (%s) takes %.0f us: nothing reaches a device", f.Env.Host.DataDir, f.Env.Host.FileSystem, *p50)
		case *p50 > slowFsyncUS:
			warn("fsync-slow", "making 4 KiB durable in %s (%s) takes %.0f ms", f.Env.Host.DataDir, f.Env.Host.FileSystem, *p50/1e3)
		}
	}
	for _, c := range f.Cells {
		if c.Client.Bound == "client" {
			warn("client-bound", "%s %s, repeat %d ran at %.0f %% of what this client can do", c.Mode, c.Op, c.Repeat, 100*deref(c.Client.CeilingShare))
			break
		}
	}
	return all
}

func deref(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// differs says where a running process is not what its file says; "" if nowhere, or if either is unknown.
func differs(binary, process Process) string {
	if binary.Go == "" || process.Go == "" {
		return ""
	}
	// A version string may carry the experiments behind it.
	if !strings.HasPrefix(process.Go, binary.Go) && !strings.HasPrefix(binary.Go, process.Go) {
		return fmt.Sprintf("the server's file was built with %s, the process says %s", binary.Go, process.Go)
	}
	file, running := binary.settings(), process.settings()
	for _, k := range []string{"-race", "-pgo", "-gcflags", "-ldflags", "-tags", "CGO_ENABLED", "GOAMD64", "GOARM64", "GOEXPERIMENT", "DefaultGODEBUG", "vcs.revision"} {
		if file[k] != running[k] {
			return fmt.Sprintf("build setting %s is %q in the server's file and %q in the process", k, file[k], running[k])
		}
	}
	return ""
}

// settings are the build settings by name.
func (p Process) settings() map[string]string {
	m := map[string]string{}
	for s := range strings.SplitSeq(p.BuildSettings, ";") {
		if k, v, ok := strings.Cut(s, "="); ok {
			m[k] = v
		}
	}
	return m
}

// Instrumented names the build settings that make a program slower than the same source built as usual; "": none.
func (p Process) Instrumented() string {
	set := p.settings()
	var found []string
	for _, name := range []string{"-race", "-msan", "-asan", "-cover"} {
		if set[name] == "true" {
			found = append(found, name)
		}
	}
	if flags := strings.Fields(strings.ReplaceAll(set["-gcflags"], "=", " ")); slices.Contains(flags, "-N") || slices.Contains(flags, "-l") {
		found = append(found, "-gcflags="+set["-gcflags"])
	}
	return strings.Join(found, " ")
}
