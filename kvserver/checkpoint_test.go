package kvserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"kvmark/storage"
	"kvmark/wal"
)

// state reads everything that a server holds.
func state(t *testing.T, srv *Server) map[string]string {
	t.Helper()
	m := map[string]string{}
	for i := range srv.db.store.Shards() {
		if err := srv.db.store.Range(i, func(key, value []byte) error {
			m[string(key)] = string(value) + " until " + strconv.FormatInt(srv.db.stripe(key).end(key), 10)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// anything runs random commands.
func anything(c *speaker, rng *rand.Rand, n int) {
	for range n {
		k := rng.IntN(40)
		switch rng.IntN(10) {
		default:
			c.do(fmt.Sprintf("SET k%d v%d", k, rng.Int64()))
		case 1:
			c.do(fmt.Sprintf("SET k%d v%d EX %d", k, rng.Int64(), 1000+rng.IntN(1000)))
		case 2:
			c.do(fmt.Sprintf("DEL k%d k%d", k, rng.IntN(40)))
		case 3:
			c.do(fmt.Sprintf("EXPIRE k%d %d", k, 1000+rng.IntN(1000)))
		case 4:
			c.do(fmt.Sprintf("PERSIST k%d", k))
		case 5:
			c.do(fmt.Sprintf("MSET k%d a%d k%d b%d", k, rng.Int64(), rng.IntN(40), rng.Int64()))
		case 6:
			if rng.IntN(20) == 0 {
				c.do("FLUSHALL")
			}
		}
	}
}

func TestARestartBringsBackTheState(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			fs := vfs.NewMem()
			for seed := range uint64(5) {
				rng := rand.New(rand.NewPCG(seed, 1))
				srv := open(t, Options{FS: fs, Mode: mode, WALPolicy: wal.OS, SegmentBytes: 1 << 10, CheckpointBytes: -1})
				c := speak(t, srv)
				anything(c, rng, 200)
				if seed%2 == 0 {
					if err := srv.Checkpoint(); err != nil {
						t.Fatal(err)
					}
					if n := srv.db.log.Stats().Segments; n != 1 {
						t.Errorf("seed %d: %d segments are left after a checkpoint, want 1", seed, n)
					}
					anything(c, rng, 50)
				}
				want := state(t, srv)
				shutdown(t, srv)
				again := open(t, Options{FS: fs, Mode: mode, CheckpointBytes: -1})
				if diff := cmp.Diff(want, state(t, again)); diff != "" {
					t.Fatalf("seed %d (-before +after):\n%s", seed, diff)
				}
				shutdown(t, again)
				reports, err := Check(fs, "/data")
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range reports {
					if r.State != wal.Clean {
						t.Errorf("seed %d: %s is %v: %v", seed, r.Path, r.State, r.Err)
					}
				}
			}
		})
	}
}

// Power fails at any moment under load, with checkpoints all the time. What had been acknowledged must be there.
func TestAPowerFailureLosesNothingAcknowledged(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			const writers, keys = 4, 8
			fs := vfs.NewCrashableMem()
			srv := open(t, Options{FS: fs, Mode: mode, WALPolicy: wal.Always, SegmentBytes: 4 << 10, CheckpointBytes: -1})
			var acked, sent [writers]atomic.Int64
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					c := speak(t, srv)
					for i := int64(0); ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						sent[w].Store(i + 1)
						c.want(fmt.Sprintf("SET w%d-%d %d", w, i%keys, i), ok)
						acked[w].Store(i + 1)
					}
				})
			}
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := srv.Checkpoint(); err != nil {
						t.Error(err)
						return
					}
				}
			})
			for seed := range uint64(8) {
				for acked[0].Load() < int64(40*(seed+1)) { // some progress between two failures
					select {
					case <-t.Context().Done():
						return
					default:
					}
				}
				var atLeast, atMost [writers]int64
				for w := range writers {
					atLeast[w] = acked[w].Load()
				}
				clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%3) * 50, RNG: rand.New(rand.NewPCG(seed, 2))})
				for w := range writers {
					atMost[w] = sent[w].Load()
				}
				after := open(t, Options{FS: clone, Mode: mode, CheckpointBytes: -1})
				c := speak(t, after)
				for w := range writers {
					last := int64(-1)
					for k := range keys {
						if v, ok := number(c.do(fmt.Sprintf("GET w%d-%d", w, k))); ok {
							last = max(last, int64(v))
						}
					}
					if last < atLeast[w]-1 || last >= atMost[w] {
						t.Errorf("seed %d, writer %d: the newest write is %d; %d were acknowledged, %d sent", seed, w, last, atLeast[w], atMost[w])
					}
					for i := max(0, last-keys+1); i <= last; i++ {
						if v, _ := number(c.do(fmt.Sprintf("GET w%d-%d", w, i%keys))); int64(v) != i {
							t.Errorf("seed %d, writer %d: key %d holds %d, want %d (newest %d)", seed, w, i%keys, v, i, last)
						}
					}
				}
				shutdown(t, after)
			}
			close(stop)
			wg.Wait()
		})
	}
}

// Whatever operation of a checkpoint fails, the server and its next start have the state.
func TestACheckpointThatFailsAtAnyStepLosesNothing(t *testing.T) {
	for n := int32(0); ; n++ {
		mem := vfs.NewMem()
		var left atomic.Int32 // operations until the one that fails; below 0: none does
		left.Store(-1)
		inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose && left.Load() >= 0 && left.Add(-1) == -1 {
				return errorfs.ErrInjected
			}
			return nil
		})
		srv := open(t, Options{FS: errorfs.Wrap(mem, inject), WALPolicy: wal.OS, SegmentBytes: 1 << 10, CheckpointBytes: -1})
		c := speak(t, srv)
		anything(c, rand.New(rand.NewPCG(1, uint64(n))), 100)
		want := state(t, srv)
		left.Store(n)
		err := srv.Checkpoint()
		if err == nil {
			if n < 8 {
				t.Fatalf("only %d operations could fail", n)
			}
			return
		}
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("operation %d: got %v", n, err)
		}
		left.Store(-1)
		if diff := cmp.Diff(want, state(t, srv)); diff != "" {
			t.Fatalf("operation %d, before the restart (-want +got):\n%s", n, diff)
		}
		shutdown(t, srv)
		again := open(t, Options{FS: mem})
		if diff := cmp.Diff(want, state(t, again)); diff != "" {
			t.Fatalf("operation %d, after the restart (-want +got):\n%s", n, diff)
		}
		if err := again.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		shutdown(t, again)
	}
}

// Damage at any byte of a checkpoint stops a start, with file and offset; nothing is deleted or passed over.
func TestADamagedCheckpointIsNamed(t *testing.T) {
	fs := vfs.NewMem()
	srv := open(t, Options{FS: fs, CheckpointBytes: -1})
	c := speak(t, srv)
	c.want("MSET a 1 b 2 c 3", ok)
	c.want("SET d 4 EXAT 9999999999", ok)
	if err := srv.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	shutdown(t, srv)
	numbers, _, err := listCheckpoints(fs, "/data/checkpoint")
	if err != nil || len(numbers) != 1 {
		t.Fatalf("checkpoints %v, %v", numbers, err)
	}
	path := "/data/checkpoint/" + checkpointFile(numbers[0])
	good := readFile(t, fs, path)
	damaged := func(what string, data []byte) {
		t.Helper()
		writeFile(t, fs, path, data)
		_, err := Open(Options{FS: fs, Dir: "/data", Mode: storage.Memory})
		if ce, ok := errors.AsType[*wal.CorruptionError](err); !ok || ce.Path != path {
			t.Fatalf("%s: got %v, want a CorruptionError of %s", what, err, path)
		}
		if reports, err := Check(fs, "/data"); err != nil || reports[0].State != wal.Corrupt {
			t.Fatalf("%s: check says %v, %v", what, reports, err)
		}
	}
	for i := range good {
		bad := append([]byte{}, good...)
		bad[i] ^= 0x10
		damaged(fmt.Sprintf("flip at %d", i), bad)
		damaged(fmt.Sprintf("cut at %d", i), good[:i])
	}
	damaged("a byte more", append(append([]byte{}, good...), 0))
	writeFile(t, fs, path, good)
	c = speak(t, open(t, Options{FS: fs}))
	c.want("MGET a b c d", "*4\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n")
	c.want("EXPIRETIME d", ":9999999999\r\n")
}

func readFile(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, fs vfs.FS, path string, data []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(data, 0); err != nil { // Write might change data
		t.Fatal(err)
	}
}

func FuzzReadCheckpoint(f *testing.F) {
	f.Add([]byte(checkpointMagic))
	var whole bytes.Buffer
	w, err := newCheckpointWriter(&whole, checkpointHeader{number: 1, segment: 2, mode: storage.Memory})
	if err == nil {
		err = errors.Join(w.frame(frameStore, []byte("a record")), w.frame(frameEnd, binary.LittleEndian.AppendUint64(nil, 1)), w.w.Flush())
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	const name = "checkpoint/0000000001"
	f.Fuzz(func(t *testing.T, data []byte) {
		fs := vfs.NewMem()
		if err := fs.MkdirAll(checkpointName, 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, fs, name, data)
		p := &place{fs: fs}
		_, _, _, err := p.readCheckpoint(name, 1, func(byte, []byte) error { return nil })
		if _, ok := errors.AsType[*wal.CorruptionError](err); err != nil && !ok {
			t.Fatalf("got %T: %v", err, err)
		}
		frames, skipped, _, serr := p.salvageCheckpoint(1, func(byte, []byte) error { return nil })
		if serr != nil || err == nil && skipped > 0 || frames < 0 || skipped > int64(len(data)) {
			t.Fatalf("salvage: %d frames, %d bytes skipped, %v; reading: %v", frames, skipped, serr, err)
		}
	})
}
