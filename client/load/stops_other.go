//go:build !linux

package load

// processStopped is not told here.
func processStopped(int) (stopped, known bool) { return false, false }
