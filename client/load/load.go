// Package load measures a kvserver: it starts a fresh one for each mode, loads it with closed-loop workers, and checks
// its own numbers against the server's before it calls them valid. It is what `kvmark run` does, as a library.
//
// For each mode and operation:
//
//	start   a fresh server on an empty directory, proved to be our child on every connection
//	fill    (before Gets) the keys that were never hit, untimed; DBSIZE proves that all exist
//	ping    a short slice of PING: what the client and the connections could do
//	warm    the same requests as below, not counted
//	        -- every worker has its last reply; the server's counters are read --
//	window  t0 .. t0+duration; clock, counts and histograms begin at t0
//	        -- replies still due are drained and counted apart; the counters are read again --
//	ping    a second slice
//	check   the books
//
// A reply counts if it was complete before the window closed, and only if it was right. Every wait has an end.
package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"kvmark/client/result"
	"kvmark/client/workload"
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

	Server        string   // path of the kvserver binary
	ServerEnv     []string // added to this process's environment, such as GOGC=50
	WALSync       string
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

	tick time.Duration // between two looks at the workers; 0: a second
}

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
	}
}

// The names that a server knows; part of its command line.
var (
	modes    = []string{"memory", "serialize", "file", "lsm"}
	policies = []string{"buffered", "os", "interval", "always"}
	codecs   = []string{"deflate", "zlib", "zip", "zstd", "s2", "none"}
)

// MaxWorkers bounds the memory for histograms. More connections than that are another kind of test.
const MaxWorkers = 1024

// MaxPipeline keeps a batch within what the system buffers between two processes, so that neither blocks the other.
const MaxPipeline = 1024

// Validate reports the first option that cannot work, with its value and what would.
func (c Config) Validate() error {
	if len(c.Modes) == 0 {
		return errors.New("no modes: want one or more of memory, serialize, file, lsm")
	}
	for i, m := range c.Modes {
		if err := oneOf("mode", m, modes); err != nil {
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
	if err := c.Workload.Validate(); err != nil {
		return err
	}
	switch {
	case c.Workload.Workers > MaxWorkers:
		return fmt.Errorf("workers %d: want 1..%d", c.Workload.Workers, MaxWorkers)
	case c.Duration <= 0:
		return fmt.Errorf("duration %v: want more than 0, such as 60s", c.Duration)
	case c.Warmup < 0:
		return fmt.Errorf("warmup %v: want 0 or more", c.Warmup)
	case c.Repeat < 1:
		return fmt.Errorf("repeat %d: want 1 or more", c.Repeat)
	case c.Pipeline < 1 || c.Pipeline > MaxPipeline:
		return fmt.Errorf("pipeline %d: want 1..%d", c.Pipeline, MaxPipeline)
	case c.Patience < 0 || c.Patience > maxLatency:
		return fmt.Errorf("patience %v: want 0 (the default) to %v", c.Patience, maxLatency)
	case c.BucketEntries < 1:
		return fmt.Errorf("bucket entries %d: want 1 or more", c.BucketEntries)
	case c.Server == "":
		return errors.New("no server: want the path of a kvserver binary")
	}
	if err := oneOf("wal-sync", c.WALSync, policies); err != nil {
		return err
	}
	return oneOf("codec", c.Codec, codecs)
}

func oneOf(what, got string, names []string) error {
	if slices.Contains(names, got) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown: want one of %v", what, got, names)
}

// Plan is the configuration as the result file records it.
func (c Config) Plan() result.Plan {
	w := c.Workload
	return result.Plan{
		Modes: c.Modes, Workers: w.Workers, DurationSeconds: c.Duration.Seconds(), WarmupSeconds: c.Warmup.Seconds(),
		Keys: w.Keys, Repeat: c.Repeat, Seed: w.Seed, WALSync: c.WALSync, Codec: c.Codec, Level: c.Level, BucketEntries: c.BucketEntries,
		ValueSize: w.ValueSize.String(), ValueBytes: w.MeanValueBytes(), Compressibility: w.Compressibility,
		Distribution: w.Distribution.String(), Mix: w.Mix.String(), Pipeline: c.Pipeline,
		Server: c.Server, ServerEnv: c.ServerEnv, Dir: c.Dir,
	}
}

// Progress is what a run is doing.
type Progress struct {
	Mode, Op       string
	Stage          string // start, fill, ping, warm-up, measure
	Repeat, Rounds int
	Elapsed, Total time.Duration // of the stage; Total 0: not known
	OK             int64         // right replies of the stage so far
	QPS            float64       // of the last whole second
	P99            time.Duration // of the last whole second
}

// Outcome is what a run gave.
type Outcome struct {
	Cells       []result.Cell
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
	if len(c.Ops) == 0 {
		c.Ops = []string{"set", "get"}
		if c.Workload.Mix.Mixed() {
			c.Ops = []string{"mix"}
		}
	}
	if c.Patience == 0 {
		c.Patience = 20 * time.Second
	}
	if c.tick == 0 {
		c.tick = time.Second
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	root, err := os.MkdirTemp(c.Dir, "kvmark-")
	if err != nil {
		return Outcome{}, fmt.Errorf("load: make a directory for the servers' data: %w", err)
	}
	if c.Keep {
		c.Logf("data directories are kept in %s", root)
	} else {
		defer os.RemoveAll(root)
	}
	r := &runner{Config: c, clockStep: clockStep()}
	for repeat := 1; repeat <= c.Repeat; repeat++ {
		for _, mode := range c.Modes {
			if ctx.Err() != nil {
				r.out.Interrupted = true
				return r.out, nil
			}
			dir := filepath.Join(root, mode+"-"+strconv.Itoa(repeat))
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

// runner is the state of one Run.
type runner struct {
	Config
	out        Outcome
	clockStep  time.Duration
	gomaxprocs string // of the first server
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
