package load

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// CPUs are numbers of processors, as the system counts them, in order.
type CPUs []int

// maxCPU is beyond the largest machine.
const maxCPU = 1 << 13

// ParseCPUs reads a list such as 0-3,8. Nothing is an empty list.
func ParseCPUs(text string) (CPUs, error) {
	var all CPUs
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.ParseUint(first, 10, 16)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(last, 10, 16)
		}
		if err != nil || to < from || to >= maxCPU {
			return nil, fmt.Errorf("CPUs %q: want numbers and ranges such as 0-3,8", text)
		}
		for n := from; n <= to; n++ {
			all = append(all, int(n))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// String is the list in the form that [ParseCPUs] reads.
func (c CPUs) String() string {
	var parts []string
	for i := 0; i < len(c); {
		j := i
		for j+1 < len(c) && c[j+1] == c[j]+1 {
			j++
		}
		part := strconv.Itoa(c[i])
		if j > i {
			part += "-" + strconv.Itoa(c[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// without returns the CPUs that are not in other.
func (c CPUs) without(other CPUs) CPUs {
	return slices.DeleteFunc(slices.Clone(c), func(n int) bool { return slices.Contains(other, n) })
}

// Open reports whether c's requests go out on a schedule, not when replies come.
func (c Config) Open() bool {
	return c.Rate.Open() || c.SLO.Set() || c.Driver != nil && c.Driver.Open()
}

// Divide divides the machine between this process and the servers that it starts, for every command that measures, and
// returns what undoes it for this process.
//
// Of ClientCPUs and ServerCPUs each is kept to; where one of them is given, the other is what is left of the CPUs. Without
// them, servers may use every CPU, and this process has half as many threads for Go code as there are CPUs (GOMAXPROCS): in closed loop
// that costs no throughput, but saves the client a tenth to a third of its own CPU time, for with more, idle threads look for
// work and wake each other. In open loop, which includes open itself, it has as many as there are CPUs, or a worker
// that sleeps makes others late. GOMAXPROCS in the environment decides where it is set.
func (c *Config) Divide(open bool) (restore func(), err error) {
	restore = func() {}
	procs := runtime.GOMAXPROCS(0)
	if len(c.ClientCPUs) > 0 || len(c.ServerCPUs) > 0 {
		have, err := ownCPUs()
		if err != nil {
			return restore, err
		}
		if err := c.completeCPUs(have); err != nil {
			return restore, err
		}
		if err := c.ClientCPUs.onProcess(); err != nil {
			return restore, err
		}
		restore = func() { _ = have.onProcess() } // to what was allowed before
		procs = len(c.ClientCPUs)
	} else if !open && !c.Open() && c.Target.Local() {
		procs = max(1, procs/2)
	}
	if os.Getenv("GOMAXPROCS") != "" {
		return restore, nil
	}
	before := runtime.GOMAXPROCS(procs)
	unpin := restore
	return func() {
		unpin()
		runtime.GOMAXPROCS(before)
	}, nil
}

// completeCPUs checks the CPUs that are given, of those that this process has, and fills in the rest.
func (c *Config) completeCPUs(have CPUs) error {
	for _, given := range []struct {
		name string
		cpus CPUs
	}{{"server", c.ServerCPUs}, {"client", c.ClientCPUs}} {
		if missing := given.cpus.without(have); len(missing) > 0 {
			return fmt.Errorf("%s CPUs %v: this process may use %v only", given.name, given.cpus, have)
		}
	}
	if len(c.ClientCPUs) == 0 {
		c.ClientCPUs = have.without(c.ServerCPUs)
	}
	if len(c.ServerCPUs) == 0 && c.Target.Addr == "" {
		c.ServerCPUs = have.without(c.ClientCPUs)
	}
	if len(c.ClientCPUs) == 0 || len(c.ServerCPUs) == 0 && c.Target.Addr == "" {
		return fmt.Errorf("server CPUs %v, client CPUs %v, of %v: one side has none left; name those of both", c.ServerCPUs, c.ClientCPUs, have)
	}
	return nil
}
