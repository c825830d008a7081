package kvserver

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// A record with a valid checksum that holds no entries is damage at its place. What is around it is read.
func TestARecordThatMakesNoSenseIsDamage(t *testing.T) {
	fs := vfs.NewMem()
	srv := open(t, Options{FS: fs, CheckpointBytes: -1})
	c := speak(t, srv)
	c.want("SET a 1", ok)
	if _, err := srv.db.log.Append([]byte{0xee, 0xee}); err != nil {
		t.Fatal(err)
	}
	c.want("SET b 2", ok)
	c.want("SET c 3", ok)
	shutdown(t, srv)

	var offsets []int64
	if err := Dump(fs, "/data", func(uint64, entry.Entry) error { return nil }, func(_ uint64, offset int64, _ []byte) error { offsets = append(offsets, offset); return nil }); err != nil || len(offsets) != 4 {
		t.Fatalf("dump: records at %v, %v", offsets, err)
	}
	reports, err := Check(fs, "/data")
	if err != nil || len(reports) != 1 {
		t.Fatalf("check: %v, %v", reports, err)
	}
	if r := reports[0]; r.State != wal.Corrupt || r.Offset != offsets[1] || r.Records != 1 || r.Behind != 2 {
		t.Errorf("check: %+v, want damage at offset %d, a record before and two behind it", r, offsets[1])
	}
	if _, err := Open(Options{FS: fs, Dir: "/data", Mode: storage.Memory}); err == nil || !strings.Contains(err.Error(), "/data/wal/0000000001.wal at offset ") {
		t.Errorf("a start: %v", err)
	}
	err = Repair(fs, "/data", "", func(path, what string) { t.Errorf("%s: %s", path, what) })
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("/data/wal/0000000001.wal: the record at offset %d ", offsets[1])) {
		t.Errorf("a repair, which cannot do it, says %v", err)
	}
}

// Tables that are older than the checkpoint over which the log is replayed are damage, whatever they say of themselves.
func TestTablesOlderThanTheCheckpointAreDamage(t *testing.T) {
	for _, fresh := range []bool{false, true} { // as a start that refuses them leaves them
		fs := vfs.NewMem()
		srv := open(t, Options{FS: fs, Mode: storage.LSM, CheckpointBytes: -1})
		c := speak(t, srv)
		c.want("SET k v", ok)
		if err := srv.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		c.want("SET l w", ok)
		shutdown(t, srv)
		if err := fs.RemoveAll("/data/lsm"); err != nil {
			t.Fatal(err)
		}
		if fresh {
			if _, err := Open(Options{FS: fs, Dir: "/data", Mode: storage.LSM}); err == nil {
				t.Fatal("it starts without its tables")
			}
		}
		reports, err := Check(fs, "/data")
		if i := slices.IndexFunc(reports, func(r wal.SegmentReport) bool { return r.Path == "/data/lsm" }); err != nil || i < 0 || reports[i].State != wal.Corrupt {
			t.Errorf("check: %v, %v", reports, err)
		}
		var notes bytes.Buffer
		if err := Repair(fs, "/data", "", func(path, what string) { notes.WriteString(path + ": " + what + "\n") }); err != nil || !strings.Contains(notes.String(), "/data/lsm: made again of 0 entries") {
			t.Errorf("repair: %v, %q", err, notes.String())
		}
		if reports, err := Check(fs, "/data"); err != nil || slices.ContainsFunc(reports, func(r wal.SegmentReport) bool { return r.State != wal.Clean }) {
			t.Errorf("check after repair: %v, %v", reports, err)
		}
		c = speak(t, open(t, Options{FS: fs, Mode: storage.LSM}))
		c.want("GET l", "$1\r\nw\r\n")
		c.want("GET k", null)
	}
}

// A directory of a newer version is left alone: what it holds can mean something else.
func TestDumpOfANewerVersion(t *testing.T) {
	fs := vfs.NewMem()
	srv := open(t, Options{FS: fs})
	speak(t, srv).want("SET k v", ok)
	shutdown(t, srv)
	writeFile(t, fs, "/data/FORMAT", []byte(Format{formatVersion + 1, storage.Memory, identity{1}}.text()))
	err := Dump(fs, "/data", func(uint64, entry.Entry) error { return nil }, func(uint64, int64, []byte) error { return errors.New("it is read") })
	if err == nil || !strings.Contains(err.Error(), "version 3") || strings.Contains(err.Error(), "it is read") {
		t.Errorf("got %v", err)
	}
}

// FORMAT is lost. The checkpoint tells the mode of the directory, and repair does not take it for another.
func TestTheModeIsThatOfTheCheckpoint(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			fs := vfs.NewMem()
			o := Options{FS: fs, Mode: mode}
			srv := open(t, o)
			c := speak(t, srv)
			for i := range 100 {
				c.want(fmt.Sprintf("SET key:%d %s", i, strings.Repeat("value", i+1)), ok)
			}
			if err := srv.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			c.want("SET more v", ok)
			shutdown(t, srv)
			if err := fs.Remove("/data/" + formatName); err != nil {
				t.Fatal(err)
			}
			note := func(path, what string) { t.Logf("%s: %s", path, what) }
			for _, wrong := range storage.Modes() {
				if wrong == mode {
					continue
				}
				if err := Repair(fs, "/data", wrong, note); err == nil || !strings.Contains(err.Error(), "not") {
					t.Fatalf("repaired as mode %s: %v", wrong, err)
				}
			}
			if err := Repair(fs, "/data", "", note); err != nil {
				t.Fatal(err)
			}
			c = speak(t, open(t, o))
			c.want("GET more", "$1\r\nv\r\n")
			c.want("STRLEN key:99", ":500\r\n")
		})
	}
}

// A damaged table is named, in one line, by a read, by the notes and by check, and so is a store that cannot be opened.
func TestADamagedTableIsNamed(t *testing.T) {
	for _, what := range []string{".sst", "MANIFEST-"} {
		fs := vfs.NewMem()
		srv := open(t, Options{FS: fs, Mode: storage.LSM, CheckpointBytes: -1})
		c := speak(t, srv)
		for i := range 200 {
			c.want(fmt.Sprintf("SET key:%d %s", i, strings.Repeat("value", 50)), ok)
		}
		if err := srv.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		shutdown(t, srv)
		damaged := ""
		for path, data := range readTree(t, fs, "/data/lsm") {
			if strings.Contains(path, what) {
				damaged = path
				for i := range len(data) / 2 {
					data[i] ^= 0x55
				}
				writeFile(t, fs, path, data)
			}
		}
		named := damaged
		if what != ".sst" {
			named = "/data/lsm"
		}
		var notes []string
		logf := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
		srv, err := Open(Options{FS: fs, Dir: "/data", Mode: storage.LSM, Logf: logf})
		texts := []string{fmt.Sprint(err)}
		if err == nil {
			c := speak(t, srv)
			for i := range 200 {
				if texts[0] = c.do(fmt.Sprint("GET key:", i)); texts[0][0] == '-' {
					break
				}
			}
			shutdown(t, srv)
		}
		reports, err := Check(fs, "/data")
		for _, r := range reports {
			if r.State != wal.Clean {
				texts = append(texts, fmt.Sprint(r.Path, ": ", r.Err))
			}
		}
		if err != nil || len(texts) != 2 {
			t.Errorf("%s: check: %v, %v", damaged, reports, err)
		}
		for _, text := range texts {
			if !strings.Contains(text, named) {
				t.Errorf("%q does not name %s", text, named)
			}
		}
		for _, text := range append(texts, notes...) {
			if text = strings.TrimSuffix(text, "\r\n"); strings.Contains(text, "\n") || strings.Contains(text, "carrier") || len(text) > 500 {
				t.Errorf("%s: %q", damaged, text)
			}
		}
	}
}
