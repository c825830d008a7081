package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// fakeGo is the environment variable that makes this test binary a go command. It holds a JSON of fakeToolchain.
const fakeGo = "KVMARK_TEST_GO"

type fakeToolchain struct {
	Version     string   // that it claims; "": that of GOTOOLCHAIN
	Experiments []string // that it knows
	Product     string   // the binary that it "builds"
	Log         string   // file that gets a line for each build
}

// beGo answers as the go command does, as far as a builder asks.
func beGo(args []string) int {
	var f fakeToolchain
	if err := json.Unmarshal([]byte(os.Getenv(fakeGo)), &f); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if e := os.Getenv("GOEXPERIMENT"); e != "" && !strings.Contains(strings.Join(f.Experiments, " "), e) {
		fmt.Fprintf(os.Stderr, "go: unknown GOEXPERIMENT %s\n", e)
		return 2
	}
	switch args[0] {
	case "env":
		if args[1] == "-json" {
			fmt.Println("{}")
			break
		}
		if f.Version == "" {
			f.Version = os.Getenv("GOTOOLCHAIN")
		}
		fmt.Println(f.Version)
	case "list":
		dir, _ := os.Getwd()
		fmt.Printf(`{"Dir":%q,"Module":{"Main":true},"GoFiles":["main.go"]}{"Dir":"/goroot/fmt","GoFiles":["print.go"]}`, dir)
	case "build":
		content, err := os.ReadFile(f.Product)
		for i, a := range args {
			if a == "-o" && err == nil {
				err = os.WriteFile(args[i+1], content, 0o777)
			}
		}
		log, openErr := os.OpenFile(f.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err = errors.Join(err, openErr); err == nil {
			fmt.Fprintln(log, strings.Join(args, " "))
			err = log.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

var productDir string // removed at the end

// goProduct is a real binary, built as servers are.
var goProduct = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kvmark-product-")
	if err != nil {
		return "", err
	}
	productDir = dir
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte("package main\n\nfunc main() {}\n"), 0o666); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, "product"), main)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOEXPERIMENT=", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return filepath.Join(dir, "product"), nil
})

// fakeBuilder returns a builder whose go command in PATH is f, on a module of one file.
func fakeBuilder(t *testing.T, f fakeToolchain) *builder {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a link named go")
	}
	path, err := goProduct()
	if err != nil {
		t.Fatal(err)
	}
	if f.Product == "" {
		f.Product = path
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, source := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "go")); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"go.mod": "module kvmark\n", "go.sum": "", "main.go": "package main\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv(fakeGo, string(text))
	return newBuilder(source, t.TempDir(), t.Logf)
}

func plainBuild() build {
	return build{Go: Default, GOEXPERIMENT: Default, GOAMD64: Default, PGO: Default, Package: "./cmd/kvserver"}
}

func builds(t *testing.T, log string) []string {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func TestABinaryIsBuiltOnceForItsContents(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	b := fakeBuilder(t, fakeToolchain{Version: runtime.Version(), Log: log})
	first, err := b.get(t.Context(), plainBuild())
	if err != nil {
		t.Fatal(err)
	}
	again := newBuilder(b.source, b.cache, t.Logf)
	second, err := again.get(t.Context(), plainBuild())
	if err != nil || second.Path != first.Path || second.Hash != first.Hash {
		t.Errorf("%v: %+v, then %+v", err, first, second)
	}
	if got := builds(t, log); len(got) != 1 || !strings.Contains(got[0], "-trimpath -buildvcs=false -pgo=off") {
		t.Errorf("builds: %q", got)
	}
	linked := plainBuild()
	linked.Layout = 3
	if other, err := again.get(t.Context(), linked); err != nil || other.Path == first.Path {
		t.Errorf("another link order: %v, %s", err, other.Path)
	}
	if err := os.WriteFile(filepath.Join(b.source, "main.go"), []byte("package main\n\n// changed\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if changed, err := newBuilder(b.source, b.cache, t.Logf).get(t.Context(), plainBuild()); err != nil || changed.Path == first.Path {
		t.Errorf("changed source: %v, %s", err, changed.Path)
	}
	got := builds(t, log)
	if len(got) != 3 || !strings.Contains(got[1], "-ldflags=-randlayout=3") {
		t.Errorf("builds: %q", got)
	}
}

func TestAnotherToolchainThanAskedIsCaught(t *testing.T) {
	tests := []struct {
		name, claims, asked, want string
	}{
		{"GOTOOLCHAIN is not obeyed", runtime.Version(), "go1.99.1", "says that it is " + runtime.Version()},
		{"the go command lies", "", "go1.99.1", "go1.99.1 was asked to build, but the binary says " + runtime.Version()},
		{"no name", runtime.Version(), "1.27", "want a name such as"},
		{"no such path", runtime.Version(), "./nowhere", "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := fakeBuilder(t, fakeToolchain{Version: tt.claims, Log: filepath.Join(t.TempDir(), "log")})
			w := plainBuild()
			w.Go = tt.asked
			if _, err := b.get(t.Context(), w); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestAnUnknownExperimentIsNotAvailable(t *testing.T) {
	b := fakeBuilder(t, fakeToolchain{Version: runtime.Version(), Experiments: []string{"known"}, Log: filepath.Join(t.TempDir(), "log")})
	w := plainBuild()
	w.GOEXPERIMENT = "madeup"
	_, err := b.get(t.Context(), w)
	var na unsupported
	if !errors.As(err, &na) || !strings.Contains(na.reason, "unknown GOEXPERIMENT madeup") {
		t.Errorf("%v", err)
	}
	w = plainBuild()
	w.PGO = "/nowhere.pgo"
	if _, err := b.get(t.Context(), w); err == nil || errors.As(err, new(unsupported)) {
		t.Errorf("a profile that is not there: %v", err)
	}
}

func TestSettingsOfTheBinaryMustBeThoseAsked(t *testing.T) {
	b := fakeBuilder(t, fakeToolchain{Version: runtime.Version(), Log: filepath.Join(t.TempDir(), "log")})
	w := plainBuild()
	w.GOAMD64 = "v7"
	if runtime.GOARCH != "amd64" {
		t.Skip("GOAMD64")
	}
	if _, err := b.get(t.Context(), w); err == nil || !strings.Contains(err.Error(), `was to be built with GOAMD64="v7", but says that it has "v1"`) {
		t.Errorf("%v", err)
	}
	// This test was not built with -trimpath.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b = fakeBuilder(t, fakeToolchain{Version: runtime.Version(), Product: self, Log: filepath.Join(t.TempDir(), "log")})
	if _, err := b.get(t.Context(), plainBuild()); err == nil || !strings.Contains(err.Error(), "was to be built with") {
		t.Errorf("%v", err)
	}
}

func TestPlainVersion(t *testing.T) {
	for in, want := range map[string]string{
		"go1.27.3": "go1.27.3", "go1.27.3-X:nogreenteagc": "go1.27.3", "go1.26.8 X:jsonv2": "go1.26.8", "devel go1.28-abc X:jsonv2": "devel go1.28-abc",
	} {
		if got := plainVersion(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestFindSource(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(deep, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := FindSource(deep); err == nil || !strings.Contains(err.Error(), "--source") {
		t.Errorf("no module: %v", err)
	}
	mod := filepath.Join(root, "go.mod")
	if err := os.WriteFile(mod, []byte("module kvmark\n\ngo 1.26\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got, err := FindSource(deep); err != nil || got != root {
		t.Errorf("%s, %v", got, err)
	}
	if err := os.WriteFile(mod, []byte("module other\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := FindSource(deep); err == nil || !strings.Contains(err.Error(), "another module") {
		t.Errorf("%v", err)
	}
}
