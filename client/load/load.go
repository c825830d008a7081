// Package load measures a kvserver: it starts a fresh one for each mode, loads it in closed or open loop, and checks
// its own numbers against the server's before it calls them valid. It is what `kvmark run` does, as a library.
//
// For each mode and operation:
//
//	start   a fresh server on an empty directory, proved to be our child on every connection
//	fill    (before Gets) the keys that were never hit, untimed; DBSIZE proves that all exist
//	ping    two short slices of PING: what the client and the connections could do
//	warm    the same requests as below, not counted
//	        -- every worker has its last reply; the server's counters are read --
//	window  t0 .. t0+duration; clock, counts and histograms begin at t0
//	        -- replies still due are drained and counted apart; the counters are read again --
//	ping    two more slices
//	check   the books
//
// In closed loop a worker sends when its last reply is there; in open loop ([Rate]) when the schedule says so. Once a second
// within the window the server is asked what it does, so that a slow second can be explained. A [Target] is a server that
// somebody else has started.
//
// A reply counts if it was complete before the window closed, and only if it was right. Every wait has an end.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"kvmark/client"
	"kvmark/client/result"
	"kvmark/client/workload"
	"kvmark/kvserver/setting"
)

// Config is one run.
type Config struct {
	Modes    []string // storage modes in the order they are measured
	Ops      []string // set, get, mix; empty: set and get, or mix alone when the workload has a mix
	Workload workload.Config
	Duration time.Duration // of the window of each cell
	Warmup   time.Duration // before each window; 0: none
	Repeat   int           // rounds over the modes, each with fresh servers
	Pipeline int           // requests that a worker sends with one write before it reads their replies
	Rate     Rate          // zero: closed loop
	Arrivals string        // in open loop, constant or poisson; "" is constant

	Driver        Driver // what an [Arm] does instead of Sets and Gets; nil: those
	SLO           SLO    // when set, the highest constant rate that keeps it is searched for each operation; Rate is zero
	SecondOpinion bool   // let redis-benchmark, where it is installed, load each server once more at the end
	Cold          bool   // drop the system's cache of mode file's values before and during each window; Linux
	Target        Target // measured instead of servers of our own; Modes has no meaning then
	AllowData     bool   // measure a target although it holds keys

	Server        string   // path of the kvserver binary
	ServerArgs    []string // more flags of kvserver serve, behind those that follow from the rest
	ServerEnv     []string // what the server's runtime is told, such as GOGC=50, in place of what this process's environment says: see [RuntimeEnv]
	WALSync       string
	IO            string // how the server moves bytes, loop or goroutine; "": as it does by itself
	ServerCPUs    CPUs   // that servers may run on; none: all. See [Config.Divide]
	ClientCPUs    CPUs   // that this process may run on
	Codec         string // of mode serialize
	Level         *int   // nil: the codec's own default
	BucketEntries int
	Dir           string // parent of the data directories; "": the system's directory for temporary files
	Keep          bool   // leave the data directories

	// Patience is how long a worker may be without a reply, and how long the server may take to start and to stop,
	// before it is given up; 0 = 20 s, at most 60 s.
	Patience time.Duration

	Progress func(Progress)                   // called about once a second, from one goroutine; may be nil
	Logf     func(format string, args ...any) // notes, one line each; may be nil
	Kill     <-chan struct{}                  // once closed, servers are killed and Run returns without waiting for replies; may be nil

	tick     time.Duration         // between two looks at the workers; 0: a second
	newAlarm func() (alarm, error) // of a worker in open loop; nil: the system's
}

// The kinds of arrivals.
const (
	Constant = "constant"
	Poisson  = "poisson"
)

// Default returns the run that the blog post describes, but for Server, which has no default.
func Default() Config {
	return Config{
		Modes:         []string{"memory", "serialize", "file"},
		Workload:      workload.Config{Workers: 8, Keys: 100_000},
		Duration:      time.Minute,
		Warmup:        5 * time.Second,
		Repeat:        1,
		Pipeline:      1,
		WALSync:       "interval",
		Codec:         "deflate",
		BucketEntries: 8,
		ServerEnv:     RuntimeEnv(),
	}
}

// words are the values that an option of kvserver takes.
func words(name string) []string {
	s, _ := setting.Find(name)
	return s.Values()
}

// MaxWorkers bounds the memory for histograms. More connections than that are another kind of test.
const MaxWorkers = 1024

// MinDuration is the shortest window that is a measurement.
const MinDuration = 50 * time.Millisecond

// MaxRepeat and MaxDuration bound what cannot be meant.
const (
	MaxRepeat   = 1000
	MaxDuration = 7 * 24 * time.Hour
)

// maxBatchBytes bounds the values of a batch, which a worker builds before it sends them: one of the largest values, or more
// that are smaller.
const maxBatchBytes = workload.MaxValueSize

// MaxPipeline keeps a batch within what the system buffers between two processes, so that neither blocks the other.
const MaxPipeline = 1024

// Validate reports the first option that cannot work, with its value and what would.
func (c Config) Validate() error {
	if len(c.Modes) == 0 && c.Target.Addr == "" {
		return errors.New("no modes: want one or more of memory, map, serialize, file, lsm")
	}
	for i, m := range c.Modes {
		if err := oneOf("mode", m, words("mode")); err != nil {
			return err
		}
		if slices.Contains(c.Modes[:i], m) {
			return fmt.Errorf("mode %q is named twice: use --repeat to measure it again", m)
		}
	}
	for _, op := range c.Ops {
		if err := oneOf("op", op, []string{"set", "get", "mix"}); err != nil {
			return err
		}
		if op == "mix" && !c.Workload.Mix.Mixed() {
			return errors.New("op mix needs a ratio of Sets to Gets")
		}
	}
	if w := c.Workload.Workers; w < 1 || w > MaxWorkers {
		return fmt.Errorf("workers %d: want 1..%d", w, MaxWorkers)
	}
	if err := c.Workload.Validate(); err != nil {
		return err
	}
	switch {
	case c.Duration < MinDuration || c.Duration > MaxDuration:
		return fmt.Errorf("duration %v: want %v or more, such as 60s, and at most %v", c.Duration, MinDuration, MaxDuration)
	case c.Warmup < 0 || c.Warmup > MaxDuration:
		return fmt.Errorf("warmup %v: want 0 to %v", c.Warmup, MaxDuration)
	case c.Repeat < 1 || c.Repeat > MaxRepeat:
		return fmt.Errorf("repeat %d: want 1..%d", c.Repeat, MaxRepeat)
	case c.Pipeline < 1 || c.Pipeline > MaxPipeline:
		return fmt.Errorf("pipeline %d: want 1..%d", c.Pipeline, MaxPipeline)
	case c.Patience < 0 || c.Patience > maxLatency:
		return fmt.Errorf("patience %v: want 0 (the default) to %v", c.Patience, maxLatency)
	case c.Arrivals != "" && c.Arrivals != Constant && c.Arrivals != Poisson:
		return fmt.Errorf("arrivals %q: want %s or %s", c.Arrivals, Constant, Poisson)
	case c.Arrivals == Poisson && !c.Rate.Open() && !c.SLO.Set():
		return errors.New("poisson arrivals need a rate: in closed loop the replies set the pace")
	case c.SLO.Set() && c.Rate.Open():
		return errors.New("a rate and a search for the rate exclude each other")
	case c.Cold && (c.Target.Addr != "" || !slices.Contains(c.Modes, "file")):
		return errors.New("cold is about the files of mode file: measure that mode")
	case c.Cold && runtime.GOOS != "linux":
		return errors.New("cold needs Linux: there is no way to drop the system's cache here")
	case c.Server == "" && c.Target.Addr == "":
		return errors.New("no server: want the path of a kvserver binary")
	}
	if batch := float64(c.Pipeline) * c.Workload.MeanValueBytes(); batch > maxBatchBytes {
		return fmt.Errorf("pipeline %d x values of %.0f bytes = %.0f MiB in one batch, which is built in memory: want at most %d MiB, by a smaller pipeline or smaller values",
			c.Pipeline, c.Workload.MeanValueBytes(), batch/(1<<20), maxBatchBytes>>20)
	}
	if !c.Rate.valid() {
		return rateError(c.Rate.String())
	}
	if n := c.Rate.due(c.Duration, c.Duration); c.Rate.Open() && n < minReplies {
		return fmt.Errorf("rate %v for %v is %.3g requests, a window takes %d: want a higher rate or a longer duration", c.Rate, c.Duration, n, minReplies)
	}
	return c.validateServer()
}

// validateServer checks the options of servers, as they will themselves.
func (c Config) validateServer() error {
	if err := oneOf("wal-sync", c.WALSync, words("wal-sync")); err != nil {
		return err
	}
	if err := oneOf("codec", c.Codec, words("codec")); err != nil {
		return err
	}
	if c.IO != "" {
		if err := oneOf("io", c.IO, words("io")); err != nil {
			return err
		}
	}
	for _, mode := range c.Modes {
		if err := setting.Check(setting.Given(c.serverArgs(mode, "its own", "its own")[1:])); err != nil {
			return err
		}
	}
	return nil
}

func oneOf(what, got string, names []string) error {
	if slices.Contains(names, got) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown: want one of %v", what, got, names)
}

// Progress is what a run is doing.
type Progress struct {
	Mode, Op       string
	Stage          string // start, fill, ping, warm-up, measure
	Repeat, Rounds int
	Elapsed, Total time.Duration // of the stage; Total 0: not known
	OK             int64         // right replies of the stage so far; of a fill, the keys that are there
	Keys           int64         // of a fill, those that are to be; else 0
	QPS            float64       // of the last whole second
	P99            time.Duration // of the last whole second
}

// About is how long a run takes at least: windows, warm-ups and PING. Starting servers and filling them comes on top, and
// depends on them. REQUIRES: c is valid. A search for a rate has up to maxWindows windows for each operation.
func (c Config) About() (measurements int, total time.Duration) {
	c = c.withDefaults()
	modes := len(c.Modes)
	if c.Target.Addr != "" {
		modes = 1
	}
	measurements = modes * len(c.Ops) * c.Repeat
	if c.SLO.Set() {
		measurements *= maxWindows
	}
	each := c.Duration + c.Warmup + pingSlices*c.slice()
	if float64(measurements)*float64(each) >= math.MaxInt64 {
		return measurements, math.MaxInt64
	}
	return measurements, time.Duration(measurements) * each
}

// Fills is how often all keys are written before they are read: once for each fresh server that is asked for any.
func (c Config) Fills() int {
	if !slices.ContainsFunc(c.withDefaults().Ops, func(op string) bool { return op != "set" }) {
		return 0
	}
	if c.Target.Addr != "" {
		return 1
	}
	return len(c.Modes) * c.Repeat
}

// Outcome is what a run gave.
type Outcome struct {
	Cells       []result.Cell
	Searches    []result.Search
	Server      result.Process // of the first server
	Interrupted bool           // ctx ended, or Kill was closed, before the run was complete
}

// Run measures. The outcome holds what there is even when an error is returned, which means that a server could not be
// started or not be proved to be ours. A server that dies while it is measured is no error but an invalid cell, and the
// run goes on with the next mode. When ctx ends, the cell being measured is cut short and marked.
func Run(ctx context.Context, c Config) (Outcome, error) {
	if err := c.Validate(); err != nil {
		return Outcome{}, fmt.Errorf("load: %w", err)
	}
	err := c.ensureDescriptors()
	if err != nil {
		return Outcome{}, fmt.Errorf("load: %w", err)
	}
	c = c.withDefaults()
	if c.Workload, err = c.Workload.Calibrate(c.Codec, c.Level, c.BucketEntries); err != nil {
		return Outcome{}, fmt.Errorf("load: %w", err)
	}
	r := &runner{Config: c, clockStep: clockStep(), pauses: watchPauses()}
	defer r.pauses.close()
	if c.Target.Addr != "" {
		err := r.target(ctx)
		if r.out.Interrupted = ctx.Err() != nil || r.killed(); err != nil && !r.out.Interrupted {
			return r.out, fmt.Errorf("load: target %s: %w", c.Target.Addr, err)
		}
		return r.out, nil
	}
	root, err := newScratch(c)
	if err != nil {
		return Outcome{}, fmt.Errorf("load: %w", err)
	}
	if c.Keep {
		c.Logf("data directories are kept in %s", root.dir)
	} else {
		defer root.remove()
	}
	for repeat := 1; repeat <= c.Repeat; repeat++ {
		for _, mode := range c.Modes {
			if ctx.Err() != nil {
				r.out.Interrupted = true
				return r.out, nil
			}
			dir := filepath.Join(root.dir, mode+"-"+strconv.Itoa(repeat))
			if err := r.session(ctx, mode, repeat, dir); err != nil {
				if r.out.Interrupted = ctx.Err() != nil || r.killed(); r.out.Interrupted {
					return r.out, nil
				}
				return r.out, fmt.Errorf("load: mode %s: %w", mode, err)
			}
			if !c.Keep {
				os.RemoveAll(dir)
			}
		}
	}
	return r.out, nil
}

// paced reports whether workers send on a schedule, in some windows at least.
func (c Config) paced() bool { return c.Rate.Open() || c.SLO.Set() }

// ensureDescriptors sees that this process, and a server that inherits its limit, may have a connection for each worker, and
// a timer where it is paced.
func (c Config) ensureDescriptors() error {
	n := c.Workload.Workers
	if c.paced() {
		n *= 2
	}
	return client.EnsureDescriptors(n, "use fewer --workers")
}

// withDefaults fills in what may be left out.
func (c Config) withDefaults() Config {
	if len(c.Ops) == 0 {
		c.Ops = []string{"set", "get"}
		if c.Workload.Mix.Mixed() {
			c.Ops = []string{"mix"}
		}
	}
	c.Patience = cmp.Or(c.Patience, 20*time.Second)
	c.tick = cmp.Or(c.tick, time.Second)
	if c.newAlarm == nil {
		c.newAlarm = newAlarm
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	return c
}

// runner is the state of one Run.
type runner struct {
	Config
	out        Outcome
	clockStep  time.Duration
	gomaxprocs string // of the first server
	pauses     *pauses
}

func (r *runner) killed() bool {
	select {
	case <-r.Kill:
		return true
	default:
		return false
	}
}

// clockStep is the smallest difference between two readings of the clock that differ.
func clockStep() time.Duration {
	step := time.Hour
	for range 50 {
		start := time.Now()
		d := time.Since(start)
		for d <= 0 {
			d = time.Since(start)
		}
		step = min(step, d)
	}
	return step
}
