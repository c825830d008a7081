package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"kvmark/client/compare"
	"kvmark/client/experiment"
	"kvmark/client/load"
	"kvmark/client/report"
	"kvmark/client/result"
	"kvmark/client/workload"
)

// exitLoss is the code of a loss that --fail-on names and that is proven; part of the command's contract.
const exitLoss = 4

func compareCommand() *cli.Command {
	d := experiment.DefaultConfig()
	return &cli.Command{
		Name:      "compare",
		ArgsUsage: "[chat|conns]",
		Usage:     "compare toolchains, GC settings, options or commits, with a verdict",
		Description: "Every value of every --vary (their full product) is measured in every mode: a fresh server for each sample, filled,\n" +
			"then Set and Get, in an order that cancels drift. The first value is the base, or what --base says. A control, the base measured again\n" +
			"and linked anew, shows what this machine does when nothing differs, and nothing below that is claimed.\n\n" +
			"  kvmark compare --vary go=go1.26.8,go1.27.3 --modes memory,serialize,file --rounds 12\n" +
			"  kvmark compare --vary GOGC=25,50,100,200,400,off --base GOGC=100 --modes memory --budget 20m\n" +
			"  kvmark compare --vary GOEXPERIMENT=default,nogreenteagc --slices 500ms --until 1%\n" +
			"  kvmark compare --vary server=./old,./new --modes memory --fail-on 'qps<-3%'\n\n" +
			"  kvmark compare chat --pace flood --vary go=go1.26.8,go1.27.3             chat rooms instead of Sets and Gets\n\n" +
			"Built from source: go (a name as in GOTOOLCHAIN, a GOROOT, or the path of a go command), GOEXPERIMENT, GOAMD64,\n" +
			"layout (seed of the link order), pgo (off, a profile, auto: one recorded first); or server (ready binaries). At start: GOGC, GOMEMLIMIT,\n" +
			"GOMAXPROCS, GODEBUG. The client: workers, pipeline, keys, value-size, compressibility, distribution, mix. Any\n" +
			"other name is a flag of kvserver: mode, codec, wal-sync, checkpoint-bytes... \"default\" leaves a setting alone.\n\n" +
			"Each sample is saved in --out before the next begins: the same command with the same --out goes on after Ctrl-C.\n\n" +
			"Exit code: 0 measured, whatever the verdicts; 4 a loss of --fail-on is proven; 3 interrupted, or of some variant not one\n" +
			"sample of some operation is valid (a few INVALID ones among valid ones are left out and told, and are no failure); 2 usage;\n" +
			"1 could not run.",
		Flags: append([]cli.Flag{
			stringsFlag("vary", "`NAME=V1,V2,...`, may be repeated"),
			stringsFlag("vary-client", "`go=V1,V2,...`: toolchains of the load generator, which otherwise is this kvmark in every cell"),
			&cli.BoolFlag{Name: "sample", Hidden: true},
			&cli.StringFlag{Name: "base", Usage: "`NAME=VALUE` that all is compared with, instead of the first values of --vary; of several factors NAME=VALUE,NAME=VALUE"},
			&cli.StringFlag{Name: "plan", Usage: "`FILE.toml` with named cells instead of --vary"},
			&cli.StringFlag{Name: "modes", Value: strings.Join(d.Load.Modes, ","), Usage: "storage modes: memory, map, serialize, file, lsm"},
			&cli.IntFlag{Name: "rounds", Value: d.Rounds, Usage: "samples of each cell (with --budget or --until: as many as these allow)"},
			&cli.DurationFlag{Name: "duration", Value: d.Load.Duration, Usage: "measured `TIME` of each operation of a sample"},
			&cli.DurationFlag{Name: "warmup", Value: d.Load.Warmup, Usage: "`TIME` before it that is not counted"},
			&cli.DurationFlag{Name: "budget", Usage: "`TIME` in all; no round begins that would end later"},
			&cli.StringFlag{Name: "until", Usage: "stop when every QPS is known to within ±`PERCENT`, such as 1%"},
			&cli.DurationFlag{Name: "slices", Usage: "run the servers of a mode side by side, driven in turns of this `TIME`"},
			&cli.BoolFlag{Name: "control", Value: true, Usage: "measure the base twice, and linked anew, for the noise floor"},
			&cli.IntFlag{Name: "layouts", Value: 1, Usage: "link orders of each binary that rounds are spread over"},
			&cli.Uint64Flag{Name: "seed", Usage: "seed of the order and of the data", DefaultText: "random, recorded"},
			&cli.StringFlag{Name: "metrics", Value: strings.Join(experiment.DefaultMetrics(), ","), Usage: "metrics to compare; each makes every proof harder"},
			&cli.StringFlag{Name: "margin", Value: fmt.Sprintf("%g%%", 100*compare.DefaultMargin), Usage: "change too small to matter, `PERCENT`"},
			&cli.StringFlag{Name: "within", Value: fmt.Sprintf("%g%%", 100*experiment.DefaultWithin), Usage: "loss of QPS that a cheaper GC setting may cost, `PERCENT`"},
			&cli.StringFlag{Name: "fail-on", Usage: "losses that give exit 4 when proven, such as 'qps<-3%,cpu_us_per_op>5%'"},
			&cli.StringFlag{Name: "source", Usage: "`DIR` of the kvmark module to build kvserver from (default: found from here)"},
			&cli.StringFlag{Name: "server", Usage: "`PATH` of a ready kvserver, instead of building it"},
			&cli.IntFlag{Name: "workers", Value: d.Load.Workload.Workers, Usage: "connections, one request in flight on each"},
			&cli.IntFlag{Name: "keys", Value: d.Load.Workload.Keys, Usage: "keys of each worker; every sample fills them all"},
			&cli.IntFlag{Name: "pipeline", Value: d.Load.Pipeline, Usage: "requests that a worker sends at once"},
			&cli.StringFlag{Name: "value-size", Value: "classic", Usage: "`SIZE` or range of values: 128, 4KiB, 64-1KiB"},
			&cli.Float64Flag{Name: "compressibility", Usage: "share of a value of given size that compresses away, 0..1"},
			&cli.StringFlag{Name: "distribution", Value: "uniform", Usage: "which key is next: uniform, zipf:THETA (zipf is zipf:0.99), sequential, latest, hotset:KEYS:REQUESTS"},
			&cli.StringFlag{Name: "rate", Value: "0", Usage: "requests a second in open loop, or ramp:FROM:TO; 0 is closed loop"},
			&cli.StringFlag{Name: "mix", Usage: "one phase of mixed operations, `SET:GET` such as 10:90, instead of two"},
			&cli.StringFlag{Name: "wal-sync", Value: d.Load.WALSync, Usage: "when a Set is acknowledged: buffered, os, interval, always"},
			&cli.StringFlag{Name: "codec", Value: d.Load.Codec, Usage: "of mode serialize: deflate, zlib, zip, zstd, s2, shared, none"},
			&cli.IntFlag{Name: "level", Usage: "of the codec", DefaultText: "its own"},
			&cli.IntFlag{Name: "bucket-entries", Value: d.Load.BucketEntries, Usage: "of mode serialize: entries compressed together"},
			&cli.StringFlag{Name: "out", Usage: "`DIR` for the journal, result.json, bench.txt and report.html (default: results/ and the time)"},
			&cli.StringFlag{Name: "format", Value: string(report.Table), Usage: "table, json, csv, markdown or bench"},
			&cli.StringFlag{Name: "dir", Usage: "`DIR` in which servers get their data directories (default: the system's for temporary files)"},
		}, append(driveFlags(), driverFlags()...)...),
		Action: compareAction,
	}
}

func compareAction(c *cli.Context) error {
	if c.Bool("sample") {
		ctx, kill, stop := interruptible(c.Context, func(string, ...any) {})
		defer stop()
		return experiment.ServeSample(ctx, kill, os.Stdin, c.App.Writer)
	}
	o, err := compareOptions(c)
	if err != nil {
		return usageError{err}
	}
	if err := checkSizes(o.Config, result.CaptureRoom(dataDir(o.Load.Dir))); err != nil {
		return usageError{err}
	}
	if o.Out, err = comparePath(c.String("out"), time.Now()); err != nil {
		return err
	}
	defer removeEmpty(o.Out) // if what follows is refused
	show := newDisplay(c.App.ErrWriter)
	if o.Server == "" && o.Source == "" && !o.BuildsVariants() { // as run does: the one that is there, else one that is built
		if o.Server, _ = readyServer(); o.Server != "" {
			show.note("the servers are %s", o.Server)
		}
	}
	ctx, kill, stop := interruptible(c.Context, show.note)
	defer stop()
	restore, err := o.Load.Divide(o.Open())
	if err != nil {
		return usageError{err}
	}
	defer restore()
	o.Load.Kill, o.Logf = kill, show.note
	o.Progress = func(p experiment.Progress) { show.line(p.String()) }
	f := &result.File{Command: "compare", CommandLine: recorded(c), Started: time.Now().UTC(), Plan: o.Load.Plan()}
	f.Env.Client = result.CaptureProcess()
	f.Version = f.Env.Client.Version
	f.Env.Host = result.CaptureHost(dataDir(o.Load.Dir))
	f.Env.Before = result.CaptureLoad()
	show.note("%s", planWords(o.Config))
	out, runErr := experiment.Run(ctx, o.Config)
	show.clear()
	if out == nil {
		if errors.Is(runErr, experiment.ErrInterrupted) {
			show.note("%v", runErr)
			return exitError(exitInvalid)
		}
		if errors.As(runErr, new(*experiment.UsageError)) {
			return usageError{runErr}
		}
		return runErr
	}
	f.Env.After = result.CaptureLoad()
	f.Finished = time.Now().UTC()
	a, err := experiment.Analyze(out, o.Metrics, o.Margin, o.Within)
	if err != nil {
		return errors.Join(runErr, err)
	}
	if err := a.Result(f); err != nil {
		return errors.Join(runErr, err)
	}
	err = errors.Join(runErr, save(a, f, o.Out, show), writeComparison(folded(c.App.Writer, o.format), a, f, o.format))
	if err != nil {
		return err
	}
	if out.Interrupted {
		show.note("to go on: the same command with --out %s", o.Out)
		return exitError(exitInvalid)
	}
	return judge(a, o.limits, show)
}

// planWords says what is about to happen and how long it takes.
func planWords(c experiment.Config) string {
	samples, round := c.Round()
	words := fmt.Sprintf("a round is %s, at least %v", report.Plural(samples, "sample"), round.Round(time.Second))
	switch {
	case c.Rounds > 0:
		words += fmt.Sprintf("; %s, at least %v in all", report.Plural(c.Rounds, "round"), (time.Duration(c.Rounds) * round).Round(time.Second))
	case c.Budget > 0:
		words += fmt.Sprintf("; at most %s in %v", report.Plural(int(c.Budget/round), "round"), c.Budget)
	default:
		words += "; as many rounds as it takes"
	}
	return words + ", plus starting and filling servers"
}

// checkSizes refuses data that clearly exceed this machine. Servers that live side by side have to share it.
func checkSizes(c experiment.Config, room result.Room) error {
	loads, together := c.Loads()
	if c.Load.Driver != nil {
		return nil // it has no keys
	}
	room.Memory /= int64(together)
	room.Disk /= int64(together)
	for _, l := range loads {
		if err := checkSize(l, room); err != nil && together > 1 {
			return fmt.Errorf("%w, or no --slices: %d servers live side by side, and each has that part of the machine", err, together)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// judge makes the exit code.
func judge(a *experiment.Analysis, limits []compare.Limit, show *display) error {
	loss := false
	for _, finding := range compare.CheckLimits(limits, a.Comparisons) {
		what := "no comparison has this metric"
		if finding.Comparison != nil {
			what = finding.Comparison.String()
		}
		show.note("--fail-on %s: %s: %s", finding.Limit, finding.Outcome, what)
		loss = loss || finding.Outcome == compare.Met
	}
	if loss {
		return exitError(exitLoss)
	}
	for _, cell := range a.Cells {
		if cell.Valid == 0 {
			return exitError(exitInvalid)
		}
	}
	return nil
}

// save writes what is kept beside the journal.
func save(a *experiment.Analysis, f *result.File, dir string, show *display) error {
	err := f.Write(filepath.Join(dir, "result.json"))
	bench, createErr := os.Create(filepath.Join(dir, "bench.txt"))
	if createErr == nil {
		createErr = errors.Join(a.WriteBench(bench), bench.Close())
	}
	page, pageErr := os.Create(filepath.Join(dir, "report.html"))
	if pageErr == nil {
		pageErr = errors.Join(report.WritePage(page, report.Entry{File: f, Study: a.Study()}), page.Close())
	}
	if err = errors.Join(err, createErr, pageErr); err == nil {
		show.note("result in %s, bench.txt and report.html beside it", filepath.Join(dir, "result.json"))
	}
	return err
}

func writeComparison(w io.Writer, a *experiment.Analysis, f *result.File, format report.Format) error {
	switch format {
	case report.JSON:
		return report.Write(w, f, format)
	case report.CSV:
		return a.WriteCSV(w)
	case report.Markdown:
		return a.WriteMarkdown(w)
	case report.Bench:
		return a.WriteBench(w)
	}
	if line := report.Introduction(f); line != "" {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return a.WriteTable(w)
}

// compareFlags is everything that the command line says.
type compareFlags struct {
	experiment.Config
	format report.Format
	limits []compare.Limit
}

// compareOptions reads the flags; its errors are usage errors.
func compareOptions(c *cli.Context) (o compareFlags, err error) {
	o.Config = experiment.DefaultConfig()
	switch {
	case c.NArg() == 1 && c.Args().First() == "chat":
		if o.Load.Driver, err = chatDriver(c); err != nil {
			return o, err
		}
	case c.NArg() == 1 && c.Args().First() == "conns":
		if o.Load.Driver, err = connsDriver(c); err != nil {
			return o, err
		}
	case c.NArg() > 0:
		return o, fmt.Errorf("compare takes no argument but chat or conns, got %s: options begin with --", argument(c, c.Args().First()))
	default:
		for _, f := range driverFlags() {
			if name := f.Names()[0]; c.IsSet(name) {
				return o, fmt.Errorf("--%s is about compare chat or conns", name)
			}
		}
	}
	texts := slices.Clone(c.Generic("vary").(*list).values)
	for _, text := range c.Generic("vary-client").(*list).values {
		if !strings.HasPrefix(text, "go=") {
			return o, fmt.Errorf("--vary-client %s: only its toolchain can be varied, go=V1,V2", text)
		}
		texts = append(texts, "client-"+text)
	}
	for _, text := range texts {
		factor, err := experiment.ParseFactor(text)
		if err != nil {
			return o, err
		}
		if c.IsSet(factor.Name) {
			return o, fmt.Errorf("--%[1]s and --vary %[1]s contradict each other: give all its values to --vary", factor.Name)
		}
		o.Factors = append(o.Factors, factor)
	}
	if o.Factors, err = experiment.WithBase(o.Factors, c.String("base")); err != nil {
		return o, fmt.Errorf("--base: %w", err)
	}
	if path := c.String("plan"); path != "" {
		text, err := os.ReadFile(path)
		if err == nil {
			o.Cells, err = experiment.ParseCells(string(text))
		}
		if err != nil {
			return o, fmt.Errorf("--plan %s: %w", path, err)
		}
	}
	l := &o.Load
	if err := driveOptions(c, l); err != nil {
		return o, err
	}
	if l.Modes, err = splitList(c, "modes"); err != nil {
		return o, err
	}
	if l.Driver != nil && !c.IsSet("modes") {
		l.Modes = l.Modes[:1] // it keeps no values: how the server would is all the same
	}
	if slices.ContainsFunc(o.Factors, func(f experiment.Factor) bool { return f.Name == "mode" }) && c.IsSet("modes") {
		return o, errors.New("--modes and --vary mode: either each mode is compared by itself, or the modes with each other")
	}
	modes := l.Modes
	for _, f := range o.Factors {
		if f.Name == "mode" {
			modes = f.Values
		}
	}
	if len(o.Cells) == 0 {
		if err := ofSerialize(c, modes); err != nil {
			return o, err
		}
	}
	l.Duration, l.Warmup, l.Pipeline = c.Duration("duration"), c.Duration("warmup"), c.Int("pipeline")
	l.WALSync, l.Codec, l.BucketEntries, l.Dir = c.String("wal-sync"), c.String("codec"), c.Int("bucket-entries"), c.String("dir")
	l.Workload.Workers, l.Workload.Keys, l.Workload.Compressibility = c.Int("workers"), c.Int("keys"), c.Float64("compressibility")
	if c.IsSet("level") {
		level := c.Int("level")
		l.Level = &level
	}
	if l.Workload.ValueSize, err = workload.ParseSize(c.String("value-size")); err != nil {
		return o, err
	}
	if l.Workload.Distribution, err = workload.ParseDistribution(c.String("distribution")); err != nil {
		return o, err
	}
	if l.Rate, err = load.ParseRate(c.String("rate")); err != nil {
		return o, err
	}
	if l.Workload.Mix, err = workload.ParseMix(c.String("mix")); err != nil {
		return o, err
	}
	if err := checkDataDir(l.Dir); err != nil {
		return o, err
	}
	o.Budget, o.Slices, o.Control, o.Layouts = c.Duration("budget"), c.Duration("slices"), c.Bool("control"), c.Int("layouts")
	if o.Rounds = c.Int("rounds"); o.Rounds < 1 {
		return o, fmt.Errorf("rounds %d: want 1 or more", o.Rounds)
	}
	if o.Until, err = percent(c, "until"); err != nil {
		return o, err
	}
	if (o.Until > 0 || o.Budget > 0) && !c.IsSet("rounds") {
		o.Rounds = 0
	}
	if o.Margin, err = percent(c, "margin"); err != nil {
		return o, err
	}
	if o.Within, err = percent(c, "within"); err != nil {
		return o, err
	}
	if o.Metrics, err = splitList(c, "metrics"); err != nil {
		return o, err
	}
	if text := c.String("fail-on"); text != "" {
		if o.limits, err = compare.ParseLimits(text); err != nil {
			return o, fmt.Errorf("--fail-on: %w", err)
		}
		for _, limit := range o.limits {
			if !slices.Contains(o.Metrics, limit.Metric.Name) {
				o.Metrics = append(o.Metrics, limit.Metric.Name)
			}
		}
	}
	if c.IsSet("seed") {
		seed := c.Uint64("seed")
		if err := checkSeed(seed); err != nil {
			return o, err
		}
		o.Seed = &seed
	}
	o.Source, o.Server = c.String("source"), c.String("server")
	if o.format, err = report.ParseFormat(c.String("format")); err != nil {
		return o, err
	}
	if err := o.Check(); err != nil {
		return o, err
	}
	if samples, round := o.Round(); o.Budget > 0 && o.Budget < round {
		return o, fmt.Errorf("budget %v: one round takes at least %v (%s, each with its windows and warm-ups): give more, or use a shorter --duration, or fewer modes or values",
			o.Budget, round.Round(time.Second), report.Plural(samples, "sample"))
	}
	return o, nil
}

// percent reads a flag such as 1%; not given, it is 0.
func percent(c *cli.Context, name string) (float64, error) {
	text := c.String(name)
	if text == "" {
		return 0, nil
	}
	var x float64
	if n, err := fmt.Sscanf(text, "%g%%", &x); n != 1 || err != nil || !(x > 0 && x < 100) || fmt.Sprintf("%g%%", x) != text {
		return 0, fmt.Errorf("--%s %q: want a percentage such as 1%%", name, text)
	}
	return x / 100, nil
}

// comparePath makes the directory of an experiment. One that is there is gone on with.
func comparePath(dir string, now time.Time) (string, error) {
	if dir == "" {
		path, err := resultPath("", now)
		return filepath.Dir(path), err
	}
	return dir, makeOut(dir)
}

// list is a flag that may be given several times and whose values keep their commas.
type list struct{ values []string }

func (l *list) Set(s string) error { l.values = append(l.values, s); return nil }
func (l *list) String() string     { return strings.Join(l.values, " ") }

// stringsFlag makes a GenericFlag of a list.
func stringsFlag(name, usage string) *cli.GenericFlag {
	return &cli.GenericFlag{Name: name, Value: new(list), Usage: usage}
}
