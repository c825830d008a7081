package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"kvmark/client/workload"
)

// Worker is one connection that sends.
type Worker struct {
	conn       conn
	gen        *workload.Generator
	key, value []byte
	n          []int // keys of the batch
	ops        int   // of the last Drive
}

// Connect makes w.Workers connections that send what w says, and idle ones beside them.
func (s *Server) Connect(ctx context.Context, w workload.Config, idle int) error {
	for i := range w.Workers {
		gen, err := w.New(i)
		if err != nil {
			return err
		}
		conn, err := s.dial(ctx)
		if err != nil {
			return err
		}
		s.workers = append(s.workers, &Worker{conn: conn, gen: gen})
	}
	for range idle {
		conn, err := s.dial(ctx)
		if err != nil {
			return err
		}
		s.idle = append(s.idle, conn)
	}
	return nil
}

// Fill writes every key once, so that each Get finds its value.
func (s *Server) Fill(keys int) error {
	return s.together(func(w *Worker) error {
		for n := 0; n < keys; {
			batch := min(64, keys-n)
			for i := range batch {
				w.queueSet(n + i)
			}
			if err := w.receive("set", batch); err != nil {
				return err
			}
			n += batch
		}
		return nil
	})
}

// Set sends count Sets of keys by the workload's distribution, shared among the workers, depth in flight each.
func (s *Server) Set(count, depth int) error {
	each := count / len(s.workers)
	return s.together(func(w *Worker) error {
		for sent := 0; sent < each; sent += depth {
			if err := w.batch("set", min(depth, each-sent)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Drive sends op (ping, set, get) with depth requests in flight per worker for so long, and returns how many were
// answered in how many seconds. A value that is missing or wrong is an error.
func (s *Server) Drive(op string, depth int, slice time.Duration) (ops int, seconds float64, err error) {
	begin := time.Now()
	end := begin.Add(slice)
	for _, w := range s.workers {
		if err := w.conn.SetDeadline(end.Add(20 * time.Second)); err != nil {
			return 0, 0, err
		}
	}
	err = s.together(func(w *Worker) error {
		for w.ops = 0; time.Now().Before(end); w.ops += depth {
			if err := w.batch(op, depth); err != nil {
				return err
			}
		}
		return nil
	})
	seconds = time.Since(begin).Seconds()
	for _, w := range s.workers {
		ops += w.ops
	}
	return ops, seconds, err
}

// together lets all workers do f and waits for them.
func (s *Server) together(f func(*Worker) error) error {
	errs := make([]error, len(s.workers))
	var running sync.WaitGroup
	for i, w := range s.workers {
		running.Go(func() { errs[i] = f(w) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (w *Worker) queueSet(n int) {
	w.key = w.gen.AppendKey(w.key[:0], n)
	w.value = w.gen.AppendValue(w.value[:0], n)
	w.conn.QueueSet(w.key, w.value)
}

// batch sends depth requests in one write and reads their replies.
func (w *Worker) batch(op string, depth int) error {
	w.n = w.n[:0]
	for range depth {
		switch op {
		case "ping":
			w.conn.QueuePing()
		case "set":
			w.queueSet(w.gen.Next(workload.Set))
		case "get":
			n := w.gen.Next(workload.Get)
			w.key = w.gen.AppendKey(w.key[:0], n)
			w.conn.QueueGet(w.key)
			w.n = append(w.n, n)
		default:
			return fmt.Errorf("unknown operation %q", op)
		}
	}
	return w.receive(op, depth)
}

func (w *Worker) receive(op string, depth int) error {
	if err := w.conn.Ask(); err != nil {
		return err
	}
	for i := range depth {
		switch op {
		case "ping":
			if err := w.conn.ReceivePing(); err != nil {
				return err
			}
		case "set":
			if err := w.conn.ReceiveSet(); err != nil {
				return err
			}
		case "get":
			value, found, err := w.conn.ReceiveGet()
			if err != nil {
				return err
			}
			if !found || !w.gen.Verify(value, w.n[i]) {
				return fmt.Errorf("key %d has a wrong value or none: %.60q", w.n[i], value)
			}
		}
	}
	return nil
}
