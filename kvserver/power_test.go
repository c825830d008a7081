package kvserver

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"kvmark/storage"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// powerSeedEnv replays one seed of TestPowerCuts.
const powerSeedEnv = "KVMARK_POWER_SEED"

// model is what a server must hold: values and ends by key.
type model map[string]modelValue

type modelValue struct {
	value string
	end   int64 // unix ms; 0 = never
}

// alive returns m without what has come to its end.
func (m model) alive() model {
	now := time.Now().UnixMilli()
	live := model{}
	for k, v := range m {
		if v.end == 0 || v.end > now {
			live[k] = v
		}
	}
	return live
}

// held reads everything a server holds, through its store. A value and its end are read under the stripe's lock: the keys may be
// those of a moment ago, and the sweeper, which runs meanwhile, takes the end of a key away with the key.
func held(srv *Server) (model, error) {
	m := model{}
	for i := range srv.db.store.Shards() {
		var keys [][]byte
		if err := srv.db.store.Keys(i, func(key []byte) error {
			keys = append(keys, slices.Clone(key))
			return nil
		}); err != nil {
			return nil, err
		}
		for _, key := range keys {
			if err := m.read(srv, key); err != nil {
				return nil, err
			}
		}
	}
	return m.alive(), nil
}

func (m model) read(srv *Server, key []byte) error {
	st := srv.db.stripe(key)
	st.mu.Lock()
	defer st.mu.Unlock()
	value, ok, err := srv.db.store.Get(nil, key)
	if ok {
		m[string(key)] = modelValue{string(value), st.end(key)}
	}
	return err
}

// randomWrite changes the model and returns the command line that does the same.
func randomWrite(rng *rand.Rand, m model) string {
	key := func() string { return fmt.Sprint("k", rng.IntN(12)) }
	value := func() string {
		v := strconv.FormatUint(rng.Uint64(), 36)
		for rng.IntN(3) == 0 {
			v += v
		}
		return v[:min(len(v), 3000)]
	}
	const later = 4_000_000_000_000 // unix ms, far away
	k := key()
	old, there := m.alive()[k]
	if !there {
		delete(m, k)
	}
	switch rng.IntN(14) {
	case 0:
		v, end := value(), later+rng.Int64N(1000)
		m[k] = modelValue{v, end}
		return fmt.Sprintf("SET %s %s PXAT %d", k, v, end)
	case 1: // at its end from the beginning
		delete(m, k)
		return fmt.Sprintf("SET %s %s PXAT 1", k, value())
	case 2:
		l := key()
		delete(m, k)
		delete(m, l)
		return fmt.Sprintf("DEL %s %s", k, l)
	case 3:
		l, v, w := key(), value(), value()
		m[k] = modelValue{value: v}
		m[l] = modelValue{value: w}
		return fmt.Sprintf("MSET %s %s %s %s", k, v, l, w)
	case 4:
		end := later + rng.Int64N(1000)
		if there {
			m[k] = modelValue{old.value, end}
		}
		return fmt.Sprintf("PEXPIREAT %s %d", k, end)
	case 5:
		if there {
			m[k] = modelValue{value: old.value}
		}
		return "PERSIST " + k
	case 6:
		v := value()
		m[k] = modelValue{old.value + v, old.end}
		return fmt.Sprintf("APPEND %s %s", k, v)
	case 7:
		if rng.IntN(8) == 0 {
			clear(m)
			return "FLUSHALL"
		}
		n := rng.Int64N(1000)
		m["n"] = modelValue{value: fmt.Sprint(n)}
		return fmt.Sprintf("SET n %d", n)
	case 8:
		n := int64(0)
		if v, ok := m["n"]; ok {
			n, _ = strconv.ParseInt(v.value, 10, 64)
		}
		m["n"] = modelValue{value: fmt.Sprint(n + 5)}
		return "INCRBY n 5"
	}
	v := value()
	m[k] = modelValue{value: v}
	return fmt.Sprintf("SET %s %s", k, v)
}

// history is what a client did to a server, and how far it is known to be safe.
type history struct {
	states []model // states[i] is that after i writes
	// How many writes were begun, and how many would have to survive a power failure. The second is stored when the server
	// has promised it.
	mu          sync.Mutex
	begun, safe int
}

func (h *history) begin(m model) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, maps.Clone(m))
	h.begun = len(h.states) - 1
}

func (h *history) promise() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.safe = h.begun
}

func (h *history) bounds() (safe, begun int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.safe, h.begun
}

// find returns the write after which the state was m, among those that are possible.
func (h *history) find(m model, safe, begun int) (int, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := begun; i >= safe; i-- {
		if maps.Equal(h.states[i].alive(), m) {
			return i, true
		}
	}
	return 0, false
}

// image is what a power failure leaves.
type image struct {
	fs          *vfs.MemFS
	safe, begun int
	moment      string // in which operation of the file system
}

// outage takes an image in front of the left-th operation that changes the file system.
type outage struct {
	fs   *vfs.MemFS
	h    *history
	rng  *rand.Rand // used under mu
	left atomic.Int32

	mu    sync.Mutex
	taken *image
}

func (o *outage) wrap() vfs.FS {
	return errorfs.Wrap(o.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && o.left.Add(-1) == 0 {
			o.take(fmt.Sprintf("%v of %s", op.Kind, op.Path))
		}
		return nil
	}))
}

func (o *outage) take(moment string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taken != nil {
		return
	}
	safe, _ := o.h.bounds()
	percent := []int{0, 0, 30, 50, 100}[o.rng.IntN(5)]
	fs := o.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: o.rng})
	_, begun := o.h.bounds()
	o.taken = &image{fs, safe, begun, moment}
}

func (o *outage) image() *image {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken
}

// powerCuts runs one seed: some lives of a server, each of which ends with the power, at any moment of the writes, of
// checkpoints, of reclaiming and of the start itself. It returns the number of power cuts from which it recovered.
func powerCuts(mode storage.Mode, policy wal.Policy, seed uint64) (cuts int, err error) {
	rng := rand.New(rand.NewPCG(seed, uint64(policy)<<8|uint64(mode[0])))
	h := &history{}
	h.begin(model{})
	next := vfs.NewCrashableMem()
	// cut starts a server on what a power failure left, cuts the power again while it starts, and looks at both.
	cut := func(img *image, depth int) (*Server, *outage, error) {
		cuts++
		o := &outage{fs: img.fs, h: h, rng: rand.New(rand.NewPCG(rng.Uint64(), 1))}
		o.left.Store(1 + rng.Int32N(40))
		srv, err := Open(Options{
			FS: o.wrap(), Dir: "/data", Mode: mode, WALPolicy: policy, CheckpointBytes: -1,
			SegmentBytes: 256 << rng.IntN(5), SyncEvery: time.Hour,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("power cut %d, in %s: no start: %w", cuts, img.moment, err)
		}
		o.left.Store(0) // no image of a server that is being looked at
		state, err := held(srv)
		if err == nil {
			i, ok := h.find(state, img.safe, img.begun)
			if !ok {
				err = fmt.Errorf("the state is none of those after %d to %d writes:\n%v\nwant %v", img.safe, img.begun, state, h.states[img.begun].alive())
			} else if depth == 0 {
				// The lost writes never happened. What is there now is in the log and synced: the start ended its newest segment.
				h.mu.Lock()
				h.states = h.states[:i+1]
				h.begun, h.safe = i, i
				h.mu.Unlock()
			}
		}
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("power cut %d, in %s: %w", cuts, img.moment, err), srv.Shutdown(background()))
		}
		return srv, o, nil
	}
	img := &image{fs: next, moment: "nothing"}
	for life := range 3 {
		srv, o, err := cut(img, 0)
		if err != nil {
			return cuts, err
		}
		if during := o.image(); during != nil { // the power went while the server started
			safe, begun := h.bounds()
			during.safe, during.begun = min(safe, img.begun), begun
			again, _, err := cut(during, 1)
			if err != nil {
				return cuts, errors.Join(err, srv.Shutdown(background()))
			}
			if err := again.Shutdown(background()); err != nil {
				return cuts, err
			}
		}
		o.mu.Lock()
		o.taken = nil
		o.mu.Unlock()
		o.left.Store(1 + rng.Int32N(120))
		m := maps.Clone(h.states[len(h.states)-1])
		s := newSession(srv, 1)
		for step := 0; step < 120 && o.image() == nil; step++ {
			switch rng.IntN(20) {
			case 0:
				if err := srv.Checkpoint(); err != nil {
					return cuts, errors.Join(fmt.Errorf("life %d: checkpoint: %w", life, err), srv.Shutdown(background()))
				}
				h.promise()
			case 1:
				if err := srv.db.log.Sync(); err != nil {
					return cuts, errors.Join(err, srv.Shutdown(background()))
				}
				h.promise()
			default:
				line := randomWrite(rng, m)
				h.begin(m)
				s.run([]byte(line + "\r\n"))
				s.commit()
				if len(s.out) == 0 || s.out[0] == '-' {
					return cuts, errors.Join(fmt.Errorf("life %d: %s: got %q", life, line, s.out), srv.Shutdown(background()))
				}
				s.sent()
				if policy == wal.Always {
					h.promise()
				}
			}
		}
		o.take("nothing: idle")
		img = o.image()
		if err := srv.Shutdown(background()); err != nil {
			return cuts, err
		}
	}
	srv, _, err := cut(img, 0)
	if err != nil {
		return cuts, err
	}
	if err := srv.Shutdown(background()); err != nil {
		return cuts, err
	}
	reports, err := Check(img.fs, "/data")
	for _, r := range reports {
		if r.State != wal.Clean {
			err = errors.Join(err, fmt.Errorf("check after the end: %s is %v: %w", r.Path, r.State, r.Err))
		}
	}
	return cuts, err
}

// sweepingStore sweeps once when the keys of a partition have been found, and are about to be passed on.
type sweepingStore struct {
	storage.Store
	sweep func()
}

func (s *sweepingStore) Keys(shard int, fn func(key []byte) error) error {
	return s.Store.Keys(shard, func(key []byte) error {
		s.sweep()
		return fn(key)
	})
}

func (s *sweepingStore) Range(shard int, fn func(key, value []byte) error) error {
	return s.Store.Range(shard, func(key, value []byte) error {
		s.sweep()
		return fn(key, value)
	})
}

// TestHeldWhileKeysEnd lets the sweeper remove a key that has ended while held reads: the key must not look like one without an end.
func TestHeldWhileKeysEnd(t *testing.T) {
	var now atomic.Int64
	srv := open(t, Options{Mode: storage.LSM, now: now.Load})
	s := newSession(srv, 1)
	s.run([]byte("SET k v PXAT 100\r\n"))
	s.commit()
	if string(s.out) != "+OK\r\n" {
		t.Fatalf("SET: got %q", s.out)
	}
	s.sent()
	srv.db.store = &sweepingStore{srv.db.store, func() {
		now.Store(100)
		srv.db.sweep(0)
	}}
	if state, err := held(srv); err != nil || len(state) > 0 {
		t.Errorf("held %v, %v; want nothing", state, err)
	}
}

// watchedStore calls change in front of each change of the store.
type watchedStore struct {
	storage.Store
	change func(key []byte)
}

func (s *watchedStore) Set(key, value []byte) error {
	s.change(key)
	return s.Store.Set(key, value)
}

func (s *watchedStore) Delete(key []byte) (bool, error) {
	s.change(key)
	return s.Store.Delete(key)
}

// TestEndedValueStaysEnded: readers do not lock, so as long as the store has the value of a key that has ended, the key must have
// an end that has passed.
func TestEndedValueStaysEnded(t *testing.T) {
	for _, e := range []entry.Entry{
		{Op: entry.Delete},
		{Op: entry.Set, Value: []byte("new")},
		{Op: entry.SetExpire, Value: []byte("new"), ExpireAt: 1000},
		{Op: entry.SetExpire, Value: []byte("new"), ExpireAt: 50},
	} {
		var now atomic.Int64
		srv := open(t, Options{now: now.Load})
		key := []byte("k")
		if err := srv.db.apply(entry.Entry{Op: entry.SetExpire, Key: key, Value: []byte("old"), ExpireAt: 100}); err != nil {
			t.Fatal(err)
		}
		now.Store(100)
		changes := 0
		srv.db.store = &watchedStore{srv.db.store, func(key []byte) {
			changes++
			if !srv.db.expired(srv.db.stripe(key), key) {
				t.Errorf("operation %d, to end at %d: a reader finds the value that has ended", e.Op, e.ExpireAt)
			}
		}}
		e.Key = key
		if err := srv.db.apply(e); err != nil || changes != 1 {
			t.Fatalf("operation %d: %d changes of the store, %v", e.Op, changes, err)
		}
		if end := srv.db.stripe(key).end(key); end != e.ExpireAt {
			t.Errorf("operation %d: ends at %d, want %d", e.Op, end, e.ExpireAt)
		}
	}
}

// TestPowerCuts cuts the power at random moments of random histories. Under always, nothing that was acknowledged may be
// missing; under the other policies, nothing that is older than the last completed sync; and the state is always that after
// some number of writes, with none of them missing in between.
func TestPowerCuts(t *testing.T) {
	seeds := times(t, "KVMARK_POWER", 3, 300)
	var total atomic.Int64
	t.Cleanup(func() { t.Logf("%d power cuts, %d seeds for each mode and policy", total.Load(), seeds) })
	for _, mode := range storage.Modes() {
		for _, policy := range []wal.Policy{wal.Buffered, wal.OS, wal.Interval, wal.Always} {
			t.Run(fmt.Sprintf("%s/%s", mode, policy), func(t *testing.T) {
				t.Parallel()
				first, last := uint64(0), uint64(seeds)
				if text := os.Getenv(powerSeedEnv); text != "" {
					seed, err := strconv.ParseUint(text, 10, 64)
					if err != nil {
						t.Fatal(err)
					}
					first, last = seed, seed+1
				}
				for seed := first; seed < last; seed++ {
					cuts, err := powerCuts(mode, policy, seed)
					total.Add(int64(cuts))
					if err != nil {
						t.Fatalf("seed %d (%s=%d repeats it): %v", seed, powerSeedEnv, seed, err)
					}
				}
			})
		}
	}
}
