package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// untilSignal returns a context that ends with the first signal that asks the program to end: SIGTERM, SIGINT, SIGHUP unless
// it was ignored from the start (as by nohup), and SIGQUIT, for which the stacks of all goroutines are written first. A second
// one that is no SIGHUP ends the process at once.
func untilSignal(stderr io.Writer) context.Context {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	got := make(chan os.Signal, 1)
	signal.Notify(got, ends...)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(got, syscall.SIGHUP) // for good: a terminal that is closed may send it more than once
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the program
		sig := <-got
		signal.Reset(ends...)
		if sig == syscall.SIGQUIT {
			fmt.Fprintf(stderr, "SIGQUIT: the stacks of all goroutines; the server is stopped in good order\n%s\n", stacks())
		}
		cancel()
	}()
	return ctx
}

// stacks returns the stacks of all goroutines, as far as they fit among the notes.
func stacks() []byte {
	buf := make([]byte, notesBytes/2)
	return buf[:runtime.Stack(buf, true)]
}

// outliveReaders lets writes to a pipe without a reader fail, instead of ending the process, which is the default for stdout
// and stderr.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
