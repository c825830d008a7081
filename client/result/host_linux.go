package result

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CaptureHost describes the machine and the file system that holds dir.
func CaptureHost(dir string) Host {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	h := Host{GOOS: runtime.GOOS, CPUs: runtime.NumCPU(), DataDir: dir}
	h.Kernel = text("/proc/sys/kernel/osrelease")
	h.Governor = text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	h.SMT = text("/sys/devices/system/cpu/smt/active")
	for line := range strings.Lines(text("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			h.CPU = strings.TrimSpace(value)
			break
		}
	}
	if kib, ok := field(text("/proc/meminfo"), "MemTotal:"); ok {
		h.MemoryBytes = kib << 10
	}
	h.FileSystem, h.MountOptions = mount(text("/proc/self/mountinfo"), dir)
	groups := ourCgroups("/")
	h.CgroupCPU, h.CgroupMemory = groups.cpuMax(), groups.memoryMax()
	return h
}

// CaptureRoom tells how much room there is in memory, and on the disk of dir.
func CaptureRoom(dir string) Room {
	var r Room
	if kib, ok := field(text("/proc/meminfo"), "MemAvailable:"); ok {
		r.Memory = kib << 10
	}
	if limit, err := strconv.ParseInt(ourCgroups("/").memoryMax(), 10, 64); err == nil && (r.Memory == 0 || limit < r.Memory) {
		r.Memory = limit
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err == nil {
		r.Disk = int64(s.Bavail) * int64(s.Bsize)
	}
	return r
}

// CaptureLoad describes what the machine is doing now.
func CaptureLoad() Load {
	var l Load
	if f := strings.Fields(text("/proc/loadavg")); len(f) >= 3 {
		l.Average = strings.Join(f[:3], " ")
	}
	// cpu  user nice system idle iowait irq softirq steal ...
	first, _, _ := strings.Cut(text("/proc/stat"), "\n")
	if f := strings.Fields(first); len(f) > 8 {
		var n [9]int64
		ok := true
		for i := range n[1:] {
			var err error
			n[i+1], err = strconv.ParseInt(f[i+1], 10, 64)
			ok = ok && err == nil
		}
		if ok {
			busy := n[1] + n[2] + n[3] + n[6] + n[7]
			total := busy + n[4] + n[5] + n[8]
			l.BusyTicks, l.TotalTicks, l.StealTicks = &busy, &total, &n[8]
		}
	}
	vm := text("/proc/vmstat")
	in, okIn := field(vm, "pswpin")
	out, okOut := field(vm, "pswpout")
	if okIn && okOut {
		sum := in + out
		l.SwapPages = &sum
	}
	l.NrThrottled, l.ThrottledUsec = ourCgroups("/").throttled()
	return l
}

func text(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// field finds "name number" at the start of a line.
func field(s, name string) (int64, bool) {
	for line := range strings.Lines(s) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// mount finds the file system that holds dir: the deepest mount point above it, and of those at one point the last.
//
//	36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue
func mount(mountinfo, dir string) (kind, options string) {
	deepest := -1
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		point := unescape.Replace(l[4])
		if rel, err := filepath.Rel(point, dir); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		if len(point) >= deepest {
			deepest, kind, options = len(point), r[0], l[5]+","+r[2]
		}
	}
	return kind, options
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
