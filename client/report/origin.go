package report

import (
	"fmt"
	"strings"

	"kvmark/client/result"
)

// machine names the hardware and the system.
func machine(h result.Host) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if h.CPUs > 0 || h.CPU != "" {
		add("%s of %s", plural(h.CPUs, "CPU"), known(h.CPU))
	}
	if h.MemoryBytes > 0 {
		add("%.1f GiB", float64(h.MemoryBytes)/(1<<30))
	}
	if h.Kernel != "" {
		add("%s %s", h.GOOS, h.Kernel)
	}
	if h.FileSystem != "" {
		add("%s", h.FileSystem)
	}
	return strings.Join(words, ", ")
}

// build names a program: its version, the commit that it was built from, and the toolchain.
func build(p result.Process) string {
	words := []string{}
	if p.Version != "" {
		words = append(words, p.Version)
	}
	settings := map[string]string{}
	for s := range strings.SplitSeq(p.BuildSettings, ";") {
		if name, value, ok := strings.Cut(s, "="); ok {
			settings[name] = value
		}
	}
	if commit := settings["vcs.revision"]; commit != "" {
		commit = "commit " + commit[:min(12, len(commit))]
		if settings["vcs.modified"] == "true" {
			commit += " with changes"
		}
		words = append(words, commit)
	}
	if p.Go != "" {
		words = append(words, p.Go)
	}
	return strings.Join(words, ", ")
}

// introduction is what text begins with: where, with what and when, in one line, then what ran.
func introduction(f *result.File, ran []string) []string {
	var words []string
	if m := machine(f.Env.Host); m != "" {
		words = append(words, m)
	}
	if b := build(f.Env.Client); b != "" {
		words = append(words, "kvmark "+b)
	}
	if !f.Started.IsZero() {
		words = append(words, f.Started.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if len(words) == 0 {
		return ran
	}
	return append([]string{plain(strings.Join(words, "; "))}, ran...)
}

// plural is a number with its noun.
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
