package experiment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"kvmark/client/result"
)

// build is what one server binary is made from.
type build struct {
	Go, GOEXPERIMENT, GOAMD64, PGO string
	Layout                         uint64 // -randlayout; 0: the linker's own order
	Profile                        string // path of the profile for PGO auto
	Server                         string // a ready binary instead
	Package                        string // kvmark/cmd/kvserver or kvmark/cmd/kvmark
}

// program is a server (or client) ready to run.
type program struct {
	Path    string
	Hash    string // of its bytes
	Code    string // equal for programs of the same code, whatever commit and settings they name
	Version string // as it will call itself: runtime.Version
	set     map[string]string
}

// unsupported is a build that cannot exist: some value is unknown to the toolchain.
type unsupported struct{ reason string }

func (e unsupported) Error() string { return e.reason }

// builder makes binaries, each once.
type builder struct {
	source, cache string
	logf          func(string, ...any)
	user          []string // what of the user's own go settings does not change code: proxies, caches; see userSettings
	toolchains    map[string]*toolchain
	sources       map[string]string // content hash by toolchain and package
	done          map[build]program
}

func newBuilder(source, cache string, logf func(string, ...any)) *builder {
	return &builder{
		source: source, cache: cache, logf: logf,
		toolchains: map[string]*toolchain{}, sources: map[string]string{}, done: map[build]program{},
	}
}

// FindSource returns the root of the kvmark module that holds dir.
func FindSource(dir string) (string, error) {
	from, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := from; ; at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil {
			first, _, _ := strings.Cut(string(text), "\n")
			if strings.TrimSpace(first) == "module kvmark" {
				return at, nil
			}
			return "", fmt.Errorf("%s is another module, not kvmark's source: give --source DIR, or --server PATH", at)
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no kvmark source at or above %s to build kvserver from: give --source DIR, or --server PATH", from)
		}
	}
}

// serverPackage is the server's program within the module.
const serverPackage = "./cmd/kvserver"

// buildOf returns what v's binary is made from.
func (v Variant) buildOf() (build, error) {
	b := build{Go: v.Get("go"), GOEXPERIMENT: v.Get("GOEXPERIMENT"), GOAMD64: v.Get("GOAMD64"), PGO: v.Get("pgo"), Package: serverPackage}
	if s := v.Get("server"); s != Default {
		b.Server = s
	}
	var err error
	if s := v.Get("layout"); s != Default {
		b.Layout, err = strconv.ParseUint(s, 10, 31)
	}
	return b, err
}

// get returns the binary of w, building it if there is none.
func (b *builder) get(ctx context.Context, w build) (program, error) {
	if bin, ok := b.done[w]; ok {
		return bin, nil
	}
	bin, err := b.make(ctx, w)
	if err == nil {
		b.done[w] = bin
	}
	return bin, err
}

func (b *builder) make(ctx context.Context, w build) (program, error) {
	if w.Server != "" {
		path, err := filepath.Abs(w.Server)
		if err != nil {
			return program{}, err
		}
		bin, err := inspect(path)
		if err != nil {
			return bin, fmt.Errorf("server %s: %w", w.Server, err)
		}
		if p, err := result.ReadBinary(path); err == nil && p.Instrumented() != "" {
			b.logf("%s was built with %s: its numbers are not those of a server as it is used", w.Server, p.Instrumented())
		}
		return bin, nil
	}
	t, ok := b.toolchains[w.Go]
	if !ok {
		var err error
		if t, err = b.findToolchain(ctx, w.Go); err != nil {
			return program{}, err
		}
		b.toolchains[w.Go] = t
	}
	r, err := b.recipe(ctx, t, w)
	if err != nil {
		return program{}, err
	}
	name := filepath.Base(w.Package)
	path := filepath.Join(b.cache, r.key()[:24]+"-"+name)
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if t.exact {
		if bin, err := inspect(path); err == nil && r.verify(bin) == nil { // else it is built anew
			bin.Code = r.code(bin)
			return bin, nil
		}
	}
	b.logf("building %s with %s%s", name, t.version, w.words())
	if err := os.MkdirAll(b.cache, 0o777); err != nil {
		return program{}, err
	}
	// Beside and renamed: another kvmark may be building the same.
	tmp, err := os.MkdirTemp(b.cache, "build-")
	if err != nil {
		return program{}, err
	}
	defer os.RemoveAll(tmp)
	aside := filepath.Join(tmp, filepath.Base(path))
	if _, err := b.run(ctx, t, r.env, append(r.args, "-o", aside, w.Package)...); err != nil {
		var failed *goError
		if errors.As(err, &failed) && strings.Contains(failed.text, "invalid GOAMD64") {
			return program{}, unsupported{failed.text}
		}
		return program{}, err
	}
	bin, err := inspect(aside)
	if err == nil {
		err = r.verify(bin)
	}
	if err == nil {
		err = os.Rename(aside, path)
	}
	bin.Path, bin.Code = path, r.code(bin)
	return bin, err
}

// sourceHash covers every file that goes into the package from this module, and the versions and checksums of the rest.
func (b *builder) sourceHash(ctx context.Context, t *toolchain, env []string, pkg string) (string, error) {
	key := t.asked + "\x00" + strings.Join(env, " ") + "\x00" + pkg
	if sum, ok := b.sources[key]; ok {
		return sum, nil
	}
	out, err := b.run(ctx, t, env, "list", "-deps", "-json=Dir,Module,GoFiles,SFiles,HFiles,EmbedFiles", pkg)
	if err != nil {
		return "", err
	}
	files := []string{filepath.Join(b.source, "go.mod"), filepath.Join(b.source, "go.sum")}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir                                 string
			Module                              *struct{ Main bool }
			GoFiles, SFiles, HFiles, EmbedFiles []string
		}
		err := d.Decode(&p)
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", fmt.Errorf("go list: %w", err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, f := range slices.Concat(p.GoFiles, p.SFiles, p.HFiles, p.EmbedFiles) {
			files = append(files, filepath.Join(p.Dir, f))
		}
	}
	h := sha256.New()
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(b.source, f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.ToSlash(rel), len(content), content)
	}
	b.sources[key] = hex.EncodeToString(h.Sum(nil))
	return b.sources[key], nil
}

// inspect reads what a binary says about its own making.
func inspect(path string) (program, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	sum := sha256.Sum256(content)
	result.Anonymous(content)
	code := sha256.Sum256(content)
	bin := program{Path: path, Hash: hex.EncodeToString(sum[:]), Code: hex.EncodeToString(code[:]), Version: info.GoVersion, set: map[string]string{}}
	for _, s := range info.Settings {
		bin.set[s.Key] = s.Value
	}
	return bin, nil
}

// words says what is special about a build.
func (w build) words() string {
	var s strings.Builder
	for _, part := range []Setting{{"GOEXPERIMENT", w.GOEXPERIMENT}, {"GOAMD64", w.GOAMD64}, {"pgo", w.PGO}} {
		if part.Value != Default {
			s.WriteString(" " + part.Name + "=" + part.Value)
		}
	}
	if w.Layout != 0 {
		fmt.Fprintf(&s, " layout=%d", w.Layout)
	}
	return s.String()
}
