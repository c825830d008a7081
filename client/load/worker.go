package load

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"kvmark/client"
	"kvmark/client/workload"
)

// kind is what the workers do in a phase.
type kind uint8

const (
	sets kind = iota
	gets
	mixed
	pings
)

// worker is one connection and everything its goroutine needs: nothing is shared in the loop but the end of the window,
// which all read and nobody writes.
type worker struct {
	id   int
	gen  *workload.Generator
	conn *client.Conn

	dead    bool   // there is no connection, or it broke: it is replaced before the next phase
	written bitmap // the keys whose Set was acknowledged

	batch      []request
	key, value []byte
	latency    *hdr.Histogram // of the phase
	second     *hdr.Histogram // of the current second
	t          tally
}

type request struct {
	op workload.Op
	n  int
}

// tally is what one worker counted in one phase.
type tally struct {
	ok       int64    // right, and complete before the window closed
	okBy     [2]int64 // of them Sets and Gets
	late     int64    // right, but after it
	answered [2]int64 // replies to Sets and Gets, of whatever content
	stored   int64    // acknowledged Sets
	errors   int64    // error replies, and a broken connection as one
	misses   int64
	wrong    int64
	open     time.Duration // time within the window of requests that are not in the histogram: late, or not right
	first    error         // first error, miss or wrong value
	stopped  time.Duration // when the worker stopped, in the phase's time
}

func (t *tally) add(o tally) {
	t.ok += o.ok
	t.late += o.late
	t.stored += o.stored
	t.errors += o.errors
	t.misses += o.misses
	t.wrong += o.wrong
	t.open += o.open
	for i := range o.answered {
		t.answered[i] += o.answered[i]
		t.okBy[i] += o.okBy[i]
	}
	if t.first == nil {
		t.first = o.first
	}
	t.stopped = max(t.stopped, o.stopped)
}

func (t *tally) note(err error) {
	if t.first == nil {
		t.first = err
	}
}

// phase is what the workers share while they run.
type phase struct {
	kind   kind
	depth  int
	start  chan struct{} // closed at t0
	t0     time.Time
	end    atomic.Int64 // ns after t0; only ever moved to an earlier moment that is yet to come
	series *series
}

// run sends batches until the end of the window. The clock is read once a batch: the end of one is the start of the
// next, so latency includes making the next request, and a worker's latencies add up to its time.
func (w *worker) run(p *phase) {
	<-p.start
	begin := time.Since(p.t0)
	second := 0
	for int64(begin) < p.end.Load() {
		right, err := w.exchange(p)
		now := time.Since(p.t0)
		end := time.Duration(p.end.Load())
		inTime := now < end
		if inTime {
			if s := int(now / time.Second); s > second {
				p.series.add(w.id, second, s, w.second)
				second = s
			}
		}
		n := right[workload.Set] + right[workload.Get]
		counted := n
		if !inTime {
			w.t.late += n
			counted = 0
		}
		if counted > 0 {
			w.t.ok += n
			w.t.okBy[workload.Set] += right[workload.Set]
			w.t.okBy[workload.Get] += right[workload.Get]
			record(w.latency, now-begin, n)
			record(w.second, now-begin, n)
		}
		w.t.open += (min(now, end) - begin) * time.Duration(int64(p.depth)-counted)
		begin = now
		if err != nil {
			w.dead = true
			w.t.errors++
			w.t.note(err)
			break
		}
	}
	w.t.stopped = begin
	p.series.add(w.id, second, math.MaxInt, w.second)
}

// exchange sends one batch and reads its replies. It returns how many were right, and an error if the connection is of
// no further use.
func (w *worker) exchange(p *phase) (right [2]int64, err error) {
	w.batch = w.batch[:0]
	for range p.depth {
		w.queue(p.kind)
	}
	if err := w.conn.Flush(); err != nil {
		return right, err
	}
	for _, q := range w.batch {
		ok, err := w.receive(p.kind, q)
		if err != nil {
			return right, err
		}
		if ok {
			right[q.op]++
		}
	}
	return right, nil
}

func (w *worker) queue(k kind) {
	var q request
	switch k {
	case pings:
		w.conn.QueuePing()
		w.batch = append(w.batch, q)
		return
	case gets:
		q.op = workload.Get
	case mixed:
		q.op = w.gen.NextOp()
	}
	q.n = w.gen.Next(q.op)
	w.key = w.gen.AppendKey(w.key[:0], q.n)
	if q.op == workload.Get {
		w.conn.QueueGet(w.key)
	} else {
		w.value = w.gen.AppendValue(w.value[:0], q.n)
		w.conn.QueueSet(w.key, w.value)
	}
	w.batch = append(w.batch, q)
}

// receive reads the reply to q, and reports whether it is right. The error is that of a broken connection.
func (w *worker) receive(k kind, q request) (bool, error) {
	if k == pings {
		err := w.conn.ReceivePing()
		return err == nil, err
	}
	if q.op == workload.Set {
		err := w.conn.ReceiveSet()
		if err == nil {
			w.t.answered[q.op]++
			w.t.stored++
			w.written.set(q.n)
			return true, nil
		}
		return false, w.refused(q, err)
	}
	value, found, err := w.conn.ReceiveGet()
	switch {
	case err != nil:
		return false, w.refused(q, err)
	case !found:
		w.t.answered[q.op]++
		w.t.misses++
		w.t.note(fmt.Errorf("%s has no value for key %s", w.conn.Addr(), w.gen.AppendKey(nil, q.n)))
		return false, nil
	case !w.gen.Verify(value, q.n):
		w.t.answered[q.op]++
		w.t.wrong++
		w.t.note(fmt.Errorf("%s has the wrong value for key %s: %.80q", w.conn.Addr(), w.gen.AppendKey(nil, q.n), value))
		return false, nil
	}
	w.t.answered[q.op]++
	return true, nil
}

// refused counts an error reply; any other error breaks the connection and is returned.
func (w *worker) refused(q request, err error) error {
	if !errors.As(err, new(*client.ServerError)) {
		return err
	}
	w.t.answered[q.op]++
	w.t.errors++
	w.t.note(err)
	return nil
}

const (
	fillBatch = 64
	fillBytes = 256 << 10 // more than one value only within this
)

// fill writes the keys that were never acknowledged, batch by batch, until stop is closed.
func (w *worker) fill(stop <-chan struct{}, patience time.Duration, filled *atomic.Int64) error {
	n, keys := 0, w.written.n
	for n < keys {
		select {
		case <-stop:
			return nil
		default:
		}
		w.batch = w.batch[:0]
		for size := 0; n < keys && len(w.batch) < fillBatch && size < fillBytes; n++ {
			if w.written.has(n) {
				continue
			}
			w.key = w.gen.AppendKey(w.key[:0], n)
			w.value = w.gen.AppendValue(w.value[:0], n)
			w.conn.QueueSet(w.key, w.value)
			w.batch = append(w.batch, request{workload.Set, n})
			size += len(w.value)
		}
		if err := w.conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if err := w.conn.Flush(); err != nil {
			return err
		}
		for _, q := range w.batch {
			if err := w.conn.ReceiveSet(); err != nil {
				return err
			}
			w.written.set(q.n)
		}
		filled.Add(int64(len(w.batch)))
	}
	return nil
}

// bitmap remembers which of n keys were written.
type bitmap struct {
	words []uint64
	n     int
	count int
}

func newBitmap(n int) bitmap { return bitmap{words: make([]uint64, (n+63)/64), n: n} }

func (b *bitmap) has(i int) bool { return b.words[i/64]&(1<<(i%64)) != 0 }

func (b *bitmap) set(i int) {
	if w, bit := &b.words[i/64], uint64(1)<<(i%64); *w&bit == 0 {
		*w |= bit
		b.count++
	}
}
