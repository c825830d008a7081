package kvserver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
)

func TestDataDirectoriesThatAreRefused(t *testing.T) {
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		make func(t *testing.T, dir string)
		want []string
	}{
		{"a file", func(t *testing.T, dir string) { write(t, dir, "") }, []string{"is a file"}},
		{"below a file", func(t *testing.T, dir string) { write(t, filepath.Dir(dir)+"/f", "") }, []string{"not a directory"}},
		{"somebody else's directory", func(t *testing.T, dir string) {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/thesis.txt", "")
		}, []string{"is not empty", "thesis.txt"}},
		{"another mode", func(t *testing.T, dir string) {
			srv, err := Open(Options{Dir: dir, Mode: storage.Serialize})
			if err != nil {
				t.Fatal(err)
			}
			shutdown(t, srv)
		}, []string{"holds mode serialize, not memory", "--mode serialize"}},
		{"a directory that has lost its log", func(t *testing.T, dir string) {
			srv, err := Open(Options{Dir: dir, Mode: storage.Memory})
			if err != nil {
				t.Fatal(err)
			}
			shutdown(t, srv)
			if err := os.RemoveAll(dir + "/wal"); err != nil {
				t.Fatal(err)
			}
		}, []string{"the log is gone"}},
		{"a log without a FORMAT", func(t *testing.T, dir string) {
			srv, err := Open(Options{Dir: dir, Mode: storage.Memory})
			if err != nil {
				t.Fatal(err)
			}
			shutdown(t, srv)
			if err := errors.Join(os.Remove(dir+"/FORMAT"), os.Remove(dir+"/CLEAN")); err != nil {
				t.Fatal(err)
			}
		}, []string{"is not empty"}},
		{"a later version", func(t *testing.T, dir string) {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/FORMAT", Format{formatVersion + 1, storage.Memory, identity{1}}.text())
		}, []string{"has version 3; this program reads version 2"}},
		{"an older version", func(t *testing.T, dir string) {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/FORMAT", oldFormat(storage.Memory))
		}, []string{"has version 1, this program reads version 2", "kvserver upgrade"}},
		{"a FORMAT of something else", func(t *testing.T, dir string) {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/FORMAT", "bitcask\n")
		}, []string{`begins with "bitcask"`}},
		{"an unknown mode", func(t *testing.T, dir string) {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/FORMAT", Format{formatVersion, "tape", identity{1}}.text())
		}, []string{`unknown mode "tape"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			tc.make(t, dir)
			if tc.name == "below a file" {
				dir = filepath.Dir(dir) + "/f/d"
			}
			before := list(t, filepath.Dir(dir))
			srv, err := Open(Options{Dir: dir, Mode: storage.Memory})
			if err == nil {
				shutdown(t, srv)
				t.Fatal("opened")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			if after := list(t, filepath.Dir(dir)); after != before && tc.name != "another mode" {
				t.Errorf("the directory has changed:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// list returns the names and sizes of everything below dir.
func list(t *testing.T, dir string) string {
	var b strings.Builder
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			b.WriteString(path + "\n")
		}
		return nil
	})
	return b.String()
}

func TestADirectoryInUseIsRefusedWithItsServer(t *testing.T) {
	dir := t.TempDir()
	srv, err := Open(Options{Dir: dir, Mode: storage.Memory})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: dir, Mode: storage.Memory}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want ErrInUse with the directory", err)
	}
	speak(t, srv).want("SET k v", ok) // the first is not disturbed
	shutdown(t, srv)
	again, err := Open(Options{Dir: dir, Mode: storage.Memory})
	if err != nil {
		t.Fatal(err)
	}
	speak(t, again).want("GET k", "$1\r\nv\r\n")
	shutdown(t, again)
}

func TestADirectoryIsMadeForItsOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	srv := open(t, Options{FS: vfs.Default, Dir: dir})
	if info, err := os.Stat(srv.opts.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v; want 0700", info.Mode(), err)
	}
}

// A crash while the directory is made leaves something that the next start accepts: whatever it had got to.
func TestADirectoryThatIsHalfMadeIsFinished(t *testing.T) {
	for _, files := range [][]string{{}, {"LOCK"}, {"LOCK", "PID.tmp"}, {"LOCK", "PID"}, {"LOCK", "PID", "FORMAT.tmp"}, {"lost+found"}} {
		dir := t.TempDir()
		for _, name := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		srv, err := Open(Options{Dir: dir, Mode: storage.Memory})
		if err != nil {
			t.Errorf("with %q: %v", files, err)
			continue
		}
		shutdown(t, srv)
	}
}

// LOCK can be removed or replaced while a server runs. Where the directory itself is locked, that makes no room for a second one. Where it
// is not, the server notices, and writes no more.
func TestLOCKIsRemovedWhileAServerRuns(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{FS: vfs.Default, Dir: t.TempDir(), WALPolicy: wal.Always}
			srv := open(t, o)
			if srv.dirLock.dir == nil {
				t.Skip("this system has no locks on directories")
			}
			if err := change(filepath.Join(o.Dir, lockName)); err != nil {
				t.Fatal(err)
			}
			o.Mode = storage.Memory
			if _, err := Open(o); !errors.Is(err, ErrInUse) {
				t.Errorf("a second server: %v", err)
			}
			c := speak(t, srv)
			c.want("SET k v", ok)
			if err := srv.Checkpoint(); err != nil {
				t.Error(err)
			}
		})
		t.Run(name+", and the directory is not locked", func(t *testing.T) {
			o := Options{FS: vfs.Default, Dir: t.TempDir(), WALPolicy: wal.Always, noDirLock: true}
			srv := open(t, o)
			c := speak(t, srv)
			c.want("SET k v", ok)
			if err := srv.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			if err := change(filepath.Join(o.Dir, lockName)); err != nil {
				t.Fatal(err)
			}
			want := lockName + " was " + name + ", so that another server can use the directory; writes are refused until a restart"
			if err := srv.Checkpoint(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a checkpoint: %v, want %q", err, want)
			}
			if got := c.do("SET k w"); !strings.HasPrefix(got, "-IOERR ") || !strings.Contains(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			c.want("GET k", "$1\r\nv\r\n")
		})
	}
	t.Run("noticed without a checkpoint", func(t *testing.T) {
		o := Options{FS: vfs.Default, Dir: t.TempDir(), noDirLock: true}
		srv := open(t, o)
		if err := os.Remove(filepath.Join(o.Dir, lockName)); err != nil {
			t.Fatal(err)
		}
		until(t, "writes are refused", func() bool { return srv.db.failed.Load() != nil })
	})
}

func TestADanglingLinkInPlaceOfTheDirectoryIsNamed(t *testing.T) {
	dir := t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "not there")
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err)
	}
	_, err := Open(Options{Dir: link, Mode: storage.Memory})
	if err == nil || !strings.Contains(err.Error(), link+" is a symbolic link to "+target+", which does not exist; make that directory, or give --dir another") {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	speak(t, open(t, Options{FS: vfs.Default, Dir: link})).want("SET k v", ok)
}
