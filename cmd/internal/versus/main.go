// Command versus drives kvserver and the other servers that this machine has (redis-server, valkey-server, memcached)
// with one client, in short interleaved rounds, and prints the ratios of throughput and of the servers' CPU per
// operation with their 95 % intervals. It is for those who work on the server; `make versus` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"kvmark/client/compare"
	"kvmark/client/workload"
	"kvmark/cmd/internal/rig"
)

func main() { rig.Main("versus", run) }

// config is one comparison.
type config struct {
	kvserver string
	servers  []string
	base     string
	rounds   int
	slice    time.Duration
	load     load
	ops      []string
	fsync    string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	c := config{load: load{workload: workload.Config{Seed: 1}}}
	fs := flag.NewFlagSet("versus", flag.ContinueOnError)
	fs.StringVar(&c.kvserver, "kvserver", "bin/kvserver", "path of `kvserver`")
	servers := fs.String("servers", "memory,redis", "comma separated: memory, map, serialize, file, lsm (kvserver), each as MODE or MODE:flag=value:..., and redis, valkey, memcached, with flags of theirs likewise (memcached has one thread and no log: memcached:threads=4); @workers=N, @idle=N, @pipeline=N, @keys=N behind a name are of that server alone")
	fs.StringVar(&c.base, "base", "redis", "server that the others are divided by")
	fs.IntVar(&c.rounds, "rounds", 20, "rounds, each with every server and operation once")
	fs.DurationVar(&c.slice, "slice", 2*time.Second, "length of a measurement")
	fs.IntVar(&c.load.workload.Workers, "workers", 8, "connections")
	fs.IntVar(&c.load.depth, "pipeline", 1, "requests in flight per connection")
	fs.IntVar(&c.load.idle, "idle", 0, "connections beside them that are there and send nothing")
	fs.IntVar(&c.load.workload.Keys, "keys", 100_000, "keys per connection")
	ops := fs.String("ops", "ping,set,get", "comma separated: ping, set, get")
	fs.StringVar(&c.fsync, "sync", "interval", "interval (everysec in Redis) or always")
	size := fs.String("value-size", "", "bytes, or MIN-MAX; empty: classic data")
	fs.Float64Var(&c.load.workload.Compressibility, "compressibility", 0, "of the values, 0..1")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if *size != "" {
		if c.load.workload.ValueSize, err = workload.ParseSize(*size); err != nil {
			return err
		}
	}
	c.servers, c.ops = strings.Split(*servers, ","), strings.Split(*ops, ",")
	if !slices.Contains(c.servers, c.base) {
		return fmt.Errorf("the base %q is not among the servers %v", c.base, c.servers)
	}
	return c.compare(ctx, out)
}

func (c config) compare(ctx context.Context, out io.Writer) error {
	var arms []*arm
	defer func() {
		for _, a := range arms {
			_ = a.Stop()
		}
	}()
	for _, name := range c.servers {
		a, err := c.start(ctx, name)
		if err != nil {
			return err
		}
		arms = append(arms, a)
	}
	for _, op := range c.ops {
		order := rand.New(rand.NewPCG(c.load.workload.Seed, 7))
		for round := range c.rounds {
			if err := ctx.Err(); err != nil {
				return err
			}
			turn := slices.Clone(arms)
			order.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
			for _, a := range turn {
				if err := a.measure(op, round, c.slice); err != nil {
					return fmt.Errorf("%s: %s: %w", a.name, op, err)
				}
			}
			fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", op, round+1, c.rounds)
		}
	}
	fmt.Fprintf(out, "%d workers and %d idle connections, depth %d, %d rounds of %v, %d keys, log %s; medians, ratios to %s with 95 %% intervals\n",
		c.load.workload.Workers, c.load.idle, c.load.depth, c.rounds, c.slice, c.load.workload.Workers*c.load.workload.Keys, c.fsync, c.base)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "op\tserver\tQPS\tratio\t95 %\tCPU us/op\tratio\t95 %\t")
	base := arms[slices.Index(c.servers, c.base)]
	for _, op := range c.ops {
		for _, a := range arms {
			m, b := a.samples[op], base.samples[op]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", op, a.name, median(m.qps, "%.0f"), ratio(b.qps, m.qps), median(m.cpu, "%.2f"), ratio(b.cpu, m.cpu))
		}
	}
	return w.Flush()
}

func median(values []float64, format string) string {
	if len(values) == 0 {
		return "-"
	}
	s := slices.Sorted(slices.Values(values))
	return fmt.Sprintf(format, (s[(len(s)-1)/2]+s[len(s)/2])/2)
}

func ratio(base, other []float64) string {
	e := compare.Paired(compare.Sample{Values: base}, compare.Sample{Values: other})
	if !e.Ratio.OK {
		return "-\t-"
	}
	if !e.Interval.OK {
		return fmt.Sprintf("%.3f\t-", e.Ratio.Float)
	}
	return fmt.Sprintf("%.3f\t%.3f..%.3f", e.Ratio.Float, e.Interval.Low, e.Interval.High)
}

// arm is one server, its load, and what was measured of it, by operation.
type arm struct {
	*rig.Server
	name    string
	load    load
	samples map[string]*sample
}

// load is what may differ from server to server.
type load struct {
	workload workload.Config
	idle     int
	depth    int
}

// override changes one of its numbers.
func (l *load) override(setting string) error {
	name, text, _ := strings.Cut(setting, "=")
	field := map[string]*int{"workers": &l.workload.Workers, "idle": &l.idle, "pipeline": &l.depth, "keys": &l.workload.Keys}[name]
	n, err := strconv.Atoi(text)
	if field == nil || err != nil || n < 0 {
		return fmt.Errorf("@%s: want workers, idle, pipeline or keys = a number", setting)
	}
	*field = n
	return nil
}

type sample struct{ qps, cpu []float64 }

func (c config) start(ctx context.Context, name string) (*arm, error) {
	settings := strings.Split(name, "@")
	a := &arm{name: name, load: c.load, samples: map[string]*sample{}}
	for _, setting := range settings[1:] {
		if err := a.load.override(setting); err != nil {
			return nil, err
		}
	}
	spec := rig.Spec{Name: settings[0], Kvserver: c.kvserver, Sync: c.fsync}
	if !spec.HasLog() {
		a.name += " (no log)"
	}
	s, err := rig.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	a.Server = s
	for _, op := range c.ops {
		a.samples[op] = &sample{}
	}
	err = s.Connect(ctx, a.load.workload, a.load.idle)
	if err == nil {
		err = s.Fill(a.load.workload.Keys)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return a, nil
}

// measure drives the server for one slice. The first round only warms up.
func (a *arm) measure(op string, round int, slice time.Duration) error {
	before, err := a.CPU()
	if err != nil {
		return err
	}
	ops, seconds, err := a.Drive(op, a.load.depth, slice)
	if err != nil {
		return err
	}
	after, err := a.CPU()
	if err != nil {
		return err
	}
	if round > 0 && ops > 0 {
		s := a.samples[op]
		s.qps = append(s.qps, float64(ops)/seconds)
		s.cpu = append(s.cpu, (after-before)*1e6/float64(ops))
	}
	return nil
}
