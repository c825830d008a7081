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
	if len(words) == 0 {
		return ran
	}
	return append([]string{plain(strings.Join(words, "; "))}, ran...)
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
