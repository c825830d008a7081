package file

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Every good record is found, whatever is damaged in those around it.
func TestGoodRecordsAreFoundBehindDamage(t *testing.T) {
	const path, count = "0000000007.val", 5
	id := Identity{1, 2, 3}
	whole := appendHeader(nil, id, 7)
	var starts []int
	for i := range count {
		key, value := fmt.Appendf(nil, "key %d", i), make([]byte, 40) // zeros are lengths that can be right
		starts = append(starts, len(whole))
		whole = appendRecord(whole, checksum(id.seed(), 7, uint32(len(whole)), key, value), key, value)
	}
	for at := range whole {
		bad := slices.Clone(whole)
		bad[0] ^= 1
		if at > 0 {
			bad[at] ^= 1
		}
		var want []int64
		for i, start := range starts {
			if end := append(starts, len(whole))[i+1]; at < start || at >= end {
				want = append(want, int64(start))
			}
		}
		fs := vfs.NewMem()
		write := func(path string, b []byte) vfs.File {
			f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(b, 0); err != nil {
				t.Fatal(err)
			}
			return f
		}
		f := write(path, bad)
		var got []int64
		if err := records(f, int64(len(bad)), id.seed(), 7, func(at int64, _ record) { got = append(got, at) }); err != nil || !slices.Equal(got, want) {
			t.Fatalf("byte %d flipped: records at %v, %v; want %v", at, got, err, want)
		}
		if n, err := MendHeader(fs, path, id, 7, "mended"); err != nil || n != len(want) {
			t.Fatalf("byte %d flipped: mended by %d records, %v", at, n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, number, err := ReadHeader(fs, "mended"); err != nil || number != 7 {
			t.Fatalf("the mended header has number %d, %v", number, err)
		}
		// Another number proves nothing, and a whole header needs no mending.
		if n, err := MendHeader(fs, path, id, 8, "no"); err != nil || n != 0 {
			t.Fatalf("mended as another file: %d, %v", n, err)
		}
		if n, err := MendHeader(fs, "mended", id, 7, "no"); err != nil || n != 0 {
			t.Fatalf("a whole header mended: %d, %v", n, err)
		}
	}
}
