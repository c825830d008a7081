package wal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func longTests() bool { return os.Getenv("KVMARK_LONG") != "" }

func seeds(n uint64) uint64 {
	if longTests() {
		return 30 * n
	}
	if testing.Short() {
		return max(1, n/4)
	}
	return n
}

// crash returns what a power loss may leave of fs.
func crash(fs *vfs.MemFS, seed uint64) *vfs.MemFS {
	rng := rand.New(rand.NewPCG(seed, 1))
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
}

// numbered is a payload that says which one it is, of a size that makes frames cross sectors and blocks.
func numbered(rng *rand.Rand, n uint64) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, n), make([]byte, rng.IntN(3000))...)
}

func TestPowerLoss(t *testing.T) {
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(40) {
				powerLoss(t, p, seed)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// powerLoss lets goroutines append and commit, takes images of the file system beside them, and opens those.
func powerLoss(t *testing.T, p Policy, seed uint64) {
	const writers, each = 4, 25
	fs := vfs.NewCrashableMem()
	o := quiet(fs, p)
	o.SegmentBytes = 40_000
	l, _, err := Open(testDir, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	var (
		order  sync.Mutex // makes the order of Append known
		number uint64
		acked  atomic.Uint64 // records known to be durable
		wg     sync.WaitGroup
	)
	raise := func(n uint64) {
		for old := acked.Load(); n > old && !acked.CompareAndSwap(old, n); old = acked.Load() {
		}
	}
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range each {
				order.Lock()
				n := number + 1
				pos, err := l.Append(numbered(rng, n))
				number = n
				order.Unlock()
				check(t, err)
				check(t, l.Commit(pos))
				if p == Always {
					raise(n)
				}
				switch rng.IntN(15) {
				case 0:
					check(t, l.Sync())
					raise(n)
				case 1:
					l.tick()
				case 2:
					_, err := l.Rotate()
					check(t, err)
					raise(n)
				}
			}
		})
	}
	for image := range uint64(3) {
		least := acked.Load()
		crashed := crash(fs, seed*10+image)
		recovered(t, p, crashed, least, fmt.Sprintf("seed %d image %d", seed, image))
	}
	wg.Wait()
	least := acked.Load()
	recovered(t, p, crash(fs, seed*10+9), least, fmt.Sprintf("seed %d at the end", seed))
	mustClose(t, l)
	recovered(t, p, crash(fs, seed), writers*each, fmt.Sprintf("seed %d closed", seed))
}

// With Always, a segment that is no longer small is written over zeros. A power loss at any batch leaves what was committed.
func TestPowerLossInFilledSegments(t *testing.T) {
	for seed := range seeds(3) {
		fs := vfs.NewCrashableMem()
		o := quiet(fs, Always)
		o.SegmentBytes = fillBehind + fillBytes + 100_000 // so that there is not room for all zeros the second time
		l, _, err := Open(testDir, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		for n, filled := uint64(1), false; n <= 600; n++ {
			pos, err := l.Append(append(numbered(rng, n), make([]byte, 2000)...))
			check(t, err)
			if n%3 > 0 { // batches of several records
				continue
			}
			check(t, l.Commit(pos))
			now := l.out.filled > l.out.offset
			if now != filled || n%99 == 0 {
				recovered(t, Always, crash(fs, seed*1000+n), n, fmt.Sprintf("seed %d behind %d, filled %v", seed, n, now))
			}
			filled = now
		}
		if st := l.Stats(); st.Segments < 2 || st.DiskBytes < int64(st.Bytes) {
			t.Errorf("%+v: want several segments", st)
		}
		mustClose(t, l)
		recovered(t, Always, crash(fs, seed), 600, fmt.Sprintf("seed %d closed", seed))
	}
}

// recovered opens fs, which must hold the records 1, 2, ... up to at least least, crashes it at once, and opens it again.
func recovered(t *testing.T, p Policy, fs *vfs.MemFS, least uint64, what string) {
	t.Helper()
	last := uint64(0)
	replay := func(b []byte) error {
		if n := binary.LittleEndian.Uint64(b); n != last+1 {
			return fmt.Errorf("record %d behind %d", n, last)
		}
		last++
		return nil
	}
	l, _, err := Open(testDir, quiet(fs, p), replay)
	if err != nil || last < least {
		t.Errorf("%s: %d records, want at least %d: %v", what, last, least, err)
		return
	}
	// What a start has replayed stays, come what may.
	first := last
	last = 0
	again, _, err := Open(testDir, quiet(crash(fs, least), p), replay)
	if err != nil || last != first {
		t.Errorf("%s: second start has %d records, the first had %d: %v", what, last, first, err)
	} else {
		mustClose(t, again)
	}
	mustClose(t, l)
}

// A start may be interrupted at each of its steps, by a crash that loses what was not synced.
func TestInterruptedRecovery(t *testing.T) {
	for seed := range seeds(25) {
		rng := rand.New(rand.NewPCG(seed, 2))
		mem := vfs.NewCrashableMem()
		o := quiet(mem, OS)
		o.SegmentBytes = 15_000
		l, _, _ := open(t, o)
		var want [][]byte
		for i := range 20 {
			want = append(want, numbered(rng, uint64(i)))
		}
		put(t, l, want[:10]...)
		check(t, l.Sync())
		put(t, l, want[10:]...)
		image := crash(mem, seed)
		mustClose(t, l)

		_, full := reopen(t, quiet(killed(t, image).fs(t), OS))
		check(t, wantPrefix(full, want))
		base := killed(t, image)
		for step := 0; ; step++ {
			fs := base.fs(t)
			f := failAfter(fs, step)
			l, _, _, err := tryOpen(quiet(f, OS))
			if err == nil {
				mustClose(t, l)
				if step < 4 {
					t.Fatalf("seed %d: a start has only %d steps", seed, step)
				}
				break
			}
			if !errors.Is(err, errInjected) {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
			for i := range uint64(3) {
				o := quiet(crash(fs, seed+i), OS)
				_, got := reopen(t, o)
				if len(got) != len(full) {
					t.Fatalf("seed %d step %d crash %d: %d records, want %d", seed, step, seed+i, len(got), len(full))
				}
				wantRecords(t, got, full)
			}
		}
	}
}

const (
	killedDirEnv    = "KVMARK_WAL_TEST_DIR"
	killedPolicyEnv = "KVMARK_WAL_TEST_POLICY"
)

// appendUntilKilled is the body of the process that TestKill kills: it prints a line per acknowledged record.
func appendUntilKilled(dir string) int {
	p, err := ParsePolicy(os.Getenv(killedPolicyEnv))
	if err != nil {
		return 2
	}
	next := uint64(1)
	l, _, err := Open(dir, Options{Policy: p, SegmentBytes: 100_000, SyncEvery: time.Millisecond}, func([]byte) error {
		next++
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	rng := rand.New(rand.NewPCG(next, 3))
	for ; ; next++ {
		pos, err := l.Append(numbered(rng, next))
		if err == nil {
			err = l.Commit(pos)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(next)
	}
}

func TestKill(t *testing.T) {
	for _, p := range []Policy{OS, Interval, Always} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for round := range 3 {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), killedDirEnv+"="+dir, killedPolicyEnv+"="+p.String())
				out, err := cmd.StdoutPipe()
				check(t, err)
				check(t, cmd.Start())
				acked := uint64(0)
				lines := bufio.NewScanner(out)
				for n := 0; lines.Scan(); n++ {
					if n == 200 {
						check(t, cmd.Process.Kill())
					}
					if acked, err = strconv.ParseUint(lines.Text(), 10, 64); err != nil {
						t.Fatal(lines.Text())
					}
				}
				_, _ = io.Copy(io.Discard, out)
				if err := cmd.Wait(); err == nil {
					t.Fatal("the process ended by itself")
				}
				last := uint64(0)
				reports, err := Scan(nil, dir, Identity{}, func(_ uint64, _ int64, b []byte) error {
					last++
					if n := binary.LittleEndian.Uint64(b); n != last {
						return fmt.Errorf("record %d where %d belongs", n, last)
					}
					return nil
				})
				check(t, err)
				for _, r := range reports {
					if r.State == Corrupt {
						t.Errorf("%+v", r)
					}
				}
				if last < acked || acked == 0 {
					t.Fatalf("round %d: %d records, %d were acknowledged", round, last, acked)
				}
			}
		})
	}
}
