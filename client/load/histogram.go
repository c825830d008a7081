package load

import (
	"math"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"kvmark/client/result"
)

const (
	// maxLatency is what the histograms of latency can hold; longer is counted as this. No wait for a reply is longer, see
	// [Config.Patience].
	maxLatency = time.Minute
	// maxResponse is what a request may wait in open loop, where the wait is as long as the window if nothing is answered.
	maxResponse = time.Hour
)

// histogram counts durations in nanoseconds, and knows the smallest and the largest to the last digit.
type histogram struct {
	*hdr.Histogram
	least, most int64
}

// newHistogram holds the latencies of a whole window, 3 significant digits, 220 KB.
func newHistogram() *histogram { return makeHistogram(1, maxLatency, 3) }

// newResponseHistogram holds response times, 3 significant digits, 270 KB.
func newResponseHistogram() *histogram { return makeHistogram(1, maxResponse, 3) }

// newRowHistogram holds the latencies of a second from about a microsecond on, 2 significant digits, 22 KB.
func newRowHistogram() *histogram { return makeHistogram(1000, maxLatency, 2) }

func makeHistogram(from int64, to time.Duration, digits int) *histogram {
	return &histogram{hdr.New(from, int64(to), digits), math.MaxInt64, 0}
}

// record adds n observations. A duration out of range is clamped: a slow reply must not end a run.
func (h *histogram) record(d time.Duration, n int64) {
	x := min(max(int64(d), 1), h.HighestTrackableValue())
	_ = h.RecordValues(x, n)
	h.least, h.most = min(h.least, x), max(h.most, x)
}

// above is how many observations are longer than d, and what they come to.
func (h *histogram) above(d time.Duration) (n int64, sum time.Duration) {
	if h.most <= int64(d) {
		return 0, 0
	}
	for _, bar := range h.Distribution() {
		if bar.Count > 0 && bar.From > int64(d) {
			n += bar.Count
			sum += time.Duration(bar.Count * bar.From)
		}
	}
	return n, sum
}

func (h *histogram) reset() {
	h.Reset()
	h.least, h.most = math.MaxInt64, 0
}

func (h *histogram) merge(o *histogram) {
	h.Merge(o.Histogram)
	h.least, h.most = min(h.least, o.least), max(h.most, o.most)
}

// micros is a percentile in microseconds; nil if there are fewer than least observations.
func (h *histogram) micros(percentile float64, least int64) *float64 {
	if h.TotalCount() < max(least, 1) {
		return nil
	}
	// A bucket stands for its upper end, which may lie beyond anything that was seen.
	return result.Number(float64(min(h.ValueAtPercentile(percentile), h.most)) / 1e3)
}

// summary is the figures of h, and h as text. Those for which it holds too little are nil.
func (h *histogram) summary() (l result.Latency, encoded string) {
	if h.TotalCount() == 0 {
		return l, ""
	}
	return result.Latency{
		P50: h.micros(50, 1), P90: h.micros(90, 10), P99: h.micros(99, 100), P999: h.micros(99.9, 1000),
		Max: result.Number(float64(h.most) / 1e3), Min: result.Number(float64(h.least) / 1e3), Mean: result.Number(h.Mean() / 1e3),
	}, h.text()
}

// text is the histogram in HDR's format V2, base64.
func (h *histogram) text() string {
	b, err := h.EncodeV2()
	if err != nil { // it cannot, into memory
		return ""
	}
	return string(b)
}

// timing is the histograms of one window, or of one worker in it. Those that have no meaning in it are nil.
type timing struct {
	latency       *histogram // of the replies counted
	firsts, lasts *histogram // of them, the first and the last of each batch; with a pipeline
	response      *histogram // of every request due, from the moment it was due; in open loop
	undelayed     *histogram // the same as response without what this client was late by: see [worker.undelay]; in open loop
	lateness      *histogram // of every request sent, after it was due and its connection free; in open loop
	readDelay     *histogram // of the first reply of a batch: how long it had arrived before it was read; in open loop
}

func newTiming(depth int, open bool) timing {
	t := timing{latency: newHistogram()}
	if depth > 1 {
		t.firsts, t.lasts = newHistogram(), newHistogram()
	}
	if open {
		t.response, t.undelayed, t.lateness, t.readDelay = newResponseHistogram(), newResponseHistogram(), newHistogram(), newHistogram()
	}
	return t
}

func (t *timing) all() []*histogram {
	return []*histogram{t.latency, t.firsts, t.lasts, t.response, t.undelayed, t.lateness, t.readDelay}
}

func (t *timing) reset() {
	for _, h := range t.all() {
		if h != nil {
			h.reset()
		}
	}
}

func (t *timing) merge(o timing) {
	others := o.all()
	for i, h := range t.all() {
		if h != nil && others[i] != nil {
			h.merge(others[i])
		}
	}
}

// Latency is a histogram of nanoseconds as a cell shows it, in microseconds; a percentile that too few values stand for is nil.
func Latency(h *hdr.Histogram) (l result.Latency) {
	n := h.TotalCount()
	if n == 0 {
		return l
	}
	quantile := func(q float64, least int64) *float64 {
		if n < least {
			return nil
		}
		return result.Number(float64(h.ValueAtPercentile(q)) / 1e3)
	}
	return result.Latency{
		P50: quantile(50, 1), P90: quantile(90, 10), P99: quantile(99, 100), P999: quantile(99.9, 1000), Max: quantile(100, 1),
		Min: result.Number(float64(h.Min()) / 1e3), Mean: result.Number(h.Mean() / 1e3),
	}
}
