package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvmark/client/result"
)

// connsFile is a sweep of connections at two rates, one of which the server does not bear.
func connsFile() *result.File {
	f := &result.File{
		Schema: result.Schema, Command: "conns", Version: "v1",
		Plan: result.Plan{DurationSeconds: 10, WarmupSeconds: 1, Repeat: 2, Extra: map[string]string{
			"connections": "500,1000", "rate": "10000,40000,max", "message_size": "36", "connect_rate": "5000", "clients": "2",
		}},
		Env: result.Env{Host: result.Host{CPUs: 4, CPU: "a processor"}, Server: result.Process{Version: "v1", Go: "go1.26.8"}},
	}
	for repeat := 1; repeat <= 2; repeat++ {
		for _, connections := range []int{500, 1000} {
			for rate, received := range map[int]float64{10_000: 9_990, 40_000: 40_000 - 4*float64(connections), 0: 70_000} {
				word, offered := fmt.Sprint(rate), number(float64(rate))
				share := number(received / float64(rate))
				sent := number(float64(rate))
				if rate == 0 {
					word, offered, share, sent = "max", nil, number(0.99), number(received)
				}
				f.Cells = append(f.Cells, result.Cell{
					Mode: "memory", Op: "conns", Repeat: repeat, Config: map[string]string{"connections": fmt.Sprint(connections), "rate": word},
					Seconds: 10, OK: int64(10 * received), QPS: number(received + float64(repeat)), Valid: true,
					LatencyUS: result.Latency{P50: number(120), P99: number(1234)}, Server: result.Server{CPUPerOp: number(2.5)},
					Conns: &result.Conns{
						Connections: connections, MessageBytes: 36, Offered: offered, Sent: sent, Received: number(received), ReceivedShare: share,
						ServerCPU: number(0.5), RSSPerConnB: number(14_500), ConnectPerSec: number(4000), Clients: 2,
					},
				})
			}
		}
	}
	// The map above has no order.
	order := func(c result.Cell) string {
		return fmt.Sprintf("%d %5s %5s", c.Repeat, c.Config["rate"], c.Config["connections"])
	}
	for i := range f.Cells {
		for j := range f.Cells[:i] {
			if order(f.Cells[i]) < order(f.Cells[j]) {
				f.Cells[i], f.Cells[j] = f.Cells[j], f.Cells[i]
			}
		}
	}
	bad := &f.Cells[len(f.Cells)-1]
	bad.Valid, bad.Checks = false, []result.Check{{Name: "books_commands", Detail: "700 messages sent, server executed 699"}}
	return f
}

// chatFile is four runs in turns.
func chatFile() *result.File {
	f := &result.File{
		Schema: result.Schema, Command: "chat", Version: "v1",
		Plan: result.Plan{Server: "kvserver", Repeat: 4, Extra: map[string]string{
			"rooms": "10", "users": "20", "messages": "100", "pace": "turns", "text_size": "60", "protocol": "RESP3", "score": Last3,
		}},
		Env: result.Env{
			Host:   result.Host{GOOS: "linux", Kernel: "6.18", CPUs: 4},
			Server: result.Process{Version: "v1", Go: "go1.26.8", GOARCH: "amd64", GOGC: "100", GOMEMLIMIT: "off", GOMAXPROCS: "4"},
		},
	}
	for i, seconds := range []float64{4, 2, 2.5, 2} {
		f.Cells = append(f.Cells, result.Cell{
			Mode: "memory", Op: "chat-turns", Repeat: i + 1, Seconds: seconds, OK: 400_000, QPS: number(400_000 / seconds), Valid: true,
			LatencyUS: result.Latency{P50: number(950), P99: number(4321)},
			Server:    result.Server{CPUPerOp: number(2.25), RSSPeakBytes: number(31_000_000), GCCycles: number(3)},
			Chat:      &result.Chat{Rooms: 10, Users: 20, Sent: 20_000, Received: 380_000, Own: 20_000, TurnUS: result.Latency{P50: number(940), P99: number(4300)}},
		})
	}
	return f
}

func ladderFile() *result.File {
	f := chatFile()
	f.Plan.Extra["rooms"] = "50..150"
	f.Cells = f.Cells[:3]
	for i := range f.Cells {
		c := &f.Cells[i]
		c.Repeat, c.Config, c.Chat.Rooms = 1, map[string]string{"rooms": fmt.Sprint(50 * (i + 1))}, 50*(i+1)
	}
	last := &f.Cells[2]
	last.Valid, last.Checks = false, []result.Check{{Name: "completed", Detail: "out of file descriptors"}}
	return f
}

// A server is not blamed for what it was never offered.
func TestAPointThatTheClientDidNotSendIsNoKnee(t *testing.T) {
	for _, tt := range []struct {
		name       string
		sent       map[int]float64 // of 40,000 by connections
		want, none string
	}{
		{"both were sent", map[int]float64{500: 40_000, 1000: 38_000}, "knee of connections at 40000 messages/s: 1000 connections", "sent only"},
		{"the second was not", map[int]float64{500: 40_000, 1000: 37_900}, "1000 connections at 40000: the client sent only 95 % of", "40000 messages/s: 1000"},
		{"the second was by far not", map[int]float64{500: 40_000, 1000: 20_000}, "knee of connections at 40000 messages/s: none up to 500 connections", "40000 messages/s: 1000"},
		{"neither was", map[int]float64{500: 30_000, 1000: 20_000}, "knee of connections at 40000 messages/s: not known", "none up to 1000 connections at 40000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := connsFile()
			for _, c := range f.Cells {
				if c.Config["rate"] == "40000" {
					c.Conns.Sent = number(tt.sent[c.Conns.Connections])
				}
			}
			var got bytes.Buffer
			if err := Write(&got, f, Table); err != nil || !strings.Contains(got.String(), tt.want) || strings.Contains(got.String(), tt.none) {
				t.Errorf("%v\n%s", err, &got)
			}
		})
	}
}

func TestSisterTables(t *testing.T) {
	interval := connsFile()
	interval.Plan.Extra["interval"] = "100ms"
	for name, f := range map[string]*result.File{
		"chat": chatFile(), "chat-ladder": ladderFile(), "conns": connsFile(), "conns-interval": interval,
		"chat-none": {Command: "chat", Interrupted: true}, "conns-none": {Command: "conns", Interrupted: true},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := Write(&got, f, Table); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".table")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, format := range []Format{Markdown, CSV, Bench, JSON} {
				if err := Write(&bytes.Buffer{}, f, format); err != nil {
					t.Errorf("%s: %v", format, err)
				}
			}
		})
	}
}

// Two tables that were published as proof that one Java is faster than another: with all of their runs they prove nothing.
func TestThePublishedTablesOfVolanoMark(t *testing.T) {
	for i, want := range [][]string{
		{"9394 messages per second", "8970 messages per second", "p = 0.151: the difference is not significant", "p = 0.029: the difference is significant"},
		{
			"9335 messages per second", "9011 messages per second", "p = 0.087: the difference is not significant", "p = 0.029: the difference is significant",
			"a rate of 8663 is given, but 400000 messages in 46.813 s are 8545 a second",
		},
	} {
		f, err := result.Read(fmt.Sprintf("../../testdata/volano-mustang-tiger-%d.json", i+1))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := Write(&got, f, Table); err != nil {
			t.Fatal(err)
		}
		for _, words := range want {
			if !strings.Contains(got.String(), words) {
				t.Errorf("table %d does not say %q:\n%s", i+1, words, got.String())
			}
		}
	}
}

func TestScoresOfOldReports(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		runs  []float64
		want  float64
		words string
	}{
		{Last3, []float64{1, 10, 20, 30}, 20, "the last 3 of 4"},
		{Last3, []float64{10, 20}, 15, "mean of 2 runs"},
		{Last3, []float64{7}, 7, ""},
		{Trimmed, []float64{100, 1, 2, 3, 4}, 3, "without the best and the worst"},
		{Trimmed, []float64{1, 2}, 1.5, "mean of 2 runs"},
		{"", []float64{1, 2, 6}, 3, "mean of 3 runs"},
		{Last3, nil, 0, "no run"},
	} {
		if got, words := score(tt.runs, tt.rule); got != tt.want || !strings.Contains(words, tt.words) {
			t.Errorf("%s of %v is %v %q, want %v %q", tt.rule, tt.runs, got, words, tt.want, tt.words)
		}
	}
}

func TestSisterPages(t *testing.T) {
	short := chatFile()
	short.Cells = short.Cells[:1]
	short.Warnings = []result.Warning{{Code: "steal", Detail: "5 % was stolen"}}
	for _, tt := range []struct {
		name       string
		file       *result.File
		want, lack []string
	}{
		{"conns", connsFile(), []string{
			"received/offered", "by connections at 40000 messages/s", "knee: 1k", "by connections at saturation", ">received<", ">offered<",
			"INVALID connections=1000 rate=40000, repeat 2: books_commands", "knee of connections at 40000 messages/s: 1000 connections",
		}, []string{"closed loop", "p99.9 us"}},
		{"chat", chatFile(), []string{"run 4", "delivery us by run", "186667 messages per second", "10 rooms of 20 users", "VALID (4 of 4"}, []string{"closed loop", "NaN"}},
		{"one run of a chat", short, []string{"run 1", "warning steal: 5 % was stolen"}, []string{"delivery us by run"}},
		{"a ladder", ladderFile(), []string{"messages/s by rooms", "first to fail", "100 rooms, 2000 connections", `class="note bad"`, "out of file descriptors"}, nil},
		{"no chat", &result.File{Command: "chat", Interrupted: true}, []string{"nothing was measured", "INTERRUPTED"}, nil},
		{"no conns", &result.File{Command: "conns", Interrupted: true}, []string{"nothing was measured", "INTERRUPTED"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := WriteHTML(&out, tt.file); err != nil {
				t.Fatal(err)
			}
			page := wellFormed(t, &out)
			for _, want := range tt.want {
				if !strings.Contains(page, want) {
					t.Errorf("the page lacks %q", want)
				}
			}
			for _, lack := range append(tt.lack, "http", "src=") {
				if strings.Contains(page, lack) {
					t.Errorf("the page has %q", lack)
				}
			}
		})
	}
}

func TestAServerThatHoldsTheClientBackHasAKnee(t *testing.T) {
	point := func(offered, sent, received, waiting float64) result.Cell {
		return result.Cell{
			Op: "conns", Repeat: 1, Valid: true, QPS: number(received), Config: map[string]string{"connections": "500", "rate": fmt.Sprint(offered)},
			Conns: &result.Conns{
				Connections: 500, Offered: number(offered), Sent: number(sent), Received: number(received), ReceivedShare: number(received / offered),
				WaitingBefore: number(waiting), WaitingAfter: number(waiting), ConnectPerSec: number(4000),
			},
		}
	}
	for name, tt := range map[string]struct {
		last result.Cell
		want []string
	}{
		"the server":    {point(100_000, 30_000, 27_000, 20_000), []string{"knee of the rate with 500 connections: 500 connections at 100000, received/offered 0.270", "the client sent 30 %"}},
		"the client":    {point(100_000, 30_000, 30_000, 10), []string{"none up to 500 connections at 10000, which is as much as this client could offer", "the client sent only 30 %"}},
		"what was left": {point(100_000, 99_000, 99_500, 10), []string{"none up to 500 connections at 100000"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := connsFile()
			f.Cells = []result.Cell{point(10_000, 10_000, 10_000, 3), tt.last}
			var out bytes.Buffer
			if err := writeConns(&out, f); err != nil {
				t.Fatal(err)
			}
			for _, want := range append(tt.want, "VALID (2 points)", "n/a") {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
		})
	}
	drained := group{cells: []result.Cell{point(1e5, 9e4, 9.5e4, 10)}}
	if words := drained.drained(); words != "" {
		t.Errorf("nothing had waited, but %q", words)
	}
	drained.cells[0].Conns.WaitingBefore = number(50_010)
	if words := drained.drained(); !strings.Contains(words, "50010 messages sent before the window") {
		t.Errorf("%q", words)
	}
}
