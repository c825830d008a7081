package report

import (
	"strings"
	"testing"

	"kvmark/client/result"
)

func TestCyclesAndShareOfTheCollectorAreOfTheSameWindows(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cycles []float64
		shares []float64 // negative: not known
		want   string
	}{
		{"one window", []float64{5}, []float64{0.003}, "5 (0.3 %)"},
		{"no cycle ended", []float64{0}, []float64{-1}, "0 (-)"},
		{"in no repeat", []float64{0, 0, 0}, []float64{-1, -1, -1}, "0 (-)"},
		{"in all", []float64{2, 4, 3}, []float64{0.01, 0.03, 0.02}, "3 (2.0 %)"},
		{"in one of three", []float64{0, 1, 0}, []float64{-1, 0.008, -1}, "1 (0.8 %) in 1 of 3"},
		{"in one of two", []float64{0, 1}, []float64{-1, 0.008}, "1 (0.8 %) in 1 of 2"},
		{"between two counts", []float64{1, 2}, []float64{0.01, 0.02}, "1.5 (1.5 %)"},
	} {
		var g group
		for i, n := range tt.cycles {
			c := result.Cell{Valid: true, Server: result.Server{GCCycles: number(n)}}
			if s := tt.shares[i]; s >= 0 {
				c.Server.GCCPUShare = number(s)
			}
			g.cells = append(g.cells, c)
		}
		if got := g.gc(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := (group{cells: []result.Cell{{Valid: true}}}).gc(); got != "- (-)" {
		t.Errorf("a server that does not tell: %q", got)
	}
}

func TestErrorBarOfOneRunSaysWhatItLeavesOut(t *testing.T) {
	run := func(course, note string) result.Cell {
		in := &result.WithinRun{QPSLow: number(990), QPSHigh: number(1010), CPULow: number(5.95), CPUHigh: number(6.05), Course: course, Note: note}
		if note != "" {
			in = &result.WithinRun{Note: note}
		}
		return result.Cell{Valid: true, Repeat: 1, WithinRun: in}
	}
	steady, drift := "steady (last third +0.1 % of the first)", "drift: -10 % from start to end (last third -6.4 % of the first)"
	for _, tt := range []struct {
		name  string
		cells []result.Cell
		want  string
	}{
		{"not known", []result.Cell{{Valid: true}}, ""},
		{"too short", []result.Cell{run("", "5 slices of 0.1 s: an interval takes 10")}, "within this run: n.a., 5 slices of 0.1 s: an interval takes 10"},
		{"one", []result.Cell{run(steady, "")}, "within this run: 990..1010 QPS, 5.95..6.05 us CPU/op (95 %); other processes, runs and days differ by more, which --repeat shows\n" + steady},
		{"drift", []result.Cell{run(drift, "")}, "within this run: 990..1010 QPS, 5.95..6.05 us CPU/op (95 %); other processes, runs and days differ by more, which --repeat shows\n" + drift},
		{"repeats", []result.Cell{run(steady, ""), run(steady, "")}, "within one run, median of 2: QPS +-1.0 %, CPU/op +-0.8 % (95 %, without what differs between runs); all steady"},
		{"one of two drifts", []result.Cell{run(steady, ""), run(drift, "")}, "within one run, median of 2: QPS +-1.0 %, CPU/op +-0.8 % (95 %, without what differs between runs)\nrepeat 1 " + drift},
	} {
		if got := strings.Join(group{cells: tt.cells}.withinRun(), "\n"); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
	f := file()
	f.Cells = []result.Cell{run(drift, "")}
	f.Cells[0].Mode, f.Cells[0].Op, f.Cells[0].QPS = "memory", "set", number(1000)
	for _, format := range []Format{Table, Markdown, CSV, JSON} {
		var b strings.Builder
		if err := Write(&b, f, format); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.Contains(got, "990") || !strings.Contains(got, "drift: -10 %") {
			t.Errorf("%s lacks the interval or the drift:\n%s", format, got)
		}
	}
}
