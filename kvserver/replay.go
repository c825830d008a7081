package kvserver

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"kvmark/storage"
	"kvmark/wal/entry"
)

// replayer applies the records of the log to the store, in lanes beside each other: all entries of a key go to one lane, in
// their order, so every key ends as it would if they came one by one. Only the end is looked at.
//
//	log -> decode -> lane 0: | batch | batch | -> apply
//	                 lane 1: | batch | batch | -> apply
//
// See replayLanes for where it is worth it. What is on its way is bounded by laneBatch for each batch.
type replayer struct {
	d      *db
	many   many // the store, if it is one
	lanes  []*lane
	failed atomic.Pointer[error] // the first error of a lane
	route  func(entry.Entry) error
	done   sync.WaitGroup
}

// many is a store that sets many entries faster than one after the other.
type many interface {
	SetAll(keys, values [][]byte) error
}

// lane is one goroutine; the replayer fills its batches.
type lane struct {
	batch   []byte      // entries
	batches chan []byte // to apply
	spare   chan []byte // applied
	busy    sync.WaitGroup

	// The goroutine's: what it has yet to set. They alias its batch.
	keys, values [][]byte
}

const (
	laneBatch = 64 << 10
	laneQueue = 4
)

// newReplayer starts n lanes; without any, entries are applied as they come.
func newReplayer(d *db, n int) *replayer {
	r := &replayer{d: d}
	if r.route = d.applyFn; n == 0 {
		return r
	}
	r.route = r.send
	r.many, _ = d.store.(many)
	for range n {
		l := &lane{batches: make(chan []byte, laneQueue), spare: make(chan []byte, laneQueue+1)}
		r.lanes = append(r.lanes, l)
		r.done.Go(func() { r.run(l) })
	}
	return r
}

// replayLanes is the number of lanes: one for each processor where applying a record costs much more than sending it on, for
// waiting for memory or for compressing, and none where files are written one at a time. BenchmarkReplay compares them.
func replayLanes(mode storage.Mode) int {
	switch mode {
	case storage.Memory, storage.Map, storage.Serialize:
		return runtime.GOMAXPROCS(0)
	}
	return 0
}

func (r *replayer) run(l *lane) {
	apply := r.d.applyFn
	if r.many != nil {
		apply = func(e entry.Entry) error { return r.collect(l, e) }
	}
	for b := range l.batches {
		if r.failed.Load() == nil {
			err := entry.Decode(b, apply)
			if err == nil {
				err = r.setAll(l)
			}
			if err != nil {
				r.failed.CompareAndSwap(nil, &err)
			}
		}
		select {
		case l.spare <- b[:0]:
		default:
		}
		l.busy.Done()
	}
}

// collect is db.apply for entries of which many are set at once.
func (r *replayer) collect(l *lane, e entry.Entry) error {
	if e.Op == entry.Set && len(e.Value) <= longBytes {
		r.d.stripe(e.Key).setEnd(e.Key, 0)
		l.keys, l.values = append(l.keys, e.Key), append(l.values, e.Value)
		return nil
	}
	if err := r.setAll(l); err != nil {
		return err
	}
	return r.d.apply(e)
}

func (r *replayer) setAll(l *lane) error {
	if len(l.keys) == 0 {
		return nil
	}
	err := r.many.SetAll(l.keys, l.values)
	l.keys, l.values = l.keys[:0], l.values[:0]
	return err
}

// record takes the payload of one record, which it does not keep.
func (r *replayer) record(payload []byte) error {
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return entry.Decode(payload, r.route)
}

func (r *replayer) send(e entry.Entry) error {
	if e.Op == entry.Clear {
		r.drain()
		return r.d.apply(e)
	}
	l := r.lanes[r.d.index(e.Key)%len(r.lanes)]
	if len(e.Value) > laneBatch {
		l.drain()
		return r.d.apply(e)
	}
	if l.batch = entry.Append(l.batch, e); len(l.batch) >= laneBatch {
		l.hand()
	}
	return nil
}

func (l *lane) hand() {
	if len(l.batch) == 0 {
		return
	}
	l.busy.Add(1)
	l.batches <- l.batch
	select {
	case l.batch = <-l.spare:
	default:
		l.batch = make([]byte, 0, 2*laneBatch)
	}
}

// drain returns when everything that the lane got has been applied.
func (l *lane) drain() {
	l.hand()
	l.busy.Wait()
}

func (r *replayer) drain() {
	for _, l := range r.lanes {
		l.hand()
	}
	for _, l := range r.lanes {
		l.busy.Wait()
	}
}

// close applies what is left, ends the lanes, and returns their first error.
func (r *replayer) close() error {
	for _, l := range r.lanes {
		l.hand()
		close(l.batches)
	}
	r.done.Wait()
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// loading is what others see of a start while it reads, and how they end it.
type loading struct {
	total, done atomic.Int64    // bytes of the checkpoint and the log, as often as they are read
	cancel      <-chan struct{} // closed when the start is to end; nil = never
}

// goesOn returns the error of a start that is to end.
func (l *loading) goesOn() error {
	select {
	case <-l.cancel:
		return ErrServerClosed
	default:
		return nil
	}
}

// progress says now and then how far something is that takes long.
type progress struct {
	*loading
	what        string
	size, read  int64 // bytes
	told        int64 // of read, those that loading knows of
	records     int64
	begun, next time.Time
	logf        func(format string, args ...any)
}

// progressEvery is the time between two lines.
const progressEvery = 5 * time.Second

func newProgress(o *Options, l *loading, what string, size int64) *progress {
	now := time.Now()
	return &progress{loading: l, what: what, size: size, begun: now, next: now.Add(progressEvery), logf: o.Logf}
}

// add counts a record of n bytes. The error is that of a start that is to end.
func (p *progress) add(n int) error {
	p.records++
	if p.read += int64(n); p.records%1024 != 0 && p.read-p.told < 1<<20 {
		return nil
	}
	p.tell(p.read)
	if err := p.goesOn(); err != nil {
		return err
	}
	now := time.Now()
	if now.Before(p.next) {
		return nil
	}
	p.next = now.Add(progressEvery)
	took := now.Sub(p.begun).Seconds()
	left := took * float64(max(0, p.size-p.read)) / float64(max(1, p.read))
	p.logf("kvserver: %s: %d records, %d of %d MiB (%d %%) in %.0f s, about %.0f s left",
		p.what, p.records, p.read>>20, p.size>>20, 100*min(p.read, p.size)/max(1, p.size), took, left)
	return nil
}

// tell lets loading know that so many bytes have been read.
func (p *progress) tell(read int64) {
	p.done.Add(read - p.told)
	p.told = read
}
