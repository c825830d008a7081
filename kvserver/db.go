package kvserver

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"kvmark/storage"
	"kvmark/storage/nowait"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// stripeCount is the number of locks that writers share. A reader waits for the newest record of its key's stripe to reach
// the policy's level, so fewer stripes mean more waiting for records of other keys; FLUSHALL takes all of them.
const stripeCount = 1024

// applying marks the position of a stripe while a record of several changes is being applied.
const applying wal.Pos = 1 << 63

// stripe guards the writers of the keys that hash to it.
type stripe struct {
	mu sync.Mutex
	// pos is the end of the newest record that changed a key of the stripe. It is stored before the store changes, so
	// whoever sees a value and then loads pos knows a position that covers it. Stored with mu held, loaded without.
	pos atomic.Uint64

	timed atomic.Int64 // len(ttl), for readers that need not look further when it is 0
	ttlMu sync.RWMutex
	ttl   map[string]int64 // unix ms at which a key ends, for the keys that have an end; changed with mu and ttlMu held
	due   *dueKeys         // finds those of ttl that have come to their end; guarded as ttl is; nil until one has an end
}

// db joins the log and the store. For every write, the order is:
//
//	lock the stripes of its keys, in ascending order
//	decide (NX, XX, does the key exist, ...)
//	append the record to the log            -> position
//	store the position in the stripes
//	change the store
//	unlock
//	wait until the log has the position     (by the session, once for a whole pipeline)
//	send the reply
//
// So the log's order is the store's order for every key, and nothing is sent that a crash could take back: neither a
// write's reply nor a value that was read, since a reader waits for the position of the stripe too.
//
// A record with several changes marks the positions of its stripes while it is being applied. Readers do not lock; one that
// finds the mark waits for the writer and reads again, so nobody sees some of the changes and then misses others.
//
//	writer                                reader
//	pos.Store(p)
//	store.Set(key, new)
//	                                      store.Get(key) = new
//	                                      pos.Load() >= p
//	log.Commit(p) ... reply               log.Commit(p) ... reply
type db struct {
	store   storage.Store
	warmer  storage.Warmer // the store; nil if it is none
	noWait  storage.NoWaiter
	reads   chan struct{} // holds one for each read of the device that has left a loop; see maxDeviceReads
	log     *wal.Log
	seed    maphash.Seed
	stripes []stripe
	applyFn func(entry.Entry) error // d.apply, made once so that using it allocates nothing
	now     func() int64            // unix ms
	space   *space                  // nil = as much as one likes
	ended   atomic.Uint64           // keys removed because they had come to their end

	big atomic.Bool // there has been a value of more than longBytes; after a start from a checkpoint, one that was read

	sweepNanos atomic.Int64  // that sweeps took
	sweepsCut  atomic.Uint64 // sweeps that used up their time

	observers *observers

	logf   func(format string, args ...any) // told of the first failure; nil = nobody
	failMu sync.Mutex
	failed atomic.Pointer[failure] // nil while all is well
}

// failure is the state after the first error that a write met in the log or in the store. It is final until a restart:
// what the error left behind is known to be good only after a replay.
type failure struct {
	err error
	// The keys whose newest value is in the store but not in the log. A restart would bring back an older one, so they
	// are not read any more.
	lost    map[string]struct{}
	lostAll bool
}

// errLost is the answer to reading a key whose newest value did not reach the log.
var errLost = errors.New("the newest value of this key did not reach the log")

// newDB returns a db, which needs a store before it is used, and a log before it is written to.
func newDB(now func() int64) *db {
	d := &db{reads: make(chan struct{}, maxDeviceReads), seed: maphash.MakeSeed(), stripes: make([]stripe, stripeCount), now: now}
	d.observers = &observers{tracking: newTracking(), watched: map[string][]watcher{}}
	d.applyFn = d.apply
	return d
}

// setStore gives the db an empty store.
func (d *db) setStore(store storage.Store) {
	for i := range d.stripes {
		d.stripes[i].clearEnds()
	}
	d.store = store
	d.warmer, _ = store.(storage.Warmer)
	d.noWait, _ = store.(storage.NoWaiter)
}

// warm tells the store what it is about to be asked for, and returns keys emptied. For a single key that would come too late
// to be of use.
func (d *db) warm(keys [][]byte) [][]byte {
	if len(keys) > 1 {
		d.warmer.Warm(keys)
	}
	clear(keys)
	return keys[:0]
}

func (d *db) index(key []byte) int { return int(maphash.Bytes(d.seed, key) % stripeCount) }

func (d *db) stripe(key []byte) *stripe { return &d.stripes[d.index(key)] }

// get appends the value of key to dst. Whoever sends it first waits for pos. held are the caller's locks.
func (d *db) get(dst, key []byte, held *locks) (val []byte, ok bool, pos wal.Pos, err error) {
	st := d.stripe(key)
	for {
		if d.expired(st, key) {
			d.bury(st, key, held)
			val, ok = dst, false
		} else if val, ok, err = d.read(dst, key, held); err != nil {
			return val, false, 0, err
		}
		if pos, err = d.visible(st, key); pos&applying == 0 || !d.await(st, key, held) {
			return val, ok, pos &^ applying, err
		}
		dst = val[:len(dst)]
	}
}

// await returns when the record that is being applied to the stripe has been. It reports false if the caller has the stripe
// locked itself, or must not wait because it has others.
func (d *db) await(st *stripe, key []byte, held *locks) bool {
	if held != nil && held.locked {
		return false
	}
	if held != nil {
		held.beforeWait()
	}
	st.mu.Lock()
	st.mu.Unlock() //lint:ignore SA2001 to have waited for the holder is the point
	return true
}

// read is a Get of the store, by whoever holds held.
func (d *db) read(dst, key []byte, held *locks) (val []byte, ok bool, err error) {
	if d.noWait == nil || held == nil || held.leave == nil {
		return d.store.Get(dst, key)
	}
	return d.getInLoop(dst, key, held)
}

// getInLoop is a Get by an event loop, which does not wait for the device: the command leaves the loop, or returns
// [nowait.ErrWouldWait] if it is one that can be begun again.
func (d *db) getInLoop(dst, key []byte, held *locks) (val []byte, ok bool, err error) {
	val, ok, err = d.noWait.GetNoWait(dst, key)
	if !errors.Is(err, nowait.ErrWouldWait) || held.repeatable {
		return val, ok, err
	}
	held.beforeWait()
	defer d.deviceRead()()
	return d.store.Get(val, key)
}

// maxDeviceReads bounds the reads that wait for the device outside the loops, for each occupies a thread.
const maxDeviceReads = 256

// deviceRead waits until one more may be under way, and returns what ends it.
func (d *db) deviceRead() (done func()) {
	d.reads <- struct{}{}
	return func() { <-d.reads }
}

// valueLen is get for those who need only the length, or the existence.
func (d *db) valueLen(key []byte, held *locks) (n int, ok bool, pos wal.Pos, err error) {
	st := d.stripe(key)
	for {
		if d.expired(st, key) {
			d.bury(st, key, held)
			n, ok = 0, false
		} else if n, ok, err = d.store.ValueLen(key); err != nil {
			return 0, false, 0, err
		}
		if pos, err = d.visible(st, key); pos&applying == 0 || !d.await(st, key, held) {
			return n, ok, pos &^ applying, err
		}
	}
}

// visible returns the position that covers what was just read of key, or an error if nothing ever will. The position may be
// marked with applying.
func (d *db) visible(st *stripe, key []byte) (wal.Pos, error) {
	f := d.failed.Load()
	if f == nil {
		return d.seen(st), nil
	}
	if _, lost := f.lost[string(key)]; lost || f.lostAll {
		return 0, errLost
	}
	return 0, nil
}

// seen returns the position that covers everything in the stripe; after a failure, the log takes no more.
func (d *db) seen(st *stripe) wal.Pos {
	if d.failed.Load() != nil {
		return 0
	}
	return wal.Pos(st.pos.Load())
}

// end returns when a key ends; 0 = never.
func (st *stripe) end(key []byte) int64 {
	if st.timed.Load() == 0 {
		return 0
	}
	st.ttlMu.RLock()
	defer st.ttlMu.RUnlock()
	return st.ttl[string(key)]
}

// expired reports whether the key has come to its end. It stays in the store until somebody looks for it in vain, or the
// sweeper or a writer removes it.
func (d *db) expired(st *stripe, key []byte) bool {
	at := st.end(key)
	return at != 0 && at <= d.now()
}

// bury removes a key that has come to its end, so that nobody who saw it gone sees it again should the clock be set back. It
// does nothing while writes are refused, or when the key cannot be locked beside what the caller holds.
func (d *db) bury(st *stripe, key []byte, held *locks) {
	if d.failed.Load() != nil || d.space.full() != nil {
		return
	}
	if held == nil || !held.has(key) {
		if held != nil && held.locked {
			return // to lock one more could take for ever
		}
		alone := &locks{d: d}
		if held != nil {
			alone.leave = held.leave
		}
		held = alone
		held.add(key)
		held.lock()
		defer held.unlock()
	}
	if !d.expired(st, key) {
		return // somebody was faster
	}
	if _, err := d.write(held, entry.Append(nil, entry.Entry{Op: entry.Delete, Key: key}), false); err == nil {
		d.ended.Add(1)
	}
}

// write logs a group of entries and applies it. The position is the one to wait for.
// REQUIRES: l holds the stripes of all keys of the payload.
//
// several says that it has more than one change, which others are to see together.
func (d *db) write(l *locks, payload []byte, several bool) (wal.Pos, error) {
	if f := d.failed.Load(); f != nil {
		return 0, f.err
	}
	taken, err := d.space.take(payload)
	if err != nil {
		return 0, err
	}
	pos, err := d.log.Append(payload)
	d.space.landed(taken)
	if err != nil {
		if d.log.Err() != nil { // otherwise this record alone was refused, for its size say
			return 0, d.fail(err, nil)
		}
		return 0, err
	}
	if several {
		l.setPos(pos | applying)
		defer l.setPos(pos)
	} else {
		l.setPos(pos)
	}
	if err := entry.Decode(payload, d.applyFn); err != nil {
		// The log has what the store refused. Only a replay makes them agree again.
		return pos, d.fail(fmt.Errorf("storage: %w", err), payload)
	}
	if d.observers.count.Load() > 0 {
		d.observers.changed(l.session, payload)
	}
	return pos, nil
}

// apply makes one logged operation true in the store. It is used for replay as well: what runs and what is recovered are
// the same code. REQUIRES: the stripe's mu held, except during replay.
func (d *db) apply(e entry.Entry) error {
	if e.Op == entry.Clear {
		for i := range d.stripes {
			d.stripes[i].clearEnds()
		}
		return d.store.Clear()
	}
	st := d.stripe(e.Key)
	if len(e.Value) > longBytes {
		d.big.Store(true)
	}
	switch e.Op {
	case entry.Set, entry.SetExpire:
		if d.expired(st, e.Key) { // readers do not lock: the ended value goes before its end does
			err := d.store.Set(e.Key, e.Value)
			st.setEnd(e.Key, e.ExpireAt)
			return err
		}
		st.setEnd(e.Key, e.ExpireAt)
		return d.store.Set(e.Key, e.Value)
	case entry.Delete:
		_, err := d.store.Delete(e.Key)
		st.setEnd(e.Key, 0)
		return err
	case entry.Expire:
		st.setEnd(e.Key, e.ExpireAt)
		return nil
	case entry.Persist:
		st.setEnd(e.Key, 0)
		return nil
	}
	return fmt.Errorf("unknown operation %d", e.Op)
}

// fail makes err final and returns it as the later ones will see it. The keys of payload, and of whatever the log still
// holds unwritten, are lost.
func (d *db) fail(err error, payload []byte) error {
	d.failMu.Lock()
	defer d.failMu.Unlock()
	f := &failure{err: fmt.Errorf("%w; writes are refused until a restart", d.named(err)), lost: map[string]struct{}{}}
	if old := d.failed.Load(); old != nil {
		f.err, f.lostAll = old.err, old.lostAll
		for key := range old.lost {
			f.lost[key] = struct{}{}
		}
	}
	add := func(e entry.Entry) error {
		f.lostAll = f.lostAll || e.Op == entry.Clear
		f.lost[string(e.Key)] = struct{}{}
		return nil
	}
	derr := entry.Decode(payload, add)
	if d.log.Err() != nil {
		derr = errors.Join(derr, d.log.Unwritten(func(p []byte) error { return entry.Decode(p, add) }))
	}
	f.lostAll = f.lostAll || derr != nil
	if d.failed.Swap(f) == nil && d.logf != nil {
		d.logf("kvserver: %v", f.err)
	}
	return f.err
}

// named is err with the limit that it met.
func (d *db) named(err error) error {
	if d.space == nil {
		return err
	}
	return limitNamed(err, d.space.dir)
}

// commit waits until the log has everything up to pos. Its error is final.
func (d *db) commit(pos wal.Pos) error {
	err := d.log.Commit(pos)
	if err != nil && d.failed.Load() == nil {
		err = d.fail(err, nil)
	}
	return err
}

// settle returns when every operation that was logged before the call has been applied: a writer holds its stripes from
// one to the other.
func (d *db) settle() {
	for i := range d.stripes {
		d.stripes[i].mu.Lock()
		d.stripes[i].mu.Unlock() //lint:ignore SA2001 to have waited for the holder is the point
	}
}

// locks is a set of stripes, locked together in ascending order, so that no two holders can wait for each other.
type locks struct {
	d       *db
	session *session // whose they are; nil = the server's
	bits    [stripeCount / 64]uint64
	lo, hi  int // words in use: [lo, hi)
	locked  bool
	pinned  bool // what a transaction needs is locked, and stays so: the calls of its commands change nothing

	// For a holder that an event loop runs. leave takes it out of the loop, so that it may wait; nil: it may as it is. repeatable
	// says that it is to return an error instead of waiting for the device, for it will be run again; patient, that it has been
	// run so often enough.
	leave               func()
	repeatable, patient bool
}

// beforeWait is called by a holder that is about to wait, or to take long.
func (l *locks) beforeWait() {
	if l.leave != nil {
		l.leave()
	}
}

// has reports whether the stripe of key is locked by the holder of the set.
func (l *locks) has(key []byte) bool {
	i := l.d.index(key)
	return l.locked && l.bits[i/64]&(1<<(i%64)) != 0
}

func (l *locks) add(key []byte) { l.addStripe(l.d.index(key)) }

func (l *locks) addStripe(i int) {
	if l.pinned {
		return
	}
	w := i / 64
	if l.hi == 0 {
		l.lo, l.hi = w, w+1
	}
	l.lo, l.hi = min(l.lo, w), max(l.hi, w+1)
	l.bits[w] |= 1 << (i % 64)
}

func (l *locks) addAll() {
	if l.pinned {
		return
	}
	l.lo, l.hi = 0, len(l.bits)
	for w := range l.bits {
		l.bits[w] = ^uint64(0)
	}
}

func (l *locks) lock() {
	if l.pinned {
		return
	}
	l.locked = true
	for w := l.lo; w < l.hi; w++ {
		for b := l.bits[w]; b != 0; b &= b - 1 {
			if mu := &l.d.stripes[w*64+bits.TrailingZeros64(b)].mu; !mu.TryLock() {
				l.beforeWait() // whoever has it may wait for the device
				mu.Lock()
			}
		}
	}
}

func (l *locks) setPos(pos wal.Pos) {
	for w := l.lo; w < l.hi; w++ {
		for b := l.bits[w]; b != 0; b &= b - 1 {
			l.d.stripes[w*64+bits.TrailingZeros64(b)].pos.Store(uint64(pos))
		}
	}
}

// unlock releases the stripes and empties the set.
func (l *locks) unlock() {
	if l.pinned {
		return
	}
	for w := l.lo; w < l.hi; w++ {
		for b := l.bits[w]; b != 0; b &= b - 1 {
			l.d.stripes[w*64+bits.TrailingZeros64(b)].mu.Unlock()
		}
		l.bits[w] = 0
	}
	l.lo, l.hi, l.locked = 0, 0, false
}
