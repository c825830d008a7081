package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"time"

	"kvmark/client"
	"kvmark/client/result"
	"kvmark/client/workload"
)

// session is one server and the workers that load it.
type session struct {
	*runner
	mode       string
	dir        string // its data
	repeat     int
	server     *server
	control    *client.Conn // reads INFO and DBSIZE while the workers rest
	workers    []*worker
	reconnects int64
	base       int64 // keys that a target held before
	outOfStep  error // of the cell: a reply came that none of the requests was due
	mute       bool  // the last PING had no reply for as long as it may take
}

// session measures all operations of one mode on a fresh server. Cells go to the runner's outcome. The error says that
// the server could not be started or proved; everything later is a matter of cells.
func (r *runner) session(ctx context.Context, mode string, repeat int, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	s := &session{runner: r, mode: mode, dir: dir, repeat: repeat}
	r.Progress(s.progress("", "start"))
	if s.server, err = r.startServer(ctx, mode, dir); err != nil {
		return err
	}
	first := len(r.out.Cells)
	defer func() {
		s.close()
		died := s.server.dead()
		stopErr := s.server.stop(r)
		if stopErr == nil || r.killed() {
			return
		}
		// A death that has already made the cell invalid need not be told twice.
		if n := len(r.out.Cells); n > first && (!died || r.out.Cells[n-1].Valid) {
			r.Logf("mode %s: %v", mode, stopErr)
			fail(&r.out.Cells[n-1], "server_exit", stopErr.Error())
		}
	}()
	if err := s.open(ctx); err != nil {
		return s.cause(err)
	}
	alive, err := s.measure(ctx)
	if alive && err == nil && r.SecondOpinion {
		s.secondOpinion(ctx)
	}
	return err
}

// measure measures all operations once. It reports whether the server can still be used; the error is that of an interruption.
func (s *session) measure(ctx context.Context) (alive bool, err error) {
	r := s.runner
	for i, op := range r.Ops {
		if ctx.Err() != nil || r.killed() {
			return false, context.Canceled
		}
		measureOp := s.cell
		if r.SLO.Set() {
			measureOp = s.search
		}
		cell, err := measureOp(ctx, op)
		if cell != nil {
			r.out.Cells = append(r.out.Cells, *cell)
		}
		if r.out.Interrupted {
			return false, context.Canceled
		}
		if err != nil {
			if ctx.Err() != nil || r.killed() {
				return false, context.Canceled
			}
			// The rest of this server's cells cannot be measured; the next mode can.
			if cell == nil {
				c := s.newCell(op)
				fail(&c, "completed", "not measured: "+err.Error())
				r.out.Cells = append(r.out.Cells, c)
			}
			for _, later := range r.Ops[i+1:] {
				c := s.newCell(later)
				fail(&c, "completed", fmt.Sprintf("not measured: the server was lost in %s", op))
				r.out.Cells = append(r.out.Cells, c)
			}
			r.Logf("mode %s: %v", s.mode, err)
			return false, nil
		}
	}
	return true, nil
}

func (s *session) progress(op, stage string) Progress {
	return Progress{Mode: s.mode, Op: op, Stage: stage, Repeat: s.repeat, Rounds: s.Repeat}
}

// open connects everything, and sees that the server is ours and empty.
func (s *session) open(ctx context.Context) error {
	var err error
	if s.control, err = s.dial(ctx, "kvmark-control"); err != nil {
		return err
	}
	if s.server.foreign {
		err = s.introduce()
	} else if s.base, err = s.size(ctx); err == nil && s.base != 0 {
		err = fmt.Errorf("%s, freshly started, already holds %d keys", s.server.addr, s.base)
	}
	if err != nil {
		return err
	}
	in, err := s.info(ctx)
	if err != nil {
		return err
	}
	if s.out.Server == (result.Process{}) {
		s.out.Server = in.process()
		s.gomaxprocs = in["gomaxprocs"]
	}
	for id := range s.Workload.Workers {
		w, err := newWorker(id, s.Config)
		if err != nil {
			return err
		}
		s.workers = append(s.workers, w)
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	s.reconnects = 0 // these were the first
	if s.server.foreign {
		return s.probe()
	}
	return nil
}

// dial connects and proves over this very connection that the server is our child.
func (s *session) dial(ctx context.Context, name string) (*client.Conn, error) {
	if s.server.foreign {
		return s.dialTarget(ctx, name)
	}
	c, err := client.Dial(ctx, s.server.addr, client.Options{Name: name, Timeout: s.Patience, MaxReply: workload.MaxValueSize})
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(s.Patience)); err != nil {
		c.Close()
		return nil, err
	}
	in, err := readInfo(c)
	if err == nil && (in["run_id"] != s.server.runID || in["process_id"] != strconv.Itoa(s.server.pid)) {
		err = fmt.Errorf("%s is not the server we started: run id %q, pid %s; want %q, %d",
			s.server.addr, in["run_id"], in["process_id"], s.server.runID, s.server.pid)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// connect gives every worker whose connection is broken a new one.
func (s *session) connect(ctx context.Context) error {
	for _, w := range s.workers {
		if !w.dead {
			continue
		}
		if w.conn != nil {
			w.conn.Close()
		}
		c, err := s.dial(ctx, "kvmark-"+strconv.Itoa(w.id))
		if err != nil {
			return err
		}
		if s.paced() {
			c.TrackReads() // where it cannot be, the cells say so
		}
		w.conn, w.dead = c, false
		s.reconnects++
	}
	return nil
}

func (s *session) close() {
	if s.control != nil {
		s.control.Close()
	}
	for _, w := range s.workers {
		if w.conn != nil {
			w.conn.Close()
		}
		if w.alarm != nil {
			w.alarm.close()
		}
	}
}

// ask runs one command on the control connection, within bounds, which are tighter once ctx has ended or the server has
// been silent for too long.
func (s *session) ask(ctx context.Context, f func(*client.Conn) error) error {
	if err := s.control.SetDeadline(time.Now().Add(s.server.patience(s.Patience))); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = s.control.SetDeadline(time.Now().Add(min(cutGrace, s.Patience))) })()
	err := f(s.control)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		s.server.silent.Store(true)
	}
	return err
}

func (s *session) info(ctx context.Context) (in info, err error) {
	err = s.ask(ctx, func(c *client.Conn) error {
		in, err = readInfo(c)
		if s.server.foreign && errors.As(err, new(*client.ServerError)) {
			in, err = info{}, nil // a target without INFO can be measured, but tells nothing
		}
		return err
	})
	return in, err
}

// size is the number of keys that the server says it has.
func (s *session) size(ctx context.Context) (n int64, err error) {
	err = s.ask(ctx, func(c *client.Conn) error {
		r, err := c.Do("DBSIZE")
		n = r.Int
		return err
	})
	return n, err
}

// reset re-bases the server's percentiles and peaks. Without it they are those of its life, so an error reply is no
// reason to stop. A target's are not ours to reset.
func (s *session) reset(ctx context.Context) error {
	if s.server.foreign {
		return nil
	}
	return s.ask(ctx, func(c *client.Conn) error {
		_, err := c.Do("CONFIG", "RESETSTAT")
		if errors.As(err, new(*client.ServerError)) {
			s.Logf("mode %s: %v", s.mode, err)
			return nil
		}
		return err
	})
}

// own is what this process has used so far.
type own struct {
	cpu          time.Duration
	cpuKnown     bool
	cycles       float64
	gcCPU, total float64 // seconds
	gomaxprocs   int
	sched        *metrics.Float64Histogram // seconds that goroutines waited for a CPU
}

func readOwn() own {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
		{Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/sched/latencies:seconds"},
	}
	metrics.Read(samples)
	o := own{gomaxprocs: runtime.GOMAXPROCS(0)}
	o.cycles = float64(samples[0].Value.Uint64())
	o.gcCPU = samples[1].Value.Float64() - samples[2].Value.Float64()
	o.total = samples[3].Value.Float64()
	o.sched = samples[4].Value.Float64Histogram()
	o.cpu, o.cpuKnown = cpuTime()
	return o
}

// schedP99 is the p99 of what goroutines waited for a CPU since an earlier reading, in us, as the upper end of the runtime's
// bucket; nil if none did, or for longer than the runtime tells apart.
func (o own) schedP99(before own) *float64 {
	if o.sched == nil || before.sched == nil {
		return nil
	}
	var all, seen uint64
	for i, n := range o.sched.Counts {
		all += n - before.sched.Counts[i]
	}
	for i, n := range o.sched.Counts {
		if seen += n - before.sched.Counts[i]; all > 0 && seen*100 >= all*99 {
			return result.Number(o.sched.Buckets[i+1] * 1e6)
		}
	}
	return nil
}

// edge is everything that is read at one end of a window, while the workers rest.
type edge struct {
	at     time.Time     // half way between asking the server and its answer
	took   time.Duration // from asking to the answer
	server info
	own    own
	load   result.Load
}

func (s *session) edge(ctx context.Context) (edge, error) {
	asked := time.Now()
	in, err := s.info(ctx)
	return edge{between(asked), time.Since(asked), in, readOwn(), result.CaptureLoad()}, err
}

// pingSlices of that length belong to each window, half of them before it and half after it.
const pingSlices = 4

func (c Config) slice() time.Duration {
	return min(max(c.Duration/40, 20*time.Millisecond), time.Second)
}

var kinds = map[string]kind{"set": sets, "get": gets, "mix": mixed}

// cell measures one operation. A nil cell with an error means that the window never opened; with both, the server is
// gone or does not answer any more.
func (s *session) cell(ctx context.Context, op string) (*result.Cell, error) {
	k := kinds[op]
	if k != sets {
		if err := s.fill(ctx, s.progress(op, "fill")); err != nil {
			return nil, s.cause(err)
		}
	}
	if err := s.connect(ctx); err != nil {
		return nil, s.cause(err)
	}
	ceiling := s.ping(ctx, op)
	floor := s.pingAtRate(ctx, op)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if s.mute {
		return nil, s.cause(s.silence())
	}
	var warm outcome
	if s.Warmup > 0 {
		warm = s.phase(ctx, k, s.Rate.steady(), s.Warmup, s.progress(op, "warm-up"))
		if warm.cut {
			return nil, context.Canceled
		}
		if warm.silent {
			return nil, s.cause(s.silence())
		}
	}
	if err := s.connect(ctx); err != nil {
		return nil, s.cause(err)
	}
	if err := s.cool(op); err != nil {
		return nil, err
	}
	if err := s.reset(ctx); err != nil {
		return nil, s.cause(err)
	}
	before, err := s.edge(ctx)
	if err != nil {
		return nil, s.cause(err)
	}
	c := s.newCell(op)
	c.Started = time.Now().UTC()
	samples := s.sample(ctx, op, before)
	out := s.phase(ctx, k, s.Rate, s.Duration, s.progress(op, "measure"))
	join(out.rows, samples())
	out.stops.explain(out.rows)
	s.pauses.excuse(out.rows, out.began)
	var after edge
	if out.silent {
		err = s.silence()
	} else {
		after, err = s.edge(ctx)
	}
	var keys int64
	if err == nil {
		keys, err = s.size(ctx)
	}
	if err == nil && !out.cut {
		ceiling = max(ceiling, s.ping(ctx, op))
		floor.merge(s.pingAtRate(ctx, op))
	}
	err = s.cause(err)
	s.out.Interrupted = out.cut
	count(&c, out)
	c.Reconnects = s.reconnects
	s.reconnects = 0
	s.judge(&c, measured{kind: k, warm: warm, out: out, before: before, after: after, keys: keys, ceiling: ceiling, floor: floor, err: err})
	return &c, err
}

// ping measures what the same workers do with PING, in replies a second: the better of two slices, since something else on
// the machine may spoil one.
func (s *session) ping(ctx context.Context, op string) (best float64) {
	for range pingSlices / 2 {
		out := s.phase(ctx, pings, Rate{}, s.slice(), s.progress(op, "ping"))
		if s.mute = out.silent; s.mute {
			break
		}
		if out.seconds > 0 {
			best = max(best, float64(out.ok)/out.seconds)
		}
	}
	return best
}

// silence is the error of a phase that ended because no worker had a reply. The next would only wait as long again.
func (s *session) silence() error {
	s.server.silent.Store(true)
	return fmt.Errorf("%s has not answered on any of %d connections for %v", s.server.addr, len(s.workers), s.Patience)
}

// A PING at the run's rate goes on until so many are due, within bounds.
const (
	pingsAtRate    = 50
	shortestAtRate = 100 * time.Millisecond
	longestAtRate  = time.Second
)

// pingAtRate measures PING at the rate of the run, which is what a reply takes at least: low rates wake idle CPUs, so that
// it is more than in closed loop. Empty in closed loop.
func (s *session) pingAtRate(ctx context.Context, op string) timing {
	if !s.Rate.Open() || ctx.Err() != nil || s.mute {
		return timing{}
	}
	rate := s.Rate.steady()
	length := min(max(time.Duration(pingsAtRate/rate.From*1e9), shortestAtRate), longestAtRate)
	out := s.phase(ctx, pings, rate, length, s.progress(op, "ping"))
	s.mute = out.silent
	return out.timing
}

// cause puts the server's death before its consequences.
func (s *session) cause(err error) error {
	if err == nil {
		return nil
	}
	// The connection breaks a moment before the process is reaped.
	if s.server.ended(time.Second) {
		return fmt.Errorf("the server (pid %d) died: %s%s", s.server.pid, s.server.exit(), s.server.lastWords())
	}
	return err
}
