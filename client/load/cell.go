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
	minReplies   = 100
	maxClockStep = 10 * time.Microsecond
	littleSlack  = 0.05                  // of what is in flight
	littleEdge   = 20 * time.Millisecond // and this long for the workers to get going, in each slice
	// A request open at the end of the window may have been so for some times what others take, for as long as a busy machine
	// may take to wake a process, and for littleSlack of the window. Beyond that it stood still.
	stallTimes = 3
	stallEdge  = 100 * time.Millisecond
	// A client is what limits a cell if it did that much of its PING ceiling, which the server has a part in too, and was
	// itself on a CPU for that much of what it may use.
	clientBoundAt = 0.8
	clientBusyAt  = 0.6
	// More than all of it cannot be: then the machine was busy with something else while PING was measured.
	maxCeilingShare = 1.0
	minSent         = 0.99                  // of what was due in open loop
	maxLateness     = 10 * time.Millisecond // of sends, at p99
	// A client is late if replies lie unread for more of the service time than this, and for longer than a machine takes to
	// wake a process that sleeps.
	maxDelayShare = 0.5
	// Nor may it decide a percentile of the response time: more than half of it, and more than maxLateness.
	maxTailShare = 0.5
	// A window that passed for the most part in a few single waits is no measurement. A wait is what took more than
	// waitTimes of the median and leastWait; few are less than waitsOfWorker for each request in flight.
	waitTimes     = 10
	leastWait     = 10 * time.Millisecond
	maxWaitShare  = 0.5
	waitsOfWorker = 10
	maxDelayP50   = 300 * time.Microsecond
	maxDelayP90   = time.Millisecond
)

func (s *session) newCell(op string) result.Cell {
	c := result.Cell{Mode: s.mode, Op: op, Repeat: s.repeat, ClosedLoop: true, Checks: []result.Check{}, Series: []result.Row{}}
	c.LatencyMeans = "from a worker's last reply to this one: making the request, sending it, waiting, checking the reply"
	if s.Rate.Open() {
		c.ClosedLoop = false
		c.LatencyMeans = "service time, from just before a request is sent to its reply, checked; the response time counts from the moment it was due"
	}
	if s.Pipeline > 1 {
		c.LatencyMeans = fmt.Sprintf("of each command, from just before its batch of %d is sent to its own reply, checked: "+
			"it waits for those before it in the batch", s.Pipeline)
		if s.Rate.Open() {
			c.LatencyMeans += "; a batch is what is due, at most that many; the response time counts from the moment a request was due"
		}
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
	c.SeriesSeconds, c.Series = len(out.rows), result.Thin(out.rows) // of windows of days, several would not fit in memory
	c.WithinRun = out.slices.summary()
	c.LatencyUS, c.Histogram = out.latency.summary()
	c.Open = out.due
	if out.due > 0 {
		c.LateMaxUS = result.Number(float64(out.longest) / 1e3)
	}
	if out.firsts != nil && out.firsts.TotalCount() > 0 {
		c.Places = &result.Places{FirstP50US: out.firsts.micros(50, 1), LastP50US: out.lasts.micros(50, 1)}
	}
	if out.response == nil {
		return
	}
	c.Pace = &result.Pace{Asked: out.sent + out.unsent, Sent: out.sent, Done: out.ok, Waited: out.waited}
	c.Pace.ResponseUS, c.Pace.ResponseHistogram = out.response.summary()
	c.Pace.LatenessUS, _ = out.lateness.summary()
}

// measured is everything that is known about one window.
type measured struct {
	kind          kind
	warm, out     outcome
	before, after edge
	keys          int64          // DBSIZE after the window
	ceiling       float64        // PINGs a second
	floor         timing         // of PINGs at the run's rate, in open loop
	slices        int            // pieces that the window consists of; 0: one
	others        *result.Others // within the slices; nil: all between before and after
	err           error          // why after and keys are not known
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
		words := fmt.Sprintf("%.3f of %v s", out.seconds, s.Duration.Seconds())
		if m.err != nil {
			words = fmt.Sprintf("ended after %.1f of %v s: %v", out.seconds, s.Duration.Seconds(), m.err)
		}
		check("completed", m.err == nil, "%s", words)
	}
	checkPauses(out.paused, time.Duration(out.seconds*1e9), check)
	check("errors", out.errors+m.warm.errors+c.Reconnects == 0, "%d in the window, %d in the warm-up, %d reconnects%s",
		out.errors, m.warm.errors, c.Reconnects, because(firstOf(out.first, m.warm.first)))
	words := "every reply came behind its request"
	if s.outOfStep != nil {
		words = fmt.Sprintf("requests and replies are out of step: %v; figures of such a server are none", s.outOfStep)
	}
	check("protocol", s.outOfStep == nil, "%s", words)
	s.outOfStep = nil
	if m.kind != sets {
		right := out.answered[1] - out.misses - out.wrong
		check("hit_ratio", out.misses+m.warm.misses == 0, "%d of %d Gets found their key, %d misses in the warm-up",
			right+out.wrong, out.answered[1], m.warm.misses)
		check("wrong_values", out.wrong+m.warm.wrong == 0, "%d in the window, %d in the warm-up", out.wrong, m.warm.wrong)
	}

	if m.err == nil {
		s.books(c, m, check)
		c.Server = m.after.server.server(m.before.server, out.answered[0]+out.answered[1])
		if s.server.foreign { // these would be of its life: it was not asked to forget
			c.Server.GCPauseUS, c.Server.SchedP50US, c.Server.SchedP99US = result.Pauses{}, nil, nil
		}
	} else {
		c.Server = m.before.server.server(m.before.server, 0)
		c.Server.GCCycles, c.Server.WALRecords = nil, nil
	}
	s.client(c, m)
	ours := (m.after.own.cpu - m.before.own.cpu).Seconds() + deref(c.Server.CPUPerOp)/1e6*float64(out.answered[0]+out.answered[1])
	if m.err == nil {
		c.Others = m.after.load.Since(m.before.load, ours)
		if m.others != nil {
			c.Others = *m.others
		}
	}

	switch {
	case out.ok == 0:
		check("littles_law", false, "no right reply in the window")
	case s.Rate.Open():
		s.checkPace(c, m, check)
	default:
		// Little's law: what is in flight is rate x time. To the replies counted come the requests that were still open when
		// the window closed, or not answered well. A place in a batch is taken until the whole batch is answered.
		want := float64(s.Workload.Workers * s.Pipeline)
		counted, by := float64(out.ok)/out.seconds*out.latency.Mean()/1e9, "rate x mean latency"
		if s.Pipeline > 1 {
			counted, by = out.held.Seconds()/out.seconds, "rate x mean time of a batch"
		}
		open := out.open.Seconds() / out.seconds
		slack := littleSlack + littleEdge.Seconds()*float64(max(1, m.slices))/out.seconds
		check("littles_law", math.Abs((counted+open)/want-1) <= slack,
			"%.0f in flight by construction; %.2f by %s and %.2f open at the end or not right; %.1f %% allowed", want, counted, by, open, 100*slack)
		s.stalled(m, check)
		s.closedTail(c, out, check)
	}
	check("clock_step", s.clockStep <= maxClockStep, "%v, at most %v", s.clockStep, maxClockStep)
	before, after := m.before.server["gomaxprocs"], m.after.server["gomaxprocs"]
	if m.err == nil && before != "" {
		check("gomaxprocs_same", before == after && after == s.gomaxprocs && m.before.own.gomaxprocs == m.after.own.gomaxprocs,
			"server %s, then %s, first server %s; client %d, then %d", before, after, s.gomaxprocs, m.before.own.gomaxprocs, m.after.own.gomaxprocs)
	}
	if a, b := m.before.load.NrThrottled, m.after.load.NrThrottled; a != nil && b != nil {
		check("throttled", *a == *b, "%d periods", *b-*a)
	} else {
		check("throttled", true, "no CPU quota is known here")
	}
	s.longEnough(out, check)
}

// longEnough checks that there is enough to measure: replies, and time outside of single waits, which are chance in a short window.
func (s *session) longEnough(out outcome, check func(string, bool, string, ...any)) {
	words := fmt.Sprintf("%d right replies in %.3f s, at least %d in %v s", out.ok, out.seconds, minReplies, MinDuration.Seconds())
	if out.ok == 0 || out.seconds <= 0 {
		check("window_long_enough", false, "%s", words)
		return
	}
	flight := float64(s.Workload.Workers * s.Pipeline)
	wait := max(waitTimes*time.Duration(out.latency.ValueAtPercentile(50)), leastWait)
	n, sum := out.latency.above(wait)
	if open := time.Duration(float64(out.open) / flight); open > wait {
		n, sum = n+out.due, sum+out.open
	}
	share := sum.Seconds() / flight / out.seconds
	ran := share <= maxWaitShare || float64(n) >= waitsOfWorker*flight
	if share > maxWaitShare {
		words += fmt.Sprintf("; %.0f %% of it passed in %d requests of more than %v: at most %.0f %%, or at least %.0f such requests",
			100*share, n, wait.Round(time.Microsecond), 100*maxWaitShare, waitsOfWorker*flight)
	}
	check("window_long_enough", ran && out.seconds >= MinDuration.Seconds() && out.ok >= minReplies, "%s", words)
}

// stalled checks that the server answered until the window closed. What it does not answer before is in no percentile, so
// that standing still at the end would flatter it.
func (s *session) stalled(m measured, check func(string, bool, string, ...any)) {
	usual := deref(m.out.latency.micros(99, 1)) / 1e6
	slices := float64(max(1, m.slices))
	allowed := max(stallTimes*usual, stallEdge.Seconds())*slices + littleSlack*m.out.seconds
	open := m.out.open.Seconds() / float64(s.Workload.Workers*s.Pipeline)
	check("stalled", open <= allowed, "in the window requests were open at its end, or not right, for %.3f s on average, at most %.3f; p99 is %.3f ms, the longest open at the deadline waited %.0f ms",
		open, allowed, 1e3*usual, 1e3*m.out.longest.Seconds())
}

// checkPace checks that the schedule was kept: a rate that was not sent says nothing about the server.
func (s *session) checkPace(c *result.Cell, m measured, check func(string, bool, string, ...any)) {
	p := c.Pace
	share := float64(p.Sent) / float64(p.Asked)
	why := ""
	if share < minSent {
		why = ": the server was too slow for it, or --workers are too few, each has but one batch in flight"
	}
	check("asked_rate", share >= minSent, "%d requests due, %d sent (%.2f %%, at least %.0f %%), %d of them waited for their connection%s",
		p.Asked, p.Sent, 100*share, 100*minSent, p.Waited, why)
	late := p.LatenessUS.P99
	if late == nil {
		late = p.LatenessUS.Max
	}
	punctual := late != nil && *late <= float64(maxLateness.Microseconds())
	why = ""
	if !punctual {
		why = lateBecause(c.Others)
	}
	check("send_lateness", punctual, "%.0f us at p99 on free connections, at most %d%s", deref(late), maxLateness.Microseconds(), why)
	s.clientDelay(c, m, check)
	s.clientTail(c, m, check)
	most := float64(s.Workload.Workers * s.Pipeline)
	busy := (m.out.held + m.out.open).Seconds() / m.out.seconds
	check("littles_law", busy <= most*(1+littleSlack), "%.2f in flight on average, at most %.0f", busy, most)
}

// clientDelay checks that service times are the server's: a reply that has arrived and waits for this process to read it
// looks like a slow server. The system notes when replies arrive; a slow server delays none after that.
func (s *session) clientDelay(c *result.Cell, m measured, check func(string, bool, string, ...any)) {
	p, service, delay, floor := c.Pace, m.out.latency, m.out.readDelay, m.floor.latency
	p.ReadDelayUS, _ = delay.summary()
	words := ""
	if floor != nil {
		p.PingUS, _ = floor.summary()
		words = fmt.Sprintf("; service time %.0f us at p50, PING at this rate %.0f us", deref(c.LatencyUS.P50), deref(p.PingUS.P50))
		if share := result.Ratio(p.PingUS.P50, c.LatencyUS.P50); share != nil {
			words += fmt.Sprintf(": the way there and back, with both sides' waking, is %.0f %% of it", 100*min(*share, 1))
		}
	}
	if delay.TotalCount() == 0 {
		check("client_delay", true, "n/a: the system does not tell when replies arrived on such a connection (TLS, a Unix socket, or not Linux)%s", words)
		return
	}
	p50, p90 := delay.ValueAtPercentile(50), delay.ValueAtPercentile(90)
	share := delay.Mean() / service.Mean()
	late := share > maxDelayShare && (p50 > int64(maxDelayP50) || p90 > int64(maxDelayP90))
	if late {
		words += lateBecause(c.Others)
		c.Client.Bound = "client"
	}
	check("client_delay", !late, "replies lay %.0f us at p50 and %.0f us at p90 before this client read them, %.0f %% of the service time%s",
		float64(p50)/1e3, float64(p90)/1e3, 100*share, words)
}

// clientTail checks that the percentiles of the response time are the server's. A client that did not run for a moment delays
// all requests that were due meanwhile and those that pile up behind, few of which were sent late on a free connection.
func (s *session) clientTail(c *result.Cell, m measured, check func(string, bool, string, ...any)) {
	pass, words := true, "too few replies for a tail"
	for _, tail := range tails {
		with, without := m.out.response.micros(tail.percentile, tail.least), m.out.undelayed.micros(tail.percentile, tail.least)
		if with == nil || without == nil {
			continue
		}
		own := *with - *without
		words = fmt.Sprintf("response time %.0f us at p%v, %.0f us without what this client was late by", *with, tail.percentile, *without)
		if own > maxTailShare**with && own > float64(maxLateness.Microseconds()) {
			pass, c.Client.Bound = false, "client"
			words += ": the tail is the client's, not the server's" + lateBecause(c.Others)
			break
		}
	}
	check("client_tail", pass, "%s", words)
}

// tails are the percentiles that are printed of tails, and how many replies they take.
var tails = []struct {
	percentile float64
	least      int64
}{{99, 100}, {99.9, 1000}}

// closedTail checks the same in closed loop: that of the replies which this client, not running, made slow there are fewer than
// the highest percentile leaves out.
func (s *session) closedTail(c *result.Cell, out outcome, check func(string, bool, string, ...any)) {
	allowed, highest := out.ok, 0.0
	for _, tail := range tails {
		if out.ok >= tail.least {
			allowed, highest = int64((100-tail.percentile)/100*float64(out.ok)), tail.percentile
		}
	}
	pass := out.slowed <= allowed
	if !pass {
		c.Client.Bound = "client"
	}
	check("client_tail", pass, "%d replies took long for this client, which did not run; p%v leaves out %d", out.slowed, highest, allowed)
}

// lateBecause says what else the machine did while requests were sent late. Whoever sleeps until a moment is woken late by a
// machine that is busy; where it was not, this process was.
func lateBecause(o result.Others) string {
	switch {
	case deref(o.StealShare) > 0.02 || deref(o.CPUShare) > 0.1:
		return fmt.Sprintf("; meanwhile other processes used %.0f %% of the CPUs and the hypervisor took %.0f %%: the machine is the likely cause, try again when it is at rest",
			100*deref(o.CPUShare), 100*deref(o.StealShare))
	case o.StealShare == nil || o.CPUShare == nil:
		return ""
	}
	return "; the machine was at rest otherwise: this client had too few CPUs (GOMAXPROCS), or too many --workers for them"
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
	if s.server.foreign && !m.after.server.counts() {
		check("books_commands", true, result.NoCounters+" of commands in INFO: not checked")
	} else {
		check("books_commands", setsAgree && getsAgree, "%s; %s", setWords, getWords)
	}

	a, errA := m.before.server.integer("wal_records")
	b, errB := m.after.server.integer("wal_records")
	if err := firstOf(errA, errB); err != nil && s.server.foreign {
		check("books_wal", true, result.NoCounters+" of its log in INFO: not checked")
	} else if err != nil {
		check("books_wal", false, "%v", err)
	} else {
		check("books_wal", b-a == m.out.stored, "%d Sets acknowledged, log grew by %d records", m.out.stored, b-a)
	}

	proven := int64(0)
	for _, w := range s.workers {
		proven += int64(w.written.count)
	}
	if s.base > 0 { // some of them may be ours, from another run
		check("keys_proven", m.keys >= max(proven, s.base), "%d different keys acknowledged, DBSIZE %d, %d before", proven, m.keys, s.base)
	} else {
		check("keys_proven", m.keys == proven, "%d different keys acknowledged, DBSIZE %d", proven, m.keys)
	}
}

// client enters what this process used, and what limits the cell.
func (s *session) client(c *result.Cell, m measured) {
	a, b := m.before.own, m.after.own
	c.Client.GOMAXPROCS = runtime.GOMAXPROCS(0)
	if n := m.out.answered[0] + m.out.answered[1]; n > 0 && a.cpuKnown && b.cpuKnown {
		c.Client.CPUPerOp = result.Number(float64((b.cpu - a.cpu).Nanoseconds()) / 1e3 / float64(n))
		c.Client.CPUShare = result.Number((b.cpu - a.cpu).Seconds() / m.out.seconds / float64(c.Client.GOMAXPROCS))
	}
	c.Client.SchedP99US = b.schedP99(a)
	if cycles := b.cycles - a.cycles; cycles >= 0 {
		c.Client.GCCycles = result.Number(cycles)
		if cycles > 0 { // without a cycle the runtime has not refreshed its CPU classes
			c.Client.GCCPUShare = result.Number((b.gcCPU - a.gcCPU) / (b.total - a.total))
		}
	}
	if m.ceiling > 0 {
		c.Client.CeilingQPS = result.Number(m.ceiling)
		c.Client.CeilingShare = result.Ratio(c.QPS, c.Client.CeilingQPS)
		switch share := deref(c.Client.CeilingShare); {
		case s.Rate.Open():
			c.Client.Bound = "rate"
		case share > maxCeilingShare:
			c.Client.Bound = ""
		case share >= clientBoundAt && (c.Client.CPUShare == nil || *c.Client.CPUShare >= clientBusyAt):
			c.Client.Bound = "client"
		default:
			c.Client.Bound = "server"
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
