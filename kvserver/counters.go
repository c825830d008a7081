package kvserver

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"kvmark/kvserver/stats"
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
	calls         counter           // of all commands
	hits, misses  counter
	errors        counter // error replies
	input, output counter // bytes
}

// totals are the counters of many sessions added up.
type totals struct {
	commands                                   []commandTotals
	calls, hits, misses, errors, input, output uint64
}

type commandTotals struct{ calls, failed, rejected, nanos uint64 }

func newTotals(commands int) totals { return totals{commands: make([]commandTotals, commands)} }

func (t *totals) add(c *counters) {
	for i := range c.commands {
		calls := c.commands[i].calls.value()
		t.commands[i].calls += calls
		t.calls += calls // the sum is of the moment of its parts, which c.calls need not be
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
	t.calls += sign * o.calls
	t.hits += sign * o.hits
	t.misses += sign * o.misses
	t.errors += sign * o.errors
	t.input += sign * o.input
	t.output += sign * o.output
}

// rates are what a second brought, as INFO's instantaneous_* say. One goroutine measures them once a second.
type rates struct {
	at                   time.Duration // since the server's start, at the last measurement
	calls, input, output uint64        // by then

	perSecond struct{ calls, input, output atomic.Uint64 }
}

// measure takes the sums of all sessions at a time.
func (r *rates) measure(at time.Duration, calls, input, output uint64) {
	seconds := max(at-r.at, time.Millisecond).Seconds()
	r.perSecond.calls.Store(uint64(float64(calls-r.calls) / seconds))
	r.perSecond.input.Store(uint64(float64(input-r.input) / seconds))
	r.perSecond.output.Store(uint64(float64(output-r.output) / seconds))
	r.at, r.calls, r.input, r.output = at, calls, input, output
}

func (r *rates) write(t *stats.Text) {
	kib := func(n uint64) string { return strconv.FormatFloat(float64(n)/1024, 'f', 2, 64) }
	t.Uint("instantaneous_ops_per_sec", r.perSecond.calls.Load())
	t.Str("instantaneous_input_kbps", kib(r.perSecond.input.Load()))
	t.Str("instantaneous_output_kbps", kib(r.perSecond.output.Load()))
}

// measureRates adds up only what it needs: with all counters of ten thousand connections it would take milliseconds.
func (srv *Server) measureRates() {
	srv.mu.Lock()
	calls, input, output := srv.ended.calls, srv.ended.input, srv.ended.output+srv.pubsub.output.Load()
	for _, c := range srv.conns {
		n := &c.session.counters
		calls, input, output = calls+n.calls.value(), input+n.input.value(), output+n.output.value()
	}
	srv.mu.Unlock()
	srv.rates.measure(time.Since(srv.started), calls, input, output)
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
