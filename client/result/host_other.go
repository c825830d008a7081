//go:build !linux

package result

import (
	"path/filepath"
	"runtime"
)

// CaptureHost describes the machine as far as this system tells.
func CaptureHost(dir string) Host {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return Host{GOOS: runtime.GOOS, CPUs: runtime.NumCPU(), DataDir: dir}
}

// CaptureRoom tells how much room there is, as far as this system tells.
func CaptureRoom(string) Room { return Room{} }

// CaptureLoad describes what the machine is doing now as far as this system tells.
func CaptureLoad() Load { return Load{} }
