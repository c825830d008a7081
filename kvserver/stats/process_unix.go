//go:build unix && !linux

package stats

import "runtime"

// resetPeak does nothing: these systems only know the peak of the whole life of the process.
func resetPeak() {}

// readMemory returns the peak of the resident bytes; what is resident now is not known.
func readMemory() (rss, peak int64, ok bool) {
	u, ok := readUsage()
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return 0, u.maxRSS, ok
	}
	return 0, u.maxRSS << 10, ok
}

// systemMemory is known on Linux only.
func systemMemory() int64 { return 0 }

func appendIO(t *Text) {
	t.Section("IO")
	appendFaults(t)
}
