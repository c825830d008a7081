package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruptible ends ctx at the first Ctrl-C, SIGTERM, or SIGHUP of a terminal that is closed, so that what there is can be
// printed and saved; closes kill at the second, or at once at a SIGQUIT, so that nothing is waited for; and lets the next
// have its usual effect. A SIGHUP that is ignored (nohup) stays so. stop ends all that.
func interruptible(parent context.Context, note func(string, ...any)) (ctx context.Context, kill <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	killed, stopped, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { // ends with stop, or after the second signal
		defer close(gone)
		for n := 0; n < 2; n++ {
			var got os.Signal
			select {
			case got = <-signals:
			case <-stopped:
				return
			}
			if got == syscall.SIGHUP && n > 0 { // a closed terminal may send several: that is no impatience
				n--
				continue
			}
			cancel()
			if got == syscall.SIGQUIT {
				note("quit: killing the server")
				break
			}
			if n == 0 {
				note("interrupted: finishing; once more kills the server at once")
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
