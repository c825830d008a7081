package wal

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestRewrite damages a record of each segment in turn. The others stay, in their order, the old file is kept, and the log
// can be opened.
func TestRewrite(t *testing.T) {
	for damaged := uint64(1); damaged <= 3; damaged++ {
		t.Run(fmt.Sprint("segment ", damaged), func(t *testing.T) {
			fs := vfs.NewMem()
			l, _, err := Open("log", Options{FS: fs, Policy: OS}, func([]byte) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			for i := range 9 {
				p, err := l.Append(fmt.Append(nil, "record ", i))
				if err == nil {
					err = l.Commit(p)
				}
				if err == nil && i%3 == 2 && i < 8 {
					_, err = l.Rotate()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			path := fs.PathJoin("log", segmentName(damaged))
			f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			// The payload of the second record.
			if _, err := f.WriteAt([]byte("?"), int64(segmentHeaderSize+frameHeaderSize+len("record 0")+frameHeaderSize)); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Open("log", Options{FS: fs}, func([]byte) error { return nil }); err == nil {
				t.Fatal("damage is not noticed")
			}
			n, err := Rewrite(fs, "log", Identity{}, damaged, 0, path+".aside")
			if err != nil || n != 2 {
				t.Fatalf("got %d records, %v; want 2", n, err)
			}
			if _, err := fs.Stat(path + ".aside"); err != nil {
				t.Error(err)
			}
			var got []string
			l, _, err = Open("log", Options{FS: fs}, func(p []byte) error { got = append(got, string(p)); return nil })
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var want []string
			for i := range 9 {
				if uint64(i/3+1) != damaged || i%3 != 1 {
					want = append(want, fmt.Sprint("record ", i))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	t.Run("a segment that is missing", func(t *testing.T) {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("log", 0o700); err != nil {
			t.Fatal(err)
		}
		if n, err := Rewrite(fs, "log", Identity{}, 1, 0, "aside"); err != nil || n != 0 {
			t.Errorf("got %d, %v", n, err)
		}
		if reports, err := Scan(fs, "log", Identity{}, nil); err != nil || len(reports) != 1 || reports[0].State != Clean {
			t.Errorf("got %v, %v", reports, err)
		}
	})
}
