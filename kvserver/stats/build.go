package stats

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
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
	for _, s := range append(commit(stamp), info.Settings...) { // the go command's own comes later, and counts
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

// stamp is set by the linker (-X kvmark/kvserver/stats.stamp=...) where kvmark's recipe builds the program, which leaves out the
// go command's own note of the commit: kvmark-commit=<hash><+ if files differ from that commit, else ->.
var stamp string

var stampForm = regexp.MustCompile(`^kvmark-commit=([0-9a-f]{40,64})([+-])$`)

// commit is what a stamp says, as settings of the go command; nil: nothing.
func commit(stamp string) []debug.BuildSetting {
	m := stampForm.FindStringSubmatch(stamp)
	if m == nil {
		return nil
	}
	return []debug.BuildSetting{{Key: "vcs.revision", Value: m[1]}, {Key: "vcs.modified", Value: strconv.FormatBool(m[2] == "+")}}
}

// Words name the program: its version, the commit that it was built from, and the toolchain.
func (b Build) Words() string {
	words := []string{b.Version}
	if hash, dirty := strings.CutSuffix(b.Revision, "+dirty"); hash != "" {
		commit := "commit " + hash[:min(12, len(hash))]
		if dirty {
			commit += " with changes"
		}
		words = append(words, commit)
	}
	return strings.Join(append(words, b.GoVersion), ", ")
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
