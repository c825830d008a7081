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
	const damaged, differs = "which no server leaves", "when the server ended"
	for _, tc := range []struct{ name, text, want string }{
		{"an empty file", "", damaged},
		{"another text", "\x00\x01", damaged},
		{"no end of line", "closed segment 0000000001.wal size 59", damaged},
		{"more behind it", "closed segment 0000000001.wal size 59\n\n", damaged},
		{"a size that is none", "closed segment 0000000001.wal size +59\n", damaged},
		{"a segment that is none", "closed segment 0000000001.wam size 59\n", damaged},
		{"a longer log", "closed segment 0000000001.wal size 1000\n", differs},
		{"a later segment", "closed segment 0000000002.wal size 59\n", differs},
		{"no log", noLog, differs},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := vfs.NewMem()
			srv := open(t, Options{FS: fs})
			speak(t, srv).want("SET k v", ok)
			shutdown(t, srv)
			segment := "/data/wal/0000000001.wal"
			data := readFile(t, fs, segment)
			data[len(data)-1] ^= 1 // the log's end is damaged as well
			writeFile(t, fs, segment, data)
			writeFile(t, fs, "/data/CLEAN", []byte(tc.text))
			before := readTree(t, fs, "/data")
			_, err := Open(Options{FS: fs, Dir: "/data", Mode: storage.Memory})
			if corrupt, ok := errors.AsType[*wal.CorruptionError](err); !ok || corrupt.Path != "/data/CLEAN" || !strings.Contains(corrupt.Error(), tc.want) {
				t.Errorf("a start: %v, want %q", err, tc.want)
			}
			if err == nil || !strings.Contains(err.Error(), segment+" is corrupt at offset ") {
				t.Errorf("a start hides the damage of the log: %v", err)
			}
			for path, data := range readTree(t, fs, "/data") {
				if path != "/data/LOCK" && path != "/data/PID" && string(before[path]) != string(data) {
					t.Errorf("a start changed %s", path)
				}
			}
			reports, err := Check(fs, "/data")
			if err != nil || len(reports) != 2 || reports[0].Path != "/data/CLEAN" || reports[0].State != wal.Corrupt || reports[1].Path != segment || reports[1].State == wal.Clean {
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
	cancel := make(chan struct{})
	o := Options{FS: fs, Dir: "/data", Mode: storage.Memory, Cancel: cancel}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), checkpoint+" is corrupt at offset ") || errors.Is(err, ErrServerClosed) {
		t.Errorf("a start: %v", err)
	}
	close(cancel)
	if _, err := Open(o); !errors.Is(err, ErrServerClosed) {
		t.Errorf("a start that is told to end: %v", err)
	}
}
