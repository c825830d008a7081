package kvserver

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// counter is a count with one writer and any number of readers. It costs the writer no locked instruction.
type counter struct{ v atomic.Uint64 }

func (c *counter) add(n uint64)  { c.v.Store(c.v.Load() + n) }
func (c *counter) value() uint64 { return c.v.Load() }

// commandCounters counts what became of one command.
type commandCounters struct {
	calls    counter // ran
	failed   counter // ran and replied with an error
	rejected counter // not run: wrong number of arguments, not authenticated, ...
	nanos    counter // that it ran
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

type commandTotals struct{ calls, failed, rejected, nanos uint64 }

func newTotals(commands int) totals { return totals{commands: make([]commandTotals, commands)} }

func (t *totals) add(c *counters) {
	for i := range c.commands {
		t.commands[i].calls += c.commands[i].calls.value()
		t.commands[i].failed += c.commands[i].failed.value()
		t.commands[i].rejected += c.commands[i].rejected.value()
		t.commands[i].nanos += c.commands[i].nanos.value()
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
		t.commands[i].nanos += sign * o.commands[i].nanos
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

// errorCounts counts error replies by their first word, as INFO errorstats shows them. Errors are rare enough for a lock.
type errorCounts struct {
	mu     sync.Mutex
	byCode map[string]uint64
}

// add counts a reply that begins with "-CODE ".
func (e *errorCounts) add(reply []byte) {
	if len(reply) > 0 {
		reply = reply[1:]
	}
	if i := bytes.IndexAny(reply, " \r"); i >= 0 {
		reply = reply[:i]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byCode == nil {
		e.byCode = map[string]uint64{}
	}
	e.byCode[string(reply)]++
}

func (e *errorCounts) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byCode = nil
}

// countError counts the error reply that begins at out[start].
func (s *session) countError(start int) {
	s.errors.add(1)
	s.srv.errorCounts.add(s.out[start:])
}
