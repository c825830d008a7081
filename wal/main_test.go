package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
)

const testDir = "wal"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedDirEnv); dir != "" {
		os.Exit(appendUntilKilled(dir))
	}
	goleak.VerifyTestMain(m)
}

var policies = []Policy{Buffered, OS, Interval, Always}

// quiet has a background goroutine that does nothing by itself: tests call tick.
func quiet(fs vfs.FS, p Policy) Options {
	return Options{FS: fs, Policy: p, SyncEvery: time.Hour}
}

func open(t testing.TB, o Options) (*Log, Recovery, [][]byte) {
	t.Helper()
	l, rec, got, err := tryOpen(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l, rec, got
}

func tryOpen(o Options) (*Log, Recovery, [][]byte, error) {
	var got [][]byte
	l, rec, err := Open(testDir, o, func(p []byte) error {
		got = append(got, bytes.Clone(p))
		return nil
	})
	return l, rec, got, err
}

// reopen opens and closes the log, and returns what was replayed.
func reopen(t testing.TB, o Options) (Recovery, [][]byte) {
	t.Helper()
	l, rec, got := open(t, o)
	mustClose(t, l)
	return rec, got
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func put(t testing.TB, l *Log, payloads ...[]byte) {
	t.Helper()
	for _, p := range payloads {
		pos, err := l.Append(p)
		if err != nil {
			t.Fatalf("append: %v", err)
		}
		if err := l.Commit(pos); err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
}

func records(n int) [][]byte {
	var rs [][]byte
	for i := range n {
		rs = append(rs, fmt.Appendf(nil, "record %d %s", i, bytes.Repeat([]byte{'a' + byte(i%26)}, i%40)))
	}
	return rs
}

func wantRecords(t testing.TB, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("record %d is %.60q, want %.60q", i, got[i], want[i])
		}
	}
}

func wantPrefix(got, of [][]byte) error {
	if len(got) > len(of) {
		return fmt.Errorf("%d records, but only %d were appended", len(got), len(of))
	}
	for i := range got {
		if !bytes.Equal(got[i], of[i]) {
			return fmt.Errorf("record %d is %.60q, want %.60q", i, got[i], of[i])
		}
	}
	return nil
}

// files is what a file system holds; tests damage it and build it anew.
type files map[string][]byte

func snapshot(t testing.TB, fs vfs.FS) files {
	t.Helper()
	m := files{}
	names, err := fs.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := fs.Open(fs.PathJoin(testDir, name))
		if err != nil {
			t.Fatal(err)
		}
		m[name], err = io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m files) clone() files {
	c := files{}
	for name, b := range m {
		c[name] = bytes.Clone(b)
	}
	return c
}

// fs returns a crashable file system with the files, all of it synced.
func (m files) fs(t testing.TB) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	if err := errors.Join(fs.MkdirAll(testDir, 0o700), syncDir(fs, "")); err != nil {
		t.Fatal(err)
	}
	for name, b := range m {
		f, err := fs.Create(fs.PathJoin(testDir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(bytes.Clone(b))
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := syncDir(fs, testDir); err != nil {
		t.Fatal(err)
	}
	return fs
}

// killed is what kill -9 leaves: everything that was written.
func killed(t testing.TB, fs vfs.FS) files { return snapshot(t, fs) }

// hookFS calls write and sync, if set, in place of the file's own method.
type hookFS struct {
	vfs.FS
	write func(f vfs.File, p []byte, off int64) (int, error)
	sync  func(f vfs.File) error
}

func (fs *hookFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, c, o...)
	if err != nil {
		return nil, err
	}
	return &hookFile{f, fs}, nil
}

func (fs *hookFS) Unwrap() vfs.FS { return fs.FS }

type hookFile struct {
	vfs.File
	fs *hookFS
}

func (f *hookFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.write != nil {
		return f.fs.write(f.File, p, off)
	}
	return f.File.WriteAt(p, off)
}

func (f *hookFile) SyncData() error {
	if f.fs.sync != nil {
		return f.fs.sync(f.File)
	}
	return f.File.SyncData()
}

// gate lets a test hold syncs: each reports that it has begun, and goes on when it is let go.
type gate struct {
	entered chan struct{}
	leave   chan struct{}
	open    sync.Once
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 1024), leave: make(chan struct{})} }

func (g *gate) pass() {
	g.entered <- struct{}{}
	<-g.leave
}

func (g *gate) openUp() { g.open.Do(func() { close(g.leave) }) }
