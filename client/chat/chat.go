// Package chat measures how many chat messages a second a server delivers. It is what `kvmark chat` does, as a library,
// and repeats VolanoMark, by which Java runtimes were once compared, on Redis's pub/sub: R rooms of U users, a channel for each room and a
// connection for each user, who both publishes and subscribes. Every user sends C messages.
//
//	sent      R*U*C
//	received  R*U*C*(U-1)   by every user of the room but the sender, who reads its own copy and does not count it
//	total     R*U*U*C
//
// These counts are law: a run that ends with others is invalid. There are two paces.
//
//	turns   as VolanoMark: in each room user 1 begins, and a user sends when sent + received, modulo U, is its number: one
//	        message is in flight per room. It measures the way of a message through server, scheduler and network.
//	flood   as the chat benchmarks that followed it: everybody sends at once, up to a window of own messages whose copies
//	        have not come back. It measures what fan-out costs.
//
// The clock runs from the moment at which all users, long connected and subscribed, are let go, to the moment at which the
// last of them has read its last message. The server is not restarted between runs. Every wait has an end.
package chat

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"kvmark/client"
	"kvmark/client/load"
	"kvmark/client/result"
)

// Pace says when users send.
type Pace string

// The paces.
const (
	Turns Pace = "turns"
	Flood Pace = "flood"
)

// Config is what to run. Server, target, patience, notes and progress are those of Load.
type Config struct {
	Rooms, Users int
	Messages     int           // of each user; 0: as many as Duration allows
	Duration     time.Duration // 0: until all messages are delivered
	Pace         Pace
	Window       int // flood: own messages that may be on their way
	TextSize     int // bytes of a message
	Proto        int // version of RESP, 2 or 3; 2 takes two connections a user: one that is subscribed may not publish
	Runs         int
	Levels       []int         // rooms of each run; empty: Rooms, Runs times
	Rest         time.Duration // before each run but the first
	Load         load.Config
}

// Default returns the classic run, but for Load.Server.
func Default() Config {
	return Config{Rooms: 10, Users: 20, Messages: 100, Pace: Turns, Window: 100, TextSize: 60, Proto: 3, Runs: 4, Load: load.Default()}
}

// Bounds of what can be asked for.
const (
	MaxUsers  = 1000
	MaxPeople = 100_000 // in all rooms
	MaxText   = 64 << 10
)

// Validate reports the first option that cannot work, with its value and what would.
func (c Config) Validate() error {
	rooms := append([]int{c.Rooms}, c.Levels...)
	for _, r := range rooms {
		if r < 1 || r*c.Users > MaxPeople {
			return fmt.Errorf("rooms %d: want 1 or more, of at most %d users in all", r, MaxPeople)
		}
	}
	switch {
	case c.Users < 2 || c.Users > MaxUsers:
		return fmt.Errorf("users %d: want 2..%d: somebody has to hear what is said", c.Users, MaxUsers)
	case c.Messages < 0 || c.Messages > 1<<30:
		return fmt.Errorf("messages %d: want 1 or more", c.Messages)
	case c.Messages == 0 && c.Duration == 0:
		return errors.New("messages 0: want 1 or more, or a duration")
	case c.Duration != 0 && c.Duration < load.MinDuration:
		return fmt.Errorf("duration %v: want %v or more", c.Duration, load.MinDuration)
	case c.Messages > 0 && c.Duration > 0:
		return errors.New("messages and a duration exclude each other")
	case c.Pace != Turns && c.Pace != Flood:
		return fmt.Errorf("pace %q: want %s or %s", c.Pace, Turns, Flood)
	case c.Window < 1:
		return fmt.Errorf("window %d: want 1 or more", c.Window)
	case c.TextSize < headBytes || c.TextSize > MaxText:
		return fmt.Errorf("text size %d: want %d..%d bytes; sender, number and time take the first %d", c.TextSize, headBytes, MaxText, headBytes)
	case c.Proto != 2 && c.Proto != 3:
		return fmt.Errorf("protocol %d: want 2 or 3", c.Proto)
	case c.Runs < 1:
		return fmt.Errorf("runs %d: want 1 or more", c.Runs)
	case c.Rest < 0:
		return fmt.Errorf("rest %v: want 0 or more", c.Rest)
	}
	return nil
}

// connections is how many a run of so many rooms takes.
func (c Config) connections(rooms int) int {
	n := rooms * c.Users
	if c.Proto == 2 {
		n *= 2
	}
	return n
}

// Plan is the configuration as the result file records it.
func (c Config) Plan() result.Plan {
	p := c.Load.Plan()
	p.Workers, p.Keys, p.Pipeline, p.WarmupSeconds = c.Rooms*c.Users, 0, c.Window, 0
	p.DurationSeconds, p.Repeat = c.Duration.Seconds(), c.Runs
	p.ValueSize, p.ValueBytes, p.Distribution = strconv.Itoa(c.TextSize), float64(c.TextSize), ""
	p.Extra = map[string]string{
		"rooms": strconv.Itoa(c.Rooms), "users": strconv.Itoa(c.Users), "messages": strconv.Itoa(c.Messages),
		"pace": string(c.Pace), "text_size": strconv.Itoa(c.TextSize), "protocol": "RESP" + strconv.Itoa(c.Proto), "rest": c.Rest.String(),
	}
	if len(c.Levels) > 0 {
		p.Repeat = 1
		p.Extra["rooms"] = fmt.Sprintf("%d..%d", c.Levels[0], c.Levels[len(c.Levels)-1])
	}
	return p
}

// Outcome is what a measurement gave.
type Outcome struct {
	Cells       []result.Cell
	Server      result.Process
	Interrupted bool // ctx ended, or Kill was closed, before it was complete
}

// Run measures all runs, or all levels up to the first that fails, on one server. The outcome holds what there is even when an error
// is returned, which means that the server could not be started, or that connections could not be had for the first run.
func Run(ctx context.Context, c Config) (out Outcome, err error) {
	if err := c.Validate(); err != nil {
		return out, fmt.Errorf("chat: %w", err)
	}
	if c.Load.Progress == nil {
		c.Load.Progress = func(load.Progress) {}
	}
	if c.Load.Logf == nil {
		c.Load.Logf = func(string, ...any) {}
	}
	levels := c.Levels
	if len(levels) == 0 {
		for range c.Runs {
			levels = append(levels, c.Rooms)
		}
	}
	most := 0
	for _, rooms := range levels {
		most = max(most, c.connections(rooms))
	}
	// A ladder is climbed until it breaks; other runs have one height.
	if len(c.Levels) == 0 {
		if err := client.EnsureDescriptors(most, "have fewer --rooms or --users"); err != nil {
			return out, fmt.Errorf("chat: %w", err)
		}
	}
	host, err := load.OpenHost(ctx, c.Load, most)
	if err != nil {
		out.Interrupted = ctx.Err() != nil
		return out, err
	}
	out.Server = host.Process()
	defer func() {
		if closeErr := host.Close(); closeErr != nil && len(out.Cells) > 0 {
			last := &out.Cells[len(out.Cells)-1]
			last.Valid = false
			last.Checks = append(last.Checks, result.Check{Name: "server_exit", Detail: closeErr.Error()})
		}
	}()
	for i, rooms := range levels {
		if i > 0 {
			rest(ctx, c.Rest)
		}
		if ctx.Err() != nil {
			out.Interrupted = true
			return out, nil
		}
		c.Rooms = rooms
		cell, err := Measure(ctx, host, c, i+1)
		switch {
		case ctx.Err() != nil && cell == nil:
			out.Interrupted = true
			return out, nil
		case cell == nil && len(c.Levels) == 0 && i == 0:
			return out, fmt.Errorf("chat: %w", err)
		case cell == nil: // the level, or this run, has no connections
			cell = &result.Cell{Mode: host.Mode(), Op: op(c.Pace), Repeat: i + 1, Started: time.Now().UTC(), Series: []result.Row{}, Chat: &result.Chat{Rooms: rooms, Users: c.Users}}
			cell.Checks = []result.Check{{Name: "completed", Detail: err.Error()}}
		}
		if len(c.Levels) > 0 {
			cell.Repeat, cell.Config = 1, map[string]string{"rooms": strconv.Itoa(rooms)}
		}
		out.Cells = append(out.Cells, *cell)
		out.Interrupted = ctx.Err() != nil
		if out.Interrupted || err != nil || len(c.Levels) > 0 && !cell.Valid {
			return out, nil
		}
	}
	return out, nil
}

func op(p Pace) string { return "chat-" + string(p) }

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// token makes the channels of a run its own, on whatever server.
func token() string { return rand.Text()[:8] }
