package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"kvmark/client/load"
	"kvmark/client/report"
	"kvmark/client/result"
	"kvmark/client/workload"
)

func runCommand() *cli.Command {
	d := load.Default()
	return &cli.Command{
		Name:  "run",
		Usage: "measure Set and Get in each storage mode and print the table",
		Description: "For each mode a fresh kvserver is started on an empty directory and loaded: Sets for the duration, then Gets of keys\n" +
			"that are proved to exist, every value compared. Before the Gets the keys that no Set has hit are written too, which is\n" +
			"the stage \"fill\": not timed, not counted. The result is INVALID (exit 3) unless the client's books agree with\n" +
			"the server's. Workers send when their last reply is there (closed loop), or by --rate on a schedule (open loop).",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "modes", Value: strings.Join(d.Modes, ","), Usage: "storage modes: memory, map, serialize, file, lsm"},
			&cli.IntFlag{Name: "workers", Value: d.Workload.Workers, Usage: "connections, one batch in flight on each"},
			&cli.DurationFlag{Name: "duration", Value: d.Duration, Usage: "measured `TIME` of each operation"},
			&cli.DurationFlag{Name: "warmup", Value: d.Warmup, Usage: "`TIME` before it that is not counted"},
			&cli.IntFlag{Name: "keys", Value: d.Workload.Keys, Usage: "keys of each worker"},
			&cli.IntFlag{Name: "repeat", Value: d.Repeat, Usage: "rounds over the modes, each with fresh servers"},
			&cli.StringFlag{Name: "score", Usage: "with --repeat, also the mean as older reports have it: trimmed (without best and worst) or last3"},
			&cli.Uint64Flag{Name: "seed", Usage: "seed of keys, values and their order", DefaultText: "random, recorded"},
			&cli.StringFlag{Name: "wal-sync", Value: d.WALSync, Usage: "when a Set is acknowledged: buffered, os, interval, always"},
			&cli.StringFlag{Name: "codec", Value: d.Codec, Usage: "of mode serialize: deflate, zlib, zip, zstd, s2, shared, none"},
			&cli.IntFlag{Name: "level", Usage: "of the codec", DefaultText: "its own"},
			&cli.IntFlag{Name: "bucket-entries", Value: d.BucketEntries, Usage: "of mode serialize: entries compressed together"},
			&cli.StringFlag{Name: "value-size", Value: "classic", Usage: "`SIZE` of values, at most 64MiB: 128, 4KiB, 64-1KiB, lognormal:1KiB:0.8; classic: okuyama's 50 to 60 bytes"},
			&cli.Float64Flag{Name: "compressibility", Usage: "share of a value of given size that the codec compresses away, 0..1"},
			&cli.StringFlag{Name: "distribution", Value: "uniform", Usage: "which key is next: uniform, zipf:THETA (zipf is zipf:0.99), sequential, latest, hotset:KEYS:REQUESTS"},
			&cli.StringFlag{Name: "mix", Usage: "one phase of mixed operations, `SET:GET` such as 10:90, instead of two"},
			&cli.IntFlag{Name: "pipeline", Value: d.Pipeline, Usage: "requests that a worker sends at once"},
			&cli.StringFlag{Name: "rate", Value: "0", Usage: "requests a second on schedule, `RATE` or ramp:FROM:TO; 0: closed loop"},
			&cli.StringFlag{Name: "arrivals", Value: load.Constant, Usage: "gaps of that schedule: constant or poisson"},
			&cli.BoolFlag{Name: "find-rate", Usage: "search the highest rate that keeps the --slo, up to 24 windows for each operation"},
			&cli.StringFlag{Name: "slo", Usage: "`PROMISE` about the response time, such as 'p99<2ms'"},
			&cli.BoolFlag{Name: "cold", Usage: "Gets of mode file from the device: drop the system's cache before and once a second (Linux)"},
			&cli.BoolFlag{Name: "second-opinion", Usage: "let redis-benchmark, if installed, load each server too"},
			&cli.StringFlag{Name: "out", Usage: "`DIR` for result.json (default: results/ and the time)"},
			&cli.StringFlag{Name: "format", Value: string(report.Table), Usage: "table, json, csv, markdown or bench"},
			&cli.StringFlag{Name: "server", Usage: "`PATH` of kvserver (default: beside kvmark, else in PATH, else built if this is the kvmark module)"},
			&cli.BoolFlag{Name: "allow-data", Usage: "measure a --target although it holds keys"},
			&cli.StringFlag{Name: "dir", Usage: "`DIR` in which servers get their data directories (default: the system's for temporary files)"},
			&cli.BoolFlag{Name: "keep", Usage: "leave the data directories"},
		}, append(targetFlags(), driveFlags()...)...),
		Action: func(c *cli.Context) error {
			cfg, format, err := runConfig(c)
			if err != nil {
				return usageError{err}
			}
			return measure(c, cfg, c.String("server"), c.String("score"), format, nil)
		},
	}
}

// measure runs cfg with the server at a path (empty: wherever one is found), and prints and saves the result. Where it
// repeats what was measured before, first is the result of that.
func measure(c *cli.Context, cfg load.Config, server, score string, format report.Format, first *result.File) error {
	if err := checkSize(cfg, result.CaptureRoom(dataDir(cfg.Dir))); err != nil {
		return usageError{err}
	}
	path, err := resultPath(c.String("out"), time.Now())
	if err != nil {
		return err
	}
	release, err := claimOut(path)
	if err != nil {
		return err
	}
	defer release()
	show := newDisplay(c.App.ErrWriter)
	ctx, kill, stop := interruptible(c.Context, show.note)
	defer stop()
	if cfg.Target.Addr == "" {
		if cfg.Server, err = findServer(ctx, server, show.note); err != nil {
			return err
		}
	}
	restore, err := cfg.Divide(false)
	if err != nil {
		return usageError{err}
	}
	defer restore()
	cfg.Progress, cfg.Logf, cfg.Kill = show.progress, show.note, kill

	f := &result.File{Command: "run", CommandLine: recorded(c), Started: time.Now().UTC(), Plan: cfg.Plan()}
	f.Plan.Score = score
	show.note("%s%s: %s; seed %d", cfg.Server, cfg.Target, estimate(cfg), cfg.Workload.Seed)
	if err := captureEnv(f, cfg); err != nil {
		return err
	}
	out, err := load.Run(ctx, cfg)
	show.clear()
	f.Env.After = result.CaptureLoad()
	f.Finished = time.Now().UTC()
	f.Cells, f.Searches, f.Env.Server, f.Interrupted = out.Cells, out.Searches, out.Server, out.Interrupted
	f.Warnings = f.FindWarnings()
	if first != nil {
		f.Warnings = append(f.Warnings, notRestored(first, f)...)
	}
	return deliver(c, show, f, path, format, err)
}

// deliver saves and prints what has been measured; err says why that is not all.
func deliver(c *cli.Context, show *display, f *result.File, path string, format report.Format, err error) error {
	if err != nil && len(f.Cells) == 0 {
		return err
	}
	if err != nil {
		show.note("%v", err)
	}
	saveErr := f.Write(path)
	if saveErr == nil {
		show.note("result in %s", path)
	}
	if err := errors.Join(report.Write(folded(c.App.Writer, format), f, format), saveErr); err != nil {
		return err
	}
	if err != nil || !f.Valid() {
		return exitError(exitInvalid)
	}
	return nil
}

// estimate says in words how long a run takes. How fast a server starts and is filled is not known before.
func estimate(cfg load.Config) string {
	measurements, total := cfg.About()
	about := "about"
	if cfg.SLO.Set() {
		about = "up to"
	}
	words := fmt.Sprintf("%s of %v, %s %v in all", report.Plural(measurements, "measurement"), cfg.Duration, about, total.Round(time.Second))
	if cfg.SLO.Set() {
		words = about + " " + words
	}
	if cfg.Target.Addr == "" {
		words += ", plus starting servers"
	}
	if fills := cfg.Fills(); fills > 0 {
		words += ", plus filling up to " + report.Plural(cfg.Workload.Workers*cfg.Workload.Keys, "key")
		if fills > 1 {
			words += fmt.Sprintf(" %d times", fills)
		}
	}
	return words
}

// captureEnv describes where the measurement is about to run.
func captureEnv(f *result.File, cfg load.Config) (err error) {
	f.Env.Client = result.CaptureProcess()
	f.Version = f.Env.Client.Version
	f.Env.Host = result.CaptureHost(dataDir(cfg.Dir))
	if cfg.Target.Addr == "" {
		if f.Env.Host.FsyncUS, err = result.MeasureFsync(dataDir(cfg.Dir), fsyncs); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
		f.Env.Binary, _ = result.ReadBinary(cfg.Server) // it may be a script that starts the server
	}
	f.Env.Before = result.CaptureLoad()
	return nil
}

// fsyncs is how often the cost of one is measured.
const fsyncs = 15

// runConfig reads the flags; its errors are usage errors.
func runConfig(c *cli.Context) (cfg load.Config, format report.Format, err error) {
	if c.NArg() > 0 {
		return cfg, "", fmt.Errorf("run takes no arguments, got %s: options begin with --", argument(c, c.Args().First()))
	}
	cfg = load.Default()
	if cfg.Modes, err = splitList(c, "modes"); err != nil {
		return cfg, "", err
	}
	cfg.Duration, cfg.Warmup, cfg.Repeat, cfg.Pipeline = c.Duration("duration"), c.Duration("warmup"), c.Int("repeat"), c.Int("pipeline")
	cfg.WALSync, cfg.Codec, cfg.BucketEntries = c.String("wal-sync"), c.String("codec"), c.Int("bucket-entries")
	cfg.Dir, cfg.Keep = c.String("dir"), c.Bool("keep")
	if err := driveOptions(c, &cfg); err != nil {
		return cfg, "", err
	}
	cfg.Workload.Workers, cfg.Workload.Keys = c.Int("workers"), c.Int("keys")
	cfg.Workload.Compressibility = c.Float64("compressibility")
	cfg.Workload.Seed = c.Uint64("seed")
	if err := checkSeed(cfg.Workload.Seed); err != nil {
		return cfg, "", err
	}
	if !c.IsSet("seed") {
		cfg.Workload.Seed = uint64(rand.Uint32()) // short enough to be typed again, and exact in any JSON reader
	}
	if c.IsSet("level") {
		level := c.Int("level")
		cfg.Level = &level
	}
	if !c.IsSet("target") {
		if err := ofSerialize(c, cfg.Modes); err != nil {
			return cfg, "", err
		}
	}
	cfg.SecondOpinion, cfg.Cold, cfg.AllowData = c.Bool("second-opinion"), c.Bool("cold"), c.Bool("allow-data")
	if err := excluded(c); err != nil {
		return cfg, "", err
	}
	if cfg.Rate, err = load.ParseRate(c.String("rate")); err != nil {
		return cfg, "", err
	}
	if c.IsSet("arrivals") {
		cfg.Arrivals = c.String("arrivals")
	}
	if c.IsSet("slo") {
		if cfg.SLO, err = load.ParseSLO(c.String("slo")); err != nil {
			return cfg, "", err
		}
	}
	if cfg.Target, err = parseTarget(c); err != nil {
		return cfg, "", err
	}
	if cfg.Workload.ValueSize, err = workload.ParseSize(c.String("value-size")); err != nil {
		return cfg, "", err
	}
	if cfg.Workload.Distribution, err = workload.ParseDistribution(c.String("distribution")); err != nil {
		return cfg, "", err
	}
	if cfg.Workload.Mix, err = workload.ParseMix(c.String("mix")); err != nil {
		return cfg, "", err
	}
	if format, err = report.ParseFormat(c.String("format")); err != nil {
		return cfg, "", err
	}
	if err := checkDataDir(cfg.Dir); err != nil {
		return cfg, "", err
	}
	check := cfg
	check.Server = "found later"
	return cfg, format, check.Validate()
}

// ofSerialize refuses options of mode serialize where it is not measured.
func ofSerialize(c *cli.Context, modes []string) error {
	for _, name := range []string{"codec", "level", "bucket-entries"} {
		if c.IsSet(name) && !slices.Contains(modes, "serialize") {
			return fmt.Errorf("--%s has no effect on the modes %v: add serialize to --modes", name, modes)
		}
	}
	return nil
}

// excluded refuses options that have no meaning together.
func excluded(c *cli.Context) error {
	if c.IsSet("target") {
		for _, name := range []string{"server", "modes", "wal-sync", "codec", "level", "bucket-entries", "io", "server-cpus", "dir", "keep", "cold"} {
			if c.IsSet(name) {
				return fmt.Errorf("--%s is about servers that kvmark starts, --target is one that runs already: use one of them", name)
			}
		}
	}
	needs := func(name, other string) error {
		if c.IsSet(name) && !c.IsSet(other) {
			return fmt.Errorf("--%s has no effect without --%s", name, other)
		}
		return nil
	}
	if c.IsSet("arrivals") && !c.IsSet("rate") && !c.IsSet("find-rate") {
		return errors.New("--arrivals has no effect without --rate or --find-rate: in closed loop the replies set the pace")
	}
	switch score, repeat := c.String("score"), c.Int("repeat"); {
	case score == "":
	case score != "trimmed" && score != "last3":
		return fmt.Errorf("score %q is unknown: use trimmed or last3", score)
	case score == "trimmed" && repeat < 3:
		return errors.New("--score trimmed leaves out the best and the worst: it needs --repeat 3 or more")
	case score == "last3" && repeat < 4:
		return errors.New("--score last3 leaves out what comes before the last three: it needs --repeat 4 or more")
	}
	return errors.Join(needs("allow-data", "target"), needs("slo", "find-rate"), needs("find-rate", "slo"))
}

// splitList is the entries of a flag, separated by commas.
func splitList(c *cli.Context, name string) (list []string, err error) {
	for item := range strings.SplitSeq(c.String(name), ",") {
		if item = strings.TrimSpace(item); item == "" {
			return nil, fmt.Errorf("--%s %q: an entry is empty", name, c.String(name))
		}
		list = append(list, item)
	}
	return list, nil
}

func dataDir(dir string) string {
	if dir == "" {
		return os.TempDir()
	}
	return dir
}

// checkDataDir refuses a --dir that is no directory, before anything is made in it.
func checkDataDir(dir string) error {
	path := dataDir(dir)
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return nil
	case dir == "":
		return fmt.Errorf("%s, the directory for temporary files (TMPDIR), is not a directory: set TMPDIR, or name another with --dir", path)
	}
	return fmt.Errorf("--dir %s is not a directory: make it first", path)
}

const resultName = "result.json"

// resultPath makes the directory for the result, before anything is measured: a measurement that cannot be saved is lost.
// It never names a file that is there.
func resultPath(dir string, now time.Time) (string, error) {
	if dir != "" {
		path := filepath.Join(dir, resultName)
		if _, err := os.Lstat(path); err == nil {
			return "", usageError{fmt.Errorf("--out %s already holds a %s: name another directory", dir, resultName)}
		}
		return path, makeOut(dir)
	}
	if err := os.MkdirAll("results", 0o777); err != nil {
		return "", fmt.Errorf("%w: use --out", err)
	}
	stamp := filepath.Join("results", now.UTC().Format("20060102T150405Z"))
	for n := 1; ; n++ {
		dir := stamp
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", stamp, n)
		}
		err := os.Mkdir(dir, 0o777)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%w: use --out", err)
		}
		if err := makeOut(dir); err != nil {
			_, _ = os.Remove(dir), os.Remove("results") // the latter only if it holds nothing else
			return "", err
		}
		return filepath.Join(dir, resultName), nil
	}
}

// makeOut makes a directory for results, and sees that they will have room: a measurement that cannot be saved is lost. On an
// error it leaves no directory behind that it made.
func makeOut(dir string) error {
	var made []string // the deepest first
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		made = append(made, d)
	}
	err := os.MkdirAll(dir, 0o777)
	if err == nil {
		err = tryRoom(dir)
	}
	if err != nil {
		for _, d := range made {
			_ = os.Remove(d)
		}
		return fmt.Errorf("--out %s: %w", dir, err)
	}
	return nil
}

// room is what a result may take, in bytes.
const room = 1 << 20

// tryRoom writes a file of that size and removes it.
func tryRoom(dir string) error {
	f, err := os.CreateTemp(dir, ".kvmark-*")
	if err == nil {
		_, err = f.Write(make([]byte, room))
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return fmt.Errorf("a result could not be saved there: %w: make room, or name another directory", err)
	}
	return nil
}
