//go:build !linux

package experiment

// instructions counts nothing: only Linux has counters that another process can open.
type instructions struct{}

func countInstructions(int) *instructions { return nil }

func (*instructions) read() (uint64, bool) { return 0, false }

func (*instructions) close() {}
