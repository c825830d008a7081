package chat

import (
	"context"
	"fmt"
	"time"

	"kvmark/client/load"
	"kvmark/client/result"
)

// Driver has chats take the place of Sets and Gets in comparisons: each sample is one chat that goes on for the sample's time.
type Driver struct{ Config }

// Op implements [load.Driver].
func (d Driver) Op() string { return op(d.Pace) }

// Open implements [load.Driver]: users wait for messages before they send the next.
func (d Driver) Open() bool { return false }

// Connections implements [load.Driver].
func (d Driver) Connections() int { return d.connections(d.Rooms) }

// String implements [load.Driver].
func (d Driver) String() string {
	return fmt.Sprintf("chat rooms=%d users=%d pace=%s window=%d text-size=%d protocol=%d", d.Rooms, d.Users, d.Pace, d.Window, d.TextSize, d.Proto)
}

// Drive implements [load.Driver].
func (d Driver) Drive(ctx context.Context, h *load.Host, repeat int, length time.Duration) (*result.Cell, error) {
	c := d.Config
	c.Messages, c.Duration = 0, length
	c.Load.Progress, c.Load.Logf = func(load.Progress) {}, func(string, ...any) {}
	return Measure(ctx, h, c, repeat)
}

var _ load.Driver = Driver{}
