package lsm

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// What this package does about Pebble's errors was tried out with the version in go.mod: where Open tries again or panics, when
// compactions begin, which errors it calls fatal. Before a new version is noted here, run TestEveryFailure and
// TestEveryFailureOfAStart with every operation, and the tests of kvserver with KVMARK_POWER and KVMARK_DAMAGE_STRIDE.
const provenWith = "github.com/cockroachdb/pebble/v2 v2.1.7"

func TestPebbleIsTheVersionThatWasTriedOut(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "\t"+provenWith+"\n") {
		t.Errorf("go.mod does not require %s: try the new version out, and say so in this test", provenWith)
	}
}

// The format of the tables and of Pebble's files must not change behind a user's back.
func TestPebbleWritesTheFormatThatIsNamed(t *testing.T) {
	fs := vfs.NewMem()
	s, err := Open(little(fs))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.db.FormatMajorVersion(); got != pebble.FormatValueSeparation {
		t.Errorf("Pebble writes format %d, want %d", got, pebble.FormatValueSeparation)
	}
}

// unsettled makes a store whose tables are to be compacted as soon as it is opened.
func unsettled(t *testing.T) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	db, err := pebble.Open("data/lsm", &pebble.Options{
		FS: fs, DisableWAL: true, DisableAutomaticCompactions: true, FormatMajorVersion: pebbleFormat, Merger: totalsMerger(), Logger: logger{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set(identityKey(), make([]byte, 16), pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	s := &Store{db: db, health: newHealth(nil, t.Logf)}
	s.keys.New = func() any { return new([]byte) }
	for i := range 12 {
		for k := range 20 {
			if err := s.Set(fmt.Append(nil, k), fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

// TestEveryFailureOfAStart lets the n-th operation of opening a store fail, alone or with all that follow: Open returns, it leaves
// no goroutine behind (see TestMain), and the next start finds all entries.
func TestEveryFailureOfAStart(t *testing.T) {
	stride := int32(2)
	if testing.Short() {
		stride = 10
	}
	for _, kind := range []errorfs.OpReadWrite{errorfs.OpIsRead, errorfs.OpIsWrite} {
		for _, forever := range []bool{false, true} {
			for n := int32(0); ; n += stride {
				mem := unsettled(t)
				var ops atomic.Int32
				var hit, opened atomic.Bool
				fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind.ReadOrWrite() != kind || op.Kind == errorfs.OpFileClose || opened.Load() {
						return nil
					}
					if at := ops.Add(1) - 1; at == n || at > n && forever {
						hit.Store(true)
						return syscall.EIO
					}
					return nil
				}))
				s, err := Open(little(fs))
				opened.Store(true)
				if err == nil {
					if err := s.Close(); err != nil && !hit.Load() {
						t.Fatal(err)
					}
				} else if strings.Contains(err.Error(), "\n") {
					t.Errorf("operation %d: the error has several lines: %v", n, err)
				}
				if s, err = Open(little(mem)); err != nil {
					t.Fatalf("open after operation %d failed: %v", n, err)
				}
				if s.Count() != 20 {
					t.Errorf("%d entries after operation %d failed", s.Count(), n)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if !hit.Load() {
					t.Logf("%v, forever %v: %d operations", kind, forever, n)
					break
				}
			}
		}
	}
}

// A compaction that Pebble wants while it is being opened is made afterwards.
func TestWhatWasToBeCompactedIs(t *testing.T) {
	s, err := Open(Options{FS: unsettled(t), Dir: "data"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for deadline := time.Now().Add(time.Minute); s.db.Metrics().Compact.Count == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("no compaction: %v", s.db.Metrics())
		}
	}
	if got := s.Count(); got != 20 {
		t.Errorf("%d entries, want 20", got)
	}
}

func little(fs vfs.FS) Options {
	return Options{FS: fs, Dir: "data", MemTableBytes: 256 << 10, CacheBytes: 1 << 20}
}
