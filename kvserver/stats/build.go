package stats

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// Build says how the running program was built, as far as it knows itself.
type Build struct {
	GoVersion      string // go1.26.8
	GOAMD64        string // v1; empty on other architectures
	GOEXPERIMENT   string // what differs from the toolchain's default; empty for nothing
	DefaultGODEBUG string // settings that the go line of go.mod implies
	PGO            string // base name of the profile; empty for none
	Version        string // of the main module: a tag, or (devel)
	Revision       string // commit, with +dirty for a changed work tree; empty when unknown
	Settings       string // all build settings, k=v;k=v
}

// ReadBuild reads the build information that the go command left in the program.
func ReadBuild() Build {
	b := Build{GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	var all []string
	dirty := false
	for _, s := range info.Settings {
		all = append(all, s.Key+"="+strings.ReplaceAll(s.Value, ";", ","))
		switch s.Key {
		case "GOAMD64":
			b.GOAMD64 = s.Value
		case "GOEXPERIMENT":
			b.GOEXPERIMENT = s.Value
		case "DefaultGODEBUG":
			b.DefaultGODEBUG = s.Value
		case "-pgo":
			b.PGO = filepath.Base(s.Value)
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty && b.Revision != "" {
		b.Revision += "+dirty"
	}
	b.Settings = strings.Join(all, ";")
	return b
}

// appendGo writes what a comparison of toolchains and settings has to know about this process.
func (s *Sampler) appendGo(t *Text, r *reading) {
	t.Section("Go")
	t.Str("go_version", s.build.GoVersion)
	t.Str("goos", runtime.GOOS)
	t.Str("goarch", runtime.GOARCH)
	t.Str("goamd64", s.build.GOAMD64)
	t.Str("goexperiment", s.build.GOEXPERIMENT)
	t.Str("godebug", os.Getenv("GODEBUG"))
	t.Str("default_godebug", s.build.DefaultGODEBUG)
	t.Str("gogc", orOff(r.uint(gogc), 1<<32))
	t.Str("gomemlimit", orOff(r.uint(memLimit), 1<<62))
	t.Int("gomaxprocs", int64(runtime.GOMAXPROCS(0)))
	t.Int("num_cpu", int64(runtime.NumCPU()))
	t.Str("pgo", s.build.PGO)
	t.Str("vcs_revision", s.build.Revision)
	t.Str("build_settings", s.build.Settings)
}
