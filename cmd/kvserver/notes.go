package main

import (
	"io"
	"sync"
	"time"
)

// notes is the way to stderr for a program that serves. A Write never waits and never fails, whether or not anything reads
// what is written: lines wait in a bounded buffer for the goroutine that writes them, and those for which there is no room are
// dropped and counted. A reader that has gone loses them all.
type notes struct {
	mu      sync.Mutex
	wake    sync.Cond
	waiting []byte
	ended   bool
	dropped uint64
	done    chan struct{} // closed when the goroutine has ended
}

const (
	notesBytes = 1 << 20 // that wait
	// notesPatience is how long the end of the program waits for what has not been written.
	notesPatience = 2 * time.Second
)

// newNotes starts the goroutine, which close ends.
func newNotes(w io.Writer) *notes {
	n := &notes{done: make(chan struct{})}
	n.wake.L = &n.mu
	go n.serve(w)
	return n
}

// Write implements io.Writer for whole lines.
func (n *notes) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended || len(n.waiting)+len(line) > notesBytes {
		n.dropped++
		return len(line), nil
	}
	n.waiting = append(n.waiting, line...)
	n.wake.Signal()
	return len(line), nil
}

func (n *notes) serve(w io.Writer) {
	defer close(n.done)
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		for len(n.waiting) == 0 && !n.ended {
			n.wake.Wait()
		}
		if len(n.waiting) == 0 {
			return
		}
		lines := n.waiting
		n.waiting = nil
		n.mu.Unlock()
		_, err := w.Write(lines)
		n.mu.Lock()
		if err != nil {
			n.dropped++
		}
	}
}

// Dropped returns how many notes were not written.
func (n *notes) Dropped() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dropped
}

// close waits until everything is written, for as long as that is of use.
func (n *notes) close() {
	n.mu.Lock()
	n.ended = true
	n.wake.Signal()
	n.mu.Unlock()
	select {
	case <-n.done:
	case <-time.After(notesPatience):
	}
}
