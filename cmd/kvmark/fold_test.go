package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestLinesAreFoldedToTheWidthOfATerminal(t *testing.T) {
	text := `WAL + key & value in memory
         total     QPS  p50 us  p99.9 us  max us  CPU us/op  GC cycles (share)       WAL
  Set  4117594  137253    50.7       394   20590        6.1          5 (0.3 %)  interval
       VALID, server-bound (67 % of the client's PING ceiling), and so on and on
  測定       1       2       3         4       5          6          7 (0.3 %)  interval
` + strings.Repeat("x", 70) + "\n"
	want := `WAL + key & value in memory
         total     QPS  p50 us  p99.9 us  max us  CPU us/op
        GC cycles (share)       WAL
  Set  4117594  137253    50.7       394   20590        6.1
                5 (0.3 %)  interval
       VALID, server-bound (67 % of the client's PING
           ceiling), and so on and on
  測定       1       2       3         4       5          6
                7 (0.3 %)  interval
` + strings.Repeat("x", 70) + "\n"
	var out bytes.Buffer
	f := &folder{w: &out, width: 60}
	for _, piece := range strings.SplitAfter(text, "s") { // lines come in pieces
		if n, err := f.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	if got := fold("  short", 60); len(got) != 1 || got[0] != "  short" {
		t.Errorf("%q", got)
	}
}

func TestOnlyATerminalGetsFoldedLines(t *testing.T) {
	o := &output{w: new(bytes.Buffer)}
	if w := folded(o, "table"); w != o {
		t.Errorf("%T", w)
	}
}
