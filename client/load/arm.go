package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kvmark/client/result"
)

// Arm is one fresh server with its connected workers, for experiments that measure several servers in turns. [Run] is
// the plain way to measure one after the other.
//
//	Start, then for each operation: Fill unless it is Set, Begin, Slice as often as wanted, End; at last Stop
//
// Between two slices the workers rest, and other arms may be driven. It is not safe for concurrent use.
type Arm struct {
	s      *session
	dir    scratch
	open   *measurement
	driven *driven // nil: Sets and Gets
	beside []*Arm  // whose servers live at the same time
}

// measurement is a cell whose window consists of slices.
type measurement struct {
	cell    result.Cell
	m       measured
	expense own            // of this process, within slices
	machine result.LoadSum // what it did meanwhile, summed over slices
	servers time.Duration  // CPU time of all servers that live beside each other, within slices
}

// Slice is what one slice of a window gave.
type Slice struct {
	OK      int64   `json:"ok"`
	Seconds float64 `json:"seconds"`
}

// Start starts a server of the first of c's modes on an empty directory below c.Dir, and connects c's workers to it. c.Repeat
// is the number that cells carry. On an error nothing is left behind.
func Start(ctx context.Context, c Config) (_ *Arm, err error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if c.Driver != nil {
		d, err := startDriven(ctx, c)
		if err != nil {
			return nil, err
		}
		return &Arm{s: d.s, driven: d}, nil
	}
	if err := c.ensureDescriptors(); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	c = c.withDefaults()
	if c.Workload, err = c.Workload.Calibrate(c.Codec, c.Level, c.BucketEntries); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	a := &Arm{s: &session{runner: &runner{Config: c, clockStep: clockStep()}, mode: c.Modes[0], repeat: c.Repeat}}
	if a.dir, err = newScratch(c); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	a.s.pauses = watchPauses()
	a.s.dir = a.dir.data()
	defer func() {
		if err != nil {
			a.s.pauses.close()
			_ = a.dir.remove()
			err = fmt.Errorf("load: mode %s: %w", a.s.mode, err)
		}
	}()
	if a.s.server, err = a.s.startServer(ctx, a.s.mode, a.s.dir); err != nil {
		return nil, err
	}
	if err = a.s.open(ctx); err != nil {
		a.s.close()
		return nil, errors.Join(err, a.s.server.stop(a.s.runner))
	}
	return a, nil
}

// Beside tells which arms have servers that live at the same time, this one among them or not. What those use while this arm has
// its slice is no other process's doing.
func (a *Arm) Beside(arms []*Arm) { a.beside = arms }

// servers is the CPU time that the servers of all arms have used, as far as the system tells.
func (a *Arm) servers() time.Duration {
	all, _ := a.s.server.cpuClock()
	for _, other := range a.beside {
		if other != nil && other != a {
			cpu, _ := other.s.server.cpuClock()
			all += cpu
		}
	}
	return all
}

// Process is the server as it sees itself.
func (a *Arm) Process() result.Process { return a.s.out.Server }

// PID is the server's process id.
func (a *Arm) PID() int { return a.s.server.pid }

// Fill writes every key that was not yet written, many with one write.
func (a *Arm) Fill(ctx context.Context) error {
	if a.driven != nil {
		return nil
	}
	return a.s.cause(a.s.fill(ctx, a.s.progress("", "fill")))
}

// Begin opens the window of an operation: a slice of PING, the warm-up, and the counters of the server at rest.
func (a *Arm) Begin(ctx context.Context, op string) error {
	if a.driven != nil {
		return nil
	}
	s := a.s
	if err := oneOf("op", op, []string{"set", "get", "mix"}); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if err := s.connect(ctx); err != nil {
		return s.cause(err)
	}
	m := &measurement{m: measured{kind: kinds[op], ceiling: s.ping(ctx, op)}}
	if s.mute {
		return s.cause(s.silence())
	}
	if s.Warmup > 0 {
		m.m.warm = s.phase(ctx, m.m.kind, s.Rate.steady(), s.Warmup, s.progress(op, "warm-up"))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return s.cause(err)
	}
	err := s.reset(ctx)
	if err == nil {
		m.m.before, err = s.edge(ctx)
	}
	if err != nil {
		return s.cause(err)
	}
	m.cell = s.newCell(op)
	m.cell.Started = time.Now().UTC()
	m.m.out.timing = newTiming(s.Pipeline, s.Rate.Open())
	m.expense = own{cpuKnown: true, gomaxprocs: m.m.before.own.gomaxprocs}
	a.open = m
	return nil
}

// Slice lets the workers run for d and adds what they did to the window. REQUIRES: Begin.
func (a *Arm) Slice(ctx context.Context, d time.Duration) Slice {
	if a.driven != nil {
		return a.driven.slice(ctx, d)
	}
	m := a.open
	if m.m.out.silent { // the next slice would only wait as long again
		return Slice{}
	}
	load, servers, before := result.CaptureLoad(), a.servers(), readOwn()
	out := a.s.phase(ctx, m.m.kind, a.s.Rate, d, a.s.progress(m.cell.Op, "measure"))
	m.expense.add(before, readOwn())
	m.servers += a.servers() - servers
	m.machine.Add(load, result.CaptureLoad())
	m.m.slices++
	total := &m.m.out
	for _, row := range out.rows {
		row.T += total.seconds
		total.rows = append(total.rows, row)
	}
	total.add(out.tally)
	total.timing.merge(out.timing)
	total.seconds += out.seconds
	total.cut = total.cut || out.cut
	total.silent = total.silent || out.silent
	total.paused.add(out.paused)
	total.slices.add(out.slices)
	return Slice{out.ok, out.seconds}
}

// add counts what was used between two readings.
func (o *own) add(before, after own) {
	o.cpu += after.cpu - before.cpu
	o.cpuKnown = o.cpuKnown && before.cpuKnown && after.cpuKnown
	o.cycles += after.cycles - before.cycles
	o.gcCPU += after.gcCPU - before.gcCPU
	o.total += after.total - before.total
	o.gomaxprocs = after.gomaxprocs
}

// End closes the window and checks the books. The error says that the server is gone; the cell then says so too.
func (a *Arm) End(ctx context.Context) (result.Cell, error) {
	if a.driven != nil {
		return a.driven.end()
	}
	s, m := a.s, a.open
	a.open = nil
	out := m.m.out
	after, err := s.edge(ctx)
	if err == nil {
		m.m.keys, err = s.size(ctx)
	}
	if err == nil && !out.cut {
		m.m.ceiling = max(m.m.ceiling, s.ping(ctx, m.cell.Op))
	}
	err = s.cause(err)
	// This process drove other arms too between the edges; only its slices for this one count.
	start := m.m.before.own
	sched := after.own.sched
	after.own = m.expense
	after.own.sched = sched // of all arms: goroutines wait for CPUs, not for arms
	after.own.cpu += start.cpu
	after.own.cycles += start.cycles
	after.own.gcCPU += start.gcCPU
	after.own.total += start.total
	m.m.after, m.m.err = after, err
	if m.m.slices > 0 {
		others := m.machine.Others((m.expense.cpu + m.servers).Seconds())
		m.m.others = &others
	}
	c := m.cell
	if out.seconds > 0 {
		count(&c, out)
	}
	c.Reconnects = s.reconnects
	s.reconnects = 0
	s.judge(&c, m.m)
	return c, err
}

// Stop ends the server and removes its data. The error says that it did not end as it should.
func (a *Arm) Stop() error {
	if a.driven != nil {
		return a.driven.Close()
	}
	a.s.close()
	a.s.pauses.close()
	err := a.s.server.stop(a.s.runner)
	if !a.s.Keep {
		err = errors.Join(err, a.dir.remove())
	}
	return err
}
