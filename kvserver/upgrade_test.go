package kvserver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// version1 returns a directory that a kvserver of version 1 has made, by 30 times SET key:i value-i-before and one key with an end, a
// checkpoint, value-i-after for every third key, and DEL key:2 key:3; and what a server on it has.
func version1(t *testing.T, mode storage.Mode) (recorded, map[string]string) {
	t.Helper()
	rec := recorded{mode: mode, files: map[string][]byte{}}
	for path, data := range readTree(t, vfs.Default, "testdata/version1/"+string(mode)) {
		rec.files[strings.Replace(path, "testdata/version1/"+string(mode), "/data", 1)] = data
	}
	want := map[string]string{"timed": "v"}
	for i := 1; i <= 30; i++ {
		want[fmt.Sprint("key:", i)] = fmt.Sprintf("value-%d-before", i)
		if i%3 == 1 {
			want[fmt.Sprint("key:", i)] = fmt.Sprintf("value-%d-after", i)
		}
	}
	delete(want, "key:2")
	delete(want, "key:3")
	return rec, want
}

func upgrade(t *testing.T, fs vfs.FS) (Upgraded, error) {
	return Upgrade(t.Context(), UpgradeOptions{FS: fs, Dir: "/data", To: "/new", Logf: t.Logf})
}

var oldModes = []storage.Mode{storage.Memory, storage.Serialize, storage.File, storage.LSM}

func TestUpgradeTakesEverything(t *testing.T) {
	for _, mode := range oldModes {
		rec, want := version1(t, mode)
		fs, err := rec.with("", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{FS: fs, Dir: "/data", Mode: mode}); err == nil || !strings.Contains(err.Error(), "kvserver upgrade /data TO") {
			t.Errorf("%s: a start says %v", mode, err)
		}
		done, err := upgrade(t, fs)
		if err != nil || done.Records != 11 || done.Cut != "" {
			t.Fatalf("%s: %+v, %v", mode, done, err)
		}
		if after := readTree(t, fs, "/data"); !maps.EqualFunc(after, rec.files, bytes.Equal) {
			t.Errorf("%s: the old directory is another one: %s", mode, diffOf(rec.files, after))
		}
		if _, err := upgrade(t, fs); err == nil || !strings.Contains(err.Error(), "/new is not empty") {
			t.Errorf("%s: a second time: %v", mode, err)
		}
		srv := open(t, Options{FS: fs, Dir: "/new", Mode: mode, CheckpointBytes: -1})
		if got := entriesOf(t, srv); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", mode, got, want)
		}
		speak(t, srv).want("PEXPIRETIME timed", ":4000000000000\r\n")
	}
}

func entriesOf(t *testing.T, srv *Server) map[string]string {
	t.Helper()
	got := map[string]string{}
	for i := range srv.db.store.Shards() {
		if err := srv.db.store.Range(i, func(k, v []byte) error { got[string(k)] = string(v); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// An upgrade of a damaged directory is refused and leaves nothing, or has everything.
func TestUpgradeOfADamagedDirectoryIsWholeOrRefused(t *testing.T) {
	for _, mode := range oldModes {
		rec, want := version1(t, mode)
		refused := 0
		for _, path := range slices.Sorted(maps.Keys(rec.files)) {
			if strings.Contains(path, "/lsm/OPTIONS") || strings.Contains(path, "FORMAT") {
				continue
			}
			for at := range len(rec.files[path]) {
				if at%23 != 7 {
					continue
				}
				flipped := bytes.Clone(rec.files[path])
				flipped[at] ^= 4
				for what, data := range map[string][]byte{"flipped": flipped, "cut": rec.files[path][:at]} {
					fs, err := rec.with(path, data)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := upgrade(t, fs); err != nil {
						refused++
						if names, err := fs.List("/new"); err == nil {
							t.Errorf("%s: %s %s at %d: a refused upgrade left %q", mode, path, what, at, names)
						}
						continue
					}
					srv := open(t, Options{FS: fs, Dir: "/new", Mode: mode, CheckpointBytes: -1})
					if got := entriesOf(t, srv); !maps.Equal(got, want) {
						t.Errorf("%s: %s %s at %d: got %v", mode, path, what, at, got)
					}
					shutdown(t, srv)
				}
			}
		}
		if refused < 20 {
			t.Errorf("%s: only %d damages were refused", mode, refused)
		}
	}
}

// Without CLEAN, as after a kill, the log may end with a torn tail, which is named.
func TestUpgradeNamesATornTail(t *testing.T) {
	rec, want := version1(t, storage.Memory)
	delete(rec.files, "/data/CLEAN")
	path := "/data/wal/" + segmentFile(2)
	full := rec.files[path]
	fs, err := rec.with(path, full[:len(full)-30]) // the end frame and a part of DEL
	if err != nil {
		t.Fatal(err)
	}
	done, err := upgrade(t, fs)
	if err != nil || !strings.Contains(done.Cut, "unsynced tail") {
		t.Fatalf("%+v, %v", done, err)
	}
	want["key:2"], want["key:3"] = "value-2-before", "value-3-before"
	if got := entriesOf(t, open(t, Options{FS: fs, Dir: "/new", CheckpointBytes: -1})); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Buckets whose codes nobody knows any more are refused with the way around.
func TestUpgradeRefusesBucketsWithLearnedCodes(t *testing.T) {
	rec, _ := version1(t, storage.Serialize)
	path := "/data/checkpoint/" + checkpointFile(2)
	file := []byte(oldCheckpointMagic)
	frame := func(kind byte, payload []byte) {
		header := binary.LittleEndian.AppendUint32([]byte{0, 0, 0, 0, kind}, uint32(len(payload)))
		binary.LittleEndian.PutUint32(header, frameSum(0, int64(len(file)), header, payload))
		file = append(append(file, header...), payload...)
	}
	frame(frameStore, []byte{3, 8, 1, 1})
	frame(frameEnd, binary.LittleEndian.AppendUint64(nil, 1))
	fs, err := rec.with(path, file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upgrade(t, fs); err == nil || !strings.Contains(err.Error(), "--codec s2, send BGSAVE") {
		t.Errorf("got %v", err)
	}
}

// A dump shows the checkpoint and then the log, and nothing of what is there is missing.
func TestDumpShowsTheCheckpointToo(t *testing.T) {
	for _, mode := range storage.Modes() {
		fs := vfs.NewMem()
		srv := open(t, Options{FS: fs, Mode: mode, WALPolicy: wal.Always, CheckpointBytes: -1})
		c := speak(t, srv)
		c.want("SET a 1", ok)
		c.want("SET b 2 PXAT 4000000000000", ok)
		if err := srv.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		c.want("SET c 3", ok)
		shutdown(t, srv)
		var state, log []string
		err := Dump(fs, "/data", func(n uint64, e entry.Entry) error {
			state = append(state, fmt.Sprintf("%d %v %s %s %d", n, e.Op, e.Key, e.Value, e.ExpireAt))
			return nil
		}, func(_ uint64, _ int64, payload []byte) error {
			return entry.Decode(payload, func(e entry.Entry) error {
				log = append(log, fmt.Sprintf("%v %s %s", e.Op, e.Key, e.Value))
				return nil
			})
		})
		slices.Sort(state)
		want := []string{"2 expire b  4000000000000", "2 set a 1 0", "2 set b 2 0"}
		if err != nil || !slices.Equal(state, want) || !slices.Equal(log, []string{"set c 3"}) {
			t.Errorf("%s: checkpoint %q, log %q, %v", mode, state, log, err)
		}
	}
}
