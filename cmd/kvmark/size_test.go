package main

import (
	"testing"

	"kvmark/client/load"
	"kvmark/client/workload"
)

// A million classic keys are 35 bytes each: "DataSaveKey123456789ABC_" and three numbers. The log and the index hold them whole.
func TestEstimatesCountTheWholeKey(t *testing.T) {
	c := load.Default()
	c.Workload = workload.Config{Workers: 10, Keys: 100_000}
	const keys, key = 1e6, 24 + 1 + 1 + 1 + 1 + 4.89
	if got := c.Workload.MeanKeyBytes(); got < key-0.1 || got > key+0.1 {
		t.Errorf("keys of %.2f bytes, want %.2f", got, key)
	}
	g, err := c.Workload.New(3)
	if err != nil {
		t.Fatal(err)
	}
	n, sum := 0, 0
	for i := 0; i < c.Workload.Keys; i += 7 {
		sum += len(g.AppendKey(nil, i))
		n++
	}
	if mean := float64(sum) / float64(n); mean < key-0.1 || mean > key+0.1 {
		t.Errorf("the generator's keys have %.2f bytes, want %.2f", mean, key)
	}
	value := c.Workload.MeanValueBytes()
	for mode, want := range map[string]struct{ memory, disk float64 }{
		"memory": {keys * (key + value), keys * (key + value)},
		"file":   {keys * (key + 36), keys*(key+value) + keys*value},
	} {
		memory, disk := footprint(c, mode, keys)
		if memory < 0.99*want.memory || memory > 1.01*want.memory || disk < 0.99*want.disk || disk > 1.01*want.disk {
			t.Errorf("%s: %.0f bytes of memory and %.0f of disk, want %+v", mode, memory, disk, want)
		}
	}
}
