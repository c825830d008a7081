//go:build !unix

package stats

import "time"

type usage struct{ user, system time.Duration }

func readUsage() (usage, bool) { return usage{}, false }

func resetPeak() {}

func readMemory() (rss, peak int64, ok bool) { return 0, 0, false }

// systemMemory is known on Linux only.
func systemMemory() int64 { return 0 }

func appendIO(t *Text) { t.Section("IO") }
