// Command openloop shows whether what kvmark measures in open loop is the server's time or its own: beside every kvmark
// it runs a minimal client with blocking sockets at the same rate on the same server, in turns, and prints both. It is for
// those who work on the client, and for those who doubt it.
//
//	go run ./cmd/internal/openloop -kvmark bin/kvmark -kvserver bin/kvserver -gomaxprocs 2
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kvmark/client/result"
	"kvmark/cmd/internal/rig"
)

// What a cell has to keep on an idle machine.
const (
	maxP50Ratio   = 1.3
	maxP99Ratio   = 2
	maxLatenessUS = 150
)

const maxThreads = 8 // of the minimal client, which has as many as kvmark has workers otherwise

type options struct {
	kvmark, kvserver                              string
	servers, rates, arrivals, workers, gomaxprocs string
	seconds                                       float64
	rounds                                        int
	minimal                                       string
}

func main() {
	var o options
	flag.StringVar(&o.kvmark, "kvmark", "bin/kvmark", "path of kvmark")
	flag.StringVar(&o.kvserver, "kvserver", "bin/kvserver", "path of kvserver")
	flag.StringVar(&o.servers, "servers", "redis,memory", "servers: redis, or a mode of kvserver")
	flag.StringVar(&o.rates, "rates", "100,300,1000,2000,5000,20000", "requests a second")
	flag.StringVar(&o.arrivals, "arrivals", "constant,poisson", "gaps between them")
	flag.StringVar(&o.workers, "workers", "1,8,64", "kvmark's connections")
	flag.StringVar(&o.gomaxprocs, "gomaxprocs", "1,2,4", "kvmark's GOMAXPROCS")
	flag.Float64Var(&o.seconds, "seconds", 1, "of each measurement; four times as long below 1,000 a second")
	flag.IntVar(&o.rounds, "rounds", 1, "of each cell, of which the median is shown")
	flag.StringVar(&o.minimal, "minimal", "", "internal: be the minimal client of this address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := o.table
	if o.minimal != "" {
		run = o.beMinimal
	}
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openloop:", err)
		os.Exit(1)
	}
}

// figures are what one client says about one window, in us; 0 is not known.
type figures struct {
	P50, P99, Late, Response float64
	Busy                     float64 // part of the CPUs that other processes and the hypervisor took, while kvmark ran
	Failed                   string  // checks of kvmark
}

// cell is one line of the table.
type cell struct {
	arrivals                  string
	gomaxprocs, workers, rate int
	minimal, kvmark           figures
}

func (o *options) table(ctx context.Context, w io.Writer) error {
	cells, err := o.cells()
	if err != nil {
		return err
	}
	// A line leaves as soon as it is measured, so that a run that is cut keeps the others.
	fmt.Fprintf(w, "%-9s %5s %7s %8s %6s | %-27s | %-27s | %5s %5s %6s\n", "", "GOMAX", "", "", "", "minimal: service", "kvmark: service", "ratio", "", "others'")
	fmt.Fprintf(w, "%-9s %5s %7s %8s %6s | %5s %6s %6s %7s | %5s %6s %6s %7s | %5s %5s %6s\n", "server", "PROCS", "workers", "arrivals", "rate",
		"p50", "p99", "late", "resp.", "p50", "p99", "late", "resp.", "p50", "p99", "CPU")
	good := 0
	for _, server := range strings.Split(o.servers, ",") {
		s, err := rig.Start(ctx, rig.Spec{Name: server, Kvserver: o.kvserver, Sync: "interval"})
		if err != nil {
			return err
		}
		for i := range cells {
			if err = o.measure(ctx, &cells[i], s.Addr); err != nil {
				break
			}
			c := cells[i]
			words := c.judge()
			if words == "" {
				good++
			}
			fmt.Fprintf(w, "%-9s %5d %7d %8s %6d | %5.0f %6.0f %6.0f %7.0f | %5.0f %6.0f %6.0f %7.0f | %5.2f %5.2f %4.0f %% %s\n", server, c.gomaxprocs, c.workers, c.arrivals, c.rate,
				c.minimal.P50, c.minimal.P99, c.minimal.Late, c.minimal.Response, c.kvmark.P50, c.kvmark.P99, c.kvmark.Late, c.kvmark.Response,
				c.kvmark.P50/c.minimal.P50, c.kvmark.P99/c.minimal.P99, 100*c.kvmark.Busy, words)
		}
		if err := errors.Join(err, s.Stop()); err != nil {
			return err
		}
	}
	all := len(cells) * len(strings.Split(o.servers, ","))
	fmt.Fprintf(w, "service and response time, and p99 of lateness (late), in us, response as p99; %d of %d cells have p50 within %.1f x and p99 within %d x of the minimal client, and p99 of lateness below %d us\n",
		good, all, maxP50Ratio, maxP99Ratio, maxLatenessUS)
	return nil
}

func (c cell) judge() string {
	var words []string
	add := func(bad bool, name string) {
		if bad {
			words = append(words, name)
		}
	}
	add(c.kvmark.P50 > maxP50Ratio*c.minimal.P50, "p50")
	add(c.kvmark.P99 > maxP99Ratio*c.minimal.P99, "p99")
	add(c.kvmark.Late > maxLatenessUS, "late")
	add(c.kvmark.Failed != "", c.kvmark.Failed)
	return strings.Join(words, " ")
}

func (o *options) cells() (cells []cell, err error) {
	numbers := func(s string) (list []int) {
		for field := range strings.SplitSeq(s, ",") {
			n, e := strconv.Atoi(field)
			if e != nil || n < 1 {
				err = fmt.Errorf("%q: want numbers above 0, separated by commas", s)
			}
			list = append(list, n)
		}
		return list
	}
	procs, workers, rates := numbers(o.gomaxprocs), numbers(o.workers), numbers(o.rates)
	for _, p := range procs {
		for _, w := range workers {
			for arrivals := range strings.SplitSeq(o.arrivals, ",") {
				for _, r := range rates {
					cells = append(cells, cell{gomaxprocs: p, workers: w, arrivals: arrivals, rate: r})
				}
			}
		}
	}
	return cells, err
}

func (o *options) length(c *cell) time.Duration {
	d := time.Duration(o.seconds * 1e9)
	if c.rate < 1000 {
		d *= 4
	}
	return d
}

// measure runs both clients in turns.
func (o *options) measure(ctx context.Context, c *cell, addr string) error {
	clients := []func(context.Context, *cell, string) (figures, error){o.runMinimal, o.runKvmark}
	var got [2][]figures
	for round := range o.rounds {
		for i := range clients {
			who := (i + round) % len(clients)
			f, err := clients[who](ctx, c, addr)
			if err != nil {
				return err
			}
			got[who] = append(got[who], f)
		}
	}
	c.minimal, c.kvmark = median(got[0]), median(got[1])
	return nil
}

func median(rounds []figures) figures {
	of := func(number func(figures) float64) float64 {
		sorted := slices.Clone(rounds)
		slices.SortFunc(sorted, func(a, b figures) int { return cmp.Compare(number(a), number(b)) })
		return number(sorted[len(sorted)/2])
	}
	f := figures{
		of(func(f figures) float64 { return f.P50 }), of(func(f figures) float64 { return f.P99 }),
		of(func(f figures) float64 { return f.Late }), of(func(f figures) float64 { return f.Response }),
		of(func(f figures) float64 { return f.Busy }), "",
	}
	for _, r := range rounds {
		f.Failed = cmp.Or(f.Failed, r.Failed)
	}
	return f
}

func (o *options) runMinimal(ctx context.Context, c *cell, addr string) (f figures, err error) {
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	cmd := exec.CommandContext(ctx, self, "-minimal", addr, "-rates", strconv.Itoa(c.rate), "-workers", strconv.Itoa(min(c.workers, maxThreads)), "-arrivals", c.arrivals,
		"-seconds", strconv.FormatFloat(o.length(c).Seconds(), 'f', -1, 64))
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("minimal client: %w", err)
	}
	return f, json.Unmarshal(out, &f)
}

func (o *options) beMinimal(_ context.Context, w io.Writer) error {
	addr, err := netip.ParseAddrPort(o.minimal)
	if err != nil {
		return err
	}
	rate, err := strconv.ParseFloat(o.rates, 64)
	if err != nil {
		return err
	}
	threads, err := strconv.Atoi(o.workers)
	if err != nil {
		return err
	}
	times, late, response, err := minimalLoad{addr, threads, rate, o.arrivals == "poisson", time.Duration(o.seconds * 1e9)}.run()
	if err != nil {
		return err
	}
	at := func(sorted []time.Duration, q float64) float64 {
		return float64(sorted[int(q*float64(len(sorted)-1))]) / 1e3
	}
	return json.NewEncoder(w).Encode(figures{P50: at(times, 0.5), P99: at(times, 0.99), Late: at(late, 0.99), Response: at(response, 0.99)})
}

func (o *options) runKvmark(ctx context.Context, c *cell, addr string) (f figures, err error) {
	dir, err := os.MkdirTemp("", "openloop-")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, o.kvmark, "run", "--target", "redis://"+addr, "--allow-data", "--keys", "100", "--mix", "0:1",
		"--workers", strconv.Itoa(c.workers), "--rate", strconv.Itoa(c.rate), "--arrivals", c.arrivals, "--seed", "1",
		"--duration", o.length(c).String(), "--warmup", "200ms", "--out", dir)
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(c.gomaxprocs))
	out, err := cmd.CombinedOutput()
	file, readErr := result.Read(filepath.Join(dir, "result.json"))
	if readErr != nil {
		return f, fmt.Errorf("kvmark: %w: %s", errors.Join(err, readErr), bytes.TrimSpace(out))
	}
	got := file.Cells[0]
	for _, check := range got.Checks {
		if !check.Pass {
			f.Failed = check.Name
		}
	}
	number := func(x *float64) float64 {
		if x == nil {
			return 0
		}
		return *x
	}
	f.P50, f.P99 = number(got.LatencyUS.P50), number(got.LatencyUS.P99)
	f.Late, f.Response = number(got.Pace.LatenessUS.P99), number(got.Pace.ResponseUS.P99)
	f.Busy = number(got.Others.CPUShare) + number(got.Others.StealShare)
	return f, nil
}
