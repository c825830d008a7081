// Package experiment compares variants of kvserver under load: toolchains, GC settings, storage options, commits. It is
// what `kvmark compare` does, as a library, for people who want an answer that they can defend.
//
//	plan      factors or named cells, the traps in their values, the binaries, what a toolchain or runtime refuses ("n/a")
//	try       every cell starts once, and must have the settings that were asked
//	block     every cell once, a fresh process each, in an order that cancels drift; or, with slices, all servers of a
//	          mode side by side and driven in turns by the same workers
//	journal   each sample is on disk before the next begins, so an experiment that was cut short goes on where it was
//	analysis  see [Analyze]: package compare's statistics over the samples, processes being the unit
//
// A sample fills a fresh server with every key, untimed, and then measures each operation with the phases and checks of
// package load. Samples that fail a check are shown and not used.
package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"kvmark/client/compare"
	"kvmark/client/report"
	"kvmark/client/result"
)

// Outcome is what was measured, in this run and, if it was resumed, in those before.
type Outcome struct {
	Plan        Plan
	Base        int      // the variant that is compared with
	Samples     []Sample // in the order of time
	Resumed     int      // how many of them earlier runs had measured
	Blocks      int      // complete ones
	Interrupted bool
	Ended       string // why there are no more rounds
}

// Progress is how far an experiment is.
type Progress struct {
	Now            string        // the cell that is being measured
	Done, Total    int           // samples; Total 0: not known
	Elapsed, Limit time.Duration // of measuring; Limit 0: no budget
	Left           time.Duration // until the last round or the end of the budget; 0: not known
	Widest         string        // the comparison that is known least, "memory/set"
	HalfWidth      float64       // of its interval, as a part of 1; 0: none yet
}

// String is one line.
func (p Progress) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", p.Done)
	if p.Total > 0 {
		fmt.Fprintf(&b, " of %d", p.Total)
	}
	b.WriteString(" samples, ")
	unit, word := time.Minute, "min"
	if max(p.Elapsed, p.Limit) < 2*time.Minute {
		unit, word = time.Second, "s"
	}
	fmt.Fprintf(&b, "%.0f", p.Elapsed.Seconds()/unit.Seconds())
	if p.Limit > 0 {
		fmt.Fprintf(&b, " of %.0f", p.Limit.Seconds()/unit.Seconds())
	}
	b.WriteString(" " + word)
	if p.Left > 0 {
		fmt.Fprintf(&b, ", about %v left", p.Left.Round(max(time.Second, p.Left.Round(time.Minute)/20)))
	}
	if p.HalfWidth > 0 {
		fmt.Fprintf(&b, "; %s at +-%.1f %%", p.Widest, 100*p.HalfWidth)
	}
	if p.Now != "" {
		b.WriteString("; now " + p.Now)
	}
	return b.String()
}

// experiment is the state of a Run.
type experiment struct {
	Config
	plan     Plan
	base     int
	cache    string
	live     []int // variants that can be measured, controls included
	binaries map[binaryKey]program
	clients  map[int]program // load generators other than this process, by variant
	journal  *journal
	samples  []Sample
	spent    time.Duration // measuring, in earlier runs too
	failures int           // samples in a row
}

type binaryKey struct {
	variant int
	layout  uint64
}

// maxFailures is how many samples in a row may come to nothing before it is no accident.
const maxFailures = 3

// relink is the seed of the other link order that the control arm A/A' gets. Seeds of --layouts count from 1.
const relink = 0x5eed

// A UsageError is a Config that cannot work.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ErrInterrupted is returned when ctx ended, or Load.Kill was closed, before the first sample.
var ErrInterrupted = errors.New("interrupted before the first sample")

// Run measures. The outcome is nil if the experiment could not begin. With an error later on, it holds what there is.
func Run(ctx context.Context, c Config) (*Outcome, error) {
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	x := &experiment{Config: c, binaries: map[binaryKey]program{}, clients: map[int]program{}}
	if err := x.makePlan(); err != nil {
		return nil, &UsageError{err}
	}
	for _, step := range []func(context.Context) error{x.build, x.try} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil || killed(c.Load.Kill) {
				err = ErrInterrupted
			}
			return nil, err
		}
	}
	if err := x.choose(); err != nil {
		return nil, err
	}
	var err error
	if x.journal, x.samples, err = openJournal(c.Out, &x.plan, x.adopt); err != nil {
		return nil, err
	}
	out := &Outcome{Plan: x.plan, Base: x.base, Resumed: len(x.samples)}
	for _, s := range x.samples {
		x.spent += time.Duration(s.Seconds * float64(time.Second))
	}
	if out.Resumed > 0 {
		c.Logf("going on with %s in %s", report.Plural(out.Resumed, "sample"), x.journal.path)
	}
	out.Ended, err = x.measure(ctx)
	out.Samples, out.Blocks = x.samples, x.blocks()
	if errors.Is(err, context.Canceled) && (ctx.Err() != nil || killed(c.Load.Kill)) {
		out.Interrupted, out.Ended, err = true, "interrupted", nil
	}
	return out, errors.Join(err, x.journal.close())
}

// makePlan checks the configuration, as far as that takes no toolchain and no server.
func (x *experiment) makePlan() error {
	vs, err := x.variants()
	if err != nil {
		return err
	}
	x.plan = Plan{
		Variants: vs, Factors: x.Factors, Modes: x.Load.Modes, Seconds: x.Load.Duration.Seconds(), Warmup: x.Load.Warmup.Seconds(),
		Slice: x.Slices.Seconds(), Layouts: x.Layouts,
	}
	if varied(vs, "mode") {
		x.plan.Modes = []string{""}
	}
	switch {
	case x.Out == "":
		return errors.New("no directory for the journal")
	case x.Slices < 0 || x.Slices > x.Load.Duration/2:
		return fmt.Errorf("slices %v: want at most half the duration %v, which is then cut into turns", x.Slices, x.Load.Duration)
	case x.Slices > 0 && x.Slices < 20*time.Millisecond:
		return fmt.Errorf("slices %v: want 20ms or more; 250ms to 1s are good", x.Slices)
	case x.Rounds < 0 || x.Rounds > maxRounds:
		return fmt.Errorf("rounds %d: want 0 (with --budget or --until) to %d", x.Rounds, maxRounds)
	case x.Slices > 0 && varied(vs, clientGo):
		return errors.New("slices and --vary-client: one client drives all servers that live side by side")
	case x.Budget < 0:
		return fmt.Errorf("budget %v: want more than 0", x.Budget)
	case x.Until < 0 || x.Until >= 1 || math.IsNaN(x.Until):
		return fmt.Errorf("until %v: want a part of 1, such as 0.01", x.Until)
	case x.Rounds == 0 && x.Budget == 0 && x.Until == 0:
		return errors.New("no end: give rounds, a budget, or a precision")
	case x.Layouts < 0 || x.Layouts > 100:
		return fmt.Errorf("layouts %d: want 0 to 100", x.Layouts)
	case x.Layouts > 1 && varied(vs, "layout"):
		return errors.New("link orders are either compared (--vary layout) or averaged over (--layouts)")
	case x.Layouts > 1 && (x.Server != "" || varied(vs, "server")):
		return errors.New("--layouts: a ready binary cannot be linked anew")
	case x.Server != "" && slices.ContainsFunc([]string{"go", "GOEXPERIMENT", "GOAMD64", "layout", "pgo"}, func(n string) bool { return varied(vs, n) }):
		return errors.New("--server is a ready binary: how it is built cannot be varied")
	}
	if n := len(vs) * len(x.plan.Modes) * max(1, x.Rounds); n > MaxSamples {
		return fmt.Errorf("%d samples: want at most %d", n, MaxSamples)
	}
	for _, name := range x.Metrics {
		if _, ok := lookupMetric(name); !ok {
			return fmt.Errorf("metric %q is unknown; known are %s", name, strings.Join(metricNames(), ", "))
		}
	}
	if plain := slices.DeleteFunc(slices.Clone(x.plan.Modes), func(m string) bool { return m == "" || m == "serialize" }); len(plain) > 0 {
		for _, name := range ofSerialize {
			if varied(vs, name) {
				return fmt.Errorf("vary %s: it has no effect on %s: compare it with --modes serialize", name, strings.Join(plain, ", "))
			}
		}
	}
	for i, v := range vs {
		for _, mode := range x.plan.Modes {
			l, err := x.loadConfig(v, mode, "built later")
			if err == nil {
				err = l.Validate()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", v.Name, err)
			}
			ops := []string{"set", "get"}
			if l.Workload.Mix.Mixed() {
				ops = []string{"mix"}
			}
			if l.Driver != nil {
				ops = []string{l.Driver.Op()}
			}
			if i > 0 && !slices.Equal(ops, x.plan.Ops) {
				return errors.New("vary mix: a mixed phase can only be compared with another")
			}
			x.plan.Ops = ops
		}
	}
	p := x.Load.Plan()
	p.Seed, p.Server, p.Dir, p.DurationSeconds, p.WarmupSeconds = 0, "", "", 0, 0
	of := func(name string, value any) string {
		if has := func(v Variant) bool { return v.Get(name) != Default }; slices.ContainsFunc(vs, has) {
			if !slices.ContainsFunc(vs, func(v Variant) bool { return !has(v) }) {
				return result.Varied
			}
			return fmt.Sprintf("%v|%s", value, result.Varied) // some leave it alone
		}
		return fmt.Sprint(value)
	}
	server := fmt.Sprintf("wal-sync=%s io=%s codec=%s level=%s bucket-entries=%s",
		of("wal-sync", p.WALSync), of("io", cmp.Or(p.IO, Default)), of("codec", p.Codec), of("level", level(p)), of("bucket-entries", p.BucketEntries))
	x.plan.Options = fmt.Sprintf("workers=%s keys=%s pipeline=%s value-size=%s compressibility=%s distribution=%s mix=%s rate=%s %s",
		of("workers", p.Workers), of("keys", p.Keys), of("pipeline", p.Pipeline), of("value-size", p.ValueSize), of("compressibility", p.Compressibility),
		of("distribution", p.Distribution), of("mix", p.Mix), of("rate", x.Load.Rate), server)
	if d := x.Load.Driver; d != nil {
		x.plan.Options = fmt.Sprintf("%s %s", d, server)
		if x.Slices > 0 || varied(vs, clientGo) {
			return fmt.Errorf("%s: neither slices nor another client can be had for it", d.Op())
		}
	}
	if len(p.ServerEnv) > 0 {
		x.plan.Options += " " + strings.Join(p.ServerEnv, " ")
	}
	if p.ServerCPUs != "" || p.ClientCPUs != "" {
		x.plan.Options += fmt.Sprintf(" server-cpus=%s client-cpus=%s", p.ServerCPUs, p.ClientCPUs)
	}
	x.plan.Seed = uint64(rand.Uint32()) // short enough to be typed again
	if x.Seed != nil {
		x.plan.Seed = *x.Seed
	}
	return nil
}

func level(p result.Plan) string {
	if p.Level == nil {
		return Default
	}
	return fmt.Sprint(*p.Level)
}

// adopt takes the seed from an earlier run if none was asked for.
func (x *experiment) adopt(old Plan, now *Plan) {
	if x.Seed == nil {
		now.Seed = old.Seed
	}
}

// choose finds the base, adds the controls, and refuses an experiment in which nothing is left to compare.
func (x *experiment) choose() error {
	var reasons []string
	for i, v := range x.plan.Variants {
		if v.Control != "" {
			continue
		}
		if v.NA != "" {
			reasons = append(reasons, v.Name+": "+v.NA)
			continue
		}
		x.live = append(x.live, i)
	}
	if len(x.live) < 2 {
		return fmt.Errorf("nothing to compare is left: %s", strings.Join(reasons, "; "))
	}
	x.base = x.live[0]
	for _, r := range reasons {
		x.Logf("n/a: %s", r)
	}
	for i, v := range x.plan.Variants {
		if v.Control != "" && v.NA == "" {
			x.live = append(x.live, i)
		}
	}
	return nil
}

// build makes the binaries of all variants, and with the base's those of the controls.
func (x *experiment) build(ctx context.Context) error {
	source := ""
	if x.builds() {
		var err error
		if x.cache = x.Cache; x.cache == "" {
			if x.cache, err = cacheDir(); err != nil {
				return err
			}
		}
		if source, err = FindSource(cmp.Or(x.Source, ".")); err != nil {
			return err
		}
	}
	b := newBuilder(source, x.cache, x.Logf)
	for i := range x.plan.Variants {
		if err := x.buildVariant(ctx, b, i); err != nil {
			return err
		}
	}
	if err := x.oneBinary(); err != nil {
		return &UsageError{err}
	}
	if !x.Control {
		return nil
	}
	first := slices.IndexFunc(x.plan.Variants, func(v Variant) bool { return v.NA == "" })
	if first < 0 {
		return nil // choose says it
	}
	base := x.plan.Variants[first]
	same := Variant{Name: base.Name + " (A/A)", Settings: base.Settings, Control: "A/A"}
	x.plan.Variants = append(x.plan.Variants, same)
	if err := x.buildVariant(ctx, b, len(x.plan.Variants)-1); err != nil {
		return err
	}
	differ := false
	for _, bin := range x.binaries {
		differ = differ || bin.Hash != x.binaries[binaryKey{first, 0}].Hash
	}
	if x.Server != "" || base.Get("server") != Default || !differ {
		return nil // one binary for all: how it is linked cannot make a difference
	}
	linked := same.with("layout", fmt.Sprint(relink))
	linked.Name, linked.Control = base.Name+" (A/A')", "A/A'"
	x.plan.Variants = append(x.plan.Variants, linked)
	return x.buildVariant(ctx, b, len(x.plan.Variants)-1)
}

// builds reports whether any program is built from source.
func (x *experiment) builds() bool {
	return slices.ContainsFunc(x.plan.Variants, func(v Variant) bool {
		return v.Get("server") == Default && x.Server == "" || v.Get(clientGo) != Default
	})
}

// oneBinary refuses variants that differ in nothing but what their programs are made from, and whose programs are of the same
// code: whatever would be found between them is noise. To measure that is what the control is for.
func (x *experiment) oneBinary() error {
	others := func(v Variant) string {
		return v.form(x.Load, func(name string) bool { k := kindOf(name); return k != buildTime && k != clientBinary })
	}
	for j, w := range x.plan.Variants {
		for i, v := range x.plan.Variants[:j] {
			a, b := x.binaries[binaryKey{i, 0}], x.binaries[binaryKey{j, 0}]
			if v.NA != "" || w.NA != "" || a.Code != b.Code || x.clients[i].Code != x.clients[j].Code || others(v) != others(w) {
				continue
			}
			return fmt.Errorf("%s and %s are the same program (SHA-256 %.12s and %.12s): nothing between them can differ; "+
				"the control measures what the machine shows then", v.Name, w.Name, a.Hash, b.Hash)
		}
	}
	return nil
}

func (x *experiment) buildVariant(ctx context.Context, b *builder, i int) error {
	v := &x.plan.Variants[i]
	w, err := v.buildOf()
	if err != nil {
		return err
	}
	if w.Server == "" {
		w.Server = x.Server
	}
	if varied(x.plan.Variants, clientGo) {
		client, err := x.client(ctx, b, v.Get(clientGo))
		if err != nil {
			return fmt.Errorf("%s: client: %w", v.Name, err)
		}
		x.clients[i] = client
		x.plan.Binaries = append(x.plan.Binaries, Binary{v.Name + " (client)", client.Version, client.Hash})
	}
	for _, layout := range x.layouts(*v) {
		w := w
		w.Layout += layout
		var bin program
		var err error
		if w.PGO == auto {
			w.Profile, err = x.profile(ctx, b, w)
		}
		if err == nil {
			bin, err = b.get(ctx, w)
		}
		var na unsupported
		if errors.As(err, &na) {
			v.NA = na.reason
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		x.binaries[binaryKey{i, layout}] = bin
		x.plan.Binaries = append(x.plan.Binaries, Binary{v.Name, bin.Version, bin.Hash})
	}
	if t := b.toolchains[w.Go]; t != nil && w.Server == "" {
		return b.warnAboutGODEBUG(ctx, t, *v)
	}
	return nil
}

// client is the load generator of a toolchain. That of none is this program, in a process of its own as the others are.
func (x *experiment) client(ctx context.Context, b *builder, toolchain string) (program, error) {
	if toolchain != Default {
		return b.get(ctx, build{Go: toolchain, GOEXPERIMENT: Default, GOAMD64: Default, PGO: Default, Package: "./cmd/kvmark"})
	}
	self, err := os.Executable()
	if err != nil {
		return program{}, err
	}
	return inspect(self)
}

// layouts are the link orders that blocks of v are spread over; 0 is v's own.
func (x *experiment) layouts(v Variant) []uint64 {
	n := max(1, x.Layouts)
	if v.Control == "A/A'" {
		n = 1 // it is one
	}
	all := make([]uint64, n)
	for i := range all {
		all[i] = uint64(i)
	}
	return all
}

// layoutOf is the link order of v in a block. Both blocks of a pair that cancels drift have the same.
func (x *experiment) layoutOf(v Variant, block int) uint64 {
	all := x.layouts(v)
	return all[block/2%len(all)]
}

// arm prepares a sample.
func (x *experiment) arm(cell Cell, block int) (arm, error) {
	v := x.plan.Variants[cell.Variant]
	layout := x.layoutOf(v, block)
	config, err := x.loadConfig(v, cell.Mode, x.binaries[binaryKey{cell.Variant, layout}].Path)
	if err != nil {
		return arm{}, err
	}
	config.Workload.Seed = x.plan.Seed
	config.Repeat = block + 1
	return arm{cell, layout, config}, nil
}

// check refuses a server that does not have the settings that were asked.
func (x *experiment) check(cell Cell, p result.Process, layout uint64) error {
	return x.plan.Variants[cell.Variant].seen(p, x.binaries[binaryKey{cell.Variant, layout}])
}

// measure runs block after block and says why it stopped.
func (x *experiment) measure(ctx context.Context) (ended string, err error) {
	rounds := x.Rounds
	if rounds == 0 {
		rounds = maxRounds
	}
	perBlock := len(x.live) * len(x.plan.Modes)
	a := &analysis{Outcome: &Outcome{Plan: x.plan, Base: x.base}}
	family := len(a.pairs()) * len(x.plan.Modes) * len(x.plan.Ops) * len(metricsOr(x.Metrics))
	if need := compare.MinRounds(true, family); rounds < need {
		x.Logf("%s can prove no difference, however large, among %d comparisons: that takes %d", report.Plural(rounds, "round"), family, need)
	}
	p := Progress{Limit: x.Budget}
	if x.Rounds > 0 {
		p.Total = x.Rounds * perBlock
	}
	for block := range rounds {
		whole := time.Duration(0)
		if n := x.blocks(); n > 0 {
			whole = x.spent / time.Duration(n)
		}
		begun := slices.ContainsFunc(x.samples, func(s Sample) bool { return s.Block == block })
		if !begun && block > 0 {
			if x.Budget > 0 && x.spent+whole > x.Budget {
				return fmt.Sprintf("the budget of %v has no room for another round", x.Budget), nil
			}
			if block%2 == 0 && x.Until > 0 {
				if _, half := x.widest(); half > 0 && half <= x.Until {
					return fmt.Sprintf("every QPS is known to ±%.1f %%", 100*x.Until), nil
				}
			}
		}
		p.Widest, p.HalfWidth = x.widest()
		cells := order(x.plan.Seed, block, x.live, x.plan.Modes)
		groups := group(cells)
		if x.Slices == 0 {
			groups = groups[:0]
			for i := range cells {
				groups = append(groups, cells[i:i+1])
			}
		}
		place := 0
		for _, g := range groups {
			if x.journal.done[sampleKey{block, g[0]}] {
				place += len(g)
				continue
			}
			p.Done, p.Elapsed, p.Now = len(x.samples), x.spent, x.words(g)
			p.Left = x.left(p)
			x.Progress(p)
			if err := x.group(ctx, block, place, g); err != nil {
				return "", err
			}
			place += len(g)
		}
	}
	return report.Plural(rounds, "round"), nil
}

// left is how long it still takes: by what samples took so far, and before the first by what they take at least.
func (x *experiment) left(p Progress) time.Duration {
	each := time.Duration(0)
	if p.Done > 0 {
		each = p.Elapsed / time.Duration(p.Done)
	} else if samples, round := x.Round(); samples > 0 {
		each = round / time.Duration(samples)
	}
	left := time.Duration(max(0, p.Total-p.Done)) * each
	if rest := p.Limit - p.Elapsed; p.Limit > 0 && (p.Total == 0 || rest < left) {
		left = max(0, rest)
	}
	return left
}

// group measures cells side by side and records them.
func (x *experiment) group(ctx context.Context, block, place int, cells []Cell) error {
	arms := make([]arm, len(cells))
	for i, cell := range cells {
		var err error
		if arms[i], err = x.arm(cell, block); err != nil {
			return err
		}
	}
	check := func(i int, p result.Process) error { return x.check(arms[i].cell, p, arms[i].layout) }
	var samples []Sample
	var err error
	if client, other := x.clients[cells[0].Variant]; other {
		samples, err = measureBy(ctx, client, arms[0], x.plan.Ops, check)
	} else {
		samples, err = measure(ctx, arms, x.plan.Ops, x.Slices, check)
	}
	if err != nil {
		return err
	}
	for i := range samples {
		s := &samples[i]
		s.Block, s.Order = block, place+i
		x.spent += time.Duration(s.Seconds * float64(time.Second))
		x.failures++
		switch {
		case s.Failed != "":
			x.Logf("round %d, %s: %s", block+1, x.words(cells[i:i+1]), s.Failed)
		default:
			x.failures = 0
			x.report(*s)
		}
	}
	if err := x.journal.add(samples...); err != nil {
		return err
	}
	x.samples = append(x.samples, samples...)
	if x.failures >= maxFailures {
		return fmt.Errorf("%d samples in a row came to nothing; the last: %s", x.failures, samples[len(samples)-1].Failed)
	}
	return nil
}

// report says which checks a sample failed.
func (x *experiment) report(s Sample) {
	for _, c := range s.Cells {
		for _, check := range c.Checks {
			if !check.Pass {
				x.Logf("round %d, %s/%s: INVALID, not used: %s: %s", s.Block+1, x.words([]Cell{s.Cell()}), c.Op, check.Name, check.Detail)
			}
		}
	}
}

func (x *experiment) words(cells []Cell) string {
	names := make([]string, len(cells))
	for i, c := range cells {
		names[i] = x.plan.Variants[c.Variant].Name
	}
	words := strings.Join(names, ", ")
	if cells[0].Mode != "" {
		words = cells[0].Mode + " " + words
	}
	return words
}

// blocks returns the number of complete blocks.
func (x *experiment) blocks() int {
	return completeBlocks(x.samples, len(x.live)*len(x.plan.Modes))
}

func completeBlocks(samples []Sample, size int) int {
	counts := map[int]int{}
	for _, s := range samples {
		counts[s.Block]++
	}
	n := 0
	for _, count := range counts {
		if count == size {
			n++
		}
	}
	return n
}

// widest returns the comparison of QPS with the widest interval, and half of its width as a part of 1; 0: some
// comparison has none yet.
func (x *experiment) widest() (name string, half float64) {
	a := &analysis{Outcome: &Outcome{Plan: x.plan, Base: x.base, Samples: x.samples}}
	qps, _ := lookupMetric("qps")
	for _, q := range a.questions([]compare.Metric{qps}) {
		e := compare.Paired(q.Base, q.Other)
		if !e.Interval.OK {
			return "", 0
		}
		if h := math.Sqrt(e.Interval.High/e.Interval.Low) - 1; h > half {
			half, name = h, strings.Trim(q.Mode+"/"+q.Op, "/")
		}
	}
	return name, half
}
