package kvserver

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/kvserver/resp"
	"kvmark/storage"
	"kvmark/wal"
)

// recorded is a data directory as a server left it, and what was in it.
type recorded struct {
	mode   storage.Mode
	files  map[string][]byte
	before []model // the states that it went through; the last one is what is in it
}

// record makes a small directory with a checkpoint, value files or tables, and two segments of the log behind it. It is left in
// good order, or as after kill -9, when only the log tells where it ends.
func record(t *testing.T, mode storage.Mode, closed bool) recorded {
	t.Helper()
	fs := vfs.NewCrashableMem()
	srv := open(t, Options{FS: fs, Mode: mode, WALPolicy: wal.Always, SegmentBytes: 700, CheckpointBytes: -1})
	c := speak(t, srv)
	rng := rand.New(rand.NewPCG(1, 2))
	m := model{}
	rec := recorded{mode: mode, before: []model{{}}}
	write := func(n int) {
		for range n {
			if got := c.do(randomWrite(rng, m)); strings.HasPrefix(got, "-") {
				t.Fatal(got)
			}
			rec.before = append(rec.before, m.alive())
		}
	}
	write(30)
	if err := srv.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	write(12)
	from := fs
	if closed {
		shutdown(t, srv)
	} else {
		from = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		shutdown(t, srv)
	}
	rec.files = readTree(t, from, "/data")
	return rec
}

func readTree(t *testing.T, fs vfs.FS, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			maps.Copy(files, readTree(t, fs, path))
		} else {
			files[path] = readFile(t, fs, path)
		}
	}
	return files
}

// with returns a file system that holds the directory, with one file replaced.
func (rec recorded) with(path string, data []byte) (vfs.FS, error) {
	fs := vfs.NewMem()
	for p, good := range rec.files {
		if p == path {
			good = data
		}
		if err := fs.MkdirAll(fs.PathDir(p), 0o700); err != nil {
			return nil, err
		}
		f, err := fs.Create(p, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		_, err = f.WriteAt(good, 0)
		if err = errors.Join(err, f.Close()); err != nil && len(good) > 0 {
			return nil, err
		}
	}
	return fs, nil
}

// verdict is what became of damage.
type verdict uint8

const (
	harmless verdict = iota // every key has its value
	reported                // the start, a read, or the check named it
	cut                     // the end of a log that was not closed is gone, as in a crash, and the start said so or cannot know
	wrong                   // anything else
)

// judge starts a server on a damaged directory and reads every key there ever was.
func (rec recorded) judge(fs vfs.FS, mayEnd bool) (verdict, error) {
	srv, err := Open(Options{FS: fs, Dir: "/data", Mode: rec.mode, CheckpointBytes: -1})
	if err != nil {
		if !strings.Contains(err.Error(), "/data") {
			return wrong, fmt.Errorf("the error names no file: %w", err)
		}
		return reported, nil
	}
	defer srv.Shutdown(background())
	want := rec.before[len(rec.before)-1].alive()
	got, refused := model{}, false
	s := newSession(srv, 1)
	keys := []string{"n"}
	for i := range 12 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	for _, key := range keys {
		s.run([]byte("GET " + key + "\r\n"))
		s.commit()
		var p resp.ReplyParser
		r, _, err := p.Next(s.out)
		if err != nil {
			return wrong, err
		}
		switch {
		case r.Kind == resp.Error:
			refused = true
			if v, ok := want[key]; ok {
				got[key] = v // an error is no wrong value
			}
		case r.Kind != resp.Null:
			got[key] = modelValue{string(r.Bytes), srv.db.stripe([]byte(key)).end([]byte(key))}
		}
		s.sent()
	}
	switch {
	case maps.Equal(got, want) && refused:
		return reported, nil
	case maps.Equal(got, want):
		if err := srv.Checkpoint(); err != nil {
			return wrong, fmt.Errorf("what the start accepted a checkpoint does not: %w", err)
		}
		return harmless, nil
	}
	if mayEnd || srv.replayed.Log.CutPath != "" {
		for _, m := range rec.before {
			if maps.Equal(got, m.alive()) {
				return cut, nil
			}
		}
	}
	return wrong, fmt.Errorf("got %v\nwant %v", got, want)
}

// TestEveryDamageIsHarmlessOrReported flips bits and cuts files of recorded directories, and starts a server on each.
func TestEveryDamageIsHarmlessOrReported(t *testing.T) {
	stride := times(t, "KVMARK_DAMAGE_STRIDE", 211, 1) // a prime: every bit of a byte gets its turn
	for _, mode := range storage.Modes() {
		for _, closed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/closed=%v", mode, closed), func(t *testing.T) {
				t.Parallel()
				rec := record(t, mode, closed)
				newest := ""
				for _, p := range slices.Sorted(maps.Keys(rec.files)) {
					if strings.HasSuffix(p, ".wal") {
						newest = max(newest, p)
					}
				}
				step := stride
				if mode == storage.LSM && stride > 1 {
					step *= 7 // its directory is large, and Pebble slow to open
				}
				var count [2][wrong + 1]int
				try := func(kind int, what, path string, data []byte) {
					fs, err := rec.with(path, data)
					if err != nil {
						t.Fatal(err)
					}
					// Without a note of where it ended, the end of the newest segment is what a crash leaves.
					v, err := rec.judge(fs, !closed && path == newest && kind == 1)
					if v == harmless {
						if _, cerr := Check(fs, "/data"); cerr != nil {
							v, err = wrong, cerr
						}
					}
					if count[kind][v]++; v == wrong {
						t.Errorf("%s of %s: %v", what, path, err)
					}
				}
				n := 0
				for _, path := range slices.Sorted(maps.Keys(rec.files)) {
					good := rec.files[path]
					for bit := range 8 * len(good) {
						if n++; n%step != 0 {
							continue
						}
						bad := slices.Clone(good)
						bad[bit/8] ^= 1 << (bit % 8)
						try(0, fmt.Sprintf("flip of bit %d in byte %d", bit%8, bit/8), path, bad)
					}
					for size := range good {
						if n++; n%(step/8+1) == 0 {
							try(1, fmt.Sprintf("cut at byte %d", size), path, good[:size])
						}
					}
				}
				for kind, name := range []string{"bit flips", "truncations"} {
					c := count[kind]
					t.Logf("%s: %d harmless, %d reported, %d as a crash, %d WRONG", name, c[harmless], c[reported], c[cut], c[wrong])
				}
			})
		}
	}
}

// TestRepairMakesADamagedDirectoryUsable damages a byte in every file in turn. Whatever it is, repair and the next start
// succeed, the check is clean after them, and what is read is a value that the key once had.
func TestRepairMakesADamagedDirectoryUsable(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			rec := record(t, mode, true)
			rng := rand.New(rand.NewPCG(7, 7))
			for _, path := range slices.Sorted(maps.Keys(rec.files)) {
				good := rec.files[path]
				if len(good) == 0 || strings.HasSuffix(path, reserveName) {
					continue
				}
				for round := range times(t, "KVMARK_REPAIR", 4, 60) {
					bad := slices.Clone(good)
					if round%4 == 3 {
						bad = bad[:rng.IntN(len(bad))]
					} else {
						bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
					}
					fs, err := rec.with(path, bad)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := ReadFormat(fs, "/data"); err != nil {
						if _, corrupt := errors.AsType[*wal.CorruptionError](err); !corrupt {
							continue // of a newer version, it says, which repair cannot know better
						}
					}
					if err := rec.repairAndRead(fs); err != nil {
						t.Fatalf("round %d, %s: %v", round, path, err)
					}
				}
			}
		})
	}
}

func (rec recorded) repairAndRead(fs vfs.FS) error {
	before, err := sizes(fs, "/data")
	if err != nil {
		return err
	}
	var notes []string
	note := func(path, what string) { notes = append(notes, path+": "+what) }
	if err := Repair(fs, "/data", rec.mode, note); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	after, err := sizes(fs, "/data")
	if err != nil {
		return err
	}
	if len(notes) == 0 && !maps.Equal(before, after) {
		return fmt.Errorf("repair changed files and said nothing: %v, then %v", before, after)
	}
	srv, err := Open(Options{FS: fs, Dir: "/data", Mode: rec.mode, CheckpointBytes: -1})
	if err != nil {
		return fmt.Errorf("start after repair (%v): %w", notes, err)
	}
	state, err := held(srv)
	if err = errors.Join(err, srv.Shutdown(background())); err != nil {
		return fmt.Errorf("after repair (%v): %w", notes, err)
	}
	once := map[string]map[string]bool{}
	for _, m := range rec.before {
		for k, v := range m {
			if once[k] == nil {
				once[k] = map[string]bool{}
			}
			once[k][v.value] = true
		}
	}
	for k, v := range state {
		if !once[k][v.value] {
			return fmt.Errorf("after repair (%v), %s is %q, which it never was", notes, k, v.value)
		}
	}
	if len(notes) == 0 && !maps.Equal(state, rec.before[len(rec.before)-1].alive()) {
		return fmt.Errorf("nothing was repaired, but the state is %v", state)
	}
	reports, err := Check(fs, "/data")
	for _, r := range reports {
		if r.State != wal.Clean {
			err = errors.Join(err, fmt.Errorf("check after repair (%v): %s is %v: %w", notes, r.Path, r.State, r.Err))
		}
	}
	return err
}

// sizes lists a directory with the sizes of its files, but for those of who has it open.
func sizes(fs vfs.FS, dir string) (map[string]int64, error) {
	all := map[string]int64{}
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			if name != lockName {
				all[path] = info.Size()
			}
			continue
		}
		below, err := sizes(fs, path)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, below)
	}
	return all, nil
}

// TestRepairCanBeInterruptedAnywhere cuts the power in front of each of its operations. Another repair finishes it.
func TestRepairCanBeInterruptedAnywhere(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			rec := record(t, mode, false)
			damaged := vfs.NewCrashableMem()
			for _, p := range slices.Sorted(maps.Keys(rec.files)) {
				data := slices.Clone(rec.files[p])
				// One frame of the checkpoint, a value or table, and an older segment.
				if n := len(data); n > 60 && (strings.Contains(p, "/checkpoint/") || strings.HasSuffix(p, ".val") || strings.HasSuffix(p, ".sst") ||
					strings.HasSuffix(p, "0000000006.wal")) {
					data[n/2] ^= 4
				}
				if err := damaged.MkdirAll(damaged.PathDir(p), 0o700); err != nil {
					t.Fatal(err)
				}
				writeFile(t, damaged, p, data)
			}
			syncTree(t, damaged, "/")
			for n := int32(1); ; n++ {
				fs := damaged.CrashClone(vfs.CrashCloneCfg{})
				o := &outage{fs: fs, h: &history{}, rng: rand.New(rand.NewPCG(uint64(n), 3))}
				o.left.Store(n)
				if err := Repair(o.wrap(), "/data", "", func(string, string) {}); err != nil {
					t.Fatal(err)
				}
				if o.image() == nil {
					if n < 5 {
						t.Fatalf("repair changed nothing: %d operations", n)
					}
					return
				}
				if err := rec.repairAndRead(o.image().fs); err != nil {
					t.Fatalf("interrupted at operation %d, %s: %v", n, o.image().moment, err)
				}
				if os.Getenv("KVMARK_LONG") == "" && mode == storage.LSM {
					n += 15 // Pebble takes many, and is slow to open
				}
				if testing.Short() {
					n += 3
				}
			}
		})
	}
}

// syncTree makes everything durable.
func syncTree(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			syncTree(t, fs, path)
			continue
		}
		f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := syncDir(fs, dir); err != nil {
		t.Fatal(err)
	}
}

// TestRepairWritesFORMATAnew damages FORMAT, or takes it away. Where something proves the mode nobody has to name it.
func TestRepairWritesFORMATAnew(t *testing.T) {
	replace := func(old, new string) func(string) string {
		return func(good string) string { return strings.Replace(good, old, new, 1) }
	}
	text := func(text string) func(string) string { return func(string) string { return text } }
	same, newer := replace("", ""), func(string) string { return Format{formatVersion + 1, storage.Memory, identity{1}}.text() }
	for _, tc := range []struct {
		name       string
		format     func(good string) string // nil: none
		mode, told storage.Mode
		want       string // of the error
	}{
		{"a directory of value files needs nothing", nil, storage.File, "", ""},
		{"a directory of tables needs nothing", text("rubbish"), storage.LSM, "", ""},
		{"a damaged title", replace("data", "dada"), storage.Memory, "", ""},
		{"a missing title", replace(formatTitle+"\n", ""), storage.Serialize, "", ""},
		{"a damaged version", replace("version 2", "version x"), storage.Memory, "", ""},
		{"a damaged identity", replace("identity ", "identity x"), storage.Memory, "", ""},
		{"a damaged checksum", replace("checksum ", "checksum x"), storage.Memory, "", ""},
		{"another directory's", func(string) string { return Format{formatVersion, storage.LSM, identity{1}}.text() }, storage.File, "", ""},
		{"a cut file", text("kvmark data directory\nvers"), storage.Memory, "", "--mode"},
		{"a cut file and a told mode", text("kvmark data directory\nvers"), storage.Memory, storage.Memory, ""},
		{"no file and a told mode", nil, storage.Serialize, storage.Serialize, ""},
		{"no file", nil, storage.Serialize, "", "--mode"},
		{"a wrong mode that is told", nil, storage.File, storage.LSM, "holds mode file, not lsm"},
		{"a wrong mode for a good directory", same, storage.File, storage.LSM, "holds mode file, not lsm"},
		{"a newer version", newer, storage.Memory, storage.Memory, "version 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := vfs.NewMem()
			srv := open(t, Options{FS: fs, Mode: tc.mode})
			speak(t, srv).want("SET k v", ok)
			shutdown(t, srv)
			good, bad := string(readFile(t, fs, "/data/FORMAT")), ""
			if err := fs.Remove("/data/FORMAT"); err != nil {
				t.Fatal(err)
			}
			if tc.format != nil {
				bad = tc.format(good)
				writeFile(t, fs, "/data/FORMAT", []byte(bad))
			}
			if bad != good {
				if _, err := Open(Options{FS: fs, Dir: "/data", Mode: tc.mode}); err == nil {
					t.Fatal("it starts without a repair")
				}
			}
			reports, err := Check(fs, "/data")
			if bad != good && tc.want != "version 3" && (err != nil || len(reports) < 2 || !slices.ContainsFunc(reports, func(r wal.SegmentReport) bool { return r.State == wal.Corrupt })) {
				t.Errorf("check: %v, %v", reports, err)
			}
			notes := 0
			err = Repair(fs, "/data", tc.told, func(string, string) { notes++ })
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || notes > 0 {
					t.Errorf("got %v and %d notes, want %q", err, notes, tc.want)
				}
				return
			}
			if err != nil || notes != 1 {
				t.Fatalf("got %v and %d notes", err, notes)
			}
			if bad != "" {
				if kept, err := readSmall(fs, "/data/FORMAT.damaged"); err != nil || kept != bad {
					t.Errorf("the old one: %q, %v", kept, err)
				}
			}
			speak(t, open(t, Options{FS: fs, Mode: tc.mode})).want("GET k", "$1\r\nv\r\n")
		})
	}
	if err := Repair(vfs.NewMem(), "/nope", storage.Memory, func(string, string) {}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
