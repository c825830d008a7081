package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"kvmark/client/experiment"
	"kvmark/client/report"
	"kvmark/client/result"
)

// resultFile is the result at path, which may also be the directory that holds it.
func resultFile(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, resultName)
	}
	return path
}

// checkPage refuses to write a page over a file that is none: a result is not to be lost by a word too few.
func checkPage(path string, inputs []string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 { // nothing to lose; writing tells what is wrong
		return nil
	}
	for _, input := range inputs {
		if in, err := os.Stat(resultFile(input)); err == nil && os.SameFile(in, info) {
			return fmt.Errorf("--html %s is one of the results to show, and would be overwritten: name the page to write behind --html", path)
		}
	}
	const begin = "<!doctype html"
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	defer f.Close()
	head := make([]byte, len(begin))
	if n, _ := io.ReadFull(f, head); !strings.EqualFold(string(head[:n]), begin) {
		return fmt.Errorf("--html %s is there and is no page of HTML: name another file, or remove it first", path)
	}
	return nil
}

func reportCommand() *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "print results again, in any format, or compare two",
		ArgsUsage: "RESULT...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Value: string(report.Table), Usage: "table, json, csv, markdown or bench"},
			&cli.StringFlag{Name: "html", Usage: "write one page with charts to `FILE` instead; it needs no network"},
			&cli.BoolFlag{Name: "diff", Usage: "of two results, what differs in plan and environment, then in numbers"},
		},
		Action: func(c *cli.Context) error {
			format, err := report.ParseFormat(c.String("format"))
			if err != nil {
				return usageError{err}
			}
			paths := c.Args().Slice()
			switch {
			case len(paths) == 0:
				return usageError{errors.New("report needs the path of a result.json, or of the directory that holds it")}
			case c.Bool("diff") && len(paths) != 2:
				return usageError{fmt.Errorf("--diff compares two results, got %d", len(paths))}
			case c.Bool("diff") && (c.IsSet("html") || c.IsSet("format")), c.IsSet("html") && c.IsSet("format"):
				return usageError{errors.New("--diff, --html and --format are three different outputs: use one")}
			}
			if c.IsSet("html") {
				if err := checkPage(c.String("html"), paths); err != nil {
					return usageError{err}
				}
			}
			var files []*result.File
			for _, path := range paths {
				f, err := result.Read(resultFile(path))
				if err != nil {
					return err
				}
				files = append(files, f)
			}
			switch {
			case c.Bool("diff"):
				return report.WriteDiff(folded(c.App.Writer, report.Table), files[0], files[1], [2]string{paths[0], paths[1]})
			case c.IsSet("html"):
				var b bytes.Buffer
				if err := writePage(&b, files); err != nil {
					return err
				}
				if err := os.WriteFile(c.String("html"), b.Bytes(), 0o666); err != nil {
					return fmt.Errorf("--html: %w", err)
				}
				return nil
			}
			for _, f := range files {
				if err := writeReport(folded(c.App.Writer, format), f, format); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// writeReport prints a result; that of a comparison as the comparison itself was printed.
func writeReport(w io.Writer, f *result.File, format report.Format) error {
	a, err := experiment.FromResult(f)
	switch {
	case errors.Is(err, experiment.ErrNoRecord):
		return report.Write(w, f, format)
	case err != nil:
		return err
	}
	return writeComparison(w, a, f, format)
}

// writePage writes results as one page.
func writePage(w io.Writer, files []*result.File) error {
	var entries []report.Entry
	for _, f := range files {
		e := report.Entry{File: f}
		a, err := experiment.FromResult(f)
		if err == nil {
			e.Study = a.Study()
		} else if !errors.Is(err, experiment.ErrNoRecord) {
			return err
		}
		entries = append(entries, e)
	}
	return report.WritePage(w, entries...)
}
