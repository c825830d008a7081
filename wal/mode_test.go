package wal

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// modeless is a file system that keeps no modes of files.
type modeless struct {
	vfs.FS
	err error
}

func (m modeless) Chmod(string, os.FileMode) error { return m.err }

func TestAFileSystemWithoutModesIsNamedOnceAndUsed(t *testing.T) {
	for _, code := range []syscall.Errno{syscall.EPERM, syscall.EINVAL, syscall.ENOTSUP} {
		fs := modeless{vfs.NewMem(), code}
		var notes []string
		o := Options{FS: fs, Logf: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }}
		l, _, err := Open("log", o, func([]byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := l.Append([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if len(notes) != 1 || !strings.Contains(notes[0], "keeps no modes") || !strings.Contains(notes[0], segmentName(1)) {
			t.Errorf("%v: notes %q", code, notes)
		}
		if _, err := Rewrite(fs, "log", Identity{}, 1, 0, "log/aside"); err != nil {
			t.Errorf("%v: %v", code, err)
		}
	}
	if _, _, err := Open("log", Options{FS: modeless{vfs.NewMem(), syscall.EIO}}, nil); err == nil {
		t.Error("a change of mode that fails is taken for one that is not possible")
	}
}
