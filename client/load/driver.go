package load

import (
	"context"
	"errors"
	"time"

	"kvmark/client/result"
)

// Driver brings a load of its own to the server of an [Arm], such as chat rooms, in place of Sets and Gets.
type Driver interface {
	// Op is what its cells are called.
	Op() string
	// Open reports whether it sends on a schedule, not when replies come.
	Open() bool
	// Connections is how many it opens.
	Connections() int
	// String is all of its options in one line.
	String() string
	// Drive measures for about d. A nil cell means that it could not begin; an error with a cell, that the host is gone.
	Drive(ctx context.Context, h *Host, repeat int, d time.Duration) (*result.Cell, error)
}

// driven is an arm's host and what became of its driver.
type driven struct {
	*Host
	driver Driver
	repeat int
	cell   *result.Cell
	err    error
}

func startDriven(ctx context.Context, c Config) (*driven, error) {
	h, err := OpenHost(ctx, c, c.Driver.Connections())
	if err != nil {
		return nil, err
	}
	return &driven{Host: h, driver: c.Driver, repeat: c.Repeat}, nil
}

// slice measures the window: one piece, since its connections do not outlive it.
func (d *driven) slice(ctx context.Context, length time.Duration) Slice {
	if d.cell != nil || d.err != nil {
		d.err = errors.New("a " + d.driver.Op() + " cannot be measured in slices")
		return Slice{}
	}
	d.cell, d.err = d.driver.Drive(ctx, d.Host, d.repeat, length)
	if d.cell == nil && d.err == nil {
		d.err = context.Cause(ctx)
	}
	if d.cell == nil {
		return Slice{}
	}
	return Slice{OK: d.cell.OK, Seconds: d.cell.Seconds}
}

// end gives what was measured.
func (d *driven) end() (result.Cell, error) {
	c := result.Cell{Mode: d.Mode(), Op: d.driver.Op(), Repeat: d.repeat, Checks: []result.Check{}, Series: []result.Row{}}
	if d.cell != nil {
		c = *d.cell
	}
	return c, d.err
}
