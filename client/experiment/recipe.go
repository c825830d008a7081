package experiment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// levels are the levels of the instruction set that builds get unless another is asked, by the variable that sets it. On
// other architectures the toolchain's own default is the machine's, and there is no variable or no fixed value.
var levels = map[string]string{
	"386": "GO386=sse2", "amd64": "GOAMD64=v1", "arm64": "GOARM64=v8.0", "ppc64": "GOPPC64=power8", "ppc64le": "GOPPC64=power8", "riscv64": "GORISCV64=rva20u64",
}

// neutral is the environment in which nothing slows down or changes the go command itself.
func neutral() []string {
	return []string{"GODEBUG=", "GOGC=", "GOMEMLIMIT=", "GOMAXPROCS=", "GOROOT=", "GOWORK=off", "GO111MODULE="}
}

// pinned is the environment of every build of the products. An empty variable would not do: the go command takes the
// value of the user's own file (go env -w) for it, so that file is left out as a whole. GOEXPERIMENT has no
// other word for "as the toolchain has it" than empty. The Makefile builds with the same.
func pinned() []string {
	env := append(neutral(),
		"GOENV=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH, "CGO_ENABLED=0", "GOEXPERIMENT=", "GOFIPS140=off", "GOFLAGS=-trimpath")
	if level := levels[runtime.GOARCH]; level != "" {
		env = append(env, level)
	}
	return env
}

// buildArgs are the arguments of every build of the products, in front of what is special about it.
func buildArgs() []string { return []string{"build", "-trimpath", "-buildvcs=false"} }

// stamped are the variables in which the programs keep the commit that they were built from.
var stamped = []string{"kvmark/client/result.stamp", "kvmark/kvserver/stats.stamp"}

// stamp names the commit of the source in the form of package result; "" where git does not know it. The go command's own way,
// -buildvcs, knows no work tree beside the first, fails where another user owns the files, and changes the code with the commit.
func (b *builder) stamp(ctx context.Context) string {
	git := func(args ...string) (string, bool) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = b.source
		out, err := cmd.Output()
		return string(out), err == nil
	}
	where, ok := git("rev-parse", "--show-prefix", "HEAD")
	hash, root := strings.CutPrefix(strings.TrimSuffix(where, "\n"), "\n")
	if !ok || !root { // or it is a part of something else
		return ""
	}
	changes, ok := git("status", "--porcelain")
	if !ok {
		return ""
	}
	if changes != "" {
		return "kvmark-commit=" + hash + "+"
	}
	return "kvmark-commit=" + hash + "-"
}

// recipe is all that a build of the sources depends on.
type recipe struct {
	t       *toolchain
	env     []string // beside what is pinned
	args    []string
	want    map[string]string // settings that the binary must have; "": that it must not have
	profile string            // hash of the profile's content; "": none
	sources string            // hash of the source
	stamp   string            // names the commit; part of the binary, not of its code
	layout  uint64
}

// recipe returns that of w, after the toolchain has been asked whether it knows the settings.
func (b *builder) recipe(ctx context.Context, t *toolchain, w build) (recipe, error) {
	r := recipe{t: t, args: buildArgs(), layout: w.Layout, want: map[string]string{
		"-compiler": "gc", "-trimpath": "true", "CGO_ENABLED": "0", "GOOS": runtime.GOOS, "GOARCH": runtime.GOARCH,
		"GOEXPERIMENT": "", "GOFIPS140": "", "-race": "", "-msan": "", "-asan": "", "-tags": "", "-gcflags": "", "-asmflags": "", "-cover": "", "-pgo": "",
	}}
	if name, value, ok := strings.Cut(levels[runtime.GOARCH], "="); ok {
		r.want[name] = value
	}
	if w.GOEXPERIMENT != Default {
		r.want["GOEXPERIMENT"] = strings.ReplaceAll(w.GOEXPERIMENT, "+", ",")
		r.env = append(r.env, "GOEXPERIMENT="+r.want["GOEXPERIMENT"])
	}
	if w.GOAMD64 != Default {
		r.want["GOAMD64"] = w.GOAMD64
		r.env = append(r.env, "GOAMD64="+w.GOAMD64)
	}
	if len(r.env) > 0 {
		_, err := b.run(ctx, t, r.env, "env", "GOVERSION")
		var failed *goError
		if errors.As(err, &failed) && strings.Contains(failed.text, "GOEXPERIMENT") {
			return r, unsupported{t.version + ": " + failed.text}
		}
		if err != nil {
			return r, err
		}
	}
	if err := r.takeProfile(w); err != nil {
		return r, err
	}
	var link []string
	if r.stamp = b.stamp(ctx); r.stamp != "" {
		for _, name := range stamped {
			link = append(link, "-X", name+"="+r.stamp)
		}
	}
	if w.Layout != 0 {
		link = append(link, "-randlayout="+strconv.FormatUint(w.Layout, 10))
	}
	if len(link) > 0 {
		r.args = append(r.args, "-ldflags="+strings.Join(link, " "))
	}
	var err error
	r.sources, err = b.sourceHash(ctx, t, r.env, w.Package)
	return r, err
}

// takeProfile enters the profile of w, if it has one.
func (r *recipe) takeProfile(w build) error {
	path := w.PGO
	switch path {
	case Default, "off":
		r.args = append(r.args, "-pgo=off")
		return nil
	case auto:
		path = w.Profile
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("pgo: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	r.profile = hex.EncodeToString(sum[:])
	r.args = append(r.args, "-pgo="+path)
	delete(r.want, "-pgo") // it names the file; verify looks whether there is one
	return nil
}

// hash is one of all that goes into the binary, and of the extra words. Each is preceded by its length.
func (r recipe) hash(want map[string]string, extra ...string) string {
	h := sha256.New()
	parts := append([]string{r.sources, r.t.version, r.profile, strconv.FormatUint(r.layout, 10)}, extra...)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		parts = append(parts, name+"="+want[name])
	}
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s\n", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// key names the binary in the cache, by the settings that it must have.
func (r recipe) key() string { return r.hash(r.want, r.stamp) }

// code identifies what bin does. A toolchain's version names the experiments that are on against its own choice: to ask for one that
// it has anyway gives another file with the same code.
func (r recipe) code(bin program) string {
	if !r.t.exact {
		return bin.Code
	}
	want := maps.Clone(r.want)
	delete(want, "GOEXPERIMENT")
	return r.hash(want, bin.Version)
}

// verify compares what the binary says of its making with what was asked. A wrapper, a setting that leaks, or GOTOOLCHAIN can
// silently build something else.
func (r recipe) verify(bin program) error {
	if got := plainVersion(bin.Version); got != plainVersion(r.t.version) {
		return fmt.Errorf("toolchain %s: %s was asked to build, but the binary says %s: is GOTOOLCHAIN or a wrapper in the way?", r.t.asked, r.t.version, bin.Version)
	}
	for _, name := range slices.Sorted(maps.Keys(r.want)) {
		if got, want := bin.set[name], r.want[name]; got != want {
			return fmt.Errorf("%s was to be built with %s=%q, but says that it has %q: does a wrapper of go, or go.env in GOROOT, set it?", bin.Path, name, want, got)
		}
	}
	if r.profile != "" && bin.set["-pgo"] == "" {
		return fmt.Errorf("%s was to be built with a profile, but says that it has none", bin.Path)
	}
	return nil
}

// BuildServer builds kvserver from the module in dir by the recipe that all builds share, unless that has been done, and
// returns the path of the binary.
func BuildServer(ctx context.Context, dir string, logf func(format string, args ...any)) (string, error) {
	source, err := FindSource(dir)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	bin, err := newBuilder(source, cache, logf).get(ctx, build{Go: Default, GOEXPERIMENT: Default, GOAMD64: Default, PGO: Default, Package: serverPackage})
	return bin.Path, err
}

// cacheDir is where built binaries are kept.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory to keep binaries in (%w): set HOME or XDG_CACHE_HOME, or name a kvserver with --server", err)
	}
	return filepath.Join(dir, "kvmark"), nil
}
