package report

import (
	"cmp"
	"io"
	"slices"

	"kvmark/client/result"
)

// Study is what a comparison says of itself, in its own words and the order of its plan. Package experiment makes it.
type Study struct {
	Sections []Section
	Variants []func(config map[string]string) bool                // tell the cells of each variant, in the order of the plan
	Cheapest func(mode, op string, config map[string]string) bool // tells the setting that needs least memory and is fast enough
}

// Section is a part of a study: a heading, then a table, lines, or both.
type Section struct {
	Heading string
	Columns []string
	Rows    [][]string
	Lines   []string
}

// Entry is one result of a page, with what it says of itself if it is a comparison.
type Entry struct {
	File  *result.File
	Study *Study // nil: none
}

// WriteHTML writes results as one page that needs nothing else: no script, no font, no network.
func WriteHTML(w io.Writer, files ...*result.File) error {
	entries := make([]Entry, len(files))
	for i, f := range files {
		entries[i].File = f
	}
	return WritePage(w, entries...)
}

// WritePage is [WriteHTML] for results of which some have a study.
func WritePage(w io.Writer, entries ...Entry) error {
	var pages []page
	for _, e := range entries {
		switch e.File.Command {
		case "chat":
			pages = append(pages, chatPage(e.File))
		case "conns":
			pages = append(pages, connsPage(e.File))
		case "compare":
			pages = append(pages, comparePage(e.File, e.Study))
		default:
			pages = append(pages, newPage(e.File))
		}
	}
	return document.Execute(w, pages)
}

// inOrder sorts groups, which come as they were measured, as the plan has them and its modes.
func (s *Study) inOrder(all []group, modes []string) {
	if s == nil {
		return
	}
	slices.SortStableFunc(all, func(a, b group) int {
		return cmp.Compare(slices.Index(modes, a.mode), slices.Index(modes, b.mode))
	})
	first := map[string]int{} // of modes and operations
	for _, g := range all {
		if key := g.mode + "\x00" + g.op; first[key] == 0 {
			first[key] = 1 + len(first)
		}
	}
	variant := func(g group) int {
		return slices.IndexFunc(s.Variants, func(is func(map[string]string) bool) bool { return is(g.cells[0].Config) })
	}
	slices.SortStableFunc(all, func(a, b group) int {
		return cmp.Or(cmp.Compare(first[a.mode+"\x00"+a.op], first[b.mode+"\x00"+b.op]), cmp.Compare(variant(a), variant(b)))
	})
}

// sections are the study's for a page.
func (s *Study) sections() (all []*htmlSection) {
	for i, part := range s.Sections {
		section := &htmlSection{Heading: part.Heading, Caption: part.Heading, Columns: part.Columns, Lines: part.Lines}
		if i == 0 && len(part.Rows) == 0 { // it says what the page's title says
			section.Heading = "how it was measured"
		}
		for _, row := range part.Rows {
			section.Rows = append(section.Rows, htmlRow{Cells: row, Valid: true})
		}
		all = append(all, section)
	}
	return all
}
