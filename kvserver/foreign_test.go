package kvserver

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
)

// lived is a data directory at three moments of its life, and what was in it.
type lived struct {
	recorded
	early, late map[string][]byte // behind the first checkpoint, and in the middle of the newest segment
}

// live is record with another seed, two checkpoints, and looks at the files in between.
func live(t *testing.T, mode storage.Mode, closed bool, seed uint64) lived {
	t.Helper()
	fs := vfs.NewMem()
	srv := open(t, Options{FS: fs, Mode: mode, WALPolicy: wal.Always, SegmentBytes: 900, CheckpointBytes: -1})
	c := speak(t, srv)
	rng := rand.New(rand.NewPCG(seed, 2))
	m := model{}
	l := lived{recorded: recorded{mode: mode, before: []model{{}}}}
	write := func(line string) {
		if got := c.do(line); strings.HasPrefix(got, "-") {
			t.Fatal(got)
		}
		l.before = append(l.before, m.alive())
	}
	some := func(n int) {
		for range n {
			write(randomWrite(rng, m))
		}
	}
	some(20)
	if err := srv.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	l.early = readTree(t, fs, "/data")
	some(30)
	if err := srv.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	some(25)
	// The newest segment ends with records that an older copy of it has not.
	if _, err := srv.db.log.Rotate(); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		key, value := fmt.Sprint("k", i), fmt.Sprintf("last of %d", seed)
		m[key] = modelValue{value: value}
		write(fmt.Sprintf("SET %s %q", key, value))
		if i == 2 {
			l.late = readTree(t, fs, "/data")
		}
	}
	if closed {
		shutdown(t, srv)
		l.files = readTree(t, fs, "/data")
	} else {
		l.files = readTree(t, fs, "/data")
		shutdown(t, srv)
	}
	return l
}

// pathsIn returns the paths below a directory of the data directory, in order.
func pathsIn(files map[string][]byte, dir string) []string {
	var paths []string
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(p, "/data/"+dir+"/") {
			paths = append(paths, p)
		}
	}
	return paths
}

// mixUp is a way in which files of another directory, another time or another name get into one.
type mixUp struct {
	name     string
	do       func(files map[string][]byte, mine, other *lived) bool // false: there is no such file here
	harmless bool                                                   // for a start
	endless  bool                                                   // ends of keys are lost: what came to its end at once may be back after a repair, a value that no client ever saw
}

func put(from func(mine, other *lived) map[string][]byte, dir string, pick func(paths []string) string) func(map[string][]byte, *lived, *lived) bool {
	return func(files map[string][]byte, mine, other *lived) bool {
		paths := pathsIn(files, dir)
		if len(paths) == 0 {
			return false
		}
		path := pick(paths)
		data, ok := from(mine, other)[path]
		if !ok { // the one of another number then
			all := pathsIn(from(mine, other), dir)
			if len(all) == 0 {
				return false
			}
			data = from(mine, other)[all[len(all)-1]]
		}
		files[path] = data
		return true
	}
}

func mixUps() []mixUp {
	theirs := func(_, other *lived) map[string][]byte { return other.files }
	late := func(mine, _ *lived) map[string][]byte { return mine.late }
	early := func(mine, _ *lived) map[string][]byte { return mine.early }
	first := func(paths []string) string { return paths[0] }
	last := func(paths []string) string { return paths[len(paths)-1] }
	swap := func(dir string, i, j int) func(map[string][]byte, *lived, *lived) bool {
		return func(files map[string][]byte, _, _ *lived) bool {
			p := pathsIn(files, dir)
			if len(p) <= max(i, j) {
				return false
			}
			files[p[i]], files[p[j]] = files[p[j]], files[p[i]]
			return true
		}
	}
	rename := func(dir, from, to string) func(map[string][]byte, *lived, *lived) bool {
		return func(files map[string][]byte, _, _ *lived) bool {
			p := pathsIn(files, dir)
			if len(p) == 0 {
				return false
			}
			old := p[len(p)-1]
			if from != "" {
				old = from
			}
			files["/data/"+dir+"/"+to] = files[old]
			delete(files, old)
			return true
		}
	}
	tail := func(change func([]byte) []byte) func(map[string][]byte, *lived, *lived) bool {
		return func(files map[string][]byte, _, _ *lived) bool {
			p := pathsIn(files, walName)
			newest := p[len(p)-1]
			files[newest] = change(slices.Clone(files[newest]))
			return files["/data/"+cleanName] != nil
		}
	}
	return []mixUp{
		{name: "the first segment of another directory", do: put(theirs, walName, first)},
		{name: "the newest segment of another directory", do: put(theirs, walName, last)},
		{name: "the checkpoint of another directory", do: put(theirs, checkpointName, last)},
		{name: "a value file of another directory", do: put(theirs, valuesName, first)},
		{name: "the tables of another directory", do: func(files map[string][]byte, mine, other *lived) bool {
			maps.DeleteFunc(files, func(p string, _ []byte) bool { return strings.HasPrefix(p, "/data/lsm/") })
			for _, p := range pathsIn(other.files, lsmName) {
				files[p] = other.files[p]
			}
			return mine.mode == storage.LSM
		}},
		{name: "the tables of an earlier time", do: func(files map[string][]byte, mine, _ *lived) bool {
			maps.DeleteFunc(files, func(p string, _ []byte) bool { return strings.HasPrefix(p, "/data/lsm/") })
			for _, p := range pathsIn(mine.early, lsmName) {
				files[p] = mine.early[p]
			}
			return mine.mode == storage.LSM
		}},
		{name: "tables that are newer than the log", endless: true, do: func(files map[string][]byte, mine, _ *lived) bool {
			maps.DeleteFunc(files, func(p string, _ []byte) bool { return !strings.HasPrefix(p, "/data/lsm/") })
			for p, data := range mine.early {
				if !strings.HasPrefix(p, "/data/lsm/") {
					files[p] = data
				}
			}
			return mine.mode == storage.LSM
		}},
		{name: "FORMAT of another directory", do: func(files map[string][]byte, _, other *lived) bool {
			files["/data/FORMAT"] = other.files["/data/FORMAT"]
			return true
		}},
		{name: "CLEAN of another directory", do: func(files map[string][]byte, _, other *lived) bool {
			files["/data/CLEAN"] = other.files["/data/CLEAN"]
			return files["/data/CLEAN"] != nil
		}},
		{name: "an older checkpoint under the newest name", do: put(early, checkpointName, last)},
		{name: "the older checkpoint in the place of the newest", do: func(files map[string][]byte, mine, _ *lived) bool {
			for _, p := range pathsIn(files, checkpointName) {
				delete(files, p)
			}
			for _, p := range pathsIn(mine.early, checkpointName) {
				files[p] = mine.early[p]
			}
			return true
		}},
		{name: "a checkpoint with the next number as name", do: func(files map[string][]byte, _, _ *lived) bool {
			p := pathsIn(files, checkpointName)
			n, _ := checkpointNumber(strings.TrimPrefix(p[len(p)-1], "/data/checkpoint/"))
			files["/data/checkpoint/"+checkpointFile(n+1)] = files[p[len(p)-1]]
			delete(files, p[len(p)-1])
			return true
		}},
		{name: "an older copy of the newest segment", do: func(files map[string][]byte, mine, other *lived) bool {
			return put(late, walName, last)(files, mine, other) && files["/data/CLEAN"] != nil
		}},
		{name: "a copy of a segment under the newest name", do: func(files map[string][]byte, _, _ *lived) bool {
			p := pathsIn(files, walName)
			files[p[len(p)-1]] = files[p[len(p)-2]]
			return true
		}},
		{name: "two segments swapped", do: swap(walName, 0, 1)},
		{name: "zeros for the last bytes of the log", do: tail(func(b []byte) []byte { clear(b[len(b)-40:]); return b })},
		{name: "zeros for the newest segment but its header", do: tail(func(b []byte) []byte { clear(b[52:]); return b })},
		{name: "zeros for the newest segment", do: tail(func(b []byte) []byte { clear(b); return b })},
		{name: "the log cut in its last frame", do: tail(func(b []byte) []byte { return b[:len(b)-3] })},
		{name: "the log cut between two frames", do: tail(func(b []byte) []byte { return b[:len(b)-21] })},
		{name: "the newest segment cut behind its header", do: tail(func(b []byte) []byte { return b[:52] })},
		{name: "the newest segment gone", do: func(files map[string][]byte, _, _ *lived) bool {
			p := pathsIn(files, walName)
			delete(files, p[len(p)-1])
			return true
		}},
		{name: "the newest segment emptied", do: func(files map[string][]byte, _, _ *lived) bool {
			p := pathsIn(files, walName)
			files[p[len(p)-1]] = nil
			return true
		}},
		{name: "all segments gone", endless: true, do: func(files map[string][]byte, _, _ *lived) bool {
			for _, p := range pathsIn(files, walName) {
				delete(files, p)
			}
			files["/data/wal/none"] = nil // for the directory is there
			return true
		}},
		{name: "names that are not those of segments", harmless: true, do: func(files map[string][]byte, _, other *lived) bool {
			p := pathsIn(other.files, walName)
			for _, name := range []string{"backup.wal", "1.wal", "0000000001.wal.bak", "zzz.wal"} {
				files["/data/wal/"+name] = other.files[p[0]]
			}
			files["/data/checkpoint/backup.tmp"], files["/data/checkpoint/99"] = []byte("x"), []byte("y")
			return true
		}},
		{name: "a value file under the name of another", do: rename(valuesName, "", "0000000099.val")},
	}
}

// TestFilesThatDoNotBelongAreToldApart puts files of another directory, of another time and of another name into one. A start
// refuses and changes nothing, check says the same, and what repair makes of it has no value that it never had.
func TestFilesThatDoNotBelongAreToldApart(t *testing.T) {
	for _, mode := range storage.Modes() {
		for _, closed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/closed=%v", mode, closed), func(t *testing.T) {
				t.Parallel()
				mine, other := live(t, mode, closed, 1), live(t, mode, closed, 2)
				for _, mix := range mixUps() {
					t.Run(mix.name, func(t *testing.T) {
						rec := mine.recorded
						rec.files = maps.Clone(mine.files)
						if !mix.do(rec.files, &mine, &other) {
							t.Skip("there is no such file")
						}
						fs, err := rec.with("", nil)
						if err != nil {
							t.Fatal(err)
						}
						if mix.endless {
							rec.before = nil
						}
						rec.apart(t, fs, mix.harmless)
					})
				}
			})
		}
	}
}

// apart checks what a start, check and repair say of a directory that has to be refused, or is harmless.
func (rec recorded) apart(t *testing.T, fs vfs.FS, harmless bool) {
	t.Helper()
	before := readTree(t, fs, "/data")
	reports, err := Check(fs, "/data")
	if err != nil {
		t.Errorf("check: %v", err)
	}
	corrupt := slices.ContainsFunc(reports, func(r wal.SegmentReport) bool { return r.State == wal.Corrupt })
	if corrupt == harmless {
		t.Errorf("check says %v", reports)
	}
	if diff := diffOf(before, readTree(t, fs, "/data")); diff != "" {
		t.Errorf("check changed %s", diff)
	}
	srv, err := Open(Options{FS: fs, Dir: "/data", Mode: rec.mode, CheckpointBytes: -1})
	if err == nil {
		state, herr := held(srv)
		shutdown(t, srv)
		if !harmless || herr != nil || !maps.Equal(state, rec.before[len(rec.before)-1].alive()) {
			t.Fatalf("it starts, with %v, %v", state, herr)
		}
		return
	}
	if harmless {
		t.Fatal(err)
	}
	if !strings.Contains(err.Error(), "/data") {
		t.Errorf("the error names no file: %v", err)
	}
	t.Logf("%v", err)
	if diff := diffOf(before, readTree(t, fs, "/data")); diff != "" {
		t.Errorf("the refused start changed %s", diff)
	}
	if rec.before == nil {
		if err := Repair(fs, "/data", rec.mode, func(string, string) {}); err != nil {
			t.Error(err)
		}
		open(t, Options{FS: fs, Mode: rec.mode})
		return
	}
	if err := rec.repairAndRead(fs); err != nil {
		t.Errorf("repair: %v", err)
	}
}

// diffOf names the first file in which two trees differ.
func diffOf(a, b map[string][]byte) string {
	for _, p := range slices.Sorted(maps.Keys(a)) {
		if data, ok := b[p]; !ok || !bytes.Equal(a[p], data) {
			return p
		}
	}
	for _, p := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[p]; !ok {
			return p + ", which is new"
		}
	}
	return ""
}

// Two swapped segments get their names back, and nothing is lost.
func TestRepairPutsSwappedSegmentsRight(t *testing.T) {
	for _, mode := range storage.Modes() {
		rec := live(t, mode, true, 3).recorded
		p := pathsIn(rec.files, walName)
		rec.files[p[0]], rec.files[p[1]] = rec.files[p[1]], rec.files[p[0]]
		fs, err := rec.with("", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := Repair(fs, "/data", "", func(path, what string) { t.Logf("%s: %s", path, what) }); err != nil {
			t.Fatal(err)
		}
		srv := open(t, Options{FS: fs, Mode: mode})
		if state, err := held(srv); err != nil || !maps.Equal(state, rec.before[len(rec.before)-1].alive()) {
			t.Errorf("%s: got %v, %v", mode, state, err)
		}
	}
}

// A start that is refused leaves CLEAN, so what is lost after it is noticed as well.
func TestARefusedStartLeavesTheNoteOfTheLogsEnd(t *testing.T) {
	for _, mode := range storage.Modes() {
		mine, other := live(t, mode, true, 4), live(t, mode, true, 5)
		rec := mine.recorded
		p := pathsIn(rec.files, checkpointName)[0]
		fs, err := rec.with(p, other.files[pathsIn(other.files, checkpointName)[0]])
		if err != nil {
			t.Fatal(err)
		}
		o := Options{FS: fs, Dir: "/data", Mode: mode}
		if _, err := Open(o); err == nil {
			t.Fatal("it starts")
		}
		writeFile(t, fs, p, rec.files[p])
		segments := pathsIn(rec.files, walName)
		newest := segments[len(segments)-1]
		writeFile(t, fs, newest, rec.files[newest][:wal.HeaderSize])
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "when the server stopped in good order") {
			t.Errorf("%s: got %v", mode, err)
		}
	}
}

// The only segment of a server that was killed is missed, too, by start and check alike: there is one from the beginning.
func TestTheOnlySegmentIsMissed(t *testing.T) {
	for _, mode := range storage.Modes() {
		fs := vfs.NewMem()
		srv := open(t, Options{FS: fs, Mode: mode, WALPolicy: wal.Always})
		files := readTree(t, fs, "/data")
		if segments := pathsIn(files, walName); len(segments) != 1 || files["/data/"+formatName] == nil {
			t.Fatalf("%s: there are %v", mode, segments)
		}
		speak(t, srv).want("SET k v", ok)
		files = readTree(t, fs, "/data")
		delete(files, "/data/wal/0000000001.wal")
		files["/data/wal/none"] = nil // for the directory is there
		killed, err := recorded{mode: mode, files: files}.with("", nil)
		if err != nil {
			t.Fatal(err)
		}
		recorded{mode: mode}.apart(t, killed, false)
	}
}

// What a start leaves that was interrupted before it wrote FORMAT is finished by the next one, and is no data directory for check.
func TestABegunLogWithoutFORMATIsFinished(t *testing.T) {
	for _, size := range []int64{0, 20, wal.HeaderSize} {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("/data", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := beginLog(fs, "/data", newIdentity()); err != nil {
			t.Fatal(err)
		}
		segment := readTree(t, fs, "/data")["/data/wal/0000000001.wal"]
		writeFile(t, fs, "/data/wal/0000000001.wal", segment[:size])
		if reports, err := Check(fs, "/data"); err == nil {
			t.Errorf("%d bytes: check says %v", size, reports)
		}
		speak(t, open(t, Options{FS: fs})).want("SET k v", ok)
	}
}

// Repair moves directories that have the names of files aside, and goes on.
func TestRepairMovesDirectoriesInThePlaceOfFilesAside(t *testing.T) {
	for _, mode := range storage.Modes() {
		for _, kind := range []string{walName, checkpointName, valuesName, cleanName} {
			t.Run(fmt.Sprintf("%s/%s", mode, kind), func(t *testing.T) {
				rec := live(t, mode, true, 6).recorded
				path := "/data/" + cleanName
				if kind != cleanName {
					paths := pathsIn(rec.files, kind)
					if len(paths) == 0 {
						t.Skip("there is no such file")
					}
					path = paths[len(paths)-1]
				}
				delete(rec.files, path)
				fs, err := rec.with("", nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := fs.MkdirAll(path, 0o700); err != nil {
					t.Fatal(err)
				}
				reports, err := Check(fs, "/data")
				if !slices.ContainsFunc(reports, func(r wal.SegmentReport) bool { return r.State == wal.Corrupt }) {
					t.Errorf("check says %v, %v", reports, err)
				}
				if _, err := Open(Options{FS: fs, Dir: "/data", Mode: mode}); err == nil {
					t.Error("it starts")
				}
				if err := Repair(fs, "/data", mode, func(string, string) {}); err != nil {
					t.Fatal(err)
				}
				speak(t, open(t, Options{FS: fs, Mode: mode})).want("SET new v", ok)
				if info, err := fs.Stat(path + damagedSuffix); err != nil || !info.IsDir() {
					t.Errorf("it was not moved aside: %v", err)
				}
			})
		}
	}
}
