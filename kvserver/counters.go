package kvserver

import "sync/atomic"

// counter is a count with one writer and any number of readers. It costs the writer no locked instruction.
type counter struct{ v atomic.Uint64 }

func (c *counter) add(n uint64)  { c.v.Store(c.v.Load() + n) }
func (c *counter) value() uint64 { return c.v.Load() }

// commandCounters counts what became of one command.
type commandCounters struct {
	calls    counter // ran
	failed   counter // ran and replied with an error
	rejected counter // not run: wrong number of arguments, not authenticated, ...
}

// counters are what one session counts.
type counters struct {
	commands      []commandCounters // by the command's index
	hits, misses  counter
	errors        counter // error replies
	input, output counter // bytes
}

// totals are the counters of many sessions added up.
type totals struct {
	commands                            []commandTotals
	hits, misses, errors, input, output uint64
}

type commandTotals struct{ calls, failed, rejected uint64 }

func newTotals(commands int) totals { return totals{commands: make([]commandTotals, commands)} }

func (t *totals) add(c *counters) {
	for i := range c.commands {
		t.commands[i].calls += c.commands[i].calls.value()
		t.commands[i].failed += c.commands[i].failed.value()
		t.commands[i].rejected += c.commands[i].rejected.value()
	}
	t.hits += c.hits.value()
	t.misses += c.misses.value()
	t.errors += c.errors.value()
	t.input += c.input.value()
	t.output += c.output.value()
}

// merge adds o's counts, or takes them off again with sign = -1, which in this arithmetic is all ones.
func (t *totals) merge(o *totals, sign uint64) {
	for i := range o.commands {
		t.commands[i].calls += sign * o.commands[i].calls
		t.commands[i].failed += sign * o.commands[i].failed
		t.commands[i].rejected += sign * o.commands[i].rejected
	}
	t.hits += sign * o.hits
	t.misses += sign * o.misses
	t.errors += sign * o.errors
	t.input += sign * o.input
	t.output += sign * o.output
}

const (
	plus  uint64 = 1
	minus uint64 = ^uint64(0)
)
