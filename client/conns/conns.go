// Package conns measures how a server bears thousands of connections that each send little: what `kvmark conns` does, as a
// library. It repeats a test that C# programmers once published of their server: N connections, a message of 36 bytes on
// each in turn, a pause, and again; the server counts what it receives.
//
//	start    for each point a fresh server, or the target
//	connect  N connections at a bounded rate, each proved by a reply; replies are then turned off
//	         -- the server's memory is read after one half and after the other: what idle connections cost --
//	warm     a second or more of the same load, not counted
//	window   messages sent and received, by the client's count and by the server's, at the same moments
//	books    after the last message the server must have executed as many commands as were sent
//
// The original sends a round, pauses M ms, and sends again, so that more connections also mean more messages: its knee
// and its optimum are those of two causes at once. A fixed total rate keeps them apart; [Config.Interval] repeats the original.
package conns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvmark/client/load"
	"kvmark/client/result"
	"kvmark/kvserver/resp"
)

// Config is what to run. Server, target, patience, notes and progress are those of Load.
type Config struct {
	Connections []int
	Rates       []float64     // messages a second over all connections; 0: as fast as possible
	Interval    time.Duration // instead of a rate: the pause after a message on each connection
	MessageSize int           // bytes of a message, which is a whole command
	Duration    time.Duration // of the window of each point
	Warmup      time.Duration
	Repeat      int
	ConnectRate float64 // connections a second at most
	Clients     int     // processes that send; 1: this one
	Client      []string
	Load        load.Config
}

// Default returns the sweep of connections at a fixed rate, but for Load.Server.
func Default() Config {
	return Config{
		Connections: []int{500, 1000, 2000, 4000, 6000}, Rates: []float64{30_000}, MessageSize: 36,
		Duration: 10 * time.Second, Warmup: time.Second, Repeat: 1, ConnectRate: 5000, Clients: 1, Load: load.Default(),
	}
}

// Bounds of what can be asked for.
const (
	MaxConnections = 1_000_000
	MaxClients     = 64
)

// maxMessage bounds a message.
const maxMessage = 1 << 16

// minInterval is the shortest pause that a system's timers keep.
const minInterval = time.Millisecond

// opName is what cells are called.
const opName = "conns"

// window is the time between two counts.
const window = time.Second

// Validate reports the first option that cannot work, with its value and what would.
func (c Config) Validate() error {
	if len(c.Connections) == 0 {
		return errors.New("no connections: want one or more numbers, such as 500,1000")
	}
	for i, n := range c.Connections {
		if slices.Contains(c.Connections[:i], n) {
			return fmt.Errorf("connections %d are named twice: each number is a point; --repeat measures it again", n)
		}
		if n < 1 || n > MaxConnections {
			return fmt.Errorf("connections %d: want 1..%d", n, MaxConnections)
		}
		if n < c.Clients {
			return fmt.Errorf("connections %d: fewer than the %d clients that are to share them", n, c.Clients)
		}
	}
	if c.Interval == 0 && len(c.Rates) == 0 {
		return errors.New("no rate: want messages a second, or max")
	}
	for i, r := range c.Rates {
		if !(r == 0 || r >= 1 && r <= load.MaxRate) {
			return fmt.Errorf("rate %v: want 1 <= messages a second <= %d, or max", r, load.MaxRate)
		}
		if slices.Contains(c.Rates[:i], r) {
			return fmt.Errorf("rate %s is named twice: each is a point; --repeat measures it again", rateWord(r))
		}
	}
	if _, err := appendMessage(nil, c.MessageSize); err != nil {
		return err
	}
	switch {
	case c.Interval != 0 && c.Interval < minInterval:
		return fmt.Errorf("interval %v: want %v or more; rate max is as fast as possible", c.Interval, minInterval)
	case c.Interval > 0 && len(c.Rates) > 0:
		return fmt.Errorf("interval %v: want no rate beside it", c.Interval)
	case c.Duration < window || c.Duration%window != 0:
		return fmt.Errorf("duration %v: want whole seconds, 1s or more", c.Duration)
	case c.Warmup < 0 || c.Warmup%window != 0:
		return fmt.Errorf("warmup %v: want whole seconds, or 0", c.Warmup)
	case c.Repeat < 1:
		return fmt.Errorf("repeat %d: want 1 or more", c.Repeat)
	case !(c.ConnectRate >= 1 && c.ConnectRate <= load.MaxRate):
		return fmt.Errorf("connect rate %v: want 1..%d connections a second", c.ConnectRate, load.MaxRate)
	case c.Clients < 1 || c.Clients > MaxClients:
		return fmt.Errorf("clients %d: want 1..%d", c.Clients, MaxClients)
	case c.Clients > 1 && len(c.Client) == 0:
		return errors.New("no client: want the command line of a client process")
	}
	return nil
}

// appendMessage appends a PING of so many bytes, which every server of the protocol counts and answers.
//
//	*2\r\n $4\r\nPING\r\n $<digits>\r\n <payload>\r\n
func appendMessage(dst []byte, size int) ([]byte, error) {
	const fixed = len("*2\r\n$4\r\nPING\r\n$\r\n\r\n")
	if size > maxMessage {
		return nil, fmt.Errorf("message size %d: want %d bytes at most", size, maxMessage)
	}
	for digits := 1; digits <= 6; digits++ {
		if n := size - fixed - digits; n >= 0 && len(strconv.Itoa(n)) == digits {
			return resp.AppendCommand(dst, "PING", strings.Repeat("x", n)), nil
		}
	}
	if least := fixed + 1; size < least {
		return nil, fmt.Errorf("message size %d: want %d bytes or more: that is the shortest command with a payload", size, least)
	}
	return nil, fmt.Errorf("message size %d: there is no command of that length, but of %d and %d bytes", size, size-1, size+1)
}

// Plan is the configuration as the result file records it.
func (c Config) Plan() result.Plan {
	p := c.Load.Plan()
	p.Workers, p.Keys, p.Pipeline = slices.Max(c.Connections), 0, 1
	p.DurationSeconds, p.WarmupSeconds, p.Repeat = c.Duration.Seconds(), c.Warmup.Seconds(), c.Repeat
	p.ValueSize, p.ValueBytes, p.Distribution = strconv.Itoa(c.MessageSize), float64(c.MessageSize), ""
	var connections, rates []string
	for _, n := range c.Connections {
		connections = append(connections, strconv.Itoa(n))
	}
	for _, r := range c.Rates {
		rates = append(rates, rateWord(r))
	}
	p.Extra = map[string]string{
		"connections": strings.Join(connections, ","), "rate": strings.Join(rates, ","), "message_size": strconv.Itoa(c.MessageSize),
		"connect_rate": rateWord(c.ConnectRate), "clients": strconv.Itoa(c.Clients),
	}
	if c.Interval > 0 {
		p.Extra["interval"] = c.Interval.String()
	}
	return p
}

// rateWord is a rate as options have it.
func rateWord(r float64) string {
	if r == 0 {
		return "max"
	}
	return strconv.FormatFloat(r, 'f', -1, 64)
}

// ParseRate reads messages a second, or max.
func ParseRate(s string) (float64, error) {
	if s == "max" {
		return 0, nil
	}
	r, err := strconv.ParseFloat(s, 64)
	if err != nil || !(r >= 1 && r <= load.MaxRate) {
		return 0, fmt.Errorf("rate %q: want messages a second, such as 30000, or max", s)
	}
	return r, nil
}

// Outcome is what a measurement gave.
type Outcome struct {
	Cells       []result.Cell
	Server      result.Process
	Interrupted bool // ctx ended, or Kill was closed, before it was complete
}

// point is one combination of options.
type point struct {
	connections int
	rate        float64 // 0: as fast as possible, or by interval
}

func (c Config) points() (all []point) {
	rates := c.Rates
	if c.Interval > 0 {
		rates = []float64{0}
	}
	for _, n := range c.Connections {
		for _, r := range rates {
			all = append(all, point{n, r})
		}
	}
	return all
}

// Run measures all points, as often as asked, up to the first whose connections cannot be had. The outcome holds what there is
// even when an error is returned, which means that a server could not be started.
func Run(ctx context.Context, c Config) (out Outcome, err error) {
	if err := c.Validate(); err != nil {
		return out, fmt.Errorf("conns: %w", err)
	}
	if c.Load.Progress == nil {
		c.Load.Progress = func(load.Progress) {}
	}
	if c.Load.Logf == nil {
		c.Load.Logf = func(string, ...any) {}
	}
	if c.Load.Patience == 0 {
		c.Load.Patience = 20 * time.Second
	}
	for repeat := 1; repeat <= c.Repeat; repeat++ {
		for _, p := range c.points() {
			if ctx.Err() != nil {
				out.Interrupted = true
				return out, nil
			}
			cell, err := c.measure(ctx, p, repeat, &out)
			if cell != nil {
				out.Cells = append(out.Cells, *cell)
			}
			switch {
			case ctx.Err() != nil:
				out.Interrupted = true
				return out, nil
			case err != nil:
				return out, fmt.Errorf("conns: %w", err)
			case cell.Conns.ConnectPerSec == nil: // more connections will not be had either
				return out, nil
			}
		}
	}
	return out, nil
}

// Open reports whether messages go out on a schedule in some point.
func (c Config) Open() bool {
	return c.Interval > 0 || slices.ContainsFunc(c.Rates, func(r float64) bool { return r > 0 })
}
