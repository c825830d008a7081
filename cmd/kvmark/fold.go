package main

import (
	"bytes"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"kvmark/client/report"
)

// folded is where a table for people goes: w, or on a terminal that is narrower than its lines, w behind what folds them. Other formats
// are for programs, also where somebody looks at them.
func folded(w io.Writer, format report.Format) io.Writer {
	o, ok := w.(*output)
	if !ok || format != report.Table {
		return w
	}
	f, ok := o.w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return w
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < leastWidth {
		return w
	}
	return &folder{w: w, width: width}
}

// leastWidth is the width below which folding is of no help.
const leastWidth = 40

// folder breaks lines that are longer than a terminal is wide, where the terminal would break them within words.
type folder struct {
	w     io.Writer
	width int
	rest  []byte // a line that has not ended yet
}

func (f *folder) Write(b []byte) (int, error) {
	f.rest = append(f.rest, b...)
	end := bytes.LastIndexByte(f.rest, '\n') + 1
	if end == 0 {
		return len(b), nil
	}
	var out strings.Builder
	for line := range strings.Lines(string(f.rest[:end])) {
		for _, part := range fold(strings.TrimSuffix(line, "\n"), f.width) {
			out.WriteString(part + "\n")
		}
	}
	f.rest = f.rest[end:]
	if _, err := io.WriteString(f.w, out.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// fold cuts a line into parts of at most width columns. A row of a table is cut behind a column: columns end at the same place in all
// rows, so that what follows stays a table. Other text is cut between words. What follows stands a little further in.
func fold(line string, width int) []string {
	margin := len(line) - len(strings.TrimLeft(line, " "))
	indent := strings.Repeat(" ", min(margin+4, width/2))
	row := strings.Count(strings.TrimSpace(line), "  ") > 1
	if row {
		indent = "      " // whatever its own: headings have another
	}
	var parts []string
	for runes.StringWidth(line) > width {
		at := 0 // where the line is cut, in bytes
		column := 0
		for i, r := range line {
			if column > width {
				break
			}
			if r == ' ' && i > margin && (!row || strings.HasPrefix(line[i:], "  ") && line[i-1] != ' ') {
				at = i
			}
			column += runes.RuneWidth(r)
		}
		if at == 0 {
			break // one long word
		}
		parts = append(parts, line[:at])
		rest := line[at:]
		if !row {
			rest = strings.TrimLeft(rest, " ")
		}
		line, margin = indent+rest, len(indent)
		if row {
			margin += len(rest) - len(strings.TrimLeft(rest, " "))
		}
	}
	return append(parts, line)
}
