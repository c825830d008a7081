package stats

import (
	"bytes"
	"os"
	"strconv"
)

// resetPeak sets the kernel's high-water mark of this process's memory to what it holds now. Where that is not
// permitted the mark stays that of the whole life of the process.
func resetPeak() {
	if f, err := os.OpenFile("/proc/self/clear_refs", os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString("5")
		_ = f.Close()
	}
}

// readMemory returns the resident bytes and their peak.
func readMemory() (rss, peak int64, ok bool) {
	fields, ok := readFields("/proc/self/status")
	return fields["VmRSS"] << 10, fields["VmHWM"] << 10, ok
}

// systemMemory returns the machine's memory in bytes; 0 = not known.
func systemMemory() int64 {
	fields, _ := readFields("/proc/meminfo")
	return fields["MemTotal"] << 10
}

// appendIO writes what the process moved: by system calls (rchar, wchar) and from and to the device (read_bytes,
// write_bytes).
func appendIO(t *Text) {
	t.Section("IO")
	if fields, ok := readFields("/proc/self/io"); ok {
		for _, name := range []string{"read_bytes", "write_bytes", "rchar", "wchar"} {
			t.Int(name, fields[name])
		}
	}
	appendFaults(t)
}

// readFields reads the numbers of a /proc file of "name: number" lines. Units are left to the caller.
func readFields(path string) (map[string]int64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, false
	}
	fields := map[string]int64{}
	for line := range bytes.Lines(data) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		words := bytes.Fields(rest)
		if len(words) == 0 {
			continue
		}
		if v, err := strconv.ParseInt(string(words[0]), 10, 64); err == nil {
			fields[string(name)] = v
		}
	}
	return fields, true
}
