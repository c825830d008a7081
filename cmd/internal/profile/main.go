// Command profile shows where the time of an operation goes: for every mode and way of moving bytes, at several depths and
// numbers of connections, what one Set and one Get cost kvserver in processor time, system calls, context switches,
// wake-ups of other threads, writes of the log, and allocations. It is for those who work on the server; `make profile`
// runs it. System calls and wake-ups need the perf command and the permission to use it; without, they show as "-".
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"kvmark/client"
	"kvmark/client/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		os.Exit(1)
	}
}

// config is what to profile.
type config struct {
	kvserver string
	walSync  string
	slice    time.Duration
	keys     int // of all connections
	busy     int // most connections that send
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var c config
	fs := flag.NewFlagSet("profile", flag.ContinueOnError)
	fs.StringVar(&c.kvserver, "kvserver", "bin/kvserver", "path of `kvserver`")
	fs.StringVar(&c.walSync, "wal-sync", "interval", "policy of the log")
	fs.DurationVar(&c.slice, "slice", 2*time.Second, "length of a measurement")
	fs.IntVar(&c.keys, "keys", 100_000, "number of keys")
	fs.IntVar(&c.busy, "busy", 100, "most connections that send; the others are there and idle")
	modes := fs.String("modes", "memory,serialize,file,lsm", "comma separated")
	ios := fs.String("io", "goroutine,loop", "comma separated")
	depths := fs.String("depths", "1,16", "requests in flight per connection, comma separated")
	connections := fs.String("connections", "8,64,1000", "comma separated")
	if err := fs.Parse(args); err != nil {
		return err
	}
	depth, err := numbers(*depths)
	if err != nil {
		return fmt.Errorf("-depths: %w", err)
	}
	conns, err := numbers(*connections)
	if err != nil {
		return fmt.Errorf("-connections: %w", err)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\tio\tconns\tdepth\top\tQPS\tCPU us/op\tsyscalls/op\tswitches/op\twake-ups/op\tlog writes/op\tallocs/op\t")
	for _, mode := range strings.Split(*modes, ",") {
		for _, path := range strings.Split(*ios, ",") {
			for _, n := range conns {
				if err := c.profile(ctx, w, mode, path, n, depth); err != nil {
					return fmt.Errorf("%s, %s, %d connections: %w", mode, path, n, err)
				}
				fmt.Fprintf(os.Stderr, "%s, %s, %d connections\n", mode, path, n)
			}
		}
	}
	return w.Flush()
}

func numbers(list string) (all []int, err error) {
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no positive number", text)
		}
		all = append(all, n)
	}
	return all, nil
}

// profile writes the lines of one server with so many connections.
func (c *config) profile(ctx context.Context, out io.Writer, mode, path string, connections int, depths []int) (err error) {
	s, err := c.start(ctx, mode, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	busy := min(connections, c.busy)
	work := workload.Config{Seed: 1, Workers: busy, Keys: max(1, c.keys/busy)}
	for i := range connections {
		conn, err := client.Dial(ctx, s.addr, client.Options{})
		if err != nil {
			return err
		}
		s.conns = append(s.conns, conn)
		if i < busy {
			gen, err := work.New(i)
			if err != nil {
				return err
			}
			s.workers = append(s.workers, &worker{conn: conn, gen: gen})
		}
	}
	if err := s.together(func(w *worker) error { return w.fill(work.Keys) }); err != nil {
		return err
	}
	for _, depth := range depths {
		for _, op := range []workload.Op{workload.Set, workload.Get} {
			m, err := s.measure(ctx, op, depth, c.slice)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%s\t%.0f\t%.2f\t%s\t%.3f\t%s\t%.3f\t%.2f\t\n", mode, path, connections, depth, op,
				m.ops/m.seconds, m.cpu*1e6/m.ops, perOp(m.syscalls, m.ops), m.switches/m.ops, perOp(m.wakeUps, m.ops), m.writes/m.ops, m.allocs/m.ops)
		}
	}
	return nil
}

func perOp(events, ops float64) string {
	if events < 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", events/ops)
}

// server is a kvserver and its connections.
type server struct {
	cmd     *exec.Cmd
	dir     string
	addr    string
	control *client.Conn
	conns   []*client.Conn
	workers []*worker
}

type worker struct {
	conn       *client.Conn
	gen        *workload.Generator
	key, value []byte
	ops        int
}

func (c *config) start(ctx context.Context, mode, path string) (_ *server, err error) {
	s := &server{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "profile-"); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.addr = l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	var output bytes.Buffer
	cmd := exec.Command(c.kvserver, "--mode", mode, "--io", path, "--dir", filepath.Join(s.dir, "data"), "--addr", s.addr, "--wal-sync", c.walSync)
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.cmd = cmd
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if s.control, err = client.Dial(ctx, s.addr, client.Options{}); err == nil {
			return s, nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return nil, fmt.Errorf("%s does not serve: %w", c.kvserver, err)
		}
	}
}

// stop ends the server and removes its data.
func (s *server) stop() error {
	for _, c := range s.conns {
		_ = c.Close()
	}
	if s.control != nil {
		_ = s.control.Close()
	}
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(10*time.Second, func() { _ = s.cmd.Process.Kill() })
		_ = s.cmd.Wait()
		late.Stop()
	}
	return os.RemoveAll(s.dir)
}

// together lets all workers do f and waits for them.
func (s *server) together(f func(*worker) error) error {
	errs := make([]error, len(s.workers))
	var running sync.WaitGroup
	for i, w := range s.workers {
		running.Go(func() { errs[i] = f(w) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// measurement is what happened in the server in some seconds; what could not be counted is -1.
type measurement struct {
	ops, seconds, cpu, syscalls, switches, wakeUps, writes, allocs float64
}

func (s *server) measure(ctx context.Context, op workload.Op, depth int, slice time.Duration) (m measurement, err error) {
	count := s.startCounting(ctx)
	before, err := s.info()
	if err != nil {
		return m, err
	}
	begin := time.Now()
	end := begin.Add(slice)
	err = s.together(func(w *worker) error {
		if err := w.conn.SetDeadline(end.Add(20 * time.Second)); err != nil {
			return err
		}
		return w.drive(op, depth, end)
	})
	m.seconds = time.Since(begin).Seconds()
	m.syscalls, m.wakeUps = count()
	if err != nil {
		return m, err
	}
	after, err := s.info()
	if err != nil {
		return m, err
	}
	for _, w := range s.workers {
		m.ops += float64(w.ops)
	}
	grown := func(names ...string) (sum float64) {
		for _, name := range names {
			sum += after[name] - before[name]
		}
		return sum
	}
	m.cpu = grown("used_cpu_user", "used_cpu_sys")
	m.switches = grown("voluntary_ctxt", "nonvoluntary_ctxt")
	m.writes = grown("wal_writes")
	m.allocs = grown("alloc_objects")
	return m, nil
}

// info returns the numbers of the server's INFO.
func (s *server) info() (map[string]float64, error) {
	r, err := s.control.Do("INFO")
	if err != nil {
		return nil, err
	}
	fields := map[string]float64{}
	for line := range strings.Lines(string(r.Bytes)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			fields[name] = v
		}
	}
	return fields, nil
}

// The events that perf counts.
const (
	syscallEvent = "raw_syscalls:sys_enter"
	wakeUpEvent  = "sched:sched_waking"
)

// startCounting lets perf count events of the server's threads until the returned function is called.
func (s *server) startCounting(ctx context.Context) (stop func() (syscalls, wakeUps float64)) {
	perf := exec.CommandContext(ctx, "perf", "stat", "-x", ",", "-e", syscallEvent+","+wakeUpEvent, "-p", strconv.Itoa(s.cmd.Process.Pid))
	var output bytes.Buffer
	perf.Stderr = &output
	perf.WaitDelay = time.Second
	if err := perf.Start(); err != nil {
		return func() (float64, float64) { return -1, -1 }
	}
	time.Sleep(200 * time.Millisecond) // until it has found all threads; nothing else tells
	return func() (syscalls, wakeUps float64) {
		_ = perf.Process.Signal(os.Interrupt)
		_ = perf.Wait()
		syscalls, wakeUps = -1, -1
		r := csv.NewReader(&output)
		r.FieldsPerRecord, r.LazyQuotes = -1, true
		rows, _ := r.ReadAll()
		for _, row := range rows {
			if len(row) < 3 {
				continue
			}
			v, err := strconv.ParseFloat(row[0], 64)
			if err != nil {
				continue // <not supported>
			}
			switch row[2] {
			case syscallEvent:
				syscalls = v
			case wakeUpEvent:
				wakeUps = v
			}
		}
		return syscalls, wakeUps
	}
}

// fill writes every key, so that each Get finds its value.
func (w *worker) fill(keys int) error {
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
}

func (w *worker) queueSet(n int) {
	w.key = w.gen.AppendKey(w.key[:0], n)
	w.value = w.gen.AppendValue(w.value[:0], n)
	w.conn.QueueSet(w.key, w.value)
}

// drive sends batches of depth requests until end and counts the replies.
func (w *worker) drive(op workload.Op, depth int, end time.Time) error {
	for w.ops = 0; time.Now().Before(end); w.ops += depth {
		for range depth {
			if op == workload.Set {
				w.queueSet(w.gen.Next(op))
				continue
			}
			w.key = w.gen.AppendKey(w.key[:0], w.gen.Next(op))
			w.conn.QueueGet(w.key)
		}
		if err := w.conn.Flush(); err != nil {
			return err
		}
		for range depth {
			if op == workload.Set {
				if err := w.conn.ReceiveSet(); err != nil {
					return err
				}
				continue
			}
			if _, found, err := w.conn.ReceiveGet(); err != nil || !found {
				return errors.Join(err, fmt.Errorf("found a value: %v", found))
			}
		}
	}
	return nil
}
