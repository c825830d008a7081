package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruptible ends ctx at the first Ctrl-C or SIGTERM, so that what there is can be printed and saved; closes kill at
// the second, so that nothing is waited for; and lets the third have its usual effect. stop ends all that.
func interruptible(parent context.Context, note func(string, ...any)) (ctx context.Context, kill <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	killed, stopped, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { // ends with stop, or after the second signal
		defer close(gone)
		for n := range 2 {
			select {
			case <-signals:
			case <-stopped:
				return
			}
			if n == 0 {
				note("interrupted: finishing; once more kills the server at once")
				cancel()
			}
		}
		signal.Stop(signals)
		close(killed)
	}()
	return ctx, killed, func() {
		signal.Stop(signals)
		close(stopped)
		<-gone
		cancel()
	}
}
