package kvserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
)

// valuesAlone makes a directory of mode file with 200 keys in two value files, of which the log has none any more. A key was
// overwritten, and one deleted whose value is still in a file.
func valuesAlone(t *testing.T) (rec recorded, want map[string]string) {
	t.Helper()
	fs := vfs.NewMem()
	want = map[string]string{}
	for part := range 2 {
		srv := open(t, Options{FS: fs, Mode: storage.File, CheckpointBytes: -1})
		c := speak(t, srv)
		for i := part * 100; i < 100+part*100; i++ {
			c.want(fmt.Sprintf("SET key:%d value:%d", i, i), ok)
			want[fmt.Sprint("key:", i)] = fmt.Sprint("value:", i)
		}
		c.want("SET key:0 "+fmt.Sprint("part:", part), ok)
		want["key:0"] = fmt.Sprint("part:", part)
		c.want("SET gone v", ok)
		c.want("DEL gone", ":1\r\n")
		if err := srv.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		shutdown(t, srv)
	}
	return recorded{mode: storage.File, files: readTree(t, fs, "/data")}, want
}

func (rec recorded) paths(part string) (paths []string) {
	for _, path := range slices.Sorted(maps.Keys(rec.files)) {
		if strings.Contains(path, part) {
			paths = append(paths, path)
		}
	}
	return paths
}

// repairAndWant repairs and starts: all keys have their values, and no value file has gone, be it under another name.
func (rec recorded) repairAndWant(t *testing.T, fs vfs.FS, want map[string]string) (notes string, deleted bool) {
	t.Helper()
	err := Repair(fs, "/data", "", func(path, what string) { notes += path + ": " + what + "\n" })
	if err != nil {
		t.Fatal(err)
	}
	srv := open(t, Options{FS: fs, Mode: storage.File, CheckpointBytes: -1})
	c := speak(t, srv)
	for key, value := range want {
		if got := c.do("GET " + key); got != fmt.Sprintf("$%d\r\n%s\r\n", len(value), value) {
			t.Errorf("after repair, %s is %q, not %q\n%s", key, got, value, notes)
		}
	}
	deleted = c.do("EXISTS gone") == ":0\r\n"
	shutdown(t, srv)
	for _, path := range rec.paths(".val") {
		if _, err := fs.Stat(path); err != nil {
			if _, err := fs.Stat(path + damagedSuffix); err != nil {
				t.Errorf("%s was deleted\n%s", path, notes)
			}
		}
	}
	return notes, deleted
}

// The header of a value file is damaged, and its records are not: they have their own checksums.
func TestRepairMendsTheHeaderOfAValueFile(t *testing.T) {
	rec, want := valuesAlone(t)
	for _, path := range rec.paths(".val") {
		for _, at := range []int{0, 5, 9, 13, 29, 33} {
			bad := slices.Clone(rec.files[path])
			bad[at] ^= 4
			fs, err := rec.with(path, bad)
			if err != nil {
				t.Fatal(err)
			}
			notes, deleted := rec.repairAndWant(t, fs, want)
			if strings.Contains(notes, "lost") || !deleted {
				t.Errorf("byte %d of %s: deleted key stays deleted: %v; repair says %s", at, path, deleted, notes)
			}
			if kept := readFile(t, fs, path+damagedSuffix); !slices.Equal(kept, bad) {
				t.Errorf("the damaged %s was not kept", path)
			}
		}
	}
}

// A value is damaged. It is lost from the checkpoint, the others are not.
func TestRepairSaysWhereAKeyIsLostFrom(t *testing.T) {
	rec, want := valuesAlone(t)
	path := rec.paths(".val")[0]
	bad := slices.Clone(rec.files[path])
	bad[strings.Index(string(bad), "value:50")] ^= 1
	fs, err := rec.with(path, bad)
	if err != nil {
		t.Fatal(err)
	}
	delete(want, "key:50")
	notes, deleted := rec.repairAndWant(t, fs, want)
	if !strings.Contains(notes, "1 keys lost from the checkpoint, whose values cannot be read; the log may hold newer ones: ") || !deleted {
		t.Errorf("deleted key stays deleted: %v; repair says\n%s", deleted, notes)
	}
}

// The checkpoint is damaged or gone, and the log has none of its keys. The value files have them, and stay.
func TestRepairMakesACheckpointOfTheValueFiles(t *testing.T) {
	rec, want := valuesAlone(t)
	path := rec.paths("/checkpoint/")[0]
	good := rec.files[path]
	flip := func(at int) []byte {
		bad := slices.Clone(good)
		bad[at] ^= 1
		return bad
	}
	for _, tc := range []struct {
		what string
		bad  []byte
		end  bool // nothing but the end is damaged, so that the checkpoint tells what was deleted
	}{
		{"a frame flipped", flip(100), false},
		{"cut", good[:100], false},
		{"cut to nothing", good[:0], false},
		{"gone", nil, false},
		{"the header flipped", flip(9), true},
		{"the end's kind flipped", flip(len(good) - 13), true},
		{"the end's count flipped", flip(len(good) - 1), true},
	} {
		t.Run(tc.what, func(t *testing.T) {
			fs, err := rec.with(path, tc.bad)
			if err != nil {
				t.Fatal(err)
			}
			if tc.bad == nil {
				if err := fs.Remove(path); err != nil {
					t.Fatal(err)
				}
				checkNamesWhatStartNames(t, fs)
			}
			notes, deleted := rec.repairAndWant(t, fs, want)
			if said := strings.Contains(notes, "taken from the value files"); said == tc.end || tc.end && !deleted {
				t.Errorf("deleted key stays deleted: %v; repair says\n%s", deleted, notes)
			}
			if !tc.end && !strings.Contains(string(readFile(t, fs, path+damagedSuffix+".keys")), "\"gone\"\n\"key:0\"\n") {
				t.Error("the keys that are back are not listed")
			}
			if ignored, err := Ignored(fs, "/data"); err != nil || len(ignored) > 0 {
				t.Errorf("what repair leaves is called foreign: %v, %v", ignored, err)
			}
		})
	}
}

// checkNamesWhatStartNames checks that the first damage that check reports is in the file that a start refuses.
func checkNamesWhatStartNames(t *testing.T, fs vfs.FS) {
	t.Helper()
	reports, err := Check(fs, "/data")
	i := slices.IndexFunc(reports, func(r wal.SegmentReport) bool { return r.State == wal.Corrupt })
	if err != nil || i < 0 {
		t.Fatalf("check: %v, %v", reports, err)
	}
	r := reports[i]
	if _, err := Open(Options{FS: fs, Dir: "/data", Mode: storage.File}); err == nil || !strings.Contains(err.Error(), r.Path) || !strings.Contains(err.Error(), r.Err.Error()) {
		t.Errorf("check says %s: %v; a start says %v", r.Path, r.Err, err)
	}
}
