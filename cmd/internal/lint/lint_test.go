// Package lint holds the project's own rules as tests: who may import whom, that every package says what it is for,
// and that the code is formatted and finished.
package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// pkg is what the rules need of `go list -json`.
type pkg struct {
	ImportPath string
	Dir        string
	Imports    []string
}

func ourPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Imports", "kvmark/...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
	if len(all) < 5 {
		t.Fatalf("go list found only %d packages of kvmark", len(all))
	}
	return all
}

// layers says what of ours each part of the tree may import. The longest matching prefix counts; a part that is not
// listed may import nothing of ours.
var layers = map[string][]string{
	"kvmark/cmd/kvserver":            {"kvmark/kvserver", "kvmark/wal", "kvmark/storage", "kvmark/cmd/internal/secret"},
	"kvmark/cmd/kvmark":              {"kvmark/client", "kvmark/cmd/internal/secret"},
	"kvmark/cmd/internal":            {"kvmark/client", "kvmark/cmd/internal/rig"},
	"kvmark/cmd/internal/rig":        {"kvmark/client"},
	"kvmark/cmd/internal/secret":     {},
	"kvmark/kvserver":                {"kvmark/wal", "kvmark/storage", "kvmark/kvserver/resp", "kvmark/kvserver/setting", "kvmark/kvserver/stats"},
	"kvmark/kvserver/resp":           {},
	"kvmark/kvserver/setting":        {"kvmark/storage/mode", "kvmark/storage/serialize/limit", "kvmark/wal/policy"},
	"kvmark/kvserver/stats":          {},
	"kvmark/wal":                     {"kvmark/wal/policy"},
	"kvmark/wal/policy":              {},
	"kvmark/storage":                 {"kvmark/storage"},
	"kvmark/storage/serialize":       {"kvmark/storage/serialize/codec", "kvmark/storage/serialize/limit", "kvmark/storage/pair", "kvmark/storage/usage", "kvmark/storage/warm"},
	"kvmark/storage/serialize/codec": {"kvmark/storage/serialize/limit"},
	"kvmark/storage/serialize/limit": {},
	"kvmark/storage/mode":            {},
	"kvmark/storage/pair":            {},
	"kvmark/storage/usage":           {},
	"kvmark/storage/warm":            {},
	"kvmark/client":                  {"kvmark/client", "kvmark/kvserver/resp", "kvmark/kvserver/setting", "kvmark/storage/serialize/limit"},
	"kvmark/client/workload":         {},
	"kvmark/client/result":           {},
	"kvmark/client/compare":          {},
}

func TestImportsPointDown(t *testing.T) {
	under := func(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
	for _, p := range ourPackages(t) {
		var rule string
		for prefix := range layers {
			if under(p.ImportPath, prefix) && len(prefix) > len(rule) {
				rule = prefix
			}
		}
		if p.ImportPath == "kvmark" && len(p.Imports) == 0 {
			continue // doc.go
		}
		if rule == "" {
			t.Errorf("%s lies outside the layout", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if !under(imp, "kvmark") {
				continue
			}
			allowed := false
			for _, a := range layers[rule] {
				allowed = allowed || under(imp, a)
			}
			if !allowed {
				t.Errorf("%s must not import %s", p.ImportPath, imp)
			}
		}
	}
}

// TestEdgesAreThoseThatWereDecided compares the imports with testdata/edges.txt.
func TestEdgesAreThoseThatWereDecided(t *testing.T) {
	const file = "testdata/edges.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decided := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			decided[line] = true
		}
	}
	for _, p := range ourPackages(t) {
		line := strings.TrimPrefix(p.ImportPath, "kvmark/") + ":"
		for _, imp := range p.Imports { // go list sorts them
			if imp, ours := strings.CutPrefix(imp, "kvmark/"); ours {
				line += " " + imp
			}
		}
		if !decided[line] {
			t.Errorf("the imports of %s differ from %s. Does the new arrow have to be? Could what is needed move down, or come as an "+
				"argument? If it has to be, the line there becomes\n%s", p.ImportPath, file, line)
		}
		delete(decided, line)
	}
	for line := range decided {
		t.Errorf("%s has a line of no package, or an old one: %s", file, line)
	}
}

const longest = 80 // lines of a function

// long are the functions that are longer. Tables may be; the others are to be split, and no new one may come.
var long = map[string]string{
	"client/result/explain.go Explanations": "a table",
	"kvserver/command.go newCommands":       "a table",

	"client/chat/run.go watch":                               "to be split",
	"client/experiment/experiment.go makePlan":               "to be split",
	"client/load/cell.go judge":                              "to be split",
	"client/load/loadtest/loadtest.go answer":                "to be split",
	"cmd/kvmark/compare.go compareOptions":                   "to be split",
	"storage/serialize/serialize.go Delete":                  "to be split",
	"storage/storagetest/storagetest.go testConcurrent":      "to be split",
	"storage/storagetest/storagetest.go testFuzzyCheckpoint": "to be split",
}

func TestFunctionsAreShort(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := files.Position(fn.End()).Line - files.Position(fn.Pos()).Line + 1
			if lines <= longest {
				continue
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(rel) + " " + fn.Name.Name
			seen[name] = true
			if long[name] == "" {
				t.Errorf("%s:%d: %s has %d lines, and %d are enough: split it", path, files.Position(fn.Pos()).Line, fn.Name.Name, lines, longest)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range long {
		if !seen[name] {
			t.Errorf("%s is short now: take it off the list", name)
		}
	}
}

func TestTopLevelIsFixed(t *testing.T) {
	want := map[string]bool{
		"cmd": true, "kvserver": true, "wal": true, "storage": true, "client": true, "testdata": true, "go.mod": true, "go.sum": true,
		"Makefile": true, "README.md": true, "LICENSE": true, "CHANGELOG.md": true, "CONTRIBUTING.md": true, "doc.go": true,
	}
	for _, name := range topLevel(t, root) {
		if !want[name] && !strings.HasPrefix(name, ".") {
			t.Errorf("%s does not belong to the top level", name)
		}
	}
}

// topLevel is what of a repository belongs to it: what users keep beside, such as a server's data, is theirs.
func topLevel(t *testing.T, dir string) (names []string) {
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("git does not tell what belongs to the project: %v", err)
	}
	seen := map[string]bool{}
	for path := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if name, _, _ := strings.Cut(path, "/"); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

func TestWhatUsersKeepBesideTheProjectIsTheirs(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"add", "wal"}} {
		if err := os.MkdirAll(filepath.Join(dir, "wal"), 0o777); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"wal/doc.go", "data"} {
			if err := os.WriteFile(filepath.Join(dir, path), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("no git here: %v: %s", err, out)
		}
	}
	if got := topLevel(t, dir); len(got) != 1 || got[0] != "wal" {
		t.Errorf("the top level is %v, want wal alone", got)
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range ourPackages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var docs int
		for _, f := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if documented(parsed) {
				docs++
			}
		}
		if docs == 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

func documented(f *ast.File) bool {
	return f.Doc != nil && (strings.HasPrefix(f.Doc.Text(), "Package ") || strings.HasPrefix(f.Doc.Text(), "Command ") || f.Name.Name == "main")
}

var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b|not ` + `implemented`)

func TestCodeIsFormattedAndFinished(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		formatted, err := format.Source(src)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if !bytes.Equal(src, formatted) {
			t.Errorf("%s is not formatted: gofmt -w %s", path, path)
		}
		if at := unfinished.FindIndex(src); at != nil {
			t.Errorf("%s:%d: unfinished: %q", path, 1+bytes.Count(src[:at[0]], []byte("\n")), src[at[0]:at[1]])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
