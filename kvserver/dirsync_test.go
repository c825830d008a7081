package kvserver

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
)

// noDirSync is a file system that cannot sync directories.
type noDirSync struct {
	vfs.FS
	err error
}

func (n noDirSync) OpenDir(name string) (vfs.File, error) {
	f, err := n.FS.OpenDir(name)
	return failingDir{f, n.err}, err
}

type failingDir struct {
	vfs.File
	err error
}

func (d failingDir) Sync() error { return d.err }

func TestAFileSystemWithoutSyncOfDirectoriesWillDo(t *testing.T) {
	for _, mode := range storage.Modes() {
		for _, code := range []syscall.Errno{syscall.EINVAL, syscall.ENOTSUP} {
			fs := noDirSync{vfs.NewMem(), code}
			var notes []string
			o := Options{FS: fs, Mode: mode, Logf: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }}
			srv := open(t, o)
			speak(t, srv).want("SET k v", ok)
			if err := srv.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			shutdown(t, srv)
			if len(notes) != 1 || !strings.Contains(notes[0], "cannot sync a directory") {
				t.Errorf("%s: notes %q", mode, notes)
			}
			speak(t, open(t, Options{FS: fs, Mode: mode})).want("GET k", "$1\r\nv\r\n")
		}
	}
	if _, err := Open(Options{FS: noDirSync{vfs.NewMem(), syscall.EIO}, Dir: "/data", Mode: storage.Memory}); err == nil {
		t.Error("a sync that fails is taken for one that is not possible")
	}
}
