package conns

import (
	"context"
	"fmt"
	"time"

	"kvmark/client"
	"kvmark/client/load"
	"kvmark/client/result"
)

// Driver has many connections take the place of Sets and Gets in comparisons: each sample is one point, the first of the
// configuration, measured for the sample's time in whole seconds.
type Driver struct{ Config }

// Op implements [load.Driver].
func (d Driver) Op() string { return opName }

// Open implements [load.Driver].
func (d Driver) Open() bool { return d.Config.Open() }

// Connections implements [load.Driver].
func (d Driver) Connections() int { return d.Config.Connections[0] }

// String implements [load.Driver].
func (d Driver) String() string {
	return fmt.Sprintf("conns connections=%d rate=%s message-size=%d", d.Connections(), rateWord(d.Rates[0]), d.MessageSize)
}

// Drive implements [load.Driver].
func (d Driver) Drive(ctx context.Context, h *load.Host, repeat int, length time.Duration) (*result.Cell, error) {
	c := d.Config
	c.Duration = max(length.Round(window), window)
	c.Load.Progress, c.Load.Logf = func(load.Progress) {}, func(string, ...any) {}
	if c.Load.Patience == 0 {
		c.Load.Patience = 20 * time.Second
	}
	cell := c.on(ctx, h, point{d.Connections(), d.Rates[0]}, repeat, client.EnsureDescriptors(d.Connections(), "use fewer --connections"))
	cell.Config = nil // it is that of all samples
	return cell, nil
}

var _ load.Driver = Driver{}
