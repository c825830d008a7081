package experiment

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Values that say the same are no two variants, in whatever way they are written.
func TestEqualValuesAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(filepath.Join("root", "bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("root", "bin", "go"), nil, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("root", "bin", "go"), "link"); err != nil {
		t.Fatal(err)
	}
	equal := []string{
		"value-size=1KiB,1024", "value-size=128,128-128", "value-size=classic,default", "value-size=lognormal:1KiB:0.8,lognormal:1024:0.80",
		"mix=10:90,1:9", "mix=0:1,0:5", "distribution=zipf,zipf:0.99", "distribution=uniform,default", "compressibility=0.5,.50",
		"compressibility=0,default", "rate=5000,5e3", "rate=ramp:1:1,1", "rate=ramp:1:2,ramp:1.0:2.0", "workers=8,08", "keys=100,0100", "pipeline=1,+1",
		"GOGC=100,default", "GOGC=100,0100", "GOGC=off,off", "GOMEMLIMIT=1GiB,1024MiB", "GOMEMLIMIT=off,default", "GOMAXPROCS=2,02",
		"GODEBUG=madvdontneed=1+disablethp=1,disablethp=1+madvdontneed=1", "GODEBUG=a=1,a=2+a=1",
		"GOEXPERIMENT=jsonv2+nogreenteagc,nogreenteagc+jsonv2", "GOEXPERIMENT=jsonv2,jsonv2+jsonv2", "layout=0,default", "layout=5,05", "pgo=off,default",
		"go=./root,./root/bin/go", "go=./link,./root", "go=go1.26.8,go1.26.8", "server=./link,root/bin/go",
		"wal-sync=interval,default", "codec=deflate,default", "bucket-entries=8,default", "bucket-entries=8,08", "level=0,default", "io=default," + defaultIO(),
		"sync-every=60s,1m", "sync-every=1s,1000ms", "sync-every=1s,default", "checkpoint-bytes=256MiB,268435456", "checkpoint-bytes=256MiB,default",
		"segment-bytes=1M,1024K", "segment-bytes=256MiB,256GB,268435456", "min-free=0,0B", "loops=0,default", "max-value=64MiB,default",
		"idle-timeout=0s,0", "write-timeout=1m,default", "mode=memory,memory",
	}
	if runtime.GOARCH == "amd64" {
		equal = append(equal, "GOAMD64=v1,default")
	}
	for _, text := range equal {
		if _, err := ParseFactor(text); err == nil || !strings.Contains(err.Error(), "same value") && !strings.Contains(err.Error(), "there twice") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"value-size=1KiB,1000", "mix=10:90,2:9", "mix=default,1:9", "distribution=zipf,zipf:0.9", "rate=ramp:1:2,2", "GOGC=default,off", "GOGC=default,50,200",
		"GOMEMLIMIT=default,1GiB", "GOMEMLIMIT=1GiB,1025MiB", "GODEBUG=default,a=1", "GOEXPERIMENT=default,nogreenteagc",
		"go=go1.2,go1.20", "go=default,local,go1.26.8", "server=./a,./b", "sync-every=60s,1h", "checkpoint-bytes=0,64MiB", "mode=memory,map", "codec=default,s2", "GOMAXPROCS=default,1",
	} {
		if _, err := ParseFactor(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func defaultIO() string {
	if runtime.GOOS == "linux" {
		return "loop"
	}
	return "goroutine"
}

// Cells that differ in their names alone are no two variants either, nor are those of a product that come to the same.
func TestEqualVariantsAreRefused(t *testing.T) {
	cell := func(name string, settings ...Setting) Variant { return Variant{Name: name, Settings: settings} }
	for _, tt := range []struct {
		name   string
		change func(*Config)
		equal  bool
	}{
		{"cells of other names", func(c *Config) {
			c.Cells = []Variant{cell("a", Setting{"GOGC", "100"}), cell("b", Setting{"GOGC", "default"})}
		}, true},
		{"a cell that leaves out the default", func(c *Config) {
			c.Cells = []Variant{cell("a", Setting{"GOGC", "100"}, Setting{"io", "default"}), cell("b", Setting{"io", defaultIO()})}
		}, true},
		{"cells that differ", func(c *Config) {
			c.Cells = []Variant{cell("a", Setting{"GOGC", "100"}), cell("b", Setting{"GOGC", "50"})}
		}, false},
		{"the default level by its number", func(c *Config) {
			c.Load.Modes, c.Factors = []string{"serialize"}, []Factor{{"codec", []string{"s2", "zstd"}}, {"level", []string{"0", "1"}}}
		}, true},
		{"levels that differ", func(c *Config) {
			c.Load.Modes, c.Factors = []string{"serialize"}, []Factor{{"codec", []string{"s2", "zstd"}}, {"level", []string{"1", "2"}}}
		}, false},
		{"a codec in a mode without", func(c *Config) {
			c.Factors = []Factor{{"mode", []string{"memory", "serialize"}}, {"bucket-entries", []string{"8"}}, {"GOGC", []string{"100"}}}
			c.Cells, c.Factors = product(c.Factors), nil
			c.Cells = append(c.Cells, cell("c", Setting{"mode", "memory"}, Setting{"bucket-entries", "9"}, Setting{"GOGC", "100"}))
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := DefaultConfig()
			tt.change(&c)
			if err := c.Check(); tt.equal != (err != nil && strings.Contains(err.Error(), "are the same")) || !tt.equal && err != nil {
				t.Errorf("%v", err)
			}
		})
	}
}
