package result

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// cgroups are the directories of the control groups that this process is in, from its own up to the root: a limit of any of
// them holds. Of version 1 each controller has a tree of its own.
type cgroups struct {
	unified     []string // version 2
	cpu, memory []string // version 1
}

// ourCgroups reads them from /proc/self/cgroup below root:
//
//	0::/user.slice/app                 version 2
//	4:cpu,cpuacct:/docker/0123         version 1
//
// In a container the path may be that on the host, of which only the mount point can be seen.
func ourCgroups(root string) (g cgroups) {
	above := func(mount, group string) (dirs []string) {
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			dirs = append(dirs, path.Join(mount, group))
			if group == "/" {
				return dirs
			}
		}
	}
	mounts := path.Join(root, "sys/fs/cgroup")
	for line := range strings.Lines(text(path.Join(root, "proc/self/cgroup"))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		controllers := strings.Split(parts[1], ",")
		switch {
		case parts[1] == "":
			g.unified = append(above(mounts, parts[2]), above(path.Join(mounts, "unified"), parts[2])...)
		case slices.Contains(controllers, "cpu"):
			g.cpu = append(above(path.Join(mounts, parts[1]), parts[2]), above(path.Join(mounts, "cpu"), parts[2])...)
		case slices.Contains(controllers, "memory"):
			g.memory = above(path.Join(mounts, "memory"), parts[2])
		}
	}
	return g
}

// unlimited is where version 1 says that there is no limit: the largest multiple of a page.
const unlimited = 1 << 62

// memoryMax is the smallest limit in bytes, "max" if there is none, or "" if no group tells.
func (g cgroups) memoryMax() string {
	least, told := int64(unlimited), false
	take := func(dir, file string) {
		s := text(path.Join(dir, file))
		told = told || s != ""
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			least = min(least, n)
		}
	}
	for _, dir := range g.unified {
		take(dir, "memory.max")
	}
	for _, dir := range g.memory {
		take(dir, "memory.limit_in_bytes")
	}
	switch {
	case !told:
		return ""
	case least >= unlimited:
		return "max"
	}
	return strconv.FormatInt(least, 10)
}

// cpuMax is the quota and period in us that allow the least, "max" and a period if there is none, or "" if no group tells.
func (g cgroups) cpuMax() string {
	best, least := "", 0.0
	take := func(quota, period string) {
		p, err := strconv.ParseFloat(period, 64)
		if quota == "" || err != nil || p <= 0 {
			return
		}
		q, err := strconv.ParseFloat(quota, 64)
		if err != nil || q <= 0 { // max, or -1 in version 1
			if best == "" {
				best = "max " + period
			}
			return
		}
		if least == 0 || q/p < least {
			best, least = quota+" "+period, q/p
		}
	}
	for _, dir := range g.unified {
		if quota, period, ok := strings.Cut(text(path.Join(dir, "cpu.max")), " "); ok {
			take(quota, period)
		}
	}
	seen := ""
	for _, dir := range g.cpu {
		quota, period := text(path.Join(dir, "cpu.cfs_quota_us")), text(path.Join(dir, "cpu.cfs_period_us"))
		if key := quota + " " + period; key != seen {
			take(quota, period)
			seen = key
		}
	}
	return best
}

// throttled is how many periods, and for how many us, the groups were stopped for having used up their quota; nil: no group tells.
func (g cgroups) throttled() (periods, us *int64) {
	add := func(sum **int64, n int64) {
		if *sum == nil {
			*sum = new(int64)
		}
		**sum += n
	}
	of := func(dirs []string, name string, scale int64) {
		read := map[string]bool{} // the same tree may be mounted under two names
		for _, dir := range dirs {
			stat := text(path.Join(dir, "cpu.stat"))
			if stat == "" || read[stat] {
				continue
			}
			read[stat] = true
			if n, ok := field(stat, "nr_throttled"); ok {
				add(&periods, n)
			}
			if n, ok := field(stat, name); ok {
				add(&us, n/scale)
			}
		}
	}
	of(g.unified, "throttled_usec", 1)
	of(g.cpu, "throttled_time", 1000) // ns
	return periods, us
}
