package conns

import (
	"context"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kvmark/client"
	"kvmark/client/load"
	"kvmark/client/load/loadtest"
	"kvmark/client/result"
	"kvmark/kvserver/resp"
)

const asClient = "KVMARK_CONNS_CLIENT"

// TestMain lets the test binary be a client process.
func TestMain(m *testing.M) {
	switch os.Getenv(asClient) {
	case "serve":
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	case "die":
		os.Stderr.WriteString("out of luck")
		os.Exit(7)
	}
	goleak.VerifyTestMain(m)
}

func target(t *testing.T, s *loadtest.Rooms) Config {
	t.Helper()
	addr, stop, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c := Default()
	c.Load.Target, c.Load.Patience = load.Target{Addr: addr}, 10*time.Second
	c.Connections, c.Rates, c.Duration, c.Warmup = []int{20}, []float64{500}, time.Second, 0
	return c
}

// find returns a check of a cell.
func find(t *testing.T, c result.Cell, name string) result.Check {
	t.Helper()
	for _, check := range c.Checks {
		if check.Name == name {
			return check
		}
	}
	t.Fatalf("no check %s among %+v", name, c.Checks)
	return result.Check{}
}

func TestAMessageIsACommandOfExactlyItsSize(t *testing.T) {
	for size := range 1200 {
		b, err := appendMessage(nil, size)
		switch {
		case size < 20:
			if err == nil {
				t.Errorf("size %d gave %q", size, b)
			}
			continue
		case err != nil:
			// What a longer length takes in digits cannot be had one byte earlier.
			if size != 30 && size != 121 && size != 1022 || !strings.Contains(err.Error(), "there is no command of that length") {
				t.Errorf("size %d: %v", size, err)
			}
			continue
		}
		var p resp.Parser
		args, n, err := p.Next(b)
		if err != nil || n != size || len(b) != size || len(args) != 2 || string(args[0]) != "PING" {
			t.Errorf("size %d: %q parses to %q, %d bytes, %v", size, b, args, n, err)
		}
	}
	if b, err := appendMessage(nil, 36); err != nil || string(b) != "*2\r\n$4\r\nPING\r\n$15\r\nxxxxxxxxxxxxxxx\r\n" {
		t.Errorf("the 36 bytes of the original: %q, %v", b, err)
	}
}

func TestPointsAreMeasuredInTurn(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*Config)
		offered float64 // 0: none
	}{
		{"a rate", func(*Config) {}, 500},
		{"an interval", func(c *Config) { c.Rates, c.Interval = nil, 100*time.Millisecond }, 200},
		{"saturation", func(c *Config) { c.Rates = []float64{0} }, 0},
		{"a rate from client processes", func(c *Config) {
			c.Clients, c.Client = 3, []string{"/usr/bin/env", asClient + "=serve", os.Args[0]}
		}, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(tt.name, "processes") && runtime.GOOS != "linux" {
				t.Skip("needs env(1)")
			}
			server := &loadtest.Rooms{}
			c := target(t, server)
			c.Warmup = time.Second
			tt.change(&c)
			out, err := Run(t.Context(), c)
			if err != nil || len(out.Cells) != 1 {
				t.Fatal(err, len(out.Cells))
			}
			cell := out.Cells[0]
			for _, name := range []string{"connected", "books_commands", "completed"} {
				if check := find(t, cell, name); !check.Pass {
					t.Errorf("%s: %s", name, check.Detail)
				}
			}
			switch offered := cell.Conns.Offered; {
			case tt.offered == 0 && offered != nil, tt.offered > 0 && (offered == nil || *offered != tt.offered):
				t.Errorf("offered %v, want %v", offered, tt.offered)
			}
			// 20 connections cost less than a server moves by itself; what else the machine did is known.
			if cell.OK == 0 || cell.Conns.Sent == nil || cell.Conns.RSSPerConnB != nil || cell.LatencyUS.P50 == nil {
				t.Errorf("cell %+v, conns %+v", cell, cell.Conns)
			}
			if len(cell.Series) != 1 || cell.Series[0].OK != cell.OK {
				t.Errorf("rows %+v do not add up to %d", cell.Series, cell.OK)
			}
		})
	}
}

func TestWhatWasSentIsKnownForAnyMoment(t *testing.T) {
	s := sent{UnixNano: []int64{100, 200, 300}, Messages: []int64{0, 50, 60}, Total: 61}
	for at, want := range map[int64]float64{0: 0, 100: 0, 150: 25, 200: 50, 210: 51, 300: 60, 301: 61} {
		if got := s.until(time.Unix(0, at)); got != want {
			t.Errorf("until %d: %v, want %v", at, got, want)
		}
	}
	if got := (sent{Total: 7}).until(time.Unix(0, 5)); got != 7 {
		t.Errorf("of one that noted nothing: %v", got)
	}
}

func TestConnectionsThatCannotBeHadEndTheSweep(t *testing.T) {
	c := target(t, &loadtest.Rooms{MaxConns: 15}) // with the control connection, room for 14
	c.Connections = []int{10, 20, 30}
	out, err := Run(t.Context(), c)
	if err != nil || len(out.Cells) != 2 || out.Cells[1].Valid || out.Cells[1].Conns.ConnectPerSec != nil {
		t.Fatalf("%v, %d cells", err, len(out.Cells))
	}
	if check := find(t, out.Cells[1], "connected"); check.Pass || !strings.Contains(check.Detail, "of 20 connections") || !strings.Contains(check.Detail, "max number of clients") {
		t.Errorf("%+v", check)
	}
}

func TestWhatTheServerDoesWrongIsFound(t *testing.T) {
	for _, tt := range []struct {
		fault loadtest.Fault
		want  string
	}{
		{loadtest.Undercount, "books_commands"},
		{loadtest.Stall, "books_commands"},
		{loadtest.HangUp, "books_commands"},
	} {
		t.Run(string(tt.fault), func(t *testing.T) {
			t.Parallel()
			c := target(t, &loadtest.Rooms{Fault: tt.fault, After: 100})
			out, err := Run(t.Context(), c)
			if err != nil || len(out.Cells) != 1 || out.Cells[0].Valid {
				t.Fatal(err, len(out.Cells))
			}
			if check := find(t, out.Cells[0], tt.want); check.Pass {
				t.Errorf("%+v", out.Cells[0].Checks)
			}
		})
	}
}

func TestAnInterruptionEndsAPoint(t *testing.T) {
	for _, clients := range []int{1, 2} {
		ctx, cancel := context.WithCancel(t.Context())
		var once atomic.Bool
		server := &loadtest.Rooms{OnMessage: func(int64) {
			if !once.Swap(true) {
				cancel()
			}
		}}
		c := target(t, server)
		c.Duration, c.Repeat = time.Hour, 3
		if c.Clients = clients; clients > 1 {
			if runtime.GOOS != "linux" {
				t.Skip("needs env(1)")
			}
			c.Client = []string{"/usr/bin/env", asClient + "=serve", os.Args[0]}
		}
		out, err := Run(ctx, c)
		if err != nil || !out.Interrupted || len(out.Cells) != 1 || out.Cells[0].Valid {
			t.Errorf("%d clients: %v, interrupted %t, %d cells", clients, err, out.Interrupted, len(out.Cells))
		}
		for deadline := time.Now().Add(10 * time.Second); server.Conns() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d clients: %d connections are left", clients, server.Conns())
			}
		}
		cancel()
	}
}

func TestAClientProcessThatDiesIsTold(t *testing.T) {
	if _, err := exec.LookPath("/usr/bin/env"); err != nil {
		t.Skip("needs env(1)")
	}
	c := target(t, &loadtest.Rooms{})
	c.Clients, c.Client = 2, []string{"/usr/bin/env", asClient + "=die", os.Args[0]}
	out, err := Run(t.Context(), c)
	if err != nil || len(out.Cells) != 1 || out.Cells[0].Valid || !strings.Contains(out.Cells[0].FirstError, "out of luck") {
		t.Errorf("%v, %+v", err, out.Cells)
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"no connections":                func(c *Config) { c.Connections = nil },
		"connections 0":                 func(c *Config) { c.Connections = []int{5, 0} },
		"message size 30":               func(c *Config) { c.MessageSize = 30 },
		"message size 3":                func(c *Config) { c.MessageSize = 3 },
		"no rate":                       func(c *Config) { c.Rates = nil },
		"rate -1":                       func(c *Config) { c.Rates = []float64{-1} },
		"interval 1s":                   func(c *Config) { c.Interval = time.Second },
		"interval 1ns":                  func(c *Config) { c.Rates, c.Interval = nil, 1 },
		"interval -1s":                  func(c *Config) { c.Rates, c.Interval = nil, -time.Second },
		"duration 1.5s":                 func(c *Config) { c.Duration = 1500 * time.Millisecond },
		"warmup 10ms":                   func(c *Config) { c.Warmup = 10 * time.Millisecond },
		"repeat 0":                      func(c *Config) { c.Repeat = 0 },
		"connect rate 0":                func(c *Config) { c.ConnectRate = 0 },
		"clients 0":                     func(c *Config) { c.Clients = 0 },
		"fewer than the 10":             func(c *Config) { c.Connections, c.Clients = []int{5}, 10 },
		"connections 5 are named twice": func(c *Config) { c.Connections = []int{5, 10, 5} },
		"rate 700 is named twice":       func(c *Config) { c.Rates = []float64{700, 700} },
		"rate max is named twice":       func(c *Config) { c.Rates = []float64{0, 0} },
		"no client":                     func(c *Config) { c.Clients = 2 },
	} {
		c := Default()
		change(&c)
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	for s, want := range map[string]float64{"max": 0, "30000": 30000, "1.5": 1.5} {
		if r, err := ParseRate(s); err != nil || r != want {
			t.Errorf("rate %q is %v, %v; want %v", s, r, err, want)
		}
	}
	for _, s := range []string{"", "0", "-1", "x", "-0", "1e-300", "0.5", "NaN", "Inf", "-Inf", "1e12"} {
		if r, err := ParseRate(s); err == nil {
			t.Errorf("rate %q is %v, want an error", s, r)
		}
	}
}

// Connections beyond the share of one own address come from the next.
func TestConnectionsComeFromSeveralAddresses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux answers on all of 127.0.0.0/8 without being told to")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d, err := client.NewDialer(ln.Addr().String(), client.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{0: "127.0.0.1", client.PortsPerSource - 1: "127.0.0.1", client.PortsPerSource: "127.0.0.2", 3 * client.PortsPerSource: "127.0.0.4"} {
		c, err := d.Dial(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.LocalAddr().(*net.TCPAddr).IP.String(); got != want {
			t.Errorf("connection %d comes from %s, want %s", i, got, want)
		}
		c.Close()
	}
}

// As a driver, a point takes the place of Sets and Gets in an arm.
func TestAnArmIsDrivenByConnections(t *testing.T) {
	c := target(t, &loadtest.Rooms{})
	d := Driver{c}
	l := load.Default()
	l.Target, l.Driver = c.Load.Target, d
	arm, err := load.Start(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	arm.Slice(t.Context(), 300*time.Millisecond) // at least a second
	cell, err := arm.End(t.Context())
	if err != nil || cell.Op != "conns" || cell.OK == 0 || cell.Config != nil || !find(t, cell, "books_commands").Pass {
		t.Errorf("%v, cell %+v", err, cell)
	}
	if err := arm.Stop(); err != nil {
		t.Error(err)
	}
	if got, want := d.String(), "conns connections=20 rate=500 message-size=36"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// All stand still, also the connection on which the server is asked.
func TestAServerThatStandsStillEndsAPoint(t *testing.T) {
	for _, clients := range []int{1, 2} {
		c := target(t, &loadtest.Rooms{})
		addr, stop, err := loadtest.Stalling(c.Load.Target.Addr, 20_000)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		c.Load.Target.Addr, c.Load.Patience, c.Duration = addr, time.Second, time.Hour
		if c.Clients = clients; clients > 1 {
			if runtime.GOOS != "linux" {
				t.Skip("needs env(1)")
			}
			c.Client = []string{"/usr/bin/env", asClient + "=serve", os.Args[0]}
		}
		out, err := Run(t.Context(), c)
		if err != nil || len(out.Cells) != 1 || out.Cells[0].Valid {
			t.Fatalf("%d clients: %v, %+v", clients, err, out.Cells)
		}
		if check := find(t, out.Cells[0], "completed"); check.Pass || !strings.Contains(check.Detail, "no reply in time") {
			t.Errorf("%d clients: %+v", clients, check)
		}
	}
}
