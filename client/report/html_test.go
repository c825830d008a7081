package report

import (
	"bytes"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"kvmark/client/result"
)

func TestAPageTellsWhatHowFastAndHowSureFirst(t *testing.T) {
	f := examples()["repeated"]
	f.CommandLine = "kvmark run --repeat 7"
	f.Started = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Env.Host.Kernel, f.Env.Host.CPU = "6.18.1", "Some CPU"
	f.Env.Client.BuildSettings = "vcs.revision=0123456789abcdef0123;vcs.modified=true"
	page := htmlOf(t, f)
	order := []string{
		"<h1>kvmark run</h1>", "INVALID: in 1 of 14 measurements", `<svg class="bars" width="100%"`, `class="whisker"`, "Some CPU", "6.18.1", "commit 0123456789ab with changes",
		"2026-11-30 12:00:00", "kvmark run --repeat 7", `<th scope="col">`, `<th scope="row">`,
	}
	at := 0
	for _, want := range order {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("no %q behind %q", want, page[max(0, at-80):at])
		}
		at += i
	}
	for _, want := range []string{"prefers-color-scheme:dark", "width=device-width", "95 % interval", "<caption>", "<title>"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, lack := range []string{`<svg width="`, "http"} {
		if strings.Contains(page, lack) {
			t.Errorf("the page has %q", lack)
		}
	}
}

func TestSetAndGetLieOverEachOther(t *testing.T) {
	f := file()
	for i := range f.Cells {
		for s := range 5 {
			f.Cells[i].Series = append(f.Cells[i].Series, result.Row{T: float64(s), Seconds: 1, QPS: number(1000), P99US: number(10)})
		}
	}
	page := htmlOf(t, f)
	charts := strings.Count(page, `<svg class="chart"`)
	modes := strings.Count(page, "<h2>")
	if charts != 2*modes || strings.Count(page, `viewBox="0 0`) != charts || !strings.Contains(page, `<circle class="hover"`) {
		t.Errorf("%d charts for %d modes", charts, modes)
	}
}

func TestTheComparisonsOfAPageComeBeforeItsSamples(t *testing.T) {
	f := examples()["factors"]
	f.Command = "compare"
	for _, gogc := range []string{"200", "400"} {
		c := f.Cells[0]
		c.Config = map[string]string{"go": "go1.27.3", "GOGC": gogc}
		f.Cells = append(f.Cells, c)
	}
	control := f.Cells[0]
	control.Config = map[string]string{"control": "A/A"}
	f.Cells = append(f.Cells, control)
	f.Comparisons = []result.Comparison{
		{Mode: "memory", Op: "mix", Metric: "qps", Base: "GOGC=50", Other: "GOGC=100", Ratio: number(1.1), CILow: number(1.08), CIHigh: number(1.12), Verdict: "higher"},
		{Mode: "memory", Op: "mix", Metric: "cpu_us_per_op", Base: "GOGC=50", Other: "GOGC=100", Ratio: number(1.05), CILow: number(1.02), CIHigh: number(1.08), Verdict: "higher"},
		{Mode: "memory", Op: "mix", Metric: "qps", Base: "GOGC=50", Other: "GOGC=200", Ratio: number(1.01), CILow: number(0.97), CIHigh: number(1.05), Verdict: "inconclusive"},
	}
	page := htmlOf(t, f)
	at := 0
	for _, want := range []string{
		"QPS of memory/mix: GOGC=100 against GOGC=50: higher, +10.0 %, 95 % interval +8.0 % to +12.0 %", "Of 3 questions 2 proved a difference", "change of QPS against GOGC=50, 95 % intervals",
		`<g class="better">`, `<g class="unproven">`, "change of server CPU per operation", `<g class="worse">`, "QPS over peak RSS", "beaten by no other", "<h2>", "GOGC=400",
	} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("no %q behind %q", want, page[max(0, at-80):at])
		}
		at += i
	}
	if strings.Contains(page, "%!") {
		t.Error("a format that is none")
	}
	if strings.Contains(page, "A/A") {
		t.Error("the control stands among what was asked for")
	}
}

func TestColumnsLineUpWhateverTheirCharacters(t *testing.T) {
	rows := [][]string{{"", "QPS", "why"}, {"測定", "1", "e\u0301"}, {"ab", "22", "x"}}
	var out bytes.Buffer
	writeGrid(&out, rows)
	want := "        QPS  why\n" + "  測定    1    e\u0301\n" + "  ab     22    x\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func htmlOf(t *testing.T, f *result.File) string {
	t.Helper()
	var out bytes.Buffer
	if err := WriteHTML(&out, f); err != nil {
		t.Fatal(err)
	}
	return html.UnescapeString(wellFormed(t, &out))
}

func TestTicksAreRound(t *testing.T) {
	round := func(v float64) bool {
		if v = math.Abs(v); v < 1e-12 {
			return true
		}
		_, fraction := math.Modf(v/math.Pow(10, math.Floor(math.Log10(v)+1e-9)-1) + 1e-6)
		return fraction < 1e-3 // two digits at most
	}
	for _, ends := range [][2]float64{{0, 137_253}, {0, 59}, {0, 1e-3}, {-7.3, 4.2}, {0, 99}, {217.6, 218.7}, {3, 3}, {0, 3e9}} {
		a := fit(ends[0], ends[1], 5)
		if len(a.ticks) < 2 || len(a.ticks) > 8 || a.low > ends[0] || a.high < ends[1] {
			t.Errorf("%v: %+v", ends, a)
		}
		step := a.ticks[1] - a.ticks[0]
		if !round(step) || math.Abs(math.Remainder(a.ticks[0], step)) > 1e-9*math.Abs(step) {
			t.Errorf("%v: ticks %v", ends, a.ticks)
		}
	}
	for _, ends := range [][2]float64{{39.8, 8884}, {0.1, 60e6}, {100, 100}, {50, 51}, {1, 10}} {
		a := fitLog(ends[0], ends[1])
		if len(a.ticks) < 2 || len(a.ticks) > 12 || a.low > ends[0] || a.high < ends[1] {
			t.Errorf("%v: %+v", ends, a)
		}
		for _, v := range a.ticks {
			if !round(v) {
				t.Errorf("%v: tick %v", ends, v)
			}
		}
	}
}

func TestNamesOfClosePointsDoNotOverlap(t *testing.T) {
	c := chart{Title: "t", X: "x", Dots: true, Free: true, Lines: []curve{{name: "a", loose: true, points: []spot{
		{x: 10, y: 100, name: "GOGC=50"}, {x: 10.1, y: 101, name: "GOGC=100"}, {x: 10.2, y: 100, name: "GOGC=off"}, {x: 20, y: 300, name: "GOGC=400"},
	}}}}
	var boxes []box
	for _, m := range regexp.MustCompile(`<text class="over" x="([0-9.]+)" y="([0-9.]+)" text-anchor="(\w+)">([^<]+)<`).FindAllStringSubmatch(string(c.svg()), -1) {
		x, errX := strconv.ParseFloat(m[1], 64)
		y, errY := strconv.ParseFloat(m[2], 64)
		if errX != nil || errY != nil {
			t.Fatal(errX, errY)
		}
		b := box{x, y - 10, x + 6*float64(len(m[4])), y}
		if m[3] == "end" {
			b.left, b.right = x-6*float64(len(m[4])), x
		}
		for i, other := range boxes {
			if b.hits(other) {
				t.Errorf("%s lies over name %d", m[4], i)
			}
		}
		boxes = append(boxes, b)
	}
	if len(boxes) != 4 {
		t.Errorf("%d names", len(boxes))
	}
}

func TestLongTicksLeaveRoomForEachOther(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 5: "+5 %", -4000: "-4000 %", 2000: "+2000 %", 12000: "", 20000: "+20000 %"} {
		reach := max(4000, v)
		if v == 12000 {
			reach = 20000
		}
		if got := effectTick(v, reach); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

// Single INVALID samples are left out of a comparison, which is not INVALID for them.
func TestTheVerdictOfAComparisonIsThatOfWhatItUses(t *testing.T) {
	f := examples()["factors"]
	f.Command = "compare"
	for i := range f.Cells {
		f.Cells[i].Valid = true
	}
	bad := f.Cells[0]
	bad.Valid = false
	f.Cells = append(f.Cells, bad)
	f.Comparisons = []result.Comparison{{Mode: "memory", Op: "mix", Metric: "qps", Base: "GOGC=50", Other: "GOGC=100", Ratio: number(1.1), Verdict: "inconclusive"}}
	page := htmlOf(t, f)
	for _, want := range []string{"VALID: " + strconv.Itoa(len(f.Cells)-1) + " of " + strconv.Itoa(len(f.Cells)) + " measurements are used; in 1 a check failed", "too few rounds for intervals"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	f.Cells = f.Cells[len(f.Cells)-1:]
	if page := htmlOf(t, f); !strings.Contains(page, "INVALID: in 1 of 1 measurement") {
		t.Error("a variant without any valid sample")
	}
}

func TestGroupsStandInTheOrderOfThePlan(t *testing.T) {
	all := []group{{mode: "file", op: "set"}, {mode: "memory", op: "set"}, {mode: "file", op: "get"}, {mode: "memory", op: "get"}}
	for i := range all {
		all[i].cells = make([]result.Cell, 1)
	}
	(&Study{}).inOrder(all, []string{"memory", "file"})
	var got []string
	for _, g := range all {
		got = append(got, g.mode+"/"+g.op)
	}
	if want := "memory/set memory/get file/set file/get"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// Names of points are within the chart, however near to its edge the points are.
func TestNamesOfPointsAreNotCutOff(t *testing.T) {
	l := curve{name: "beaten", loose: true}
	for i := range 6 {
		l.points = append(l.points, spot{x: float64(i), y: float64(i % 2), name: "GOGC=" + strconv.Itoa(100*(i+1))})
	}
	page := string(chart{Title: "QPS", X: "MB", Dots: true, Free: true, Lines: []curve{l}}.svg())
	found := regexp.MustCompile(`<text class="over" x="([0-9.]+)" y="([0-9.]+)" text-anchor="(start|end)">([^<]+)</text>`).FindAllStringSubmatch(page, -1)
	if len(found) != len(l.points) {
		t.Fatalf("%d names in %s", len(found), page)
	}
	for _, m := range found {
		left, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if m[3] == "end" {
			left -= textWidth(m[4])
		}
		if right := left + textWidth(m[4]); left < 0 || right > chartWidth {
			t.Errorf("%s from %.0f to %.0f of %d", m[4], left, right, chartWidth)
		}
	}
}
