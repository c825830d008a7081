// Command profile shows where the time of an operation goes: for every mode and way of moving bytes, at several depths and
// numbers of connections, what one Set and one Get cost kvserver in processor time, system calls by kind, context
// switches, wake-ups of other threads, writes of the log, and allocations. It is for those who work on the server; `make
// profile` runs it and keeps the table in kvserver/PROFILE.md. System calls and wake-ups need the perf command and the
// permission to use it; without, they show as "-".
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"kvmark/client/workload"
	"kvmark/cmd/internal/rig"
)

func main() { rig.Main("profile", run) }

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
	modes := fs.String("modes", "memory,map,serialize,file,lsm", "comma separated")
	ios := fs.String("io", "goroutine,loop", "comma separated")
	depths := fs.String("depths", "1,16", "requests in flight per connection, comma separated")
	connections := fs.String("connections", "8,64,1000", "comma separated")
	file := fs.String("out", "", "write the table to this `file` instead of stdout")
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
	var page bytes.Buffer
	fmt.Fprintf(&page, heading, c.slice, c.keys, c.walSync, c.busy, runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, time.Now().Format(time.DateOnly))
	w := tabwriter.NewWriter(&page, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\tio\tconns\tdepth\top\tQPS\tuser us/op\tsystem us/op\tsyscalls/op\tread\twrite\tepoll\tfutex\tswitches/op\twake-ups/op\tlog writes/op\tallocs/op\t")
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
	if err := w.Flush(); err != nil {
		return err
	}
	page.WriteString("```\n")
	if *file != "" {
		return os.WriteFile(*file, page.Bytes(), 0o666)
	}
	_, err = page.WriteTo(out)
	return err
}

// heading explains the table that follows it.
const heading = `# Where an operation's time goes

What one operation costs kvserver, measured from outside by a client on the same machine: slices of %v, %d keys of
classic data, log %s, at most %d of the connections sending. user and system: processor time of the whole
process. syscalls: all system calls, and of them those that read (read, recvfrom, pread64), write (write, writev, sendto,
pwrite64), wait (epoll_wait, epoll_pwait) and wake or sleep (futex). wake-ups: of other threads, by this process's. QPS is the
least steady of the columns. %s, %d cores, %s/%s, %s. Made by ` + "`make profile`" + `.

` + "```text\n"

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
	s, err := rig.Start(ctx, rig.Spec{Name: mode + ":io=" + path, Kvserver: c.kvserver, Sync: c.walSync})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	busy := min(connections, c.busy)
	work := workload.Config{Seed: 1, Workers: busy, Keys: max(1, c.keys/busy)}
	if err := s.Connect(ctx, work, connections-busy); err != nil {
		return err
	}
	if err := s.Fill(work.Keys); err != nil {
		return err
	}
	for _, depth := range depths {
		for _, op := range []string{"set", "get"} {
			m, err := measure(ctx, s, op, depth, c.slice)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%s\t%.0f\t%.2f\t%.2f\t", mode, path, connections, depth, op, m.ops/m.seconds, m.user*1e6/m.ops, m.system*1e6/m.ops)
			for _, kind := range []string{"all", "read", "write", "epoll", "futex"} {
				fmt.Fprintf(out, "%s\t", m.perOp(kind))
			}
			fmt.Fprintf(out, "%.3f\t%s\t%.3f\t%.2f\t\n", m.switches/m.ops, m.perOp("wake-up"), m.writes/m.ops, m.allocs/m.ops)
		}
	}
	return nil
}

// measurement is what happened in the server in some seconds.
type measurement struct {
	ops, seconds, user, system, switches, writes, allocs float64

	events map[string]float64 // by kind; nil: could not be counted
}

func (m measurement) perOp(kind string) string {
	if m.events == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", m.events[kind]/m.ops)
}

func measure(ctx context.Context, s *rig.Server, op string, depth int, slice time.Duration) (m measurement, err error) {
	count := startCounting(ctx, s.Pid())
	before, err := s.Info()
	if err != nil {
		return m, err
	}
	ops, seconds, err := s.Drive(op, depth, slice)
	m.ops, m.seconds = float64(ops), seconds
	m.events = count()
	if err != nil {
		return m, err
	}
	after, err := s.Info()
	if err != nil {
		return m, err
	}
	grown := func(names ...string) (sum float64) {
		for _, name := range names {
			sum += after[name] - before[name]
		}
		return sum
	}
	m.user, m.system = grown("used_cpu_user"), grown("used_cpu_sys")
	m.switches = grown("voluntary_ctxt", "nonvoluntary_ctxt")
	m.writes = grown("wal_writes")
	m.allocs = grown("alloc_objects")
	return m, nil
}

// eventKinds says what each event that perf counts is an event of.
var eventKinds = map[string]string{
	"raw_syscalls:sys_enter":         "all",
	"syscalls:sys_enter_read":        "read",
	"syscalls:sys_enter_recvfrom":    "read",
	"syscalls:sys_enter_pread64":     "read",
	"syscalls:sys_enter_write":       "write",
	"syscalls:sys_enter_writev":      "write",
	"syscalls:sys_enter_sendto":      "write",
	"syscalls:sys_enter_pwrite64":    "write",
	"syscalls:sys_enter_epoll_wait":  "epoll",
	"syscalls:sys_enter_epoll_pwait": "epoll",
	"syscalls:sys_enter_futex":       "futex",
	"sched:sched_waking":             "wake-up",
}

// startCounting lets perf count events of the process's threads until the returned function is called, which returns
// their numbers by kind, or nil where perf cannot count.
func startCounting(ctx context.Context, pid int) (stop func() map[string]float64) {
	events := strings.Join(slices.Sorted(maps.Keys(eventKinds)), ",")
	perf := exec.CommandContext(ctx, "perf", "stat", "-x", ",", "-e", events, "-p", strconv.Itoa(pid))
	var output bytes.Buffer
	perf.Stderr = &output
	perf.WaitDelay = time.Second
	if err := perf.Start(); err != nil {
		return func() map[string]float64 { return nil }
	}
	time.Sleep(300 * time.Millisecond) // until it has found all threads; nothing else tells
	return func() (counted map[string]float64) {
		_ = perf.Process.Signal(os.Interrupt)
		_ = perf.Wait()
		r := csv.NewReader(&output)
		r.FieldsPerRecord, r.LazyQuotes = -1, true
		rows, _ := r.ReadAll()
		for _, row := range rows {
			if len(row) < 3 || eventKinds[row[2]] == "" {
				continue
			}
			v, err := strconv.ParseFloat(row[0], 64)
			if err != nil {
				continue // <not supported>
			}
			if counted == nil {
				counted = map[string]float64{}
			}
			counted[eventKinds[row[2]]] += v
		}
		return counted
	}
}
