package result

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLimitsOfAllGroupsAboveHold(t *testing.T) {
	const v2, v1 = "0::/a/b\n", "5:memory:/d\n4:cpu,cpuacct:/d/e\n1:name=systemd:/x\n"
	number := func(n *int64) int64 {
		if n == nil {
			return -1
		}
		return *n
	}
	for _, tt := range []struct {
		name        string
		files       map[string]string
		cpu, memory string
		periods, us int64
	}{
		{"nothing is told", map[string]string{"proc/self/cgroup": v2}, "", "", -1, -1},
		{"the leaf says max, one above has the limits", map[string]string{
			"proc/self/cgroup":          v2,
			"sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/b/memory.max": "max", "sys/fs/cgroup/a/b/cpu.stat": "usage_usec 7\nnr_throttled 0\nthrottled_usec 0",
			"sys/fs/cgroup/a/cpu.max": "50000 100000", "sys/fs/cgroup/a/memory.max": "1048576", "sys/fs/cgroup/a/cpu.stat": "nr_throttled 3\nthrottled_usec 900",
		}, "50000 100000", "1048576", 3, 900},
		{"the smallest holds", map[string]string{
			"proc/self/cgroup":          v2,
			"sys/fs/cgroup/a/b/cpu.max": "400000 100000", "sys/fs/cgroup/a/b/memory.max": "4096",
			"sys/fs/cgroup/a/cpu.max": "10000 10000", "sys/fs/cgroup/a/memory.max": "1048576",
		}, "10000 10000", "4096", -1, -1},
		{"no limit at all", map[string]string{"proc/self/cgroup": v2, "sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/b/memory.max": "max"}, "max 100000", "max", -1, -1},
		{"version 1", map[string]string{
			"proc/self/cgroup": v1,
			"sys/fs/cgroup/cpu,cpuacct/d/e/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu,cpuacct/d/e/cpu.cfs_period_us": "100000",
			"sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_quota_us": "150000", "sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_period_us": "100000",
			"sys/fs/cgroup/cpu,cpuacct/d/cpu.stat":         "nr_periods 9\nnr_throttled 4\nthrottled_time 5000000",
			"sys/fs/cgroup/memory/d/memory.limit_in_bytes": "9223372036854771712", "sys/fs/cgroup/memory/memory.limit_in_bytes": "2097152",
		}, "150000 100000", "2097152", 4, 5000},
		{"version 1 in a container, that sees its mount point only", map[string]string{
			"proc/self/cgroup": v1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "20000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
		}, "20000 100000", "max", -1, -1},
	} {
		root := t.TempDir()
		for name, content := range tt.files {
			path := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(content+"\n"), 0o666)); err != nil {
				t.Fatal(err)
			}
		}
		g := ourCgroups(root)
		periods, us := g.throttled()
		if g.cpuMax() != tt.cpu || g.memoryMax() != tt.memory || number(periods) != tt.periods || number(us) != tt.us {
			t.Errorf("%s: cpu %q, memory %q, throttled %d, %d; want %+v", tt.name, g.cpuMax(), g.memoryMax(), number(periods), number(us), tt)
		}
	}
}
