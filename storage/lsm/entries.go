package lsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Entries calls fn with every entry in the tables of Dir/lsm, which nobody may use meanwhile, and changes nothing. rec is the record
// of the checkpoint that they have to follow. Key and value are valid during the call.
func Entries(fs vfs.FS, dir string, id Identity, rec []byte, fn func(key, value []byte) error) error {
	if _, err := Inspect(fs, dir, id, rec); err != nil {
		return err
	}
	return entries(fs, fs.PathJoin(dir, "lsm"), func(*pebble.DB) error { return nil }, fn)
}

// OldEntries is Entries for a directory of version 1, whose state has no identity:
//
//	key in Pebble    +------+---+
//	                 | 0xff | c |           value: number (8)
//	                 +------+---+
//	file lsm/TOKEN   +------------+------------+------------+
//	                 | "kvmtoken" | number (8) | crc32c (4) |      crc of what precedes it
//	                 +------------+------------+------------+
func OldEntries(fs vfs.FS, dir string, rec []byte, fn func(key, value []byte) error) error {
	if err := CheckRecord(rec); err != nil {
		return err
	}
	path := fs.PathJoin(dir, "lsm")
	want, err := readOldToken(fs, path)
	if err != nil {
		return err
	}
	want = max(want, binary.LittleEndian.Uint64(rec))
	return entries(fs, path, func(db *pebble.DB) error {
		v, c, err := db.Get(tokenKey())
		if errors.Is(err, pebble.ErrNotFound) {
			return compareTokens(path, 0, want)
		}
		if err != nil {
			return openError(path, err)
		}
		if len(v) != 8 {
			err = &DamageError{path, 0, fmt.Errorf("mark of %d bytes", len(v))}
		} else {
			err = compareTokens(path, binary.LittleEndian.Uint64(v), want)
		}
		return errors.Join(err, c.Close())
	}, fn)
}

func readOldToken(fs vfs.FS, dir string) (uint64, error) {
	const magic = "kvmtoken"
	path := fs.PathJoin(dir, tokenFile)
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("lsm: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(len(magic))+8+4+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("lsm: read %s: %w", path, err)
	}
	at := len(magic) + 8
	if len(b) != at+4 || string(b[:len(magic)]) != magic || binary.LittleEndian.Uint32(b[at:]) != crc32.Checksum(b[:at], crc32.MakeTable(crc32.Castagnoli)) {
		return 0, &DamageError{path, 0, errors.New("not what version 1 wrote there")}
	}
	return binary.LittleEndian.Uint64(b[at-8:]), nil
}

func entries(fs vfs.FS, dir string, check func(*pebble.DB) error, fn func(key, value []byte) error) (err error) {
	db, err := openReadOnly(fs, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := check(db); err != nil {
		return err
	}
	s := &Store{db: db, dir: dir}
	for shard := range shardCount {
		if err := s.Range(shard, fn); err != nil {
			return err
		}
	}
	return nil
}
