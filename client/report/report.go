// Package report turns a result file into what people and programs read: the table of the blog post that kvmark repeats,
// Markdown for a page, CSV for a spreadsheet, Go benchmark format for benchstat, and the file itself. Output is plain
// text without control codes, and depends on the result alone.
package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"kvmark/client/result"
)

// Format names a kind of output.
type Format string

// The formats.
const (
	Table    Format = "table"
	JSON     Format = "json" // the result file, byte for byte
	CSV      Format = "csv"
	Markdown Format = "markdown"
	Bench    Format = "bench"
)

// ParseFormat checks the name of a format.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Table, JSON, CSV, Markdown, Bench:
		return f, nil
	}
	return "", fmt.Errorf("format %q is unknown: use table, json, csv, markdown or bench", s)
}

// Write writes f in the given format.
func Write(w io.Writer, f *result.File, format Format) error {
	switch format {
	case JSON:
		b, err := f.Encode()
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	case CSV:
		return writeCSV(w, f)
	case Markdown:
		if write := sister(f); write != nil {
			return fenced(w, f, write)
		}
		return writeMarkdown(w, f)
	case Bench:
		return writeBench(w, f)
	}
	if write := sister(f); write != nil {
		return write(w, f)
	}
	return writeTable(w, f)
}

// Heading names a storage mode in the words of the blog post.
func Heading(mode string, p result.Plan) string {
	switch mode {
	case "memory":
		return "WAL + key & value in memory"
	case "map":
		return "WAL + key & value in memory, map[string][]byte"
	case "serialize":
		codec := p.Codec
		if p.Level != nil {
			codec = fmt.Sprintf("%s level %d", codec, *p.Level)
		}
		return fmt.Sprintf("WAL + key & value in memory, serialized, compressed (%s, %s per bucket)", codec, orVaried(p.BucketEntries))
	case "file":
		return "WAL + key in memory & value in file"
	case "lsm":
		return "WAL + key & value in Pebble (lsm)"
	case "target":
		return p.Target
	}
	return "WAL + " + mode
}

// opName is the operation as the post writes it.
func opName(op string) string {
	switch op {
	case "set":
		return "Set"
	case "get":
		return "Get"
	case "mix":
		return "Mix"
	}
	return op
}

// ran says in words what was run: nobody should have to guess it from the command line.
func ran(f *result.File) []string {
	p, s := f.Plan, f.Env.Server
	setting := func(name, first string) string { // that of the first server
		if _, ok := p.Extra["vary "+name]; ok {
			return result.Varied
		}
		return known(first)
	}
	data := fmt.Sprintf("%s each, %s, values of %s", plural(orVaried(p.Keys), "key"), p.Distribution, valueWords(p))
	if p.Mix != "" {
		data += ", Set:Get " + p.Mix
	}
	flight := "one request in flight each"
	if p.Pipeline != 1 {
		flight = orVaried(p.Pipeline) + " in flight each"
	}
	workers := plural(orVaried(p.Workers), "worker")
	load := fmt.Sprintf("closed loop, %s with %s", workers, flight)
	switch {
	case p.SLO != "":
		load = fmt.Sprintf("search for the highest rate that keeps %s, %s arrivals, %s with up to %s", p.SLO, p.Arrivals, workers, flight)
	case p.Rate != "":
		load = fmt.Sprintf("open loop at %s requests a second, %s arrivals, %s with up to %s", p.Rate, p.Arrivals, workers, flight)
	}
	if p.Cold {
		data += ", system's cache of value files dropped"
	}
	commit := ""
	if c := s.Commit(); c != f.Env.Client.Commit() { // else the line above has it
		commit = " from commit " + setting("server", c)
	}
	server := fmt.Sprintf("kvserver built%s with %s, %s, GOMAXPROCS %s, GOGC %s, GOMEMLIMIT %s; WAL %s, I/O %s; %s",
		commit, setting("go", s.Go), Plural(f.Env.Host.CPUs, "core"), setting("GOMAXPROCS", s.GOMAXPROCS), setting("GOGC", s.GOGC), setting("GOMEMLIMIT", s.GOMEMLIMIT),
		p.WALSync, setting("io", s.IO), division(f))
	if p.Target != "" {
		server = fmt.Sprintf("%s (%s), not started by kvmark; %s of %s", p.Target, known(plain(s.Version)), division(f), Plural(f.Env.Host.CPUs, "core"))
	}
	lines := []string{
		server,
		fmt.Sprintf("%s; %s; seed %d; %s s after %s s of warm-up", load, data, p.Seed, trim(p.DurationSeconds), trim(p.WarmupSeconds)),
	}
	if p.Rate == "" && p.SLO == "" {
		lines = append(lines, "in closed loop nothing is sent while the server stalls, so percentiles leave out what users would have waited (--rate shows it)")
	}
	return lines
}

// moved says how a server of our own moved bytes, and which part of the machine each side had.
func moved(f *result.File) string {
	if io := f.Env.Server.IO; io != "" && f.Plan.Target == "" {
		return "I/O " + io + "; " + division(f)
	}
	return division(f)
}

// division says which part of the machine the client had, and which the server if it was not all of it.
func division(f *result.File) string {
	words := "client with GOMAXPROCS " + known(f.Env.Client.GOMAXPROCS)
	if f.Plan.ClientCPUs != "" {
		words += " on CPUs " + f.Plan.ClientCPUs
	}
	if f.Plan.ServerCPUs != "" {
		words += ", server on CPUs " + f.Plan.ServerCPUs
	}
	return words
}

// orVaried is a number of a plan, which is 0 where a comparison varies it.
func orVaried(n int) string {
	if n == 0 {
		return result.Varied
	}
	return strconv.Itoa(n)
}

func valueWords(p result.Plan) string {
	if p.ValueSize == result.Varied {
		return "varied size"
	}
	words := fmt.Sprintf("%.0f bytes", p.ValueBytes)
	if p.ValueSize == "classic" {
		return words + " (classic)"
	}
	if strings.Contains(p.ValueSize, "-") {
		words = p.ValueSize + " bytes"
	}
	return fmt.Sprintf("%s (compressibility %s)", words, trim(p.Compressibility))
}

func known(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
