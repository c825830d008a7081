package load

import (
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvmark/client"
	"kvmark/client/result"
	"kvmark/client/workload"
	"kvmark/kvserver/resp"
)

// Here time is virtual: it moves only when everything sleeps, so a server that takes a known time for each request gives
// known figures, to the nanosecond, on any machine.

// slowServer answers every connection by itself, request by request, each after its delay.
type slowServer struct {
	mu    sync.Mutex
	delay func(n int) time.Duration // of the n-th request of all
	stall func() time.Duration      // how long the whole server still stands still; nil: it does not
	n     int
}

func (s *slowServer) serve(c net.Conn) {
	defer c.Close()
	var parser resp.Parser
	var in []byte
	chunk := make([]byte, 64<<10)
	for {
		args, n, err := parser.Next(in)
		if err != nil {
			return
		}
		if n == 0 {
			k, err := c.Read(chunk)
			if err != nil {
				return
			}
			in = append(in, chunk[:k]...)
			continue
		}
		s.mu.Lock()
		delay := s.delay(s.n)
		s.n++
		s.mu.Unlock()
		time.Sleep(delay)
		if s.stall != nil {
			time.Sleep(s.stall())
		}
		reply := "+OK\r\n"
		if string(args[0]) == "PING" {
			reply = "+PONG\r\n"
		}
		in = in[n:]
		if _, err := c.Write([]byte(reply)); err != nil {
			return
		}
	}
}

// virtual runs one window of Sets against the server, in virtual time. It must be called within a bubble.
func virtual(t *testing.T, c Config, server *slowServer) (out outcome, cell result.Cell) {
	t.Helper()
	c.Modes, c.Server = []string{"memory"}, "none"
	if c.newAlarm == nil {
		c.newAlarm = func() (alarm, error) { return runtimeAlarm{}, nil }
	}
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := &session{runner: &runner{Config: c}, mode: "memory", server: newTarget(Target{})}
	for id := range c.Workload.Workers {
		w, err := newWorker(id, c)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := net.Pipe()
		go server.serve(theirs)
		w.conn = client.New(ours, "virtual", 0)
		s.workers = append(s.workers, w)
	}
	defer s.close()
	out = s.phase(t.Context(), sets, c.Rate, c.Duration, Progress{})
	if out.errors > 0 {
		t.Fatal(out.first)
	}
	cell = s.newCell("set")
	count(&cell, out)
	s.judge(&cell, measured{kind: sets, out: out, err: errNoServer})
	return out, cell
}

var errNoServer = net.ErrClosed // there is no INFO here

func pass(c result.Cell, name string) bool {
	for _, check := range c.Checks {
		if check.Name == name {
			return check.Pass
		}
	}
	return false
}

func virtualConfig(workers int, duration time.Duration) Config {
	c := Default()
	c.Workload = workload.Config{Seed: 1, Workers: workers, Keys: 1000}
	c.Duration, c.Patience = duration, 30*time.Second
	return c
}

func near(t *testing.T, what string, us *float64, want time.Duration, within float64) {
	t.Helper()
	if us == nil || math.Abs(*us*1e3/float64(want)-1) > within {
		got := math.NaN()
		if us != nil {
			got = *us
		}
		t.Errorf("%s is %v us, want %v within %v", what, got, want, within)
	}
}

func TestPercentilesAreThoseOfKnownDelays(t *testing.T) {
	laws := map[string]func(u float64) time.Duration{
		"uniform":     func(u float64) time.Duration { return time.Duration(u * 1e8) },
		"exponential": func(u float64) time.Duration { return time.Duration(-math.Log(1-u) * 1e6) },
		"two humps": func(u float64) time.Duration {
			if u < 0.985 {
				return time.Duration(1e5 * (1 + u))
			}
			return time.Duration(5e7 * (1 + u))
		},
	}
	for name, law := range laws {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				var given []time.Duration
				server := &slowServer{delay: func(int) time.Duration {
					d := law(rng.Float64())
					given = append(given, d)
					return d
				}}
				out, cell := virtual(t, virtualConfig(1, 100*time.Second), server)
				given = given[:out.ok] // the last may have come too late
				slices.Sort(given)
				at := func(q float64) time.Duration { return given[int(math.Ceil(q*float64(len(given))))-1] }
				near(t, "p50", cell.LatencyUS.P50, at(0.5), 0.01)
				near(t, "p99", cell.LatencyUS.P99, at(0.99), 0.01)
				near(t, "p99.9", cell.LatencyUS.P999, at(0.999), 0.01)
				near(t, "max", cell.LatencyUS.Max, given[len(given)-1], 1e-12)
				near(t, "min", cell.LatencyUS.Min, given[0], 1e-12)
				if !pass(cell, "littles_law") {
					t.Errorf("Little's law does not hold: %+v", cell.Checks)
				}
			})
		})
	}
}

// A server that stands still for 200 ms once in 10 s. At 1,000 requests a second 200 of 10,000 are due meanwhile, and wait
// for 200 ms, 199 ms ... So a part x of all waits longer than 200 ms - x*10 s: p99 is 100 ms and p99.9 is 190 ms.
func stalling(begin time.Time, service time.Duration) *slowServer {
	const from, to = 5 * time.Second, 5200 * time.Millisecond
	return &slowServer{
		delay: func(int) time.Duration { return service },
		stall: func() time.Duration {
			if now := time.Since(begin); now >= from && now < to {
				return to - now
			}
			return 0
		},
	}
}

func TestAStallShowsInOpenLoopAsTheArithmeticSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := virtualConfig(8, 10*time.Second)
		c.Rate = Rate{1000, 1000}
		out, cell := virtual(t, c, stalling(time.Now(), 100*time.Microsecond))
		p := cell.Pace
		if p.Asked != 10_000 || p.Sent != 10_000 {
			t.Errorf("asked %d, sent %d, want 10000", p.Asked, p.Sent)
		}
		near(t, "p50 of the response", p.ResponseUS.P50, 100*time.Microsecond, 0.01)
		near(t, "p99 of the response", p.ResponseUS.P99, 100*time.Millisecond, 0.03) // the queue takes 2.5 ms to drain
		near(t, "p99.9 of the response", p.ResponseUS.P999, 190*time.Millisecond, 0.01)
		near(t, "max of the response", p.ResponseUS.Max, 200*time.Millisecond, 0.01)
		served := within(out.latency, 8*time.Millisecond)
		// Only the eight that were in flight, or went out first after it, have a service time that knows of the stall.
		if p.Waited < 190 || served < 9_984 {
			t.Errorf("%d waited, %d were served within 8 ms", p.Waited, served)
		}
		near(t, "p50 of the service", cell.LatencyUS.P50, 100*time.Microsecond, 0.01)
		for _, name := range []string{"asked_rate", "send_lateness", "littles_law"} {
			if !pass(cell, name) {
				t.Errorf("%s failed: %+v", name, cell.Checks)
			}
		}
		for i, r := range cell.Series {
			if slow := *r.P99US > 50_000; slow != (i == 5) {
				t.Errorf("second %d has a p99 of %v us, the stall is in second 5", i, *r.P99US)
			}
		}
		if *p.LatenessUS.Max > 1 {
			t.Errorf("late by %v us: the stall is not the fault of the client", *p.LatenessUS.Max)
		}
	})
}

func TestAStallHidesInClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cell := virtual(t, virtualConfig(8, 10*time.Second), stalling(time.Now(), time.Millisecond))
		near(t, "p99", cell.LatencyUS.P99, time.Millisecond, 0.01)
		near(t, "p99.9", cell.LatencyUS.P999, time.Millisecond, 0.01) // 8 of 80,000 saw it
		near(t, "max", cell.LatencyUS.Max, 201*time.Millisecond, 0.01)
		if cell.Pace != nil || !cell.ClosedLoop {
			t.Error("not marked as closed loop")
		}
	})
}

func TestARateBeyondReachIsInvalidAndEndsInTime(t *testing.T) {
	for _, arrivals := range []string{Constant, Poisson} {
		for _, rate := range []Rate{{1000, 1000}, {MaxRate, MaxRate}, {0, 2000}, {2000, 1}} {
			t.Run(arrivals+" "+rate.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begin := time.Now()
					c := virtualConfig(2, 10*time.Second)
					c.Rate, c.Arrivals = rate, arrivals
					server := &slowServer{delay: func(int) time.Duration { return 10 * time.Millisecond }} // 200 a second
					_, cell := virtual(t, c, server)
					if took := time.Since(begin); took > 10*time.Second+20*time.Millisecond {
						t.Errorf("it took %v", took)
					}
					p := cell.Pace
					want := (rate.From + rate.To) / 2 * 10
					if pass(cell, "asked_rate") || math.Abs(float64(p.Asked)/want-1) > 0.1 || p.Sent > 2010 || p.Sent < 1000 {
						t.Errorf("asked %d of %v, sent %d: %+v", p.Asked, want, p.Sent, cell.Checks)
					}
					// Those never sent have waited from when they were due; half the window on average for a constant rate.
					if *p.ResponseUS.P99 < 5e6 {
						t.Errorf("p99 of the response is %v us, though most were never sent", *p.ResponseUS.P99)
					}
				})
			})
		}
	}
}

func TestOpenLoopSendsItsScheduleWhateverTheBatch(t *testing.T) {
	for _, depth := range []int{1, 4} {
		for _, rate := range []Rate{{50, 50}, {100, 900}, {5, 5}} {
			synctest.Test(t, func(t *testing.T) {
				c := virtualConfig(3, 20*time.Second)
				c.Rate, c.Pipeline = rate, depth
				_, cell := virtual(t, c, &slowServer{delay: func(int) time.Duration { return time.Millisecond }})
				want := int64((rate.From + rate.To) / 2 * 20)
				if p := cell.Pace; p.Asked != want || p.Sent != want || *p.LatenessUS.Max > 1 {
					t.Errorf("%v, batches of %d: asked %d, sent %d, want %d; late by %v us", rate, depth, p.Asked, p.Sent, want, *p.LatenessUS.Max)
				}
				if len(cell.Series) != 20 {
					t.Errorf("%v: %d rows, want 20", rate, len(cell.Series))
				}
			})
		}
	}
}

func TestLatencyInABatchCountsToEachReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := virtualConfig(2, 10*time.Second)
		c.Pipeline = 10
		out, cell := virtual(t, c, &slowServer{delay: func(int) time.Duration { return time.Millisecond }})
		near(t, "first", cell.Places.FirstP50US, time.Millisecond, 0.01)
		near(t, "last", cell.Places.LastP50US, 10*time.Millisecond, 0.01)
		near(t, "p50 of all", cell.LatencyUS.P50, 5*time.Millisecond, 0.01)
		near(t, "mean", cell.LatencyUS.Mean, 5500*time.Microsecond, 0.01)
		if !pass(cell, "littles_law") {
			t.Errorf("Little's law does not hold: %+v", cell.Checks)
		}
		if out.ok < 19_960 || out.ok > 20_000 {
			t.Errorf("%d replies in 10 s at 2000 a second", out.ok)
		}
	})
}

func TestPoissonArrivalsAreAPoissonProcess(t *testing.T) {
	const workers, rate, length = 4, 1000.0, 50 * time.Second
	var times []time.Duration
	for w := range workers {
		s := newSchedule(Rate{rate, rate}, length, w, workers, rand.New(rand.NewPCG(5, uint64(w))))
		for ; s.next < length; s.advance() {
			times = append(times, s.next)
		}
	}
	if n, want := float64(len(times)), rate*length.Seconds(); math.Abs(n-want) > 3.5*math.Sqrt(want) {
		t.Errorf("%v arrivals, want %v", n, want)
	}
	// The gaps of the merged stream are exponential: each falls into every tenth of that law equally often.
	slices.Sort(times)
	var bins [10]float64
	for i := 1; i < len(times); i++ {
		u := 1 - math.Exp(-rate*(times[i]-times[i-1]).Seconds())
		bins[min(9, int(10*u))]++
	}
	chi, want := 0.0, float64(len(times)-1)/10
	for _, n := range bins {
		chi += (n - want) * (n - want) / want
	}
	if chi > 27.9 { // 9 degrees of freedom, p = 0.001
		t.Errorf("chi-square %.1f over %v", chi, bins)
	}
}

func TestRates(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{"0", "0", ""},
		{"", "0", ""},
		{"5000", "5000", ""},
		{"0.5", "0.5", ""},
		{"ramp:0:2000", "ramp:0:2000", ""},
		{"ramp:5:5", "5", ""},
		{"-1", "", `rate "-1"`},
		{"NaN", "", `rate "NaN"`},
		{"1e99", "", `rate "1e99"`},
		{"ramp:1:0", "", `rate "ramp:1:0"`},
		{"fast", "", `"fast"`},
		{"ramp:1", "", "ramp:FROM:TO"},
		{"0.0", "0", ""},
		{"ramp:0:0", "", `rate "ramp:0:0"`},
		{"ramp:0.0:0e5", "", `rate "ramp:0.0:0e5"`},
		{"-0", "", `rate "-0"`},
		{"ramp:-0:-0", "", "rate"},
		{"ramp:-0:5", "", "rate"},
		{"ramp:-5:5", "", "rate"},
		{"ramp:NaN:5", "", "rate"},
		{"ramp:5:NaN", "", "rate"},
		{"ramp:Inf:5", "", "rate"},
		{"ramp:5:+Inf", "", "rate"},
		{"ramp:1:1e99", "", "rate"},
		{"ramp::", "", "rate"},
		{"ramp:1:2:3", "", "rate"},
		{"Inf", "", `rate "Inf"`},
		{"-Inf", "", `rate "-Inf"`},
	} {
		got, err := ParseRate(tt.in)
		if tt.err == "" && (err != nil || got.String() != tt.want) || tt.err != "" && (err == nil || !contains(err, tt.err)) {
			t.Errorf("%q: %v, %v; want %q, %q", tt.in, got, err, tt.want, tt.err)
		}
	}
	for _, r := range []Rate{{1e-300, 1e-300}, {0, 1}, {1, 1}} {
		c := virtualConfig(8, 10*time.Second)
		c.Server, c.Rate = "none", r
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "a window takes 100") {
			t.Errorf("rate %v: %v, want that so few requests are no measurement", r, err)
		}
	}
	for _, r := range []Rate{{10, 10}, {10, 90}, {90, 10}, {0, 50}, {50, 0}} {
		const length = 7 * time.Second
		for _, at := range []time.Duration{0, time.Millisecond, time.Second, 6999 * time.Millisecond} {
			if got := r.when(r.due(at, length), length); (got - at).Abs() > time.Microsecond {
				t.Errorf("%v: what is due at %v is due at %v", r, at, got)
			}
		}
		if r.when(r.due(length, length)+1e9, length) < length {
			t.Errorf("%v: more is due than there is", r)
		}
	}
}

// within counts observations of at most d.
func within(h *histogram, d time.Duration) (n int64) {
	for _, bar := range h.Distribution() {
		if bar.To <= int64(d) {
			n += bar.Count
		}
	}
	return n
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// stoppedAlarm is that of a client that does not run from one moment to another.
type stoppedAlarm struct {
	runtimeAlarm
	from, to time.Time
}

func (a stoppedAlarm) wait(d time.Duration) error {
	wake := time.Now().Add(d)
	if !wake.Before(a.from) && wake.Before(a.to) {
		wake = a.to
	}
	time.Sleep(time.Until(wake))
	return nil
}

// The tail of the response time is that of whoever stood still. Both do so for as long, and requests pile up alike.
func TestATailIsTheClientsOrTheServers(t *testing.T) {
	for _, client := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := virtualConfig(8, 10*time.Second)
			c.Rate = Rate{1000, 1000}
			from, to := 5*time.Second, 5150*time.Millisecond
			begin := time.Now()
			server := &slowServer{delay: func(int) time.Duration { return 100 * time.Microsecond }}
			if client {
				c.newAlarm = func() (alarm, error) { return stoppedAlarm{from: begin.Add(from), to: begin.Add(to)}, nil }
			} else {
				server.stall = standing(begin, from, to).stall
			}
			_, cell := virtual(t, c, server)
			p999 := deref(cell.Pace.ResponseUS.P999)
			if p999 < 100_000 || !pass(cell, "send_lateness") {
				t.Errorf("p99.9 is %.0f us: nothing to tell; %+v", p999, cell.Checks)
			}
			if pass(cell, "client_tail") == client || (cell.Client.Bound == "client") != client {
				t.Errorf("the client stood still: %v; bound by %q, %+v", client, cell.Client.Bound, cell.Checks)
			}
		})
	}
}

func TestAPauseOfAMomentIsNoTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := virtualConfig(8, 10*time.Second)
		c.Rate = Rate{1000, 1000}
		begin := time.Now()
		c.newAlarm = func() (alarm, error) {
			return stoppedAlarm{from: begin.Add(5 * time.Second), to: begin.Add(5008 * time.Millisecond)}, nil
		}
		_, cell := virtual(t, c, &slowServer{delay: func(int) time.Duration { return 100 * time.Microsecond }})
		if !pass(cell, "client_tail") {
			t.Errorf("%+v", cell.Checks)
		}
	})
}

// A short window needs replies, and time outside of single waits.
func TestAWindowThatMostlyStoodStillIsNone(t *testing.T) {
	for _, tt := range []struct {
		name          string
		window, stall time.Duration
		workers       int
		want          bool
	}{
		{"half a short one", 50 * time.Millisecond, 30 * time.Millisecond, 8, false},
		{"most of a longer one", 250 * time.Millisecond, 200 * time.Millisecond, 8, false},
		{"with many workers", 250 * time.Millisecond, 200 * time.Millisecond, 500, false},
		{"a part of it", 250 * time.Millisecond, 60 * time.Millisecond, 8, true},
		{"of a long one", time.Second, 200 * time.Millisecond, 8, true},
	} {
		for _, end := range []bool{false, true} { // in the middle of the window, or beyond its end
			synctest.Test(t, func(t *testing.T) {
				from := 10 * time.Millisecond
				if end {
					from = tt.window - tt.stall
				}
				server := standing(time.Now(), from, from+tt.stall+time.Millisecond)
				server.delay = func(int) time.Duration { return 100 * time.Microsecond }
				_, cell := virtual(t, virtualConfig(tt.workers, tt.window), server)
				if pass(cell, "window_long_enough") != tt.want {
					t.Errorf("%s, at its end %v: %+v", tt.name, end, cell.Checks)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // many replies take long: that is what the server does
		server := &slowServer{delay: func(n int) time.Duration {
			if n%20 == 0 {
				return 20 * time.Millisecond
			}
			return 100 * time.Microsecond
		}}
		if _, cell := virtual(t, virtualConfig(8, 2*time.Second), server); !pass(cell, "window_long_enough") {
			t.Errorf("%+v", cell.Checks)
		}
	})
}
