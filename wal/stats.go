package wal

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxLatency is where the histogram of sync latencies ends; longer ones count as this long.
const maxLatency = time.Minute

// Stats of a log since Open; everything but Segments and DiskBytes only grows.
type Stats struct {
	Records   uint64 // appended
	Bytes     uint64 // of those records: payloads and frames
	Writes    uint64 // write system calls
	Syncs     uint64 // fdatasync system calls on segments that hold records
	SyncNanos uint64 // spent in them

	SyncP50, SyncP99, SyncMax time.Duration

	Segments  int
	DiskBytes int64
	Err       error // see Log.Err
}

// counters are guarded by Log.mu.
type counters struct {
	records, bytes, writes, syncs, syncNanos uint64
	latency                                  *hdrhistogram.Histogram // microseconds
}

func (c *counters) synced(took time.Duration) {
	c.syncs++
	c.syncNanos += uint64(took)
	// In range by construction, so there is no error.
	_ = c.latency.RecordValue(max(1, min(took, maxLatency).Microseconds()))
}

// Stats returns the log's counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Records: l.stats.records, Bytes: l.stats.bytes, Writes: l.stats.writes,
		Syncs: l.stats.syncs, SyncNanos: l.stats.syncNanos,
		SyncP50:  time.Duration(l.stats.latency.ValueAtQuantile(50)) * time.Microsecond,
		SyncP99:  time.Duration(l.stats.latency.ValueAtQuantile(99)) * time.Microsecond,
		SyncMax:  time.Duration(l.stats.latency.Max()) * time.Microsecond,
		Segments: len(l.segments),
		Err:      l.Err(),
	}
	for _, segment := range l.segments {
		s.DiskBytes += max(segment.bytes, segment.filled)
	}
	return s
}
