package experiment

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"kvmark/client/load"
	"kvmark/client/result"
)

// arm is a cell about to be measured.
type arm struct {
	cell   Cell
	layout uint64
	config load.Config
}

// measure measures arms side by side: their servers live at the same time, and the workers of one after the other run for
// a slice, forwards, then backwards, and so on:
//
//	A B C   C B A   A B C   C B A
//
// so that each pair of turns falls on all arms alike, whatever changes evenly. One arm alone runs in one piece.
// The error is one that no sample can be blamed for: ctx has ended, or the servers are not what they should be.
func measure(ctx context.Context, arms []arm, ops []string, slice time.Duration, check func(arm int, p result.Process) error) ([]Sample, error) {
	samples := make([]Sample, len(arms))
	running := make([]*load.Arm, len(arms)) // nil: failed
	defer func() {
		for _, a := range running {
			if a != nil {
				_ = a.Stop()
			}
		}
	}()
	fail := func(i int, err error) {
		samples[i].Failed = err.Error()
		samples[i].Cells, samples[i].Slices = nil, nil
		if a := running[i]; a != nil {
			running[i] = nil
			_ = a.Stop() // it has failed already
		}
	}
	for i, arm := range arms {
		samples[i] = Sample{Variant: arm.cell.Variant, Mode: arm.cell.Mode, Layout: arm.layout, Client: runtime.Version()}
		begin := time.Now()
		a, err := load.Start(ctx, arm.config)
		if err == nil {
			running[i] = a
			samples[i].Process = a.Process()
			if err := check(i, a.Process()); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil || killed(arm.config.Kill) {
			return nil, context.Canceled
		}
		if err != nil {
			fail(i, err)
		}
		samples[i].Seconds += time.Since(begin).Seconds()
	}
	for _, a := range running {
		if a != nil {
			a.Beside(running)
		}
	}
	for _, op := range ops {
		if err := window(ctx, arms, running, samples, op, slice, fail); err != nil {
			return nil, err
		}
	}
	for i, a := range running {
		if a == nil {
			continue
		}
		begin := time.Now()
		running[i] = nil
		if err := a.Stop(); err != nil {
			n := len(samples[i].Cells) - 1
			c := &samples[i].Cells[n]
			c.Checks = append(c.Checks, result.Check{Name: "server_exit", Detail: err.Error()})
			c.Valid = false
		}
		samples[i].Seconds += time.Since(begin).Seconds()
	}
	return samples, nil
}

// window measures one operation on all arms that still run.
func window(ctx context.Context, arms []arm, running []*load.Arm, samples []Sample, op string, slice time.Duration, fail func(int, error)) error {
	counters := make([]*instructions, len(arms))
	defer func() {
		for _, c := range counters {
			c.close()
		}
	}()
	stopped := func() bool { return ctx.Err() != nil || killed(arms[0].config.Kill) }
	timed := func(i int, f func()) {
		begin := time.Now()
		f()
		samples[i].Seconds += time.Since(begin).Seconds()
	}
	for i, a := range running {
		if a == nil {
			continue
		}
		var err error
		timed(i, func() {
			if op != "set" { // Sets begin on an empty store, as those of run do
				err = a.Fill(ctx)
			}
			if err == nil {
				err = a.Begin(ctx, op)
			}
		})
		if stopped() {
			return context.Canceled
		}
		if err != nil {
			fail(i, err)
			continue
		}
		counters[i] = countInstructions(a.PID())
	}
	turns, length := turns(arms[0].config.Duration, slice)
	parts := make([][]load.Slice, len(arms))
	turn := make([]int, len(arms))
	for i := range turn {
		turn[i] = i
	}
	for range turns {
		for _, i := range turn {
			if running[i] != nil {
				timed(i, func() { parts[i] = append(parts[i], running[i].Slice(ctx, length)) })
			}
			if stopped() {
				return context.Canceled
			}
		}
		slices.Reverse(turn)
	}
	for i, a := range running {
		if a == nil {
			continue
		}
		count, counted := counters[i].read()
		var cell result.Cell
		var err error
		timed(i, func() { cell, err = a.End(ctx) })
		if stopped() {
			return context.Canceled
		}
		if counted && cell.OK > 0 {
			cell.Server.InstructionsPerOp = result.Number(float64(count) / float64(cell.OK))
		}
		samples[i].Cells = append(samples[i].Cells, cell)
		if slice > 0 {
			samples[i].Slices = append(samples[i].Slices, parts[i])
		}
		if err != nil {
			fail(i, fmt.Errorf("%s: %w", op, err))
		}
	}
	return nil
}

// turns returns how often every arm gets a slice, and how long these are. Arms side by side get an even number, so that
// every turn has its mirror image.
func turns(duration, slice time.Duration) (n int, length time.Duration) {
	if slice <= 0 {
		return 1, duration
	}
	n = max(2, int((duration+slice/2)/slice))
	n += n % 2
	return n, slice
}

func killed(kill <-chan struct{}) bool {
	select {
	case <-kill:
		return true
	default:
		return false
	}
}
