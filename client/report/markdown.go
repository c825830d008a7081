package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"kvmark/client/result"
)

func writeMarkdown(out io.Writer, f *result.File) error {
	w := bufio.NewWriter(out)
	for _, line := range introduction(f, ran(f)) {
		fmt.Fprintf(w, "%s  \n", escape(line))
	}
	if f.Interrupted {
		fmt.Fprintln(w, "\n**INTERRUPTED**: what follows is what there is")
	}
	last := ""
	for _, g := range groups(f) {
		if h := g.heading(f.Plan); h != last {
			fmt.Fprintf(w, "\n### %s\n\n|%s|\n|%s|\n", escape(h), strings.Join(append([]string{"op"}, append(columns[1:], "verdict")...), "|"),
				"---"+strings.Repeat("|--:", len(columns)-1)+"|---")
			last = h
		}
		cells := append(g.row(), strings.Join(g.verdict(), "; "))
		for i := range cells {
			cells[i] = escape(cells[i])
		}
		fmt.Fprintf(w, "|%s|\n", strings.Join(cells, "|"))
	}
	var notes []string
	for _, g := range groups(f) {
		for _, note := range g.notes(f.Plan) {
			notes = append(notes, g.mode+" "+opName(g.op)+": "+note)
		}
	}
	for i, line := range append(notes, ending(f)...) {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "- %s\n", escape(line))
	}
	return w.Flush()
}

// escape keeps text from being taken for markup, and a row in its line.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ", "*", `\*`, "_", `\_`, "<", "&lt;", "&", "&amp;", "`", "\\`", "[", `\[`).Replace(s)
}
