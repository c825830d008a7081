package wal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

func TestPolicyNames(t *testing.T) {
	for _, p := range policies {
		if got, err := ParsePolicy(p.String()); got != p || err != nil {
			t.Errorf("ParsePolicy(%q) = %v, %v", p.String(), got, err)
		}
	}
	if _, err := ParsePolicy("everysec"); err == nil {
		t.Error("an unknown policy is accepted")
	}
}

func TestOptionsThatMakeNoSenseAreRejected(t *testing.T) {
	for _, o := range []Options{{Policy: 9}, {SegmentBytes: -1}, {SyncEvery: -1}} {
		o.FS = vfs.NewMem()
		if _, _, _, err := tryOpen(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestWhatIsAppendedIsReplayedInOrder(t *testing.T) {
	for _, p := range policies {
		for _, segmentBytes := range []int64{1, 200, 0} {
			t.Run(fmt.Sprintf("%v segments of %d", p, segmentBytes), func(t *testing.T) {
				o := quiet(vfs.NewMem(), p)
				o.SegmentBytes = segmentBytes
				want := records(50)
				want = append(want, nil, make([]byte, 5000), bytes.Repeat([]byte{0xff}, 3000), []byte("x"))
				for i := 0; i < len(want); i += 9 {
					l, rec, got := open(t, o)
					wantRecords(t, got, want[:i])
					if rec.CutPath != "" {
						t.Fatalf("a closed log has a tail: %+v", rec)
					}
					put(t, l, want[i:i+9]...)
					mustClose(t, l)
				}
				rec, got := reopen(t, o)
				wantRecords(t, got, want)
				if rec.Records != int64(len(want)) || rec.Bytes == 0 {
					t.Errorf("recovery says %+v", rec)
				}
				reports, err := Scan(o.FS, testDir, Identity{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range reports {
					if r.State != Clean || segmentBytes == 1 && r.Records > 1 {
						t.Errorf("%+v", r)
					}
				}
			})
		}
	}
}

func TestRestartsWithoutRecordsLeaveOneSegment(t *testing.T) {
	o := quiet(vfs.NewMem(), Always)
	for range 5 {
		reopen(t, o)
	}
	if m := snapshot(t, o.FS); len(m) != 1 || len(m["0000000001.wal"]) != segmentHeaderSize {
		t.Errorf("files: %v", m)
	}
}

func TestRotateSyncsAndLaterRecordsGoToTheNewSegment(t *testing.T) {
	for _, p := range policies {
		fs := vfs.NewCrashableMem()
		o := quiet(fs, p)
		l, _, _ := open(t, o)
		put(t, l, records(10)...)
		n, err := l.Rotate()
		if n != 2 || err != nil {
			t.Fatalf("Rotate = %d, %v", n, err)
		}
		if again, err := l.Rotate(); again != n || err != nil {
			t.Fatalf("Rotate of an empty segment = %d, %v", again, err)
		}
		put(t, l, []byte("behind"))
		_, got := reopen(t, quiet(fs.CrashClone(vfs.CrashCloneCfg{}), p))
		if len(got) < 10 {
			t.Fatalf("%v: %d records survive power loss after Rotate, want at least 10", p, len(got))
		}
		mustClose(t, l)
		o.FirstSegment = n
		_, got = reopen(t, o)
		wantRecords(t, got, [][]byte{[]byte("behind")})
		if _, err := fs.Stat(fs.PathJoin(testDir, segmentName(1))); err == nil {
			t.Error("the segment in front of FirstSegment is still there")
		}
	}
}

func TestRemoveBefore(t *testing.T) {
	o := quiet(vfs.NewMem(), OS)
	o.SegmentBytes = 1
	l, _, _ := open(t, o)
	put(t, l, records(6)...)
	for _, c := range []struct {
		before uint64
		want   int
	}{{0, 6}, {3, 4}, {3, 4}, {1000, 1}} {
		if err := l.RemoveBefore(c.before); err != nil {
			t.Fatal(err)
		}
		s := l.Stats()
		if m := snapshot(t, o.FS); len(m) != c.want || s.Segments != c.want {
			t.Errorf("RemoveBefore(%d): %d files, %d in Stats, want %d", c.before, len(m), s.Segments, c.want)
		}
	}
	put(t, l, []byte("more"))
	mustClose(t, l)
	_, got := reopen(t, o)
	wantRecords(t, got, [][]byte{records(6)[5], []byte("more")})
}

func TestClosedLog(t *testing.T) {
	o := quiet(vfs.NewMem(), Buffered)
	l, _, _ := open(t, o)
	pos, err := l.Append([]byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	mustClose(t, l)
	if _, err := l.Append(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Append: %v", err)
	}
	if _, err := l.Rotate(); !errors.Is(err, ErrClosed) {
		t.Errorf("Rotate: %v", err)
	}
	if err := errors.Join(l.Commit(pos), l.Sync()); err != nil {
		t.Errorf("what was appended is durable, but: %v", err)
	}
}

func TestARecordAboveTheLimitIsRefusedAndChangesNothing(t *testing.T) {
	l, _, _ := open(t, quiet(vfs.NewMem(), OS))
	defer mustClose(t, l)
	if _, err := l.Append(make([]byte, MaxRecord+1)); !errors.Is(err, ErrTooLarge) { // never touched: costs no memory
		t.Errorf("err = %v", err)
	}
	if s := l.Stats(); s.Records != 0 || len(l.buf) != batchStart {
		t.Errorf("stats %+v, %d bytes buffered", s, len(l.buf)-batchStart)
	}
}

func TestCommitOfAPositionThatWasNeverAppendedIsAnError(t *testing.T) {
	l, _, _ := open(t, quiet(vfs.NewMem(), OS))
	defer mustClose(t, l)
	if err := l.Commit(1); err == nil {
		t.Error("no error")
	}
}

func TestBufferingIsBoundedAndBigBuffersAreLetGo(t *testing.T) {
	o := quiet(vfs.NewMem(), OS)
	l, _, _ := open(t, o)
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for range 12 {
		if _, err := l.Append(chunk); err != nil {
			t.Fatal(err)
		}
		if len(l.buf) > maxBuffered+2*len(chunk) {
			t.Fatalf("%d bytes are buffered", len(l.buf))
		}
	}
	if l.Stats().Writes == 0 {
		t.Error("nobody wrote")
	}
	put(t, l, bytes.Repeat(chunk, 20), []byte("small"), []byte("small"))
	if most := max(cap(l.buf), cap(l.spare)); most > keptBuffer {
		t.Errorf("a buffer of %d bytes is kept", most)
	}
	mustClose(t, l)
}

func TestAppendAndCommitAllocateNothing(t *testing.T) {
	for _, p := range policies {
		// The real file system: the one in memory allocates.
		l, _, err := Open(t.TempDir(), Options{Policy: p}, nil)
		if err != nil {
			t.Fatal(err)
		}
		payload := bytes.Repeat([]byte("p"), 200)
		n := testing.AllocsPerRun(200, func() {
			pos, err := l.Append(payload)
			if err == nil {
				err = l.Commit(pos)
			}
			if err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("%v: %v allocations", p, n)
		}
		mustClose(t, l)
	}
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	l, _, err := Open(dir, Options{Policy: OS}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, l)
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, segmentName(1)): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v (%v)", path, info.Mode().Perm(), want, err)
		}
	}
}

func TestReplayStopsAtTheCallersError(t *testing.T) {
	o := quiet(vfs.NewMem(), OS)
	l, _, _ := open(t, o)
	put(t, l, records(3)...)
	mustClose(t, l)
	mine := errors.New("mine")
	_, _, err := Open(testDir, o, func([]byte) error { return mine })
	if !errors.Is(err, mine) || !strings.Contains(err.Error(), "0000000001.wal at offset 52") {
		t.Errorf("err = %v", err)
	}
}

// One fdatasync serves all who wait: while the first one is held, everybody else appends; the second takes them all.
func TestGroupCommit(t *testing.T) {
	const writers, each = 16, 20
	g := newGate()
	fs := &hookFS{FS: vfs.NewMem()}
	l, _, _ := open(t, quiet(fs, Always))
	defer mustClose(t, l)
	fs.sync = func(f vfs.File) error { g.pass(); return f.SyncData() }
	first, err := l.Append([]byte("first"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { check(t, l.Commit(first)) })
	<-g.entered // the leader is in fdatasync; Append goes on beside it
	var last Pos
	for i := range writers * each {
		pos, err := l.Append([]byte("behind"))
		check(t, err)
		last = pos
		if i%each == 0 {
			wg.Go(func() { check(t, l.Commit(pos)) })
		}
	}
	if l.durable.Load() != 0 {
		t.Error("durable before fdatasync has returned")
	}
	g.openUp()
	wg.Wait()
	check(t, l.Commit(last))
	if s := l.Stats(); s.Records != writers*each+1 || s.Syncs > 3 || s.SyncMax == 0 {
		t.Errorf("%d records took %d syncs (max %v), want at most 3", s.Records, s.Syncs, s.SyncMax)
	}
}

// A background sync that takes its time holds up neither Append and Commit, nor a rotation.
func TestWritersGoOnBesideABackgroundSync(t *testing.T) {
	g := newGate()
	mem := vfs.NewMem()
	fs := &hookFS{FS: mem}
	o := quiet(fs, Interval)
	l, _, _ := open(t, o)
	var syncs atomic.Int32
	fs.sync = func(f vfs.File) error {
		if syncs.Add(1) == 1 { // the background's
			g.pass()
		}
		return f.SyncData()
	}
	put(t, l, []byte("a"))
	var wg sync.WaitGroup
	wg.Go(l.tick)
	<-g.entered
	put(t, l, []byte("b"))
	if n, err := l.Rotate(); n != 2 || err != nil {
		t.Errorf("Rotate = %d, %v", n, err)
	}
	put(t, l, []byte("c"))
	g.openUp()
	wg.Wait()
	if l.synced != int64(segmentHeaderSize) {
		t.Errorf("the sync of the old segment vouches for offset %d of the new one", l.synced)
	}
	mustClose(t, l)
	_, got := reopen(t, o)
	wantRecords(t, got, [][]byte{[]byte("a"), []byte("b"), []byte("c")})
}

func TestBufferedIsWrittenInTheBackground(t *testing.T) {
	fs := &hookFS{FS: vfs.NewMem()}
	l, _, _ := open(t, quiet(fs, Buffered))
	wrote := make(chan struct{}, 100)
	fs.write = func(f vfs.File, p []byte, off int64) (int, error) {
		wrote <- struct{}{}
		return f.WriteAt(p, off)
	}
	put(t, l, []byte("by time"))
	<-wrote
	put(t, l, bytes.Repeat([]byte("by size"), flushBytes/7+1))
	<-wrote
	mustClose(t, l)
}

func TestAnIdleLogIsVouchedForAsAWhole(t *testing.T) {
	for _, p := range []Policy{Interval, Always} {
		o := quiet(vfs.NewMem(), p)
		l, _, _ := open(t, o)
		put(t, l, records(5)...)
		last := l.out.offset
		l.tick() // Interval: syncs
		l.tick()
		writes := l.Stats().Writes
		l.tick()
		l.tick()
		if got := l.Stats().Writes; got != writes {
			t.Errorf("%v: an idle log goes on writing", p)
		}
		m := killed(t, o.FS)
		mustClose(t, l)
		b := m[segmentName(1)]
		if len(b) != int(last)+markFrameSize || b[last] != kindSynced {
			t.Fatalf("%v: no mark at offset %d of %d bytes", p, last, len(b))
		}
		b[last-1] ^= 1
		_, _, _, err := tryOpen(quiet(m.fs(t), p))
		var c *CorruptionError
		if !errors.As(err, &c) {
			t.Errorf("%v: damage in the last record of an idle log: %v", p, err)
		}
	}
}

func TestAMarkTravelsWithTheNextBatch(t *testing.T) {
	o := quiet(vfs.NewMem(), Always)
	l, _, _ := open(t, o)
	defer mustClose(t, l)
	put(t, l, []byte("a"))
	before := l.Stats()
	at := l.out.offset
	put(t, l, []byte("b"))
	if after := l.Stats(); after.Writes != before.Writes+1 || after.Syncs != before.Syncs+1 {
		t.Errorf("a mark cost a write or a sync of its own: %+v, %+v", before, after)
	}
	if b := snapshot(t, o.FS)[segmentName(1)]; b[at] != kindSynced || b[at+markFrameSize] != kindRecord {
		t.Errorf("% x", b[at:])
	}
}

func TestStatsCountWhatIsOnDisk(t *testing.T) {
	o := quiet(vfs.NewMem(), Always)
	o.SegmentBytes = 300
	l, _, _ := open(t, o)
	defer mustClose(t, l)
	put(t, l, records(30)...)
	var want int64
	m := snapshot(t, o.FS)
	for _, b := range m {
		want += int64(len(b))
	}
	if s := l.Stats(); s.DiskBytes != want || s.Segments != len(m) || s.Records != 30 || s.Syncs < 30 || s.SyncNanos == 0 {
		t.Errorf("%+v, want %d bytes in %d files", s, want, len(m))
	}
}

// The log against a slice, with restarts, crashes of the process and of the machine.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := rapid.SampledFrom(policies).Draw(rt, "policy")
		mem := vfs.NewCrashableMem()
		o := quiet(mem, p)
		o.SegmentBytes = rapid.Int64Range(1, 3000).Draw(rt, "segment")
		var model [][]byte
		durable, number := 0, 0
		l, _, _, err := tryOpen(o)
		check(rt, err)
		again := func() {
			var got [][]byte
			l, _, got, err = tryOpen(o)
			check(rt, err)
			check(rt, wantPrefix(got, model))
			if len(got) < durable {
				rt.Fatalf("%d records, want at least %d", len(got), durable)
			}
			model, durable = got, len(got)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				number++
				payload := append(fmt.Appendf(nil, "%d ", number), make([]byte, rapid.IntRange(0, 2000).Draw(rt, "zeros"))...)
				pos, err := l.Append(payload)
				check(rt, err)
				model = append(model, payload)
				if rapid.Bool().Draw(rt, "commit") {
					check(rt, l.Commit(pos))
					if p == Always {
						durable = len(model)
					}
				}
			},
			"sync":   func(rt *rapid.T) { check(rt, l.Sync()); durable = len(model) },
			"tick":   func(*rapid.T) { l.tick() },
			"rotate": func(rt *rapid.T) { _, err := l.Rotate(); check(rt, err); durable = len(model) },
			"reopen": func(rt *rapid.T) { check(rt, l.Close()); durable = len(model); again() },
			"power loss": func(rt *rapid.T) {
				seed := rapid.Uint64().Draw(rt, "seed")
				crashed := crash(mem, seed)
				check(rt, l.Close())
				mem, o.FS = crashed, crashed
				again()
			},
		})
		check(rt, l.Close())
	})
}

func check(t interface {
	Helper()
	Errorf(string, ...any)
}, err error,
) {
	t.Helper()
	if err != nil {
		t.Errorf("%v", err)
	}
}
