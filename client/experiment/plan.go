package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"kvmark/client/load"
)

// Config is one experiment.
type Config struct {
	Factors []Factor  // the variants are their product; none: Cells
	Cells   []Variant // variants named one by one, the first is the base

	Load load.Config // every variant's; its Modes are measured each by itself, Duration and Warmup are those of one sample

	Rounds int           // blocks at most; 0: as many as Budget or Until take
	Budget time.Duration // no block begins that would end later; 0: none
	Until  float64       // stop once every interval of QPS is within ± this part of 1; 0: do not

	Slices  time.Duration // 0: one server at a time; else all servers of a mode live side by side and are driven in turns this long
	Control bool          // measure the base twice, and linked anew, to know what this machine shows without a difference
	Layouts int           // link orders of each binary, over which blocks are spread; 0 or 1: the linker's own
	Seed    *uint64       // of the order of samples, and of the workload; nil: that of the journal, or a random one

	Metrics []string // compared; empty: qps, cpu_us_per_op
	Margin  float64  // the change too small to matter; 0: compare.DefaultMargin
	Within  float64  // the loss of QPS that a cheaper GC setting may cost; 0: 5 %

	Source string // module from which kvserver is built; "": found from the working directory
	Server string // a ready binary for all variants that name none; "": built
	Cache  string // of built binaries; "": kvmark in the user's cache directory
	Out    string // directory of the journal

	Progress func(Progress)
	Logf     func(format string, args ...any)
}

// DefaultKeys is the key space of each worker: small, since every sample fills it anew.
const DefaultKeys = 10_000

// DefaultConfig returns the experiment that `kvmark compare` runs without options.
func DefaultConfig() Config {
	c := Config{Load: load.Default(), Rounds: 10, Control: true}
	c.Load.Workload.Keys = DefaultKeys
	c.Load.Duration, c.Load.Warmup = 5*time.Second, 500*time.Millisecond
	return c
}

// MaxSamples bounds a plan: more than that is a typing error.
const MaxSamples = 1_000_000

// maxRounds ends an experiment that is to go on until an interval is narrow.
const maxRounds = 10_000

// Cell is one variant in one mode. Mode is empty where the mode itself is varied.
type Cell struct {
	Variant int    `json:"variant"`
	Mode    string `json:"mode"`
}

// Plan is what is measured, in full. It does not say how often: an experiment may be continued for more rounds.
type Plan struct {
	Variants []Variant `json:"variants"`
	Factors  []Factor  `json:"factors,omitempty"`
	Modes    []string  `json:"modes"` // [""]: the mode is a factor
	Ops      []string  `json:"ops"`
	Seconds  float64   `json:"seconds"` // of each window
	Warmup   float64   `json:"warmup_seconds"`
	Slice    float64   `json:"slice_seconds,omitempty"`
	Layouts  int       `json:"layouts,omitempty"`
	Seed     uint64    `json:"seed"`
	Options  string    `json:"options"`  // of load, in one line
	Binaries []Binary  `json:"binaries"` // the servers, by variant and link order
}

// Binary is a server that is measured.
type Binary struct {
	Variant string `json:"variant"`
	Version string `json:"version"` // of its toolchain, with what was experimental in it
	SHA256  string `json:"sha256"`
}

// variants returns the columns of the experiment, without controls.
func (c Config) variants() ([]Variant, error) {
	vs := slices.Clone(c.Cells)
	if len(c.Factors) > 0 {
		if len(vs) > 0 {
			return nil, errors.New("cells are named one by one or made by --vary, not both")
		}
		for i, f := range c.Factors {
			if slices.ContainsFunc(c.Factors[:i], func(g Factor) bool { return g.Name == f.Name }) {
				return nil, fmt.Errorf("vary %s is there twice: give all its values at once", f.Name)
			}
		}
		vs = product(c.Factors)
	}
	if len(vs) < 2 {
		return nil, errors.New("nothing to compare: give --vary NAME=VALUE,VALUE with two values or more, such as --vary GOGC=50,100")
	}
	for i, v := range vs {
		if slices.ContainsFunc(vs[:i], func(w Variant) bool { return w.Name == v.Name }) {
			return nil, fmt.Errorf("two cells are named %q", v.Name)
		}
		for _, s := range v.Settings {
			if err := (Factor{s.Name, []string{s.Value}}).check(); err != nil {
				return nil, err
			}
		}
		if err := v.consistent(); err != nil {
			return nil, err
		}
	}
	return vs, distinct(vs, c.Load)
}

// consistent refuses settings that contradict one another.
func (v Variant) consistent() error {
	if v.Get("server") == Default {
		return nil
	}
	for _, s := range v.Settings {
		if s.Name != "server" && kindOf(s.Name) == buildTime {
			return fmt.Errorf("%s: a ready binary cannot be built with %s=%s", v.Name, s.Name, s.Value)
		}
	}
	return nil
}

// varied reports whether any variant has the setting.
func varied(vs []Variant, name string) bool {
	return slices.ContainsFunc(vs, func(v Variant) bool {
		return slices.ContainsFunc(v.Settings, func(s Setting) bool { return s.Name == name })
	})
}

// planFile is the form of --plan:
//
//	[[cell]]
//	name = "old"
//	set = { go = "go1.26.8", GOGC = "100" }
//
//	[[cell]]
//	name = "new, more memory"
//	set = { go = "go1.27.3", GOGC = 200 }
type planFile struct {
	Cell []struct {
		Name string         `toml:"name"`
		Set  map[string]any `toml:"set"`
	} `toml:"cell"`
}

// ParseCells reads a plan file. The first cell is the base of all comparisons.
func ParseCells(text string) ([]Variant, error) {
	var file planFile
	meta, err := toml.Decode(text, &file)
	if err != nil {
		return nil, err
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("unknown key %s: want [[cell]] with name and set", unknown[0])
	}
	var vs []Variant
	for i, cell := range file.Cell {
		v := Variant{Name: strings.TrimSpace(cell.Name)}
		names := make([]string, 0, len(cell.Set))
		for name := range cell.Set {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			switch value := cell.Set[name].(type) {
			case string, int64, float64, bool:
				v.Settings = append(v.Settings, Setting{name, fmt.Sprint(value)})
			default:
				return nil, fmt.Errorf("cell %d: %s is neither text nor a number", i+1, name)
			}
		}
		if v.Name == "" {
			v.Name = v.words()
		}
		if v.Name == "" {
			return nil, fmt.Errorf("cell %d has neither a name nor settings", i+1)
		}
		vs = append(vs, v)
	}
	return vs, nil
}

// loadConfig is what a sample of v in the given mode runs, on the binary at path.
func (c Config) loadConfig(v Variant, mode, path string) (load.Config, error) {
	l := c.Load
	l.Server, l.Repeat = path, 1
	l.Modes = []string{mode}
	l.ServerArgs, l.ServerEnv = slices.Clone(c.Load.ServerArgs), slices.Clone(c.Load.ServerEnv)
	for _, s := range v.Settings {
		var err error
		switch kindOf(s.Name) {
		case startTime:
			value := s.Value
			if value == Default {
				value = "" // to the runtime as good as not there, whatever our own environment says
			}
			l.ServerEnv = append(l.ServerEnv, s.Name+"="+strings.ReplaceAll(value, "+", ","))
		case serverArg:
			var more []string
			more, err = setServerArg(&l, s)
			l.ServerArgs = append(l.ServerArgs, more...)
		case clientOption:
			err = setWorkload(&l, s)
		}
		if err != nil {
			return l, fmt.Errorf("%s=%s: %w", s.Name, s.Value, err)
		}
	}
	return l, nil
}

// Loads are what the servers of the experiment run, one for each variant in each mode, and how many of them live at the same time.
// REQUIRES: [Config.Check].
func (c Config) Loads() (loads []load.Config, together int) {
	vs, _ := c.variants()
	modes := c.Load.Modes
	if varied(vs, "mode") {
		modes = []string{""}
	}
	for _, v := range vs {
		for _, mode := range modes {
			if l, err := c.loadConfig(v, mode, ""); err == nil {
				loads = append(loads, l)
			}
		}
	}
	if c.Slices == 0 {
		return loads, 1
	}
	if together = len(vs); c.Control {
		together += 2
	}
	return loads, together
}

// Open reports whether some variant's requests go out on a schedule: all variants have the same share of the machine.
// REQUIRES: [Config.Check].
func (c Config) Open() bool {
	loads, _ := c.Loads()
	return slices.ContainsFunc(loads, load.Config.Open)
}

// Round is how many samples a round has and how long it takes at least: windows, warm-ups and PING. Starting and filling servers
// comes on top. REQUIRES: [Config.Check].
func (c Config) Round() (samples int, least time.Duration) {
	loads, _ := c.Loads()
	if c.Control {
		vs, _ := c.variants()
		loads = append(loads, loads[:len(loads)/len(vs)]...) // the base again, in every mode
	}
	for _, l := range loads {
		_, d := l.About()
		least += d
	}
	return len(loads), least
}

// WithBase returns factors with the values named in base, NAME=VALUE,NAME=VALUE, as their first.
func WithBase(factors []Factor, base string) ([]Factor, error) {
	factors = slices.Clone(factors)
	if base == "" {
		return factors, nil
	}
	for part := range strings.SplitSeq(base, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		i := slices.IndexFunc(factors, func(f Factor) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%q: %s is not varied", part, name)
		}
		values := factors[i].Values
		at := slices.IndexFunc(values, func(v string) bool { return normal(name, v) == normal(name, value) })
		if at < 0 {
			return nil, fmt.Errorf("%q is none of the values %s", part, strings.Join(values, ","))
		}
		rest := slices.Delete(slices.Clone(values), at, at+1)
		factors[i].Values = append([]string{values[at]}, rest...)
	}
	return factors, nil
}

// BuildsVariants reports whether variants differ in how they are built, so that one binary for all will not do.
// REQUIRES: [Config.Check].
func (c Config) BuildsVariants() bool {
	vs, _ := c.variants()
	return c.Layouts > 1 || slices.ContainsFunc(vs, func(v Variant) bool {
		return slices.ContainsFunc(v.Settings, func(s Setting) bool {
			k := kindOf(s.Name)
			return s.Value != Default && (k == buildTime || k == clientBinary)
		})
	})
}

// Check reports what cannot work, as far as that shows without a toolchain and a server. Out need not be set yet.
func (c Config) Check() error {
	if c.Out == "" {
		c.Out = "."
	}
	return (&experiment{Config: c}).makePlan()
}
