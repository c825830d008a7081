package kvserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
)

func TestTheNoteOfTheLogsEndIsDamagedOrTheLogIs(t *testing.T) {
	const damaged, differs, foreign = "which no server leaves", "when the server stopped", "belongs to another data directory"
	line := func(old, new string) func(good string) string {
		return func(good string) string {
			text, _, _ := strings.Cut(good, "checksum ")
			return seal(strings.Replace(text, old, new, 1))
		}
	}
	for _, tc := range []struct {
		name string
		text func(good string) string
		want string
	}{
		{"an empty file", func(string) string { return "" }, damaged},
		{"another text", func(string) string { return "\x00\x01" }, damaged},
		{"that of version 1", func(string) string { return "closed segment 0000000001.wal size 59\n" }, damaged},
		{"no end of line", func(good string) string { return strings.TrimSuffix(good, "\n") }, damaged},
		{"more behind it", func(good string) string { return good + "\n" }, damaged},
		{"a flipped bit", func(good string) string { return strings.Replace(good, "end ", "end 1", 1) }, damaged},
		{"an offset that is none", line("end ", "end +"), damaged},
		{"a segment that is none", line(".wal", ".wam"), damaged},
		{"another directory's", func(good string) string {
			_, end, err := parseClean(good)
			if err != nil {
				t.Error(err)
			}
			return cleanText(identity{1}, end)
		}, foreign},
		{"a longer log", line("end ", "end 5"), differs},
		{"a later segment", line("0000000001.wal", "0000000002.wal"), differs},
		{"another segment of that number", line(" id ", " id f"), damaged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := vfs.NewMem()
			srv := open(t, Options{FS: fs})
			speak(t, srv).want("SET k v", ok)
			shutdown(t, srv)
			segment, named := "/data/wal/0000000001.wal", "/data/CLEAN"
			if tc.want == differs {
				named = segment
			} else {
				data := readFile(t, fs, segment)
				data[len(data)-1] ^= 1 // the log's end is damaged as well
				writeFile(t, fs, segment, data)
			}
			writeFile(t, fs, "/data/CLEAN", []byte(tc.text(string(readFile(t, fs, "/data/CLEAN")))))
			before := readTree(t, fs, "/data")
			_, err := Open(Options{FS: fs, Dir: "/data", Mode: storage.Memory})
			if corrupt, ok := errors.AsType[*wal.CorruptionError](err); !ok || corrupt.Path != named || !strings.Contains(corrupt.Error(), tc.want) {
				t.Errorf("a start: %v, want %q", err, tc.want)
			}
			if err == nil || !strings.Contains(err.Error(), segment+" is corrupt at offset ") {
				t.Errorf("a start hides the damage of the log: %v", err)
			}
			for path, data := range readTree(t, fs, "/data") {
				if string(before[path]) != string(data) {
					t.Errorf("a start changed %s", path)
				}
			}
			reports, err := Check(fs, "/data")
			if err != nil || reports[0].Path != named || reports[0].State != wal.Corrupt || reports[len(reports)-1].Path != segment || reports[len(reports)-1].State == wal.Clean {
				t.Errorf("check: %v, %v", reports, err)
			}
		})
	}
}

// The checkpoint is read as well, and a start that is told to end does not read on.
func TestADamagedNoteOfTheLogsEndDoesNotHideACheckpoint(t *testing.T) {
	fs := vfs.NewMem()
	srv := open(t, Options{FS: fs})
	c := speak(t, srv)
	c.want("SET k v", ok)
	if err := srv.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	c.want("SET k w", ok)
	shutdown(t, srv)
	checkpoint := "/data/checkpoint/0000000002"
	data := readFile(t, fs, checkpoint)
	data[len(data)/2] ^= 1
	writeFile(t, fs, checkpoint, data)
	writeFile(t, fs, "/data/CLEAN", nil)
	o := Options{FS: fs, Dir: "/data", Mode: storage.Memory}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), checkpoint+" is corrupt at offset ") || errors.Is(err, ErrServerClosed) {
		t.Errorf("a start: %v", err)
	}
	srv, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv.stop()
	if err := srv.place.otherDamage(&srv.progress); !errors.Is(err, ErrServerClosed) {
		t.Errorf("the reading of a start that is told to end: %v", err)
	}
	if err := srv.Load(); !errors.Is(err, ErrServerClosed) {
		t.Errorf("a start that is told to end: %v", err)
	}
	shutdown(t, srv)
}
