// Command versus drives kvserver and the other servers that this machine has (redis-server, valkey-server) with one
// client, in short interleaved rounds, and prints the ratios of throughput and of the servers' CPU per operation with
// their 95 % intervals. It is for those who work on the server; `make versus` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"kvmark/client"
	"kvmark/client/compare"
	"kvmark/client/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "versus:", err)
		os.Exit(1)
	}
}

// config is one comparison.
type config struct {
	kvserver  string
	serverArg []string
	servers   []string
	base      string
	rounds    int
	slice     time.Duration
	depth     int
	workload  workload.Config
	ops       []string
	fsync     string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	c := config{workload: workload.Config{Seed: 1}}
	fs := flag.NewFlagSet("versus", flag.ContinueOnError)
	fs.StringVar(&c.kvserver, "kvserver", "bin/kvserver", "path of `kvserver`")
	servers := fs.String("servers", "memory,redis", "comma separated: memory, serialize, file, lsm (kvserver), each as MODE or MODE:flag=value:..., and redis, valkey; the first is compared with the base")
	fs.StringVar(&c.base, "base", "redis", "server that the others are divided by")
	fs.IntVar(&c.rounds, "rounds", 20, "rounds, each with every server and operation once")
	fs.DurationVar(&c.slice, "slice", 2*time.Second, "length of a measurement")
	fs.IntVar(&c.workload.Workers, "workers", 8, "connections")
	fs.IntVar(&c.depth, "pipeline", 1, "requests in flight per connection")
	fs.IntVar(&c.workload.Keys, "keys", 100_000, "keys per connection")
	ops := fs.String("ops", "ping,set,get", "comma separated: ping, set, get")
	fs.StringVar(&c.fsync, "sync", "interval", "interval (everysec in Redis) or always")
	size := fs.String("value-size", "", "bytes, or MIN-MAX; empty: classic data")
	fs.Float64Var(&c.workload.Compressibility, "compressibility", 0, "of the values, 0..1")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if *size != "" {
		if c.workload.ValueSize, err = workload.ParseSize(*size); err != nil {
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
			a.stop()
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
		order := rand.New(rand.NewPCG(c.workload.Seed, 7))
		for round := range c.rounds {
			if err := ctx.Err(); err != nil {
				return err
			}
			turn := slices.Clone(arms)
			order.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
			for _, a := range turn {
				if err := a.measure(op, round, c.slice, c.depth); err != nil {
					return fmt.Errorf("%s: %s: %w", a.name, op, err)
				}
			}
			fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", op, round+1, c.rounds)
		}
	}
	fmt.Fprintf(out, "%d workers, depth %d, %d rounds of %v, %d keys, log %s; medians, ratios to %s with 95 %% intervals\n",
		c.workload.Workers, c.depth, c.rounds, c.slice, c.workload.Workers*c.workload.Keys, c.fsync, c.base)
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

// arm is one server and the workers that drive it.
type arm struct {
	name    string
	cmd     *exec.Cmd
	dir     string
	control *client.Conn
	workers []*worker
	samples map[string]*sample
}

type sample struct{ qps, cpu []float64 }

type worker struct {
	conn       *client.Conn
	gen        *workload.Generator
	key, value []byte
	n          []int
}

func (c config) start(ctx context.Context, name string) (_ *arm, err error) {
	a := &arm{name: name, samples: map[string]*sample{}}
	for _, op := range c.ops {
		a.samples[op] = &sample{}
	}
	defer func() {
		if err != nil {
			a.stop()
		}
	}()
	if a.dir, err = os.MkdirTemp("", "versus-"); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	a.cmd = c.command(name, a.dir, port)
	log, err := os.Create(filepath.Join(a.dir, "output"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		a.cmd = nil
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	dial := func() (*client.Conn, error) { return client.Dial(ctx, addr, client.Options{}) }
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if a.control, err = dial(); err == nil {
			break
		}
		if time.Now().After(until) || ctx.Err() != nil {
			text, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("%s does not serve: %w\n%s", name, err, text)
		}
	}
	for i := range c.workload.Workers {
		w := &worker{}
		if w.gen, err = c.workload.New(i); err != nil {
			return nil, err
		}
		if w.conn, err = dial(); err != nil {
			return nil, err
		}
		a.workers = append(a.workers, w)
	}
	return a, a.fill(c.workload.Keys)
}

func (c config) command(name, dir string, port int) *exec.Cmd {
	switch name {
	case "redis", "valkey":
		every := map[string]string{"interval": "everysec", "always": "always"}[c.fsync]
		return exec.Command(name+"-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--save", "",
			"--appendonly", "yes", "--appendfsync", every, "--daemonize", "no")
	}
	parts := strings.Split(name, ":")
	args := []string{"--mode", parts[0], "--dir", filepath.Join(dir, "data"), "--addr", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), "--wal-sync", c.fsync}
	for _, flag := range parts[1:] {
		args = append(args, "--"+flag)
	}
	return exec.Command(c.kvserver, args...)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// fill writes every key, so that each Get finds its value.
func (a *arm) fill(keys int) error {
	return a.together(func(w *worker) error {
		for n := 0; n < keys; {
			batch := min(64, keys-n)
			for i := range batch {
				w.queueSet(n + i)
			}
			if err := w.conn.Flush(); err != nil {
				return err
			}
			for range batch {
				if err := w.conn.ReceiveSet(); err != nil {
					return err
				}
			}
			n += batch
		}
		return nil
	})
}

// together lets all workers do f and waits for them.
func (a *arm) together(f func(*worker) error) error {
	errs := make([]error, len(a.workers))
	var running sync.WaitGroup
	for i, w := range a.workers {
		running.Go(func() { errs[i] = f(w) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (w *worker) queueSet(n int) {
	w.key = w.gen.AppendKey(w.key[:0], n)
	w.value = w.gen.AppendValue(w.value[:0], n)
	w.conn.QueueSet(w.key, w.value)
}

// measure drives the server for one slice. The first round only warms up.
func (a *arm) measure(op string, round int, slice time.Duration, depth int) error {
	before, err := a.cpu()
	if err != nil {
		return err
	}
	counts := make([]int64, len(a.workers))
	begin := time.Now()
	end := begin.Add(slice)
	for _, w := range a.workers {
		if err := w.conn.SetDeadline(end.Add(20 * time.Second)); err != nil {
			return err
		}
	}
	var running sync.WaitGroup
	errs := make([]error, len(a.workers))
	for i, w := range a.workers {
		running.Go(func() { counts[i], errs[i] = w.drive(op, depth, end) })
	}
	running.Wait()
	took := time.Since(begin)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	after, err := a.cpu()
	if err != nil {
		return err
	}
	var total int64
	for _, n := range counts {
		total += n
	}
	if round > 0 && total > 0 {
		s := a.samples[op]
		s.qps = append(s.qps, float64(total)/took.Seconds())
		s.cpu = append(s.cpu, (after-before)*1e6/float64(total))
	}
	return nil
}

func (w *worker) drive(op string, depth int, end time.Time) (count int64, err error) {
	for time.Now().Before(end) {
		w.n = w.n[:0]
		for range depth {
			switch op {
			case "ping":
				w.conn.QueuePing()
			case "set":
				w.queueSet(w.gen.Next(workload.Set))
			case "get":
				n := w.gen.Next(workload.Get)
				w.key = w.gen.AppendKey(w.key[:0], n)
				w.conn.QueueGet(w.key)
				w.n = append(w.n, n)
			default:
				return 0, fmt.Errorf("unknown operation %q", op)
			}
		}
		if err := w.conn.Flush(); err != nil {
			return count, err
		}
		for i := range depth {
			switch op {
			case "ping":
				err = w.conn.ReceivePing()
			case "set":
				err = w.conn.ReceiveSet()
			case "get":
				var value []byte
				var found bool
				value, found, err = w.conn.ReceiveGet()
				if err == nil && (!found || !w.gen.Verify(value, w.n[i])) {
					err = fmt.Errorf("wrong value or none: %.60q", value)
				}
			}
			if err != nil {
				return count, err
			}
			count++
		}
	}
	return count, nil
}

// cpu is the processor time that the server has used, in seconds, from its own INFO.
func (a *arm) cpu() (float64, error) {
	r, err := a.control.Do("INFO")
	if err != nil {
		return 0, err
	}
	var sum float64
	for line := range strings.Lines(string(r.Bytes)) {
		for _, name := range []string{"used_cpu_user:", "used_cpu_sys:"} {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
				x, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return 0, err
				}
				sum += x
			}
		}
	}
	return sum, nil
}

func (a *arm) stop() {
	for _, w := range a.workers {
		if w.conn != nil {
			w.conn.Close()
		}
	}
	if a.control != nil {
		a.control.Close()
	}
	if a.cmd != nil {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		ended := time.AfterFunc(10*time.Second, func() { _ = a.cmd.Process.Kill() })
		_ = a.cmd.Wait()
		ended.Stop()
	}
	if a.dir != "" {
		os.RemoveAll(a.dir)
	}
}
