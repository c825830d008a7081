package wal

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errInjected = errors.New("injected")

// failAfter fails every operation that changes something, after n of them.
func failAfter(fs vfs.FS, n int) vfs.FS {
	var count atomic.Int64
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if changes(op) && count.Add(1) > int64(n) {
			return errInjected
		}
		return nil
	}))
}

// changes reports whether op is one whose failure a log must notice.
func changes(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileWriteAt, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpOpenDir, errorfs.OpMkdirAll:
		return true
	case errorfs.OpOpen: // also OpenReadWrite
		return true
	}
	return false
}

// For every n: the n-th operation fails, once. The error reaches the caller and stays, and what the next start finds is what was
// acknowledged, perhaps with some of the rest behind it.
func TestEveryOperationFailsOnce(t *testing.T) {
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			for n := int64(1); ; n++ {
				if !failsOnce(t, p, n) {
					if n < 10 {
						t.Errorf("only %d operations", n)
					}
					return
				}
			}
		})
	}
}

func failsOnce(t *testing.T, p Policy, n int64) (failed bool) {
	t.Helper()
	var count atomic.Int64
	var hit atomic.Bool
	mem := vfs.NewCrashableMem()
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if changes(op) && count.Add(1) == n {
			hit.Store(true)
			return errInjected
		}
		return nil
	}))
	o := quiet(fs, p)
	o.SegmentBytes = 300
	want := records(30)
	acked, appended := 0, 0
	l, _, _, err := tryOpen(o)
	if err == nil {
		var first error
		for i, payload := range want {
			pos, err := l.Append(payload)
			if err == nil {
				appended = i + 1
				err = l.Commit(pos)
			}
			if err == nil && i%10 == 9 {
				err = l.Sync()
			}
			if i%7 == 6 {
				l.tick()
			}
			if err != nil {
				first = err
				break
			}
			acked = i + 1
		}
		if first == nil {
			first = l.Close()
		} else {
			if _, err := l.Append([]byte("x")); !errors.Is(err, errInjected) {
				t.Fatalf("n=%d: Append after the error: %v", n, err)
			}
			if _, err := l.Rotate(); !errors.Is(err, errInjected) {
				t.Fatalf("n=%d: Rotate after the error: %v", n, err)
			}
			if err := l.Sync(); !errors.Is(err, errInjected) && l.durable.Load() < uint64(l.appended) {
				t.Fatalf("n=%d: Sync after the error: %v", n, err)
			}
			var lost [][]byte
			check(t, l.Unwritten(func(b []byte) error { lost = append(lost, bytes.Clone(b)); return nil }))
			if p != Buffered {
				// Interval acknowledges what is written, also if it is the sync after it that fails.
				if len(lost) > appended-acked {
					t.Fatalf("n=%d: %d payloads were never written, but only %d of %d were not acknowledged", n, len(lost), appended-acked, appended)
				}
				wantRecords(t, lost, want[appended-len(lost):appended])
			}
			if err := l.Close(); !errors.Is(err, errInjected) {
				t.Fatalf("n=%d: Close after the error: %v", n, err)
			}
		}
		err = first
	}
	if err != nil && !errors.Is(err, errInjected) {
		t.Fatalf("n=%d: %v", n, err)
	}
	if hit.Load() != (err != nil) {
		t.Fatalf("n=%d: injected %v, but the caller got %v", n, hit.Load(), err)
	}
	after := mem
	if p == Always {
		after = mem.CrashClone(vfs.CrashCloneCfg{}) // power loss
	}
	_, got := reopen(t, quiet(after, p))
	if p == Buffered {
		acked = 0
	}
	if e := wantPrefix(got, want); e != nil || len(got) < acked {
		t.Fatalf("n=%d: %d records, %d were acknowledged: %v", n, len(got), acked, e)
	}
	return hit.Load()
}

func TestShortWritesAreFinal(t *testing.T) {
	for _, short := range []int{0, 1, 5, 13, 30} {
		fs := &hookFS{FS: vfs.NewMem()}
		o := quiet(fs, OS)
		l, _, _ := open(t, o)
		put(t, l, []byte("acknowledged"))
		writes := 0
		fs.write = func(f vfs.File, p []byte, off int64) (int, error) {
			writes++
			return f.WriteAt(p[:min(short, len(p))], off)
		}
		pos, err := l.Append([]byte("torn"))
		check(t, err)
		_, err = l.Append(make([]byte, 1000))
		check(t, err)
		if err := l.Commit(pos); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("Commit: %v", err)
		}
		fs.write = func(vfs.File, []byte, int64) (int, error) {
			t.Error("a write after the failed one")
			return 0, errInjected
		}
		if err := l.Commit(pos); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("Commit again: %v", err)
		}
		if err := l.Close(); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("Close: %v", err)
		}
		fs.write = nil
		if writes != 1 {
			t.Errorf("%d writes", writes)
		}
		if _, got := reopen(t, o); len(got) < 1 || len(got) > 2 || string(got[0]) != "acknowledged" {
			t.Errorf("%d bytes written: replayed %q", short, got)
		}
	}
}

func TestUnwritten(t *testing.T) {
	for _, p := range []Policy{OS, Interval, Always} {
		t.Run(p.String(), func(t *testing.T) {
			fs := &hookFS{FS: vfs.NewMem()}
			l, _, _ := open(t, quiet(fs, p))
			put(t, l, []byte("acknowledged"))
			check(t, l.Unwritten(func([]byte) error { return errors.New("there is no error yet") }))
			g := newGate()
			fs.write = func(vfs.File, []byte, int64) (int, error) { g.pass(); return 0, syscall.ENOSPC }
			want := [][]byte{[]byte("in the batch"), make([]byte, 300), []byte("behind it")}
			var last Pos
			for _, b := range want[:2] {
				var err error
				last, err = l.Append(b)
				check(t, err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := l.Commit(last); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("Commit: %v", err)
				}
			})
			<-g.entered
			_, err := l.Append(want[2])
			check(t, err)
			g.openUp()
			wg.Wait()
			if _, err := l.Append(nil); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("Append: %v", err)
			}
			for range 2 {
				var got [][]byte
				check(t, l.Unwritten(func(b []byte) error { got = append(got, bytes.Clone(b)); return nil }))
				wantRecords(t, got, want)
			}
			mine := errors.New("mine")
			if err := l.Unwritten(func([]byte) error { return mine }); err != mine {
				t.Errorf("Unwritten: %v", err)
			}
			if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func TestAFailedSyncUnderAlwaysAcknowledgesNothing(t *testing.T) {
	fs := &hookFS{FS: vfs.NewMem()}
	l, _, _ := open(t, quiet(fs, Always))
	put(t, l, []byte("durable"))
	fs.sync = func(vfs.File) error { return errInjected }
	pos, err := l.Append([]byte("not"))
	check(t, err)
	for range 2 {
		if err := l.Commit(pos); !errors.Is(err, errInjected) {
			t.Errorf("Commit: %v", err)
		}
		fs.sync = nil // a second fdatasync would succeed, and lie
	}
	n := 0
	check(t, l.Unwritten(func(b []byte) error {
		n++
		if string(b) != "not" {
			t.Errorf("%q", b)
		}
		return nil
	}))
	if n != 1 {
		t.Errorf("%d unwritten", n)
	}
	if err := l.Close(); !errors.Is(err, errInjected) {
		t.Errorf("Close: %v", err)
	}
}

func TestAFailedBackgroundSyncEndsTheLog(t *testing.T) {
	fs := &hookFS{FS: vfs.NewMem()}
	l, _, _ := open(t, quiet(fs, Interval))
	put(t, l, []byte("a"))
	fs.sync = func(vfs.File) error { return errInjected }
	l.tick()
	if _, err := l.Append(nil); !errors.Is(err, errInjected) || l.Stats().Err == nil {
		t.Errorf("Append: %v", err)
	}
	if err := l.Close(); !errors.Is(err, errInjected) {
		t.Errorf("Close: %v", err)
	}
}

func TestReadErrorsAreNotCorruption(t *testing.T) {
	m := written(t, OS, 0, records(3)...)
	fs := errorfs.Wrap(m.fs(t), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt {
			return syscall.EIO
		}
		return nil
	}))
	_, _, _, err := tryOpen(quiet(fs, OS))
	var c *CorruptionError
	if !errors.Is(err, syscall.EIO) || errors.As(err, &c) {
		t.Errorf("err = %v", err)
	}
}
