package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"kvmark/client"
	"kvmark/client/result"
)

// Host is a running server for loads of another kind than those of [Run]: a fresh child like theirs, on an empty
// directory, or the target. It is not safe for concurrent use.
type Host struct {
	s   *session
	dir scratch // of the child's data; zero for a target
}

// OpenHost starts a server of the first of c's modes that takes so many connections, or connects to c's target. Of c count
// what concerns the server, Patience, Logf and Kill. On an error nothing is left behind.
func OpenHost(ctx context.Context, c Config, connections int) (_ *Host, err error) {
	c.Workload.Workers = connections
	c = c.withDefaults()
	h := &Host{s: &session{runner: &runner{Config: c}, mode: targetMode}}
	h.s.pauses = watchPauses()
	defer func() {
		if err != nil {
			h.s.pauses.close()
		}
	}()
	if c.Target.Addr != "" {
		h.s.server = newTarget(c.Target)
	} else {
		if err := c.validateServer(); err != nil {
			return nil, fmt.Errorf("load: %w", err)
		}
		h.s.mode = c.Modes[0]
		if h.dir, err = newScratch(c); err != nil {
			return nil, fmt.Errorf("load: %w", err)
		}
		if h.s.server, err = h.s.startServer(ctx, h.s.mode, h.dir.data()); err != nil {
			return nil, errors.Join(fmt.Errorf("load: mode %s: %w", h.s.mode, err), h.dir.remove())
		}
	}
	if h.s.control, err = h.s.dial(ctx, "kvmark-control"); err == nil {
		var in info
		if in, err = h.s.info(ctx); err == nil {
			h.s.out.Server, h.s.gomaxprocs = in.process(), in["gomaxprocs"]
			return h, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("load: %w", h.s.cause(err)), h.end())
}

// Mode is the server's storage mode; "target" for a target.
func (h *Host) Mode() string { return h.s.mode }

// Addr is where the server listens.
func (h *Host) Addr() string { return h.s.server.addr }

// Target is how the server is reached. For a child it has an address only.
func (h *Host) Target() Target { return h.s.server.target() }

// Process is the server as it sees itself.
func (h *Host) Process() result.Process { return h.s.out.Server }

// Done is closed when the child has died; never for a target.
func (h *Host) Done() <-chan struct{} { return h.s.server.done }

// Control gives the connection that was proved to be to this server, for a moment and within bounds.
func (h *Host) Control(ctx context.Context, f func(*client.Conn) error) error { return h.s.ask(ctx, f) }

// GiveUp says that the server has let others wait for as long as they may: from now on little is waited for.
func (h *Host) GiveUp() { h.s.server.silent.Store(true) }

// Cause puts the server's death before its consequences.
func (h *Host) Cause(err error) error { return h.s.cause(err) }

// Close ends the child and removes its data. The error says that it did not end as it should.
func (h *Host) Close() error {
	h.s.pauses.close()
	return h.end()
}

func (h *Host) end() error {
	h.s.close()
	if h.s.server.foreign {
		return nil
	}
	err := h.s.server.stop(h.s.runner)
	if h.s.killed() {
		err = nil // so asked
	}
	if !h.s.Keep {
		err = errors.Join(err, h.dir.remove())
	}
	return err
}

// Reading is what the server and this process had used up at a moment.
type Reading struct {
	At time.Time // half way between asking the server and its answer
	e  edge
}

// Info is the server's INFO by field.
func (r Reading) Info() map[string]string { return r.e.server }

// Counts reports whether the server tells at all how often it has executed commands.
func (r Reading) Counts() bool { return r.e.server.counts() }

// Calls is how often the server has executed a command.
func (r Reading) Calls(command string) (int64, error) { return r.e.server.calls(command) }

// Count is how often the server has executed a command until a moment, half way between asking and its answer. It costs the
// server less than a reading.
func (h *Host) Count(ctx context.Context, command string) (n int64, at time.Time, err error) {
	asked := time.Now()
	err = h.s.ask(ctx, func(c *client.Conn) error {
		in, err := readSection(c, "commandstats")
		at = between(asked)
		if err == nil {
			n, err = in.calls(command)
		}
		return err
	})
	return n, at, err
}

// between is half way between a moment and now.
func between(asked time.Time) time.Time { return asked.Add(time.Since(asked) / 2) }

// Read takes a reading.
func (h *Host) Read(ctx context.Context) (Reading, error) {
	e, err := h.s.edge(ctx)
	return Reading{e.at, e}, err
}

// Reset re-bases the percentiles and peaks of a child; those of a target are not ours to reset.
func (h *Host) Reset(ctx context.Context) error { return h.s.reset(ctx) }

// Enter enters what the server and this process used between two readings, in which the server did ops operations, and
// checks that this process ran all the time, and that neither was throttled nor changed its GOMAXPROCS.
func (h *Host) Enter(c *result.Cell, before, after Reading, ops int64) {
	c.Server = after.e.server.server(before.e.server, ops)
	a, b := before.e.own, after.e.own
	c.Client.GOMAXPROCS = runtime.GOMAXPROCS(0)
	if ops > 0 && a.cpuKnown && b.cpuKnown {
		c.Client.CPUPerOp = result.Number(float64((b.cpu - a.cpu).Nanoseconds()) / 1e3 / float64(ops))
	}
	if cycles := b.cycles - a.cycles; cycles >= 0 {
		c.Client.GCCycles = result.Number(cycles)
		if cycles > 0 { // without a cycle the runtime has not refreshed its CPU classes
			c.Client.GCCPUShare = result.Number((b.gcCPU - a.gcCPU) / (b.total - a.total))
		}
	}
	// Processes that send for this one are others to the system.
	if c.Server.CPUPerOp != nil && a.cpuKnown && b.cpuKnown && (c.Conns == nil || c.Conns.Clients == 1) {
		c.Others = after.e.load.Since(before.e.load, (b.cpu-a.cpu).Seconds()+*c.Server.CPUPerOp/1e6*float64(ops))
	}
	check := func(name string, pass bool, format string, args ...any) {
		c.Checks = append(c.Checks, result.Check{Name: name, Pass: pass, Detail: fmt.Sprintf(format, args...)})
		c.Valid = c.Valid && pass
	}
	checkPauses(h.s.pauses.between(before.At, after.At), after.At.Sub(before.At), check)
	x, y := before.e.server["gomaxprocs"], after.e.server["gomaxprocs"]
	check("gomaxprocs_same", x == y && y == h.s.gomaxprocs && a.gomaxprocs == b.gomaxprocs,
		"server %s, then %s, at first %s; client %d, then %d", x, y, h.s.gomaxprocs, a.gomaxprocs, b.gomaxprocs)
	if m, n := before.e.load.NrThrottled, after.e.load.NrThrottled; m != nil && n != nil {
		check("throttled", *m == *n, "%d periods", *n-*m)
	} else {
		check("throttled", true, "no CPU quota is known here")
	}
}
