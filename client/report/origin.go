package report

import (
	"fmt"
	"strconv"
	"strings"

	"kvmark/client/result"
)

// machine names the hardware and the system.
func machine(h result.Host) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if h.CPUs > 0 || h.CPU != "" {
		add("%s of %s", Plural(h.CPUs, "CPU"), known(h.CPU))
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

// introduction is what text begins with: where, with what and when, in one line, then what ran.
func introduction(f *result.File, ran []string) []string {
	if line := Introduction(f); line != "" {
		return append([]string{line}, ran...)
	}
	return ran
}

// Introduction says in one line on what machine, with which kvmark, and when a result was measured; "" where none of it is known.
func Introduction(f *result.File) string {
	var words []string
	if m := machine(f.Env.Host); m != "" {
		words = append(words, m)
	}
	if b := f.Env.Client.Words(); b != "" {
		words = append(words, "kvmark "+b)
	}
	if !f.Started.IsZero() {
		words = append(words, f.Started.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return plain(strings.Join(words, "; "))
}

// Plural is a number with its noun.
func Plural(n int, noun string) string { return plural(strconv.Itoa(n), noun) }

// plural is [Plural] of a number that may be varied.
func plural(n, noun string) string {
	if n != "1" {
		noun += "s"
	}
	return n + " " + noun
}

// withCommit is a version with the commit of the program, where that is known.
func withCommit(version string, p result.Process) string {
	if c := p.Commit(); c != "" {
		return version + ", commit " + c
	}
	return version
}
