package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kvmark/client/result"
)

func TestParseFactor(t *testing.T) {
	tests := []struct {
		text string
		want Factor
	}{
		{"GOGC=50,100,off", Factor{"GOGC", []string{"50", "100", "off"}}},
		{" go = go1.26.8 , go1.27.3", Factor{"go", []string{"go1.26.8", "go1.27.3"}}},
		{"GOEXPERIMENT=default,nogreenteagc+jsonv2", Factor{"GOEXPERIMENT", []string{Default, "nogreenteagc+jsonv2"}}},
		{"GODEBUG=default,madvdontneed=1+disablethp=1", Factor{"GODEBUG", []string{Default, "madvdontneed=1+disablethp=1"}}},
		{"checkpoint-bytes=0,64MiB", Factor{"checkpoint-bytes", []string{"0", "64MiB"}}},
		{"rate=1000,ramp:1:2", Factor{"rate", []string{"1000", "ramp:1:2"}}},
	}
	for _, tt := range tests {
		got, err := ParseFactor(tt.text)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", tt.text, err, diff)
		}
	}
}

func TestTrapsAreCaughtWithTheirReason(t *testing.T) {
	tests := []struct{ vary, want string }{
		{"GOGC", "want NAME=VALUE"},
		{"=1,2", "want NAME=VALUE"},
		{"GOGC=50,50", "there twice"},
		{"GOGC=abc", "silently take it for 100"},
		{"GOGC=100.5", "silently take it for 100"},
		{"GOGC=-1", "write off"},
		{"GOGC=0", "all the time"},
		{"GOGC=99999999999", "whole number"},
		{"GOMEMLIMIT=64", "no unit"},
		{"GOMEMLIMIT=64", "write 64MiB"},
		{"GOMEMLIMIT=64B", "less than the runtime alone takes"},
		{"GOMEMLIMIT=1MiB", "1048576 bytes"},
		{"GOMEMLIMIT=1GB", "KiB, MiB, GiB"},
		{"GOMEMLIMIT=1.5GiB", "whole number"},
		{"GOMEMLIMIT=-5MiB", "whole number"},
		{"GOMEMLIMIT=9999999999999TiB", "whole number"},
		{"GOMAXPROCS=0", "silently use every CPU"},
		{"GOMAXPROCS=two", "1 or more"},
		{"GODEBUG=madvdontneed", "key=value"},
		{"GODEBUG=a=1+b", "key=value"},
		{"GOEXPERIMENT=No-Such", "nogreenteagc"},
		{"GOAMD64=3", "v1, v2"},
		{"GOAMD64=v9", "silently"},
		{"pgo=nowhere.pgo", "a CPU profile that is there"},
		{"layout=x", "seed of the link order"},
		{"workers=0", "1 or more"},
		{"mode=default", "no value"},
		{"gogc!=5", "unknown; known are"},
		{"Gogc=5", "did you mean GOGC?"},
		{"dir=/a,/b", "kvmark itself sets it"},
		{"tls-ca=a,b", "kvmark itself sets it"},
		{"nonsense=1,2", "unknown; known are go, GOEXPERIMENT"},
		{"nonsense=1,2", "kvserver's mode, wal-sync"},
		{"GOGC=1,,2", `an entry of "1,,2" is empty: write default`},
		{"GOEXPERIMENT=,nogreenteagc", "is empty"},
		{"GOGC=", "is empty"},
		{"checkpoint-bytes=1MB,x", `"x" is no size`},
		{"sync-every=1s,2", "want a time with its unit"},
		{"mode=memory,disk", `unknown mode "disk"`},
		{"io=loop,magic", `unknown io "magic"`},
		{"run-id=a,b", "kvmark itself sets it"},
	}
	for _, tt := range tests {
		_, err := ParseFactor(tt.vary)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.vary, err, tt.want)
		}
	}
}

func TestProductNamesEveryCombination(t *testing.T) {
	vs := product([]Factor{{"go", []string{"go1.26.8", "./mygo"}}, {"GOGC", []string{"50", "off"}}})
	var names []string
	for _, v := range vs {
		names = append(names, v.Name)
	}
	want := []string{"go1.26.8 GOGC=50", "go1.26.8 GOGC=off", "go=./mygo GOGC=50", "go=./mygo GOGC=off"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestParseCells(t *testing.T) {
	vs, err := ParseCells("[[cell]]\nname = \"old\"\nset = { go = \"go1.26.8\", GOGC = 50 }\n[[cell]]\nset = { GOGC = \"off\" }\n")
	want := []Variant{
		{Name: "old", Settings: []Setting{{"GOGC", "50"}, {"go", "go1.26.8"}}},
		{Name: "GOGC=off", Settings: []Setting{{"GOGC", "off"}}},
	}
	if diff := cmp.Diff(want, vs); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for text, want := range map[string]string{
		"[[cell]]\n":                           "neither a name nor settings",
		"[[cells]]\nname = \"a\"":              "unknown key",
		"[[cell]]\nset = { GOGC = [1] }":       "neither text nor a number",
		"[[cell]\n":                            "expected end of table",
		"[[cell]]\nname = \"a\"\ngogc = \"5\"": "unknown key cell.gogc",
	} {
		if _, err := ParseCells(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	gogc := Factor{"GOGC", []string{"50", "100"}}
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"nothing is varied", func(c *Config) { c.Factors = nil }, "nothing to compare"},
		{"one value", func(c *Config) { c.Factors = []Factor{{"GOGC", []string{"50"}}} }, "nothing to compare"},
		{"a factor twice", func(c *Config) { c.Factors = []Factor{gogc, gogc} }, "there twice"},
		{"cells and factors", func(c *Config) { c.Cells = []Variant{{Name: "a"}} }, "not both"},
		{"cells of one name", func(c *Config) { c.Factors, c.Cells = nil, []Variant{{Name: "a"}, {Name: "a"}} }, "two cells are named"},
		{"a trap in a cell", func(c *Config) {
			c.Factors, c.Cells = nil, []Variant{{Name: "a"}, {Name: "b", Settings: []Setting{{"GOGC", "abc"}}}}
		}, "silently"},
		{"a ready binary built with something", func(c *Config) {
			c.Factors = []Factor{{"server", []string{"./a", "./b"}}, {"GOAMD64", []string{"v1", "v2"}}}
		}, "ready binary"},
		{"one ready binary for all and toolchains", func(c *Config) {
			c.Server, c.Factors = "x", []Factor{{"go", []string{"go1.26.8", "go1.27.3"}}}
		}, "ready binary"},
		{"link orders of a ready binary", func(c *Config) { c.Server, c.Layouts = "x", 3 }, "linked anew"},
		{"link orders varied and averaged", func(c *Config) { c.Layouts, c.Factors = 3, []Factor{{"layout", []string{"1", "2"}}} }, "averaged over"},
		{"slices longer than half the window", func(c *Config) { c.Slices = 3 * time.Second }, "at most half"},
		{"tiny slices", func(c *Config) { c.Slices = time.Millisecond }, "20ms or more"},
		{"slices and other clients", func(c *Config) {
			c.Slices, c.Factors = time.Second, []Factor{{clientGo, []string{"go1.26.8", "go1.27.3"}}}
		}, "one client drives"},
		{"no end", func(c *Config) { c.Rounds = 0 }, "no end"},
		{"negative rounds", func(c *Config) { c.Rounds = -1 }, "rounds -1"},
		{"a precision of 100 %", func(c *Config) { c.Until = 1 }, "until 1"},
		{"an unknown metric", func(c *Config) { c.Metrics = []string{"speed"} }, `metric "speed"`},
		{"an unknown mode", func(c *Config) { c.Load.Modes = []string{"disk"} }, `mode "disk"`},
		{"an unknown mode as a factor", func(c *Config) { c.Factors = []Factor{{"mode", []string{"memory", "disk"}}} }, `mode "disk"`},
		{"a bucket size that is no number", func(c *Config) { c.Factors = []Factor{{"bucket-entries", []string{"8", "x"}}} }, `bucket-entries "x"`},
		{"a codec where some modes do not compress", func(c *Config) { c.Factors = []Factor{{"codec", []string{"s2", "zstd"}}} }, "no effect on memory, file"},
		{"a level that the codec has not", func(c *Config) {
			c.Load.Modes, c.Factors = []string{"serialize"}, []Factor{{"codec", []string{"s2", "zstd"}}, {"level", []string{"1", "4"}}}
		}, "level 4 of s2 is out of range"},
		{"a level out of range for all", func(c *Config) { c.Load.Modes, c.Load.Level = []string{"serialize"}, new(99) }, "level 99 of deflate"},
		{"a bucket beyond the server's bound", func(c *Config) {
			c.Load.Modes, c.Factors = []string{"serialize"}, []Factor{{"bucket-entries", []string{"8", "65537"}}}
		}, "at most 65536"},
		{"a segment that is too small", func(c *Config) { c.Factors = []Factor{{"segment-bytes", []string{"4KiB", "1"}}} }, "at least 4096"},
		{"a key longer than a value", func(c *Config) { c.Factors = []Factor{{"max-key", []string{"1KiB", "65MiB"}}} }, "--max-value"},
		{"an option without effect", func(c *Config) { c.Load.WALSync, c.Factors = "os", []Factor{{"sync-every", []string{"1s", "2s"}}} }, "no effect beside --wal-sync os"},
		{"a codec where nothing is compressed", func(c *Config) {
			c.Load.Modes, c.Factors = []string{"memory"}, []Factor{{"codec", []string{"s2", "zstd"}}}
		}, "no effect"},
		{"mixed against unmixed", func(c *Config) { c.Factors = []Factor{{"mix", []string{Default, "1:1"}}} }, "mixed phase"},
		{"far too many samples", func(c *Config) { c.Factors = []Factor{gogc, {"layout", numbers(200)}}; c.Rounds = 9999 }, "at most"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := DefaultConfig()
			c.Factors = []Factor{gogc}
			if err := c.Check(); err != nil {
				t.Fatalf("before the change: %v", err)
			}
			tt.change(&c)
			if err := c.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func numbers(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}

func TestOneValueWrittenInTwoWaysIsRefused(t *testing.T) {
	dir := t.TempDir()
	server, link := filepath.Join(dir, "kvserver"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(server, nil, 0o777), os.Symlink(server, link)); err != nil {
		t.Skip(err)
	}
	t.Chdir(dir)
	for text, same := range map[string]bool{
		"GOGC=100,0100":                    true,
		"compressibility=0.5,0.50":         true,
		"server=./kvserver,kvserver":       true,
		"server=kvserver," + link:          true,
		"server=" + dir + "/../x,kvserver": false,
		"go=1.2,1.20":                      false,
		"pgo=off,kvserver":                 false,
		"GOGC=100,off":                     false,
		"distribution=zipf:0.9,zipf:0.90x": false,
	} {
		_, err := ParseFactor(text)
		if got := err != nil && strings.Contains(err.Error(), "are the same value"); got != same {
			t.Errorf("%s: %v, want the same %t", text, err, same)
		}
	}
}

func TestTheSingleValueOfWhatIsVariedIsNotTold(t *testing.T) {
	c := DefaultConfig()
	c.Load.Modes, c.Out, c.Metrics = []string{"memory"}, ".", DefaultMetrics()
	for _, text := range []string{"keys=100,200", "wal-sync=os,always"} {
		f, err := ParseFactor(text)
		if err != nil {
			t.Fatal(err)
		}
		c.Factors = append(c.Factors, f)
	}
	x := &experiment{Config: c}
	if err := x.makePlan(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"workers=8 ", " keys=varied ", " wal-sync=varied ", " rate=0 "} {
		if !strings.Contains(x.plan.Options, want) {
			t.Errorf("%q has no %q", x.plan.Options, want)
		}
	}
	named := c
	named.Factors, named.Cells = nil, []Variant{{Name: "few", Settings: []Setting{{"keys", "5"}}}, {Name: "as ever"}}
	y := &experiment{Config: named}
	if err := y.makePlan(); err != nil || !strings.Contains(y.plan.Options, "keys=10000|varied ") {
		t.Errorf("%v, %q", err, y.plan.Options)
	}
	p := c.Load.Plan()
	for _, f := range c.Factors {
		hideVaried(&p, f)
	}
	if p.Keys != 0 || p.WALSync != result.Varied || p.Workers != 8 {
		t.Errorf("%+v", p)
	}
}

func TestAFactorWrittenAsPeopleDoIsExplainedBeforeAnythingStarts(t *testing.T) {
	for text, want := range map[string]string{
		"gogc=100,200": "did you mean GOGC", "gomaxprocs=1,2": "did you mean GOMAXPROCS", "go=go1.26,go1.27.3": "go1.26.0",
	} {
		if _, err := ParseFactor(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one with %q", text, err, want)
		}
	}
	if _, err := ParseFactor("go=local,go1.27.3"); err != nil {
		t.Error(err)
	}
}

func TestTheBaseIsMovedToTheFront(t *testing.T) {
	factors := []Factor{{"GOGC", []string{"25", "50", "100", "off"}}, {"go", []string{"go1.26.8", "go1.27.3"}}}
	for _, tt := range []struct{ base, gogc, go_, err string }{
		{"", "25,50,100,off", "go1.26.8,go1.27.3", ""},
		{"GOGC=100", "100,25,50,off", "go1.26.8,go1.27.3", ""},
		{"go=go1.27.3, GOGC=off", "off,25,50,100", "go1.27.3,go1.26.8", ""},
		{"GOGC=75", "", "", "none of the values 25,50,100,off"},
		{"mode=file", "", "", "mode is not varied"},
	} {
		got, err := WithBase(factors, tt.base)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v", tt.base, err)
			}
		case err != nil || strings.Join(got[0].Values, ",") != tt.gogc || strings.Join(got[1].Values, ",") != tt.go_:
			t.Errorf("%s: %v, %v", tt.base, got, err)
		}
	}
	if strings.Join(factors[0].Values, ",") != "25,50,100,off" {
		t.Errorf("the caller's factors have changed: %v", factors)
	}
}
