package load

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"kvmark/client/result"
)

// Bounds of the checks.
const (
	minWindow     = 50 * time.Millisecond // less is not a measurement
	minReplies    = 100
	maxClockStep  = 10 * time.Microsecond
	littleSlack   = 0.05                  // of what is in flight
	littleEdge    = 20 * time.Millisecond // and this long for the workers to get going
	clientBoundAt = 0.8                   // of the PING ceiling
)

func (s *session) newCell(op string) result.Cell {
	c := result.Cell{Mode: s.mode, Op: op, Repeat: s.repeat, ClosedLoop: true, Checks: []result.Check{}, Series: []result.Row{}}
	c.LatencyMeans = "from a worker's last reply to this one: making the request, sending it, waiting, checking the reply"
	if s.Pipeline > 1 {
		c.LatencyMeans = fmt.Sprintf("of the whole batch of %d requests, for each of them", s.Pipeline)
	}
	return c
}

// fail adds a failed check, which makes the cell invalid.
func fail(c *result.Cell, name, detail string) {
	c.Checks = append(c.Checks, result.Check{Name: name, Detail: detail})
	c.Valid = false
}

// count enters what the client counted.
func count(c *result.Cell, out outcome) {
	c.Seconds = out.seconds
	c.OK, c.Sets, c.Gets, c.Late = out.ok, out.okBy[0], out.okBy[1], out.late
	c.Errors, c.Misses, c.Wrong = out.errors, out.misses, out.wrong
	if out.first != nil {
		c.FirstError = out.first.Error()
	}
	c.QPS = result.Number(float64(out.ok) / out.seconds)
	c.Series = out.rows
	h := out.latency
	n := h.TotalCount()
	if n == 0 {
		return
	}
	quantile := func(q float64, least int64) *float64 {
		if n < least {
			return nil
		}
		return result.Number(float64(h.ValueAtPercentile(q)) / 1e3)
	}
	c.LatencyUS = result.Latency{
		P50: quantile(50, 1), P90: quantile(90, 10), P99: quantile(99, 100), P999: quantile(99.9, 1000), Max: quantile(100, 1),
		Min: result.Number(float64(h.Min()) / 1e3), Mean: result.Number(h.Mean() / 1e3),
	}
	if b, err := h.EncodeV2(); err == nil {
		c.Histogram = string(b)
	}
}

// measured is everything that is known about one window.
type measured struct {
	kind          kind
	warm, out     outcome
	before, after edge
	keys          int64   // DBSIZE after the window
	ceiling       float64 // PINGs a second
	err           error   // why after and keys are not known
}

// judge enters what the server and this process say, and checks the books.
func (s *session) judge(c *result.Cell, m measured) {
	c.Valid = true
	check := func(name string, pass bool, format string, args ...any) {
		c.Checks = append(c.Checks, result.Check{Name: name, Pass: pass, Detail: fmt.Sprintf(format, args...)})
		c.Valid = c.Valid && pass
	}
	out := m.out

	if out.cut {
		check("completed", false, "interrupted after %.3f of %v s", out.seconds, s.Duration.Seconds())
	} else {
		check("completed", m.err == nil, "%.3f of %v s%s", out.seconds, s.Duration.Seconds(), because(m.err))
	}
	check("errors", out.errors+m.warm.errors+c.Reconnects == 0, "%d in the window, %d in the warm-up, %d reconnects%s",
		out.errors, m.warm.errors, c.Reconnects, because(firstOf(out.first, m.warm.first)))
	if m.kind != sets {
		right := out.answered[1] - out.misses - out.wrong
		check("hit_ratio", out.misses+m.warm.misses == 0, "%d of %d Gets found their key, %d misses in the warm-up",
			right+out.wrong, out.answered[1], m.warm.misses)
		check("wrong_values", out.wrong+m.warm.wrong == 0, "%d in the window, %d in the warm-up", out.wrong, m.warm.wrong)
	}

	if m.err == nil {
		s.books(c, m, check)
		c.Server = m.after.server.server(m.before.server, out.answered[0]+out.answered[1])
	} else {
		c.Server = m.before.server.server(m.before.server, 0)
		c.Server.GCCycles, c.Server.WALRecords = nil, nil
	}
	s.client(c, m)

	// Little's law: what is in flight is rate x time. To the replies counted come the requests that were still open when
	// the window closed, or not answered well.
	if out.ok > 0 {
		want := float64(s.Workload.Workers * s.Pipeline)
		counted := float64(out.ok) / out.seconds * out.latency.Mean() / 1e9
		open := out.open.Seconds() / out.seconds
		slack := littleSlack + littleEdge.Seconds()/out.seconds
		check("littles_law", math.Abs((counted+open)/want-1) <= slack,
			"%.0f in flight by construction; %.2f by rate x mean latency and %.2f not counted; %.1f %% allowed", want, counted, open, 100*slack)
	} else {
		check("littles_law", false, "no right reply in the window")
	}
	check("clock_step", s.clockStep <= maxClockStep, "%v, at most %v", s.clockStep, maxClockStep)
	before, after := m.before.server["gomaxprocs"], m.after.server["gomaxprocs"]
	if m.err == nil {
		check("gomaxprocs_same", before == after && after == s.gomaxprocs && m.before.own.gomaxprocs == m.after.own.gomaxprocs,
			"server %s, then %s, first server %s; client %d, then %d", before, after, s.gomaxprocs, m.before.own.gomaxprocs, m.after.own.gomaxprocs)
	}
	if a, b := m.before.load.NrThrottled, m.after.load.NrThrottled; a != nil && b != nil {
		check("throttled", *a == *b, "%d periods", *b-*a)
	} else {
		check("throttled", true, "no CPU quota is known here")
	}
	check("window_long_enough", out.seconds >= minWindow.Seconds() && out.ok >= minReplies,
		"%d right replies in %.3f s, at least %d in %v s", out.ok, out.seconds, minReplies, minWindow.Seconds())
}

// books compares what was counted here with what the server counted.
func (s *session) books(c *result.Cell, m measured, check func(string, bool, string, ...any)) {
	balance := func(command string, ours int64) (string, bool) {
		a, errA := m.before.server.calls(command)
		b, errB := m.after.server.calls(command)
		if err := firstOf(errA, errB); err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%d replies to %s, server executed %d", ours, command, b-a), b-a == ours
	}
	setWords, setsAgree := balance("set", m.out.answered[0])
	getWords, getsAgree := balance("get", m.out.answered[1])
	check("books_commands", setsAgree && getsAgree, "%s; %s", setWords, getWords)

	a, errA := m.before.server.integer("wal_records")
	b, errB := m.after.server.integer("wal_records")
	if err := firstOf(errA, errB); err != nil {
		check("books_wal", false, "%v", err)
	} else {
		check("books_wal", b-a == m.out.stored, "%d Sets acknowledged, log grew by %d records", m.out.stored, b-a)
	}

	proven := int64(0)
	for _, w := range s.workers {
		proven += int64(w.written.count)
	}
	check("keys_proven", m.keys == proven, "%d different keys acknowledged, DBSIZE %d", proven, m.keys)
}

// client enters what this process used, and what limits the cell.
func (s *session) client(c *result.Cell, m measured) {
	a, b := m.before.own, m.after.own
	c.Client.GOMAXPROCS = runtime.GOMAXPROCS(0)
	if n := m.out.answered[0] + m.out.answered[1]; n > 0 && a.cpuKnown && b.cpuKnown {
		c.Client.CPUPerOp = result.Number(float64((b.cpu - a.cpu).Nanoseconds()) / 1e3 / float64(n))
	}
	if cycles := b.cycles - a.cycles; cycles >= 0 {
		c.Client.GCCycles = result.Number(cycles)
		if cycles > 0 { // without a cycle the runtime has not refreshed its CPU classes
			c.Client.GCCPUShare = result.Number((b.gcCPU - a.gcCPU) / (b.total - a.total))
		}
	}
	if m.ceiling > 0 {
		c.Client.CeilingQPS = result.Number(m.ceiling)
		c.Client.CeilingShare = result.Ratio(c.QPS, c.Client.CeilingQPS)
		c.Client.Bound = "server"
		if share := c.Client.CeilingShare; share != nil && *share >= clientBoundAt {
			c.Client.Bound = "client"
		}
	}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
