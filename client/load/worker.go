package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

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

	timedOut  bool   // of the phase: it ended because no reply came
	outOfStep error  // a reply came that is none of its request's, or without a request
	dead      bool   // there is no connection, or it broke: it is replaced before the next phase
	written   bitmap // the keys whose Set was acknowledged
	last      generations

	batch      []request
	key, value []byte
	schedule   schedule      // of the phase, in open loop
	arrivals   *rand.Rand    // for its gaps; nil: constant
	alarm      alarm         // and to wait for them; nil in closed loop
	timing                   // of the phase
	free       time.Duration // in open loop: when the connection would be free if this client had never been late
	second     *histogram    // of the current second
	at         int           // the current second
	pieces     pieces        // of the phase
	t          tally
}

func newWorker(id int, c Config) (*worker, error) {
	gen, err := c.Workload.New(id)
	if err != nil {
		return nil, err
	}
	w := &worker{id: id, gen: gen, dead: true, written: newBitmap(c.Workload.Keys), last: newGenerations(c.Workload.Keys), second: newRowHistogram()}
	w.timing = newTiming(c.Pipeline, c.Rate.Open())
	if c.Arrivals == Poisson {
		w.arrivals = rand.New(rand.NewPCG(c.Workload.Seed, uint64(id)+1<<32)) // not the stream of its keys
	}
	if c.paced() {
		if w.alarm, err = c.newAlarm(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

type request struct {
	op         workload.Op
	n          int
	generation uint8         // of the value that a Set writes, or that a Get must find
	due        time.Duration // in open loop
	// In open loop: when its reply would have come if this client had never been late.
	undelayed time.Duration
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
	held     time.Duration // time within the window of the batches of counted replies, once for each
	open     time.Duration // the same of requests that are not counted: late, or not right
	due      int64         // requests that were open when the window closed, of whatever end
	longest  time.Duration // from sending to the reply, or to the end of their connection, the longest of them
	sent     int64         // in open loop: requests sent within the window
	unsent   int64         // and those that were due but not sent before it closed
	waited   int64         // sent requests that found their connection busy when they were due
	slowed   int64         // counted replies that took long, most of it because this process did not run
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
	t.held += o.held
	t.open += o.open
	t.due += o.due
	t.longest = max(t.longest, o.longest)
	t.sent += o.sent
	t.unsent += o.unsent
	t.waited += o.waited
	t.slowed += o.slowed
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
	rate   Rate
	length time.Duration
	start  chan struct{} // closed at t0
	t0     time.Time
	end    atomic.Int64 // ns after t0; only ever moved to an earlier moment that is yet to come
	series *series
	pauses *pauses // nil: none are noted
}

// run sends batches until the end of the window. In closed loop the end of one batch is the start of the next, so latency
// includes making the next request, and a worker's time is that of its batches. In open loop a batch is what is due.
func (w *worker) run(p *phase) {
	<-p.start
	begin := time.Since(p.t0)
	w.at, w.free = 0, 0
	if p.rate.Open() {
		w.schedule = newSchedule(p.rate, p.length, w.id, p.workers(), w.arrivals)
	}
	for int64(begin) < p.end.Load() {
		free := begin
		if p.rate.Open() {
			if w.schedule.next > begin {
				if err := w.await(p); err != nil {
					w.t.note(err)
					w.t.errors++
					break
				}
				begin = time.Since(p.t0)
			}
			if begin >= time.Duration(p.end.Load()) {
				break
			}
		}
		now, err := w.exchange(p, begin, free)
		begin = now
		if err != nil {
			w.dead = true
			w.timedOut = errors.Is(err, os.ErrDeadlineExceeded)
			if errors.As(err, new(*client.SurplusError)) || errors.As(err, new(*client.ReplyError)) {
				w.outOfStep = err
			}
			w.t.errors++
			w.t.note(err)
			break
		}
	}
	if p.rate.Open() {
		end := time.Duration(p.end.Load())
		w.t.unsent = w.schedule.rest(end, func(due time.Duration, n int64) {
			w.response.record(end-due, n)
			w.undelayed.record(min(w.free, end)-due, n)
		})
	}
	w.t.stopped = begin
	p.series.add(w.id, w.at, math.MaxInt, w.second)
}

func (p *phase) workers() int { return len(p.series.passed) }

// exchange sends one batch, reads its replies, and counts each by the moment it is complete. It returns that of the last
// one, and an error if the connection is of no further use. The worker has been free since that moment and begins now.
func (w *worker) exchange(p *phase, begin, free time.Duration) (now time.Duration, err error) {
	w.batch = w.batch[:0]
	for len(w.batch) < p.depth {
		var due time.Duration
		if p.rate.Open() {
			if due = w.schedule.next; due > begin || due >= time.Duration(p.end.Load()) {
				break
			}
			w.schedule.advance()
		}
		w.queue(p.kind, due)
	}
	if len(w.batch) == 0 { // woken before anything is due
		return time.Since(p.t0), nil
	}
	if len(w.conn.Arrived()) > 0 {
		return begin, w.conn.Surplus()
	}
	sent := begin
	if p.depth > 1 || p.rate.Open() {
		sent = time.Since(p.t0)
	}
	if p.rate.Open() {
		w.t.sent += int64(len(w.batch))
		for _, q := range w.batch {
			w.lateness.record(sent-max(q.due, free), 1)
			if q.due < free {
				w.t.waited++
			}
		}
	}
	err = w.conn.Ask()
	var unread time.Duration // how long the reply had been there
	if p.rate.Open() {
		if d, known := w.conn.ReadDelay(); known {
			w.readDelay.record(d, 1)
			unread = d
		}
	}
	counted, answered, idle := 0, 0, w.free
	for i := 0; i < len(w.batch) && err == nil; i++ {
		var ok bool
		if ok, err = w.receive(p.kind, w.batch[i]); err != nil {
			break
		}
		now = time.Since(p.t0)
		w.outlast(p, sent, now, 1)
		own := unread
		if now-sent >= leastPause {
			own = w.paused(p, sent, now, unread)
		}
		if p.rate.Open() {
			w.batch[i].undelayed = w.undelay(max(idle, w.batch[i].due), now-sent-own)
		}
		if ok && w.count(p, i, sent, now) {
			if 2*own > now-sent && now-sent >= leastPause {
				w.t.slowed++
			}
			counted++
		}
		answered++
	}
	if err != nil {
		now = time.Since(p.t0)
		w.outlast(p, sent, now, int64(len(w.batch)-answered))
		for _, q := range w.batch[answered:] {
			if q.op == workload.Set && p.kind != pings {
				w.last.doubt(q.n)
			}
		}
	}
	busy := min(now, time.Duration(p.end.Load())) - begin
	w.t.held += busy * time.Duration(counted)
	w.t.open += busy * time.Duration(len(w.batch)-counted)
	return now, err
}

// paused is the part of a slow reply's time that was this process's own: it did not run, or left the reply unread.
func (w *worker) paused(p *phase, sent, now, unread time.Duration) time.Duration {
	return min(max(unread, p.pauses.between(p.t0.Add(sent), p.t0.Add(now)).total), now-sent)
}

// undelay enters when the reply to a request would have come had this client sent it, and those before it, at the moment when it
// was due and its connection free, and read each reply when it came: service is the time from sending to the reply without what
// the client was late by. A late client also delays the requests that pile up behind, which no lateness of sends shows.
func (w *worker) undelay(sent, service time.Duration) time.Duration {
	reply := sent + max(service, 0)
	w.free = max(w.free, reply)
	return reply
}

// outlast enters n requests that ended at now if that is beyond the window: their wait is in no percentile.
func (w *worker) outlast(p *phase, sent, now time.Duration, n int64) {
	if int64(now) >= p.end.Load() {
		w.t.due += n
		w.t.longest = max(w.t.longest, now-sent)
	}
}

// count enters the right reply to request i of the batch, and reports whether it came before the window closed.
func (w *worker) count(p *phase, i int, sent, now time.Duration) bool {
	q, from := w.batch[i], sent
	if p.rate.Open() {
		from = q.due
		w.response.record(now-q.due, 1)
		w.undelayed.record(q.undelayed-q.due, 1)
	}
	if int64(now) >= p.end.Load() {
		w.t.late++
		return false
	}
	w.turn(p, now)
	w.pieces.count(now)
	w.t.ok++
	w.t.okBy[q.op]++
	w.latency.record(now-sent, 1)
	w.second.record(now-from, 1) // a stall shows in its second, also where the pace hides it from the rest
	if p.depth > 1 {
		if i == 0 {
			w.firsts.record(now-sent, 1)
		}
		if i == len(w.batch)-1 {
			w.lasts.record(now-sent, 1)
		}
	}
	return true
}

// turn hands in the row of the current second once now is beyond it.
func (w *worker) turn(p *phase, now time.Duration) {
	if s := int(now / time.Second); s > w.at && int64(now) < p.end.Load() {
		p.series.add(w.id, w.at, s, w.second)
		w.at = s
	}
}

func (w *worker) queue(k kind, due time.Duration) {
	q := request{due: due}
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
		q.generation = w.last.sent(q.n)
		w.conn.QueueGet(w.key)
	} else {
		q.generation = w.last.next(q.n, w.gen.Generations())
		w.value = w.gen.AppendGeneration(w.value[:0], q.n, q.generation)
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
			w.last.acknowledge(q.n)
			return true, nil
		}
		w.last.doubt(q.n)
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
	case !w.gen.VerifyGeneration(value, q.n, q.generation) && !w.passes(value, q):
		w.t.answered[q.op]++
		w.t.wrong++
		w.t.note(w.wrong(value, q))
		return false, nil
	}
	w.t.answered[q.op]++
	return true, nil
}

// before is how many Sets ago value was the one of q's key: 0 the last, -1 none that can be told.
func (w *worker) before(value []byte, q request) int {
	all := int(w.gen.Generations())
	for ago := range all {
		if w.gen.VerifyGeneration(value, q.n, uint8((int(q.generation)+all-ago)%all)) {
			return ago
		}
	}
	return -1
}

// passes reports whether a value that is not the last one sent may be right: it is one of that key, and nothing is known of the last.
func (w *worker) passes(value []byte, q request) bool {
	return w.last.doubtful(q.n) && w.before(value, q) >= 0
}

// wrong is the error of a value that q's key must not have.
func (w *worker) wrong(value []byte, q request) error {
	key := w.gen.AppendKey(nil, q.n)
	if ago := w.before(value, q); ago > 0 {
		return fmt.Errorf("%s has an old value for key %s, that of %d Sets before the last one that it acknowledged: %.80q", w.conn.Addr(), key, ago, value)
	}
	return fmt.Errorf("%s has the wrong value for key %s: %.80q", w.conn.Addr(), key, value)
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
			w.value = w.gen.AppendGeneration(w.value[:0], n, w.last.next(n, w.gen.Generations()))
			w.conn.QueueSet(w.key, w.value)
			w.batch = append(w.batch, request{op: workload.Set, n: n})
			size += len(w.value)
		}
		if err := w.conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if err := w.conn.Ask(); err != nil {
			return err
		}
		for _, q := range w.batch {
			if err := w.conn.ReceiveSet(); err != nil {
				return err
			}
			w.written.set(q.n)
			w.last.acknowledge(q.n)
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

// generations knows for each key which generation of its value was sent last. A key belongs to one worker, whose requests go over
// one connection in order: a Get must find the value of the last Set sent before it, if that was acknowledged.
type generations struct {
	last   []uint8          // by key, plus 1; 0: none was sent
	failed map[int]struct{} // keys whose last Set failed, so that it may have been executed or not
}

func newGenerations(keys int) generations { return generations{last: make([]uint8, keys)} }

// next is the generation of a Set that is about to be sent, of so many that can be told from each other.
func (g *generations) next(n int, all uint8) uint8 {
	generation := g.last[n]
	if generation >= all {
		generation = 0
	}
	g.last[n] = generation + 1
	return generation
}

// sent is the generation sent last.
func (g *generations) sent(n int) uint8 { return max(g.last[n], 1) - 1 }

func (g *generations) acknowledge(n int) {
	if len(g.failed) > 0 {
		delete(g.failed, n)
	}
}

// doubt notes that the last Set of n failed.
func (g *generations) doubt(n int) {
	if g.failed == nil {
		g.failed = map[int]struct{}{}
	}
	g.failed[n] = struct{}{}
}

func (g *generations) doubtful(n int) bool {
	_, is := g.failed[n]
	return is
}
