package report

import (
	"bytes"
	"fmt"
	"io"

	"kvmark/client/result"
)

// sister returns how the results of the sister benchmarks are written, nil for all others: their tables have other columns.
func sister(f *result.File) func(io.Writer, *result.File) error {
	switch f.Command {
	case "chat":
		return writeChat
	case "conns":
		return writeConns
	}
	return nil
}

// fenced puts what write writes between the marks that keep Markdown from reading it.
func fenced(w io.Writer, f *result.File, write func(io.Writer, *result.File) error) error {
	var text bytes.Buffer
	if err := write(&text, f); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "```\n%s```\n", text.String())
	return err
}
