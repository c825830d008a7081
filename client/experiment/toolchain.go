package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// toolchain is a go command with what it takes to make it that very toolchain.
type toolchain struct {
	asked   string // as the user wrote it
	command string
	env     []string
	version string // as the command says, go1.27.3
	exact   bool   // version says all there is to know about the compiler: an official release
}

var (
	toolchainName = regexp.MustCompile(`^go1(\.[0-9]+)*((rc|beta)[0-9]+)?(-[a-z0-9.]+)?$`)
	release       = regexp.MustCompile(`^go1(\.[0-9]+)*((rc|beta)[0-9]+)?$`)
)

// localToolchain is the go command in PATH itself, whatever toolchain the module asks for.
const localToolchain = "local"

// withoutPatch is a name that releases had before Go 1.21; later it is that of a language version.
var withoutPatch = regexp.MustCompile(`^go1\.(2[1-9]|[3-9][0-9])$`)

// findToolchain resolves a value of the factor go: Default (the go command in PATH), a name as in GOTOOLCHAIN, a GOROOT, or the
// path of a go command. The version that the command itself claims is checked against a name.
func (b *builder) findToolchain(ctx context.Context, asked string) (*toolchain, error) {
	t := &toolchain{asked: asked, command: "go"}
	named := false
	switch {
	case asked == Default:
	case asked == localToolchain:
		t.env = []string{"GOTOOLCHAIN=local"}
	case strings.ContainsRune(asked, filepath.Separator):
		path, err := filepath.Abs(asked)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("toolchain %s: %w", asked, err)
		}
		if t.command = path; info.IsDir() {
			t.command = filepath.Join(path, "bin", "go")
		}
		// Or a toolchain line of the module could have it run another one.
		t.env = []string{"GOTOOLCHAIN=local"}
	case toolchainName.MatchString(asked):
		named = true
		t.env = []string{"GOTOOLCHAIN=" + asked}
	default:
		return nil, fmt.Errorf("toolchain %q: want a name such as go1.27.3, local, a GOROOT, or the path of a go command (with a %c in it)", asked, filepath.Separator)
	}
	out, err := b.run(ctx, t, nil, "env", "GOVERSION")
	if err != nil {
		return nil, fmt.Errorf("toolchain %s: %w", asked, err)
	}
	t.version = strings.TrimSpace(string(out))
	if named && plainVersion(t.version) != asked {
		return nil, fmt.Errorf("toolchain %s: the go command says that it is %s; nothing was measured", asked, t.version)
	}
	t.exact = release.MatchString(t.version) && !strings.ContainsRune(asked, filepath.Separator)
	return t, nil
}

// plainVersion is a version without what the build added: "go1.27.3-X:nogreenteagc" (older: "go1.26.8 X:...") is go1.27.3.
func plainVersion(v string) string {
	v, _, _ = strings.Cut(v, " X:")
	v, _, _ = strings.Cut(v, "-X:")
	return v
}

// goError is a go command that failed: what it wrote is the reason.
type goError struct {
	args string
	err  error
	text string
}

func (e *goError) Error() string { return fmt.Sprintf("go %s: %v: %s", e.args, e.err, e.text) }
func (e *goError) Unwrap() error { return e.err }

// run runs the go command of t in the source tree. Everything that changes a build is pinned; of the user's settings only
// those count that do not, such as proxies and caches.
func (b *builder) run(ctx context.Context, t *toolchain, env []string, args ...string) ([]byte, error) {
	if b.user == nil {
		var err error
		if b.user, err = b.userSettings(ctx, t.command); err != nil {
			return nil, err
		}
	}
	return b.exec(ctx, t.command, slices.Concat(os.Environ(), b.user, pinned(), t.env, env), args...)
}

// userNames are the settings that say where modules, toolchains and what was built before are found.
var userNames = []string{
	"GOAUTH", "GOCACHE", "GOCACHEPROG", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPATH", "GOPRIVATE", "GOPROXY",
	"GOSUMDB", "GOTMPDIR", "GOTOOLCHAIN", "GOVCS",
}

// userSettings asks the go command for what the user has set about fetching and keeping modules, in the environment or with
// "go env -w": builds do without that file.
func (b *builder) userSettings(ctx context.Context, command string) ([]string, error) {
	out, err := b.exec(ctx, command, append(os.Environ(), neutral()...), append([]string{"env", "-json"}, userNames...)...)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	if err := json.Unmarshal(out, &values); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	set := []string{}
	for _, name := range userNames {
		if values[name] != "" {
			set = append(set, name+"="+values[name])
		}
	}
	return set, nil
}

// exec runs a go command in the source tree.
func (b *builder) exec(ctx context.Context, command string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir, cmd.Env = b.source, env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &goError{strings.Join(args, " "), err, lastLines(stderr.String(), 5)}
	}
	return stdout.Bytes(), nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
