package lsm

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkBlocks reads every block of every table, also those that walking through the entries has no use for: a damaged filter
// is met by the first Get that asks it.
func checkBlocks(fs vfs.FS, path string, db *pebble.DB) error {
	levels, err := db.SSTables()
	if err != nil {
		return fmt.Errorf("lsm: list tables: %w", err)
	}
	checked := map[string]bool{} // tables can share a file
	for _, level := range levels {
		for _, table := range level {
			name := fs.PathJoin(path, table.BackingSSTNum.String()+".sst")
			if checked[name] {
				continue
			}
			checked[name] = true
			if err := checkTable(fs, name); err != nil {
				return &DamageError{name, 0, err}
			}
		}
	}
	return nil
}

func checkTable(fs vfs.FS, name string) (err error) {
	f, err := fs.Open(name)
	if err != nil {
		return err
	}
	in, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	o := &pebble.Options{Merger: totalsMerger()}
	o.EnsureDefaults()
	r, err := sstable.NewReader(context.Background(), in, o.MakeReaderOptions())
	if err != nil {
		return err // it has closed the file
	}
	return errors.Join(r.ValidateBlockChecksums(), r.Close())
}
