package lsm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"kvmark/storage"
	"kvmark/storage/lsm"
	"kvmark/storage/storagetest"
)

func small(fs vfs.FS) lsm.Options {
	return lsm.Options{FS: fs, Dir: "data", MemTableBytes: 256 << 10, CacheBytes: 1 << 20}
}

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t testing.TB) storagetest.Open {
		fs := vfs.NewMem()
		return func() (storage.Store, error) { return lsm.Open(small(fs)) }
	})
}

func TestOnDiskWithDefaults(t *testing.T) {
	dir := t.TempDir()
	for round := range 2 {
		s := open(t, lsm.Options{Dir: dir})
		if got := s.Count(); got != int64(round) {
			t.Errorf("round %d: %d keys", round, got)
		}
		if err := s.Set([]byte("key"), []byte("value")); err != nil {
			t.Fatal(err)
		}
		checkpoint(t, s)
		if v, ok, err := s.Get(nil, []byte("key")); err != nil || !ok || string(v) != "value" {
			t.Errorf("got %q, %v, %v", v, ok, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t testing.TB, o lsm.Options) *lsm.Store {
	t.Helper()
	s, err := lsm.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func checkpoint(t testing.TB, s *lsm.Store) {
	t.Helper()
	committed, err := s.Checkpoint(func([]byte) error { return nil })
	if err == nil {
		err = committed()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheStateIsNeverAheadOfTheLog writes numbered entries into a log that is
// only a counter, and cuts the power at random moments: what Pebble has is a
// prefix of what was written, and not longer than what of the log was synced.
func TestTheStateIsNeverAheadOfTheLog(t *testing.T) {
	for seed := range 6 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		fs := vfs.NewCrashableMem()
		var logged, synced atomic.Int64
		o := small(fs)
		o.BeforeFlush = func() error {
			synced.Store(logged.Load())
			return nil
		}
		s := open(t, o)
		crashAt := 1000 + r.IntN(6000)
		for i := range crashAt {
			logged.Store(int64(i + 1))
			if err := s.Set(fmt.Append(nil, i), make([]byte, r.IntN(200))); err != nil {
				t.Fatal(err)
			}
		}
		image := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r})
		inLog := synced.Load()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, small(image))
		n := s.Count()
		// What the clone holds was made durable before it was taken, and the
		// log was synced before that.
		if n > inLog {
			t.Fatalf("seed %d: %d entries on disk, %d in the synced log", seed, n, inLog)
		}
		for i := range crashAt {
			if _, ok, err := s.ValueLen(fmt.Append(nil, i)); err != nil || ok != (int64(i) < n) {
				t.Fatalf("seed %d: %d entries counted, entry %d: %v, %v", seed, n, i, ok, err)
			}
		}
		if st := s.Stats(); st.Keys != n {
			t.Errorf("seed %d: %d keys, want %d", seed, st.Keys, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestACheckpointIsDurable cuts the power after it.
func TestACheckpointIsDurable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	calls := 0
	o := small(fs)
	o.BeforeFlush = func() error { calls++; return nil }
	s := open(t, o)
	for i := range 1000 {
		if err := s.Set(fmt.Append(nil, i%500), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint(t, s)
	if calls == 0 {
		t.Error("nothing was called before the flush")
	}
	image := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Set([]byte("later"), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, small(image))
	defer s.Close()
	if got := s.Count(); got != 500 {
		t.Errorf("%d keys, want 500", got)
	}
	if v, ok, err := s.Get(nil, []byte("499")); err != nil || !ok || string(v) != "999" {
		t.Errorf("got %q, %v, %v", v, ok, err)
	}
}

// TestALogThatCannotBeSyncedKeepsEntriesInMemory lets BeforeFlush fail, and work
// again.
func TestALogThatCannotBeSyncedKeepsEntriesInMemory(t *testing.T) {
	fs := vfs.NewCrashableMem()
	broken := errors.New("the log is broken")
	var fail atomic.Bool
	fail.Store(true)
	o := small(fs)
	o.BeforeFlush = func() error {
		if fail.Load() {
			return broken
		}
		return nil
	}
	s := open(t, o)
	if err := s.Set([]byte("key"), []byte("value")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Checkpoint(func([]byte) error { return nil }); !errors.Is(err, broken) {
		t.Fatalf("checkpoint: got error %v, want %v", err, broken)
	}
	if err := s.Set([]byte("key"), nil); !errors.Is(err, broken) {
		t.Errorf("set: got error %v, want %v", err, broken)
	}
	if _, err := s.Delete([]byte("key")); !errors.Is(err, broken) {
		t.Errorf("delete: got error %v, want %v", err, broken)
	}
	if v, ok, err := s.Get(nil, []byte("key")); err != nil || !ok || string(v) != "value" {
		t.Errorf("reads do not go on: got %q, %v, %v", v, ok, err)
	}
	image := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	ahead := open(t, small(image))
	if n := ahead.Count(); n != 0 {
		t.Errorf("%d entries are on disk that are in no log", n)
	}
	if err := ahead.Close(); err != nil {
		t.Fatal(err)
	}

	fail.Store(false)
	for deadline := time.Now().Add(time.Minute); s.Set([]byte("key"), []byte("new")) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("it does not recover")
		}
		runtime.Gosched()
	}
	checkpoint(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCloseWhileFlushingFails(t *testing.T) {
	o := small(vfs.NewMem())
	broken := errors.New("the log is broken")
	o.BeforeFlush = func() error { return broken }
	s := open(t, o)
	if err := s.Set([]byte("key"), []byte("value")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Checkpoint(func([]byte) error { return nil }); !errors.Is(err, broken) {
		t.Fatalf("got error %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEveryFailure lets writes fail from the n-th on: errors reach the caller,
// nothing panics or hangs, what was stored is still read, and what is on disk
// can be opened again.
func TestEveryFailure(t *testing.T) {
	const stride = 7 // every operation, over the runs of a long time
	for n := int32(0); ; n += stride {
		mem := vfs.NewMem()
		index := errorfs.OnIndex(n)
		var hit atomic.Bool
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
				return nil
			}
			if index.MaybeError(op) != nil || hit.Load() {
				hit.Store(true)
				return syscall.ENOSPC
			}
			return nil
		}))
		failAt(t, fs)
		if !hit.Load() {
			if n < 3*stride {
				t.Fatalf("only %d operations", n)
			}
			return
		}
		s, err := lsm.Open(small(mem))
		if err != nil {
			t.Fatalf("open after operation %d failed: %v", n, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func failAt(t *testing.T, fs vfs.FS) {
	t.Helper()
	s, err := lsm.Open(small(fs))
	if err != nil {
		return
	}
	model := map[string]string{}
	for i := range 400 {
		k, v := fmt.Sprint(i%100), strings.Repeat(fmt.Sprint(i), 30)
		if err := s.Set([]byte(k), []byte(v)); err != nil {
			delete(model, k) // the old value or the new one
			break
		}
		model[k] = v
		if i%100 == 99 {
			if _, err := s.Checkpoint(func([]byte) error { return nil }); err != nil {
				break
			}
		}
	}
	for k, v := range model {
		if got, ok, err := s.Get(nil, []byte(k)); err != nil || !ok || string(got) != v {
			t.Fatalf("%q: got %.40q, %v, %v; want %.40q", k, got, ok, err, v)
		}
	}
	_ = s.Close() // the disk is full
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpeningTwiceIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, small(fs))
	defer s.Close()
	if other, err := lsm.Open(small(fs)); err == nil {
		other.Close()
		t.Error("no error")
	}
	if _, err := lsm.Open(lsm.Options{}); err == nil {
		t.Error("no directory: no error")
	}
	if err := s.Restore([]byte("x")); err == nil {
		t.Error("a record: no error")
	}
}

func BenchmarkStore(b *testing.B) {
	storagetest.Benchmark(b, "mode=lsm", func(t testing.TB) storage.Store { return open(t, lsm.Options{Dir: t.TempDir()}) })
}

// TestALostPartOfTheManifestIsNoticed cuts the manifest, which Pebble takes for its end, so that it would go on with an older state.
func TestALostPartOfTheManifestIsNoticed(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, small(fs))
	for i := range 100 {
		if err := s.Set(fmt.Append(nil, i), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("data/lsm")
	if err != nil {
		t.Fatal(err)
	}
	before := len(names)
	for _, name := range names {
		if !strings.HasPrefix(name, "MANIFEST") {
			continue
		}
		f, err := fs.OpenReadWrite("data/lsm/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		// The last byte is of the edit that made the checkpoint's table part of the state.
		if _, err := f.WriteAt([]byte{0xff}, info.Size()-1); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = lsm.Open(small(fs))
	if _, ok := errors.AsType[*lsm.DamageError](err); !ok {
		t.Fatalf("got %v, want a DamageError", err)
	}
	if names, err = fs.List("data/lsm"); err != nil || len(names) != before {
		t.Errorf("the attempt changed the directory: %v, %v", names, err)
	}
}
