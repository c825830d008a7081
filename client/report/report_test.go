package report

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"

	"kvmark/client/result"
)

var update = flag.Bool("update", false, "write the golden files")

func number(x float64) *float64 { return &x }

// file is a result with the numbers that the blog post printed for Java 6.
func file() *result.File {
	cell := func(mode, op string, ok int64, qps float64) result.Cell {
		return result.Cell{
			Mode: mode, Op: op, Repeat: 1, Seconds: 60, OK: ok, QPS: number(qps), ClosedLoop: true, Valid: true,
			LatencyUS: result.Latency{P50: number(440.1), P90: number(611.5), P99: number(1204), P999: number(8123), Max: number(23456.7), Mean: number(459)},
			Checks:    []result.Check{{Name: "books_commands", Pass: true, Detail: "all there"}},
			Server: result.Server{
				Go: "go1.26.8", GOGC: "100", GOMEMLIMIT: "off", GOMAXPROCS: "4", WALSync: "interval",
				CPUPerOp: number(12.34), RSSPeakBytes: number(987_654_321), GCCycles: number(17), GCCPUShare: number(0.0123),
				Keys: number(800_000), StoredBytes: number(40_000_000), CompressionRatio: number(3.456), DiskBytes: number(1.5e9), DeviceReadBytes: number(4096),
			},
			Client: result.Client{CPUPerOp: number(9.5), CeilingQPS: number(qps * 3), CeilingShare: number(1.0 / 3), Bound: "server"},
		}
	}
	return &result.File{
		Schema: result.Schema, Command: "run",
		Plan: result.Plan{
			Modes: []string{"memory", "serialize", "file"}, Workers: 8, DurationSeconds: 60, WarmupSeconds: 5, Keys: 100_000, Repeat: 1, Seed: 42,
			WALSync: "interval", Codec: "deflate", BucketEntries: 8, ValueSize: "classic", ValueBytes: 54.9, Distribution: "uniform", Pipeline: 1,
		},
		Env: result.Env{
			Host:   result.Host{CPUs: 4, MemoryBytes: 4e9},
			Server: result.Process{Go: "go1.26.8", GOMAXPROCS: "4", GOGC: "100", GOMEMLIMIT: "off"},
		},
		Cells: []result.Cell{
			cell("memory", "set", 1045091, 17418.2), cell("memory", "get", 1359632, 22660.5),
			cell("serialize", "set", 383142, 6385.7), cell("serialize", "get", 708405, 11806.8),
			cell("file", "set", 837324, 13955.4), cell("file", "get", 1273324, 21222.1),
		},
	}
}

func examples() map[string]*result.File {
	good := file()

	bad := file()
	bad.Interrupted = true
	bad.Cells = bad.Cells[:2]
	set, get := &bad.Cells[0], &bad.Cells[1]
	set.Client.Bound, set.Client.CeilingShare = "client", number(0.93)
	get.Valid = false
	get.Checks = []result.Check{
		{Name: "completed", Pass: false, Detail: "12.500 of 60 s: the server (pid 7) died: exit status 2; its last words:\n\x1b[31mpanic\x1b[0m:\t oh\r\ngoroutine 1"},
		{Name: "hit_ratio", Pass: false, Detail: "5 of 6 Gets found their key"},
	}
	get.QPS, get.LatencyUS, get.Server, get.Client = nil, result.Latency{}, result.Server{}, result.Client{}

	repeated := file()
	repeated.Plan.Repeat = 7
	var cells []result.Cell
	for i := range 7 {
		for _, c := range repeated.Cells[:2] {
			c.Repeat = i + 1
			c.QPS = number(*c.QPS + float64(100*((i*3)%7)))
			if i == 6 && c.Op == "get" { // an invalid repeat has no part in the median
				c.QPS, c.Valid = number(1), false
				c.Checks = []result.Check{{Name: "books_wal", Detail: "0 Sets acknowledged, log grew by 3 records"}}
			}
			cells = append(cells, c)
		}
	}
	repeated.Cells = cells

	stalled := file()
	stalled.Plan.Modes, stalled.Cells = []string{"memory"}, stalled.Cells[:2]
	stall, rest := &stalled.Cells[0], &stalled.Cells[1]
	stall.Late, stall.Open, stall.LateMaxUS = 8, 8, number(3_012_345)
	stall.Client.CeilingShare, stall.Client.Bound = number(3.05), ""
	stall.Series = []result.Row{{T: 2, Seconds: 1, QPS: number(0), Cause: "no reply at all"}}
	*rest = result.Cell{Mode: "memory", Op: "get", Repeat: 1, Checks: []result.Check{{Name: "completed", Detail: "not measured: the server was lost in set"}}}

	factors := file()
	factors.Plan.Mix, factors.Plan.Pipeline, factors.Plan.ValueSize, factors.Plan.Compressibility = "10:90", 16, "64-1024", 0.5
	factors.Cells = factors.Cells[:2]
	for i := range factors.Cells {
		factors.Cells[i].Op = "mix"
		factors.Cells[i].Config = map[string]string{"go": "go1.27.3", "GOGC": fmt.Sprint(50 * (i + 1))}
		factors.Cells[i].Server.WALSync = []string{"interval", "always"}[i]
	}
	open := file()
	open.Plan.Rate, open.Plan.Arrivals, open.Plan.Pipeline, open.Plan.Score, open.Plan.SLO = "2000", "poisson", 4, "trimmed", ""
	open.Plan.ValueSize, open.Plan.Compressibility, open.Plan.Cold = "1024", 0.5, true
	open.Warnings = []result.Warning{{Code: "steal", Detail: "the hypervisor took up to 7.0 % of the CPU time (file get, repeat 1)"}}
	open.Searches = []result.Search{
		{Mode: "memory", Op: "set", SLO: "p99<2ms", Rate: number(12345), Broken: number(12900), Closed: number(20000), Trials: make([]result.Trial, 14)},
		{Mode: "memory", Op: "get", SLO: "p99<2ms", Broken: number(80), Closed: number(20000), Trials: make([]result.Trial, 16)},
		{Mode: "file", Op: "set", SLO: "p99<2ms", Broken: number(80), Closed: number(160), Trials: []result.Trial{{Rate: 80}, {Rate: 80}, {Rate: 40}}, Unfinished: true},
		{Mode: "file", Op: "get", SLO: "p99<2ms", Closed: number(160), Unfinished: true},
	}
	for i := range open.Cells {
		c := &open.Cells[i]
		c.ClosedLoop, c.Client.Bound, c.Gets = false, "rate", c.OK
		c.Pace = &result.Pace{
			Asked: 120_000, Sent: 119_990, Done: 119_980, Waited: 77,
			ResponseUS: result.Latency{P50: number(480), P99: number(9100.5), P999: number(51_000), Max: number(99_000.9)},
			LatenessUS: result.Latency{P50: number(18), P99: number(230), Max: number(4100)},
		}
		c.Places = &result.Places{FirstP50US: number(400.2), LastP50US: number(499)}
	}
	open.Cells[0].SecondOpinion = &result.SecondOpinion{
		Tool: "redis-benchmark 7.0.15", Command: "redis-benchmark -t set", QPS: number(18_000), P50US: number(430), P99US: number(1100), CPUPerOp: number(9.1), Note: "its keys are 16 bytes",
	}
	for i, cause := range []string{"", "GC: 7 cycles", "", "fsync: 3 took 80 ms on average", "a checkpoint ran", "no cause seen"} {
		open.Cells[1].Series = append(open.Cells[1].Series, result.Row{T: float64(i), Seconds: 1, QPS: number(float64(9000 - 100*i)), P99US: number(7000), Cause: cause})
	}
	target := file()
	target.Plan.Modes, target.Plan.Target, target.Plan.WALSync = []string{"target"}, "redis://127.0.0.1:6379", ""
	target.Env.Server = result.Process{Version: "redis 7.0.15"}
	target.Cells = target.Cells[:2]
	for i := range target.Cells {
		target.Cells[i].Mode, target.Cells[i].Server = "target", result.Server{}
	}
	return map[string]*result.File{
		"open": open, "target": target, "stalled": stalled,
		"good": good, "bad": bad, "repeated": repeated, "factors": factors,
		"empty": {Schema: result.Schema, Interrupted: true, Plan: good.Plan},
	}
}

func TestGolden(t *testing.T) {
	for name, f := range examples() {
		for _, format := range []Format{Table, CSV, Markdown, Bench} {
			t.Run(name+"."+string(format), func(t *testing.T) {
				var b bytes.Buffer
				if err := Write(&b, f, format); err != nil {
					t.Fatal(err)
				}
				for _, r := range b.String() {
					if unicode.IsControl(r) && r != '\n' && r != '\t' {
						t.Fatalf("control code %U in the output", r)
					}
				}
				if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
					t.Error("the output holds a number that is none")
				}
				golden := filepath.Join("testdata", name+"."+string(format))
				if *update {
					if err := os.WriteFile(golden, b.Bytes(), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), b.String()); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			})
		}
	}
}

func TestJSONIsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.json")
	f := file()
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := Write(&got, f, JSON); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the output is not the file")
	}
}

func TestBenchIsReadByBenchfmt(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, examples()["repeated"], Bench); err != nil {
		t.Fatal(err)
	}
	r, n := benchfmt.NewReader(&b, "x"), 0
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(rec)
		case *benchfmt.Result:
			n++
			if v, ok := rec.Value("op/s"); !ok || v < 17_000 {
				t.Errorf("op/s %v, %v", v, ok)
			}
			if got := rec.GetConfig("goversion"); got != "go1.26.8" {
				t.Errorf("goversion %q", got)
			}
		}
	}
	if n != 13 || r.Err() != nil {
		t.Errorf("%d results, %v; want the 13 valid ones", n, r.Err())
	}
}

func TestCSVIsRectangular(t *testing.T) {
	for name, f := range examples() {
		var b bytes.Buffer
		if err := Write(&b, f, CSV); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll() // checks that all rows are as long as the first
		if err != nil || len(rows) != len(f.Cells)+1 {
			t.Errorf("%s: %d rows, %v; want one a cell and the heading", name, len(rows), err)
		}
	}
}

func TestFormatNames(t *testing.T) {
	for _, name := range []string{"table", "json", "csv", "markdown", "bench"} {
		if f, err := ParseFormat(name); err != nil || string(f) != name {
			t.Errorf("%s: %q, %v", name, f, err)
		}
	}
	if _, err := ParseFormat("xml"); err == nil || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("xml: %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestWriteErrorsAreReported(t *testing.T) {
	for _, format := range []Format{Table, JSON, CSV, Markdown, Bench} {
		if err := Write(brokenPipe{}, file(), format); err == nil {
			t.Errorf("%s: no error", format)
		}
	}
}

func TestDiffNamesWhatDiffersBeforeTheNumbers(t *testing.T) {
	many := func(qps float64) *result.File {
		f := file()
		one := f.Cells
		for i := 1; i < 8; i++ {
			for _, c := range one {
				c.Repeat = i + 1
				f.Cells = append(f.Cells, c)
			}
		}
		for i := range f.Cells {
			f.Cells[i].QPS = number(qps + float64(i))
		}
		return f
	}
	a, b := many(1000), many(1500)
	b.Plan.Workers, b.Env.Server.GOGC, b.Plan.Seed = 16, "400", 43
	b.Cells[0].Valid, b.Cells[0].Checks = false, []result.Check{{Name: "errors"}}
	var out bytes.Buffer
	if err := WriteDiff(&out, a, b, [2]string{"old", "new"}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"plan.seed", "42 -> 43", "plan.workers", "8 -> 16", "env.server.gogc", "100 -> 400", "memory set qps", "new: memory set, repeat 1 is INVALID", "faster than old"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Index(text, "plan.workers") > strings.Index(text, "memory set qps") {
		t.Errorf("numbers first:\n%s", text)
	}
	out.Reset()
	if err := WriteDiff(&out, a, a, [2]string{"old", "old"}); err != nil || !strings.HasPrefix(out.String(), "plan and environment are the same") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestThePageIsWellFormedAndHoldsNoMarkupFromOutside(t *testing.T) {
	for name, f := range examples() {
		for i := range f.Cells {
			f.Cells[i].Config = map[string]string{"go": "<script>alert(1)</script>"}
			f.Cells[i].Checks = append(f.Cells[i].Checks, result.Check{Name: "errors", Pass: f.Cells[i].Valid, Detail: "</table><img src=x>"})
		}
		var out bytes.Buffer
		if err := WriteHTML(&out, f); err != nil {
			t.Fatal(err)
		}
		page := wellFormed(t, &out)
		if strings.Contains(page, "<script") || strings.Contains(page, "<img") || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
			t.Errorf("%s: markup from outside, or a number that is none", name)
		}
	}
}

// wellFormed returns a page whose tags all match.
func wellFormed(t *testing.T, out *bytes.Buffer) string {
	t.Helper()
	page := out.String()
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(page, "<!DOCTYPE html>")))
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); err == io.EOF {
			return page
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
