package experiment

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kvmark/client/result"
)

// tinyModule is a kvmark module whose kvserver does nothing, which real toolchains build in a moment.
func tinyModule(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds with the go command")
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module kvmark\n\ngo 1.26\n", "go.sum": "", "cmd/kvserver/main.go": "package main\n\nfunc main() {}\n"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(content), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// userFile has the go command take a file for what "go env -w" keeps.
func userFile(t *testing.T, content string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", path)
}

func get(t *testing.T, b *builder, w build) program {
	t.Helper()
	bin, err := b.get(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

func TestWhatTheUserHasSetDoesNotReachABuild(t *testing.T) {
	source := tinyModule(t)
	plain := get(t, newBuilder(source, t.TempDir(), t.Logf), plainBuild())
	tests := []struct{ name, file, variable, value string }{
		{"go env -w", "GOEXPERIMENT=nogreenteagc\nGOAMD64=v3\nGOARM64=v8.1\nGOFIPS140=latest\nGOFLAGS=-race -tags=other -gcflags=-N\nCGO_ENABLED=1\n", "", ""},
		{"go env -w of another machine", "GOOS=plan9\nGOARCH=386\n", "", ""},
		{"GOFLAGS", "", "GOFLAGS", "-race"},
		{"GOARCH", "", "GOARCH", "riscv64"},
		{"GOOS", "", "GOOS", "windows"},
		{"GOFIPS140", "", "GOFIPS140", "latest"},
		{"GOEXPERIMENT", "", "GOEXPERIMENT", "nogreenteagc"},
		{"GOROOT", "", "GOROOT", "/nowhere"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			userFile(t, tt.file)
			if tt.variable != "" {
				t.Setenv(tt.variable, tt.value)
			}
			got := get(t, newBuilder(source, t.TempDir(), t.Logf), plainBuild())
			if got.Hash != plain.Hash || got.Code != plain.Code || !maps.Equal(got.set, plain.set) {
				t.Errorf("built %.12s, %v; plain is %.12s, %v", got.Hash, got.set, plain.Hash, plain.set)
			}
		})
	}
}

func TestProxiesAndCachesOfTheUserAreKept(t *testing.T) {
	b := newBuilder(tinyModule(t), t.TempDir(), t.Logf)
	userFile(t, "GOPROXY=http://127.0.0.1:1\nGOPRIVATE=example.org\nGOFIPS140=latest\n")
	t.Setenv("GOPROXY", "")
	out, err := b.run(t.Context(), &toolchain{command: "go"}, nil, "env", "GOPROXY", "GOPRIVATE", "GOFIPS140")
	if want := "http://127.0.0.1:1\nexample.org\noff\n"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}

func TestAWrongBinaryInTheCacheIsBuiltAnew(t *testing.T) {
	source, cache := tinyModule(t), t.TempDir()
	good := get(t, newBuilder(source, cache, t.Logf), plainBuild())
	self, err := os.Executable() // built in another way
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(self)
	if err == nil {
		err = errors.Join(os.Remove(good.Path), os.WriteFile(good.Path, other, 0o777))
	}
	if err != nil {
		t.Fatal(err)
	}
	if again := get(t, newBuilder(source, cache, t.Logf), plainBuild()); again.Hash != good.Hash {
		t.Errorf("got %.12s, want %.12s", again.Hash, good.Hash)
	}
}

func TestAnExperimentThatIsOnAnywayIsTheSameCode(t *testing.T) {
	if !strings.HasPrefix(runtime.Version(), "go1.26.") && !strings.HasPrefix(runtime.Version(), "go1.27.") {
		t.Skip("which experiments are on depends on the toolchain")
	}
	source := tinyModule(t)
	b := newBuilder(source, t.TempDir(), t.Logf)
	code := map[string]string{}
	for _, value := range []string{Default, "greenteagc", "nogreenteagc"} {
		w := plainBuild()
		w.GOEXPERIMENT = value
		bin := get(t, b, w)
		code[value] = bin.Code
		if want := map[string]string{Default: ""}; bin.set["GOEXPERIMENT"] != value && bin.set["GOEXPERIMENT"] != want[value] {
			t.Errorf("%s: the binary says %q", value, bin.set["GOEXPERIMENT"])
		}
	}
	if code[Default] != code["greenteagc"] || code[Default] == code["nogreenteagc"] {
		t.Errorf("codes %v", code)
	}
}

func TestVariantsOfOneBinaryAreRefused(t *testing.T) {
	source := tinyModule(t)
	server := filepath.Join(t.TempDir(), "kvserver")
	bin := get(t, newBuilder(source, t.TempDir(), t.Logf), plainBuild())
	content, err := os.ReadFile(bin.Path)
	if err == nil {
		err = os.WriteFile(server, content, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		factors []Factor
		same    bool
	}{
		{[]Factor{{"GOEXPERIMENT", []string{Default, "greenteagc"}}}, true},
		{[]Factor{{"GOAMD64", []string{Default, "v1"}}}, runtime.GOARCH == "amd64"},
		{[]Factor{{"pgo", []string{Default, "off"}}}, true},
		{[]Factor{{"server", []string{server, bin.Path}}}, true},
		{[]Factor{{"GOGC", []string{"50", "100"}}, {"pgo", []string{Default, "off"}}}, true},
		{[]Factor{{"GOGC", []string{"50", "100"}}}, false},
		{[]Factor{{"server", []string{server, bin.Path}}, {"GOGC", []string{"50", "100"}}}, true},
		{[]Factor{{"layout", []string{Default, "1"}}}, false},
	}
	for _, tt := range tests {
		c := DefaultConfig()
		c.Factors, c.Source, c.Cache, c.Out, c.Logf = tt.factors, source, t.TempDir(), t.TempDir(), t.Logf
		x := &experiment{Config: c, binaries: map[binaryKey]program{}, clients: map[int]program{}}
		err := x.makePlan() // which knows values that say the same
		if err == nil {
			if err = x.build(t.Context()); err != nil && !errors.As(err, new(*UsageError)) {
				t.Fatal(err)
			}
		}
		if refused := err != nil && strings.Contains(err.Error(), "are the same"); refused != tt.same || !refused && err != nil {
			t.Errorf("%v: %v, want refused %v", tt.factors, err, tt.same)
		}
	}
}

// gitModule is a tinyModule under version control whose kvserver keeps and prints its stamp.
func gitModule(t *testing.T) (dir string, git func(args ...string)) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	dir = tinyModule(t)
	for name, content := range map[string]string{
		"kvserver/stats/stamp.go": "package stats\n\nvar stamp string\n\nfunc Stamp() string { return stamp }\n",
		"cmd/kvserver/main.go":    "package main\n\nimport \"kvmark/kvserver/stats\"\n\nfunc main() { print(stats.Stamp()) }\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(content), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	git = func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	return dir, git
}

func TestProgramsNameTheirCommitAndAreStillTheSameCode(t *testing.T) {
	source, git := gitModule(t)
	says := func(bin program) string {
		out, err := exec.Command(bin.Path).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	first := get(t, newBuilder(source, t.TempDir(), t.Logf), plainBuild())
	again := get(t, newBuilder(source, t.TempDir(), t.Logf), plainBuild())
	if said := says(first); !regexp.MustCompile(`^kvmark-commit=[0-9a-f]{40}-$`).MatchString(said) || again.Hash != first.Hash {
		t.Errorf("%q; built again %.12s, %.12s before", said, again.Hash, first.Hash)
	}
	if p, err := result.ReadBinary(first.Path); err != nil || !strings.Contains(p.Words(), "commit "+says(first)[14:26]) {
		t.Errorf("%v: read as %q", err, p.Words())
	}

	cache := t.TempDir()
	inspectAnew := func() program { // as a ready binary
		bin := get(t, newBuilder(source, cache, t.Logf), plainBuild())
		seen, err := inspect(bin.Path)
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	before := inspectAnew()
	git("commit", "-q", "--allow-empty", "-m", "second")
	after := inspectAnew()
	if says(after) == says(before) || after.Hash == before.Hash || runtime.GOOS == "linux" && after.Code != before.Code {
		t.Errorf("another commit of the same code: %q, hash %.12s, code %.12s; before %q, %.12s, %.12s", says(after), after.Hash, after.Code, says(before), before.Hash, before.Code)
	}
	path := filepath.Join(source, "cmd", "kvserver", "main.go")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), "print(", "print(\"changed \", ", 1)), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	if changed := inspectAnew(); !strings.HasSuffix(says(changed), "+") || changed.Code == after.Code {
		t.Errorf("changed: %q, code %.12s, %.12s before", says(changed), changed.Code, after.Code)
	}
}

func TestTheStampIsThatOfTheSourceOrNone(t *testing.T) {
	source, git := gitModule(t)
	stamp := func(dir string) string { return newBuilder(dir, "", t.Logf).stamp(t.Context()) }
	of := stamp(source)
	if of == "" {
		t.Fatal("no stamp in a clone")
	}
	beside := filepath.Join(t.TempDir(), "beside")
	git("worktree", "add", "-q", beside)
	if got := stamp(beside); got != of {
		t.Errorf("a work tree beside the clone: %q, the clone %q", got, of)
	}
	if got := stamp(filepath.Join(source, "cmd")); got != "" {
		t.Errorf("a part of another tree: %q", got)
	}
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(t.TempDir()))
	if got := stamp(t.TempDir()); got != "" {
		t.Errorf("no repository: %q", got)
	}
	t.Setenv("PATH", t.TempDir())
	if got := stamp(source); got != "" {
		t.Errorf("no git: %q", got)
	}
}

// The Makefile can not call this package before it is built: it says the same in its own way.
func TestTheMakefileHasTheRecipeOfAllBuilds(t *testing.T) {
	makePath, err := exec.LookPath("make")
	if err != nil {
		t.Skip("no make")
	}
	t.Setenv("GOARCH", "riscv64") // not to be taken from the environment
	cmd := exec.Command(makePath, "-n", "build")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := slices.DeleteFunc(strings.Split(string(out), "\n"), func(l string) bool { return !strings.Contains(l, " build -") })
	if len(lines) != 2 {
		t.Fatalf("%d builds in %s", len(lines), out)
	}
	stamp := newBuilder(cmd.Dir, "", t.Logf).stamp(t.Context())
	for _, line := range lines {
		words := strings.Fields(strings.ReplaceAll(line, `"`, " "))
		for _, name := range stamped {
			if want := name + "=" + stamp; stamp != "" && !slices.Contains(words, want) {
				t.Errorf("make does not link with %s: %s", want, line)
			}
		}
		for _, want := range append(append(pinned(), buildArgs()...), "-pgo=off") {
			if !slices.Contains(words, want) {
				t.Errorf("make has no %s: %s", want, line)
			}
		}
		for _, name := range userNames {
			if !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, name+"=") }) {
				t.Errorf("make does not pass %s: %s", name, line)
			}
		}
	}
}
