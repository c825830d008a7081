package conns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"kvmark/client"
	"kvmark/client/load"
	"kvmark/client/result"
)

// lead is how far ahead the start is set, so that every agent has heard of it.
const lead = 300 * time.Millisecond

// windowSlack is how far the measured window may be from what was asked for: the server's count is that of the moment at which
// it answers, which is late where it has fallen far behind.
const windowSlack = 0.25

// tail is how long agents send on behind the last window, so that the server is asked for its count under the same load.
const tail = 250 * time.Millisecond

// settle is how long connections are left alone before the server's memory is read.
const settle = 200 * time.Millisecond

// measure measures one point. A cell without ConnectPerSec tells that the connections could not be had; the error, that a server
// could not be started.
func (c Config) measure(ctx context.Context, p point, repeat int, out *Outcome) (*result.Cell, error) {
	// A server of our own inherits our limit, and needs as many descriptors as it has connections.
	enough := error(nil)
	if c.Load.Target.Addr == "" {
		if enough = client.EnsureDescriptors(p.connections, "measure a server that has more, with --target"); enough != nil {
			enough = fmt.Errorf("the server would inherit our limit: %w", enough)
		}
	}
	host, err := load.OpenHost(ctx, c.Load, p.connections)
	if err != nil {
		return nil, err
	}
	if out.Server == (result.Process{}) {
		out.Server = host.Process()
	}
	cell := c.on(ctx, host, p, repeat, enough)
	if err := host.Close(); err != nil {
		cell.Valid = false
		cell.Checks = append(cell.Checks, result.Check{Name: "server_exit", Detail: err.Error()})
	}
	return cell, nil
}

// on measures one point on a host. enough is why it cannot have the connections; nil: it may.
func (c Config) on(ctx context.Context, host *load.Host, p point, repeat int, enough error) *result.Cell {
	progress := load.Progress{Mode: "conns", Op: c.name(p), Stage: "connect", Repeat: repeat, Rounds: c.Repeat}
	c.Load.Progress(progress)
	cell := &result.Cell{
		Mode: host.Mode(), Op: opName, Repeat: repeat, Started: time.Now().UTC(), Valid: true, Checks: []result.Check{}, Series: []result.Row{},
		LatencyMeans: "of connecting: from dialling to the server's first reply",
		Config:       map[string]string{"connections": strconv.Itoa(p.connections), "rate": c.rateWord(p)},
		Conns:        &result.Conns{Connections: p.connections, MessageBytes: c.MessageSize, Offered: c.offered(p), Clients: c.Clients},
	}
	m := &measurement{Config: c, point: p, host: host, cell: cell, progress: progress}
	defer m.close()
	if enough != nil {
		m.check("connected", false, "%v", enough)
		return cell
	}
	if err := m.run(ctx); err != nil {
		err = host.Cause(err)
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		m.check("completed", false, "%v", err)
		cell.Errors, cell.FirstError = 1, err.Error()
	}
	return cell
}

// name is what a point is called while it is measured.
func (c Config) name(p point) string { return fmt.Sprintf("%d at %s", p.connections, c.rateWord(p)) }

func (c Config) rateWord(p point) string {
	if c.Interval > 0 {
		return "every-" + c.Interval.String()
	}
	return rateWord(p.rate)
}

// offered is the messages a second that the point asks for; nil where it asks for all there can be.
func (c Config) offered(p point) *float64 {
	switch {
	case c.Interval > 0: // if a round took no time
		return result.Number(float64(p.connections) / c.Interval.Seconds())
	case p.rate > 0:
		return result.Number(p.rate)
	}
	return nil
}

// measurement is a point being measured.
type measurement struct {
	Config
	point
	host     *load.Host
	cell     *result.Cell
	progress load.Progress
	agents   []agent
}

func (m *measurement) check(name string, pass bool, format string, args ...any) {
	m.cell.Checks = append(m.cell.Checks, result.Check{Name: name, Pass: pass, Detail: fmt.Sprintf(format, args...)})
	m.cell.Valid = m.cell.Valid && pass
}

func (m *measurement) close() {
	for _, a := range m.agents {
		a.close()
	}
}

func (m *measurement) run(ctx context.Context) error {
	// Whoever waits for a child that has died waits in vain.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with this function
		select {
		case <-m.host.Done():
			cancel(errors.New("the server died"))
		case <-m.Load.Kill:
			cancel(errors.New("killed"))
		case <-ctx.Done():
		}
	}()
	if err := m.connect(ctx); err != nil {
		return err
	}
	if err := m.host.Reset(ctx); err != nil {
		return err
	}
	first, err := m.host.Read(ctx)
	if err != nil {
		return err
	}
	total, err := m.send(ctx, first)
	if err != nil {
		return err
	}
	return m.books(ctx, first, total)
}

// memory is what the server has resident, read several times since it moves by itself.
type memory struct{ median, spread float64 }

// memoryReadings are so many, so far apart.
const (
	memoryReadings = 5
	memoryEvery    = 40 * time.Millisecond
)

// leastNoise is what a server's memory may grow by beside its connections: a heap grows in steps, and pools fill.
const leastNoise = 256 << 10

// memory reads it; ok is false for a server that does not tell.
func (m *measurement) memory(ctx context.Context) (mem memory, ok bool, err error) {
	sleepUntil(ctx, time.Now().Add(settle))
	var all []float64
	for range memoryReadings {
		r, err := m.host.Read(ctx)
		if err != nil {
			return mem, false, err
		}
		x, err := strconv.ParseFloat(r.Info()["used_memory_rss"], 64)
		if err != nil {
			return mem, false, nil
		}
		all = append(all, x)
		sleepUntil(ctx, time.Now().Add(memoryEvery))
	}
	slices.Sort(all)
	return memory{all[len(all)/2], all[len(all)-1] - all[0]}, true, nil
}

// growth is the memory that each of so many connections added to the server; nil where that is lost in the noise.
func growth(before, after memory, connections int) *float64 {
	if more := after.median - before.median; more >= 2*max(before.spread, after.spread, leastNoise) {
		return result.Number(more / float64(connections))
	}
	return nil
}

// share is the i-th agent's part of n.
func (m *measurement) share(n, i int) int {
	part := n / m.Clients
	if i < n%m.Clients {
		part++
	}
	return part
}

// connect starts the agents and has them connect, one half of the connections after the other. What the server's memory grows by
// between the two is that of connections alone: what the first of them make it allocate once is in both.
func (m *measurement) connect(ctx context.Context) error {
	for range m.Clients {
		if m.Clients == 1 {
			m.agents = append(m.agents, new(sender))
			break
		}
		r, err := startRemote(m.Client)
		if err != nil {
			return err
		}
		m.agents = append(m.agents, r)
	}
	half := m.connections / 2
	var opened opening
	opened.times = hdr.New(1, int64(maxConnect), 3)
	if err := m.open(ctx, &opened, 0, half); err != nil {
		return err
	}
	before, known, err := m.memory(ctx)
	if err == nil {
		err = m.open(ctx, &opened, half, m.connections)
	}
	if err != nil {
		return err
	}
	m.cell.LatencyUS = load.Latency(opened.times)
	m.cell.Conns.ConnectPerSec = result.Number(float64(m.connections) / opened.seconds)
	m.check("connected", true, "%d of %d connections in %.3f s", opened.count, m.connections, opened.seconds)
	after, _, err := m.memory(ctx)
	if known {
		m.cell.Conns.RSSPerConnB = growth(before, after, m.connections-half)
	}
	return err
}

// opening is what became of opening connections so far.
type opening struct {
	count   int
	seconds float64
	times   *hdr.Histogram
}

// open has the agents open the connections from one number to another.
func (m *measurement) open(ctx context.Context, all *opening, from, to int) error {
	target := m.host.Target()
	begin := time.Now()
	reports := make([]connected, len(m.agents))
	firsts, first := make([]int, len(m.agents)), from
	for i := range firsts {
		firsts[i] = first
		first += m.share(to-from, i)
	}
	if err := m.each(func(i int, a agent) (err error) {
		reports[i], err = a.connect(ctx, connectOrder{
			Addr: target.Addr, TLS: target.TLS, User: target.User, Password: target.Password, Connections: m.share(to-from, i), First: firsts[i],
			Rate: m.ConnectRate / float64(m.Clients), TimeoutSeconds: m.Load.Patience.Seconds(),
		})
		return err
	}); err != nil {
		return err
	}
	all.seconds += time.Since(begin).Seconds()
	failure := ""
	for _, r := range reports {
		all.count += r.Connections
		if r.Failure != "" {
			failure = "; " + r.Failure
		}
		if r.Histogram != "" {
			h, err := hdr.Decode([]byte(r.Histogram))
			if err != nil {
				return fmt.Errorf("connect times of a client: %w", err)
			}
			all.times.Merge(h)
		}
	}
	if all.count < to {
		m.cell.LatencyUS = load.Latency(all.times)
		m.check("connected", false, "%d of %d connections in %.3f s%s", all.count, m.connections, all.seconds, failure)
		return fmt.Errorf("%d of %d connections%s", all.count, m.connections, failure)
	}
	return nil
}

// each has all agents do something at the same time.
func (m *measurement) each(f func(i int, a agent) error) error {
	errs := make([]error, len(m.agents))
	var running sync.WaitGroup
	for i, a := range m.agents {
		running.Go(func() { errs[i] = f(i, a) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// send has the agents send, reads the server's count at the end of each window, and enters it and what the agents had sent
// at the same two moments. It returns how many messages were sent in all.
func (m *measurement) send(ctx context.Context, first load.Reading) (total int64, err error) {
	start := time.Now().Add(lead)
	warm, windows := int(m.Warmup/window), int((m.Warmup+m.Duration)/window)
	reports := make([]sent, len(m.agents))
	sending := make(chan error, 1)
	agents, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends with the agents, which end with the last window or with their context
		sending <- m.each(func(i int, a agent) (err error) {
			reports[i], err = a.send(agents, sendOrder{
				StartUnixNano: start.UnixNano(), EndUnixNano: start.Add(time.Duration(windows)*window + tail).UnixNano(),
				Interval: m.Interval, MessageSize: m.MessageSize,
				Rate: m.rate * float64(m.share(m.connections, i)) / float64(m.connections),
			})
			return err
		})
	}()
	received, before, after, err := m.watch(ctx, start, warm, windows)
	if err != nil { // nothing is gained by sending on
		stop()
		<-sending
		return 0, err
	}
	if err := <-sending; err != nil {
		return 0, err
	}
	var until [2]float64 // sent at both ends of the window
	for _, r := range reports {
		total += r.Total
		if r.Failure != "" {
			m.check("errors", false, "%s", r.Failure)
			m.cell.Errors++
		}
		if len(r.UnixNano) != len(r.Messages) {
			return 0, fmt.Errorf("a client reports %d moments and %d counts", len(r.UnixNano), len(r.Messages))
		}
		until[0] += r.until(before.At)
		until[1] += r.until(after.At)
	}
	// What the server had executed had been sent, whatever the two clocks say.
	var waiting [2]float64
	for i, r := range []load.Reading{before, after} {
		executed, err := executedSince(first, r)
		if err != nil {
			return 0, err
		}
		until[i] = max(until[i], executed)
		waiting[i] = until[i] - executed
	}
	sum := until[1] - until[0]
	seconds := after.At.Sub(before.At).Seconds()
	m.cell.Seconds, m.cell.OK = seconds, received
	c := m.cell.Conns
	c.Received = result.Number(float64(received) / seconds)
	m.cell.QPS = c.Received
	c.Sent = result.Number(sum / seconds)
	c.WaitingBefore, c.WaitingAfter = result.Number(waiting[0]), result.Number(waiting[1])
	c.ReceivedShare = result.Ratio(c.Received, c.Sent)
	if c.Offered != nil {
		c.ReceivedShare = result.Ratio(c.Received, c.Offered)
	}
	m.host.Enter(m.cell, before, after, received)
	if per := m.cell.Server.CPUPerOp; per != nil {
		c.ServerCPU = result.Number(*per * float64(received) / 1e6 / seconds)
	}
	long := m.Duration.Seconds()
	m.check("window", received > 0 && seconds > (1-windowSlack)*long && seconds < (1+windowSlack)*long,
		"%d messages received and %.0f sent in %.3f of %v s; %.0f %% allowed", received, sum, seconds, long, 100*windowSlack)
	return total, nil
}

// executedSince is how many messages the server executed between two readings.
func executedSince(first, r load.Reading) (float64, error) {
	a, err := first.Calls("ping")
	if err != nil {
		return 0, err
	}
	b, err := r.Calls("ping")
	return float64(b - a), err
}

// watch reads the server's count at the end of each window, and everything at both ends of the measured ones.
func (m *measurement) watch(ctx context.Context, start time.Time, warm, windows int) (received int64, before, after load.Reading, err error) {
	var last int64
	var lastAt time.Time
	for i := warm; i <= windows; i++ {
		sleepUntil(ctx, start.Add(time.Duration(i)*window))
		if ctx.Err() != nil {
			return 0, before, after, context.Cause(ctx)
		}
		n, at, err := int64(0), time.Time{}, error(nil)
		if i == warm || i == windows {
			after, err = m.host.Read(ctx)
			if at = after.At; err == nil {
				n, err = after.Calls("ping")
			}
		} else {
			n, at, err = m.host.Count(ctx, "ping")
		}
		if err != nil {
			return 0, before, after, err
		}
		if i == warm {
			before = after
		} else {
			seconds := at.Sub(lastAt).Seconds()
			m.cell.Series = append(m.cell.Series, result.Row{
				T: lastAt.Sub(before.At).Seconds(), Seconds: seconds, OK: n - last, QPS: result.Number(float64(n-last) / seconds),
			})
			received += n - last
			m.progress.Stage = fmt.Sprintf("%.0f messages/s received,", float64(n-last)/seconds)
			m.progress.Elapsed, m.progress.Total = time.Since(start)-m.Warmup, m.Duration
			m.Load.Progress(m.progress)
		}
		last, lastAt = n, at
	}
	return received, before, after, nil
}

// books waits until the server has executed all that was sent, or no more comes.
func (m *measurement) books(ctx context.Context, first load.Reading, total int64) error {
	a, err := first.Calls("ping")
	if err != nil {
		return err
	}
	executed, moved := int64(-1), time.Now()
	for ctx.Err() == nil {
		b, _, err := m.host.Count(ctx, "ping")
		if err != nil {
			return err
		}
		if b-a != executed {
			executed, moved = b-a, time.Now()
		}
		if executed >= total || time.Since(moved) > 2*time.Second {
			break
		}
		sleepUntil(ctx, time.Now().Add(20*time.Millisecond))
	}
	m.check("books_commands", executed == total, "%d messages sent, server executed %d", total, executed)
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	m.check("completed", true, "%.3f s", m.cell.Seconds)
	return nil
}
