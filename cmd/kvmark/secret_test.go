package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"kvmark/client/load/loadtest"
)

// secrets are words with a password in them, as people mistype the URL of a server.
var secrets = []string{"redis://:s3cr3t@127.0.0.1:1", ":s3cr3t@h", "s3cr3t@h", "redis:s3cr3t@h", "redis://:57#s3cr3t@h", "redis://u:my s3cr3t@h", "redis://:s3cr3t"}

func TestNoArgumentOrOptionEchoesASecret(t *testing.T) {
	commands := []*cli.Command{runCommand(), compareCommand(), chatCommand(), connsCommand(), reportCommand(), replayCommand(), explainCommand()}
	t.Chdir(t.TempDir())
	refused := func(t *testing.T, secret string, args ...string) {
		t.Helper()
		code, stdout, stderr := kvmark(t, args...)
		if both := stdout + stderr; strings.Contains(both, "s3cr3t") {
			t.Errorf("%q is echoed: %s", args, both)
		}
		if code != exitUsage && !(code == exitFailed && secret == secrets[0]) { // which is a URL that can be tried
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
	for _, secret := range secrets {
		refused(t, secret, secret)
		refused(t, secret, "help", secret)
		refused(t, secret, "--"+secret)
		for _, c := range commands {
			refused(t, secret, c.Name, secret)
			refused(t, secret, c.Name, "--", secret)
			refused(t, secret, c.Name, "--nonsense", secret)
			refused(t, secret, c.Name, "--"+secret)
			refused(t, secret, c.Name, "--password"+secret)
			for _, f := range c.Flags {
				name := "--" + f.Names()[0]
				refused(t, secret, c.Name, name+"="+secret)
				if _, alone := f.(*cli.BoolFlag); !alone {
					refused(t, secret, c.Name, name, secret)
				}
			}
		}
	}
	if found, _ := filepath.Glob("*"); len(found) > 0 {
		t.Errorf("left behind: %v", found)
	}
}

func TestNoEnvironmentOrFileOrShellEchoesASecret(t *testing.T) {
	t.Chdir(t.TempDir())
	plan := "[[cell]]\nname = \"a\"\nset = { mode = \"redis://:s3cr3t@h\" }\n[[cell]]\nname = \"b\"\nset = { mode = \"memory\" }\n"
	if err := os.WriteFile("plan.toml", []byte(plan), 0o666); err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, args ...string) {
		t.Helper()
		if code, stdout, stderr := kvmark(t, args...); code != exitUsage || strings.Contains(stdout+stderr, "s3cr3t") {
			t.Errorf("%q: exit %d, %s", args, code, stdout+stderr)
		}
	}
	check(t, "compare", "--plan", "plan.toml")
	check(t, "run", "--target", "redis://:my", "s3cr3t", "word@h") // as the shell cuts it
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG", "TMPDIR"} {
		t.Run(name, func(t *testing.T) {
			for _, secret := range []string{"redis://:s3cr3t@h", "redis://:my s3cr3t@h", "u:s3cr3t@h"} {
				t.Setenv(name, secret)
				check(t, "run")
				check(t, "compare", "--vary", "codec=s2,zstd", "--modes", "serialize")
			}
		})
	}
}

func TestNoResultHoldsASecret(t *testing.T) {
	args := serverIs(t, loadtest.Behaviour{})
	dir := t.TempDir()
	t.Setenv("KVMARK_PASSWORD", "s3cr3t")
	if code, stdout, stderr := kvmark(t, append(args, "--out", dir)...); code == exitUsage || strings.Contains(stdout+stderr, "s3cr3t") {
		t.Fatalf("exit %d, %s%s", code, stdout, stderr)
	}
	if text, err := os.ReadFile(filepath.Join(dir, resultName)); err != nil || bytes.Contains(text, []byte("s3cr3t")) {
		t.Errorf("the result holds it, or %v", err)
	}
}
