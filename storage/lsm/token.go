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

// Pebble takes damage in its manifest for the end of it, opens the older state that it then sees, and removes the files that
// are not part of that. So every checkpoint leaves a number: in the flushed state itself, and outside of it. A state with a
// smaller number than what is known outside is not opened.
//
//	key in Pebble    +------+---+
//	                 | 0xff | c |           value: number (8)
//	                 +------+---+
//	file lsm/TOKEN   +------------+------------+------------+
//	                 | "kvmtoken" | number (8) | crc32c (4) |      crc of what precedes it
//	                 +------------+------------+------------+
//	checkpoint       +------------+
//	record           | number (8) |
//	                 +------------+
//
// Little-endian. This is part of the disk format and must not change.
const (
	tokenFile  = "TOKEN"
	tokenMagic = "kvmtoken"
	tokenBytes = len(tokenMagic) + 8 + 4
)

func tokenKey() []byte { return []byte{totalsByte, 'c'} }

// DamageError is returned when what is on disk is not what was written there.
type DamageError struct {
	Path   string
	Offset int64
	Err    error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("lsm: %s, offset %d: %v", e.Path, e.Offset, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }

// readToken returns the number outside, 0 for none.
func readToken(fs vfs.FS, dir string) (uint64, error) {
	path := fs.PathJoin(dir, tokenFile)
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("lsm: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(tokenBytes)+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("lsm: read %s: %w", path, err)
	}
	at := tokenBytes - 4
	if len(b) != tokenBytes || string(b[:len(tokenMagic)]) != tokenMagic ||
		binary.LittleEndian.Uint32(b[at:]) != crc32.Checksum(b[:at], crc32.MakeTable(crc32.Castagnoli)) {
		return 0, &DamageError{path, 0, errors.New("not what was written there")}
	}
	return binary.LittleEndian.Uint64(b[len(tokenMagic):]), nil
}

func writeToken(fs vfs.FS, dir string, number uint64) error {
	b := binary.LittleEndian.AppendUint64([]byte(tokenMagic), number)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	path := fs.PathJoin(dir, tokenFile)
	f, err := fs.Create(path+".tmp", vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("lsm: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fs.Rename(path+".tmp", path)
	}
	if err == nil {
		err = syncDir(fs, dir)
	}
	if err != nil {
		return fmt.Errorf("lsm: write %s: %w", path, err)
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// token returns the number in the state.
func token(db *pebble.DB) (uint64, error) {
	v, c, err := db.Get(tokenKey())
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if len(v) != 8 {
		return 0, fmt.Errorf("damaged token of %d bytes", len(v))
	}
	return binary.LittleEndian.Uint64(v), nil
}

// checkToken opens what is in dir for reading only, which changes nothing, and compares its number with the one outside, and
// with another that it must not be below.
func checkToken(fs vfs.FS, dir string, least uint64) error {
	want, err := readToken(fs, dir)
	if want = max(want, least); err != nil || want == 0 {
		return err
	}
	db, err := openReadOnly(fs, dir)
	if err != nil {
		return err
	}
	got, err := token(db)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("lsm: open %s: %w", dir, err)
	}
	return compareTokens(dir, got, want)
}

func compareTokens(dir string, got, want uint64) error {
	if got < want {
		return &DamageError{dir, 0, fmt.Errorf("the state is that of checkpoint %d, but checkpoint %d was made: a part of the manifest is lost", got, want)}
	}
	return nil
}

func openReadOnly(fs vfs.FS, dir string) (*pebble.DB, error) {
	quiet := newHealth(nil, func(string, ...any) {})
	files := newFileCache()
	defer files.Unref()
	db, err := pebble.Open(dir, &pebble.Options{
		FS: fs, ReadOnly: true, ErrorIfNotExists: true, DisableWAL: true, FileCache: files,
		FormatMajorVersion: pebble.FormatNewest, Merger: totalsMerger(), Logger: logger{quiet},
	})
	if err != nil {
		return nil, fmt.Errorf("lsm: open %s: %w", dir, err)
	}
	return db, nil
}

// Check reads everything in Dir/lsm, changes nothing, and returns the number of entries and what is damaged, which the state
// also is if it is older than rec, the record of the checkpoint that it has to follow; nil = there is none. Nobody may use
// the directory meanwhile; a copy that was taken of one in use will do if it is of one moment.
func Check(fs vfs.FS, dir string, rec []byte) (entries int64, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	path, want := fs.PathJoin(dir, "lsm"), uint64(0)
	if len(rec) == 8 {
		want = binary.LittleEndian.Uint64(rec)
	}
	if _, err := fs.Stat(path); errors.Is(err, os.ErrNotExist) {
		return 0, compareTokens(path, 0, want)
	}
	if names, err := fs.List(path); err == nil && len(names) == 0 {
		return 0, compareTokens(path, 0, want)
	}
	if err := checkToken(fs, path, want); err != nil {
		return 0, err
	}
	db, err := openReadOnly(fs, path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkBlocks(fs, path, db); err != nil {
		return 0, err
	}
	s := &Store{db: db}
	if err := s.loadTotals(); err != nil {
		return 0, &DamageError{path, 0, err}
	}
	for shard := range shardCount {
		if err := s.Range(shard, func(_, _ []byte) error { entries++; return nil }); err != nil {
			return entries, &DamageError{path, 0, err}
		}
	}
	if n := s.Count(); n != entries {
		return entries, &DamageError{path, 0, fmt.Errorf("%d entries, the totals say %d", entries, n)}
	}
	return entries, nil
}

// Salvage makes a store in the directory to, whose lsm must not exist, of the entries in dir that can be read, as if every
// checkpoint had been made there. Of a partition in which something cannot be read, it takes what is in front of that and
// what is behind it. What is lost goes to lost, one note for each place.
func Salvage(fs vfs.FS, dir, to string, lost func(err error)) (entries int64, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	out, err := Open(Options{FS: fs, Dir: to})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	path := fs.PathJoin(dir, "lsm")
	if entries, err = out.takeFrom(fs, path, lost); err != nil {
		return entries, err
	}
	// Not smaller than any number that a checkpoint refers to, which a token that cannot be read would tell.
	out.token = 1 << 40
	if n, err := readToken(fs, path); err == nil {
		out.token = max(out.token, n)
	}
	_, err = out.Checkpoint(func([]byte) error { return nil })
	return entries, err
}

func (s *Store) takeFrom(fs vfs.FS, path string, lost func(err error)) (entries int64, err error) {
	if err := checkToken(fs, path, 0); err != nil {
		lost(err)
	}
	db, err := openReadOnly(fs, path)
	if err != nil {
		lost(err)
		return 0, nil
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for shard := range shardCount {
		n, err := s.takeShard(db, shard, lost)
		entries += n
		if err != nil {
			return entries, err
		}
	}
	return entries, nil
}

func (s *Store) takeShard(db *pebble.DB, shard int, lost func(err error)) (entries int64, err error) {
	bounds := pebble.IterOptions{LowerBound: []byte{byte(shard)}, UpperBound: []byte{byte(shard + 1)}}
	var last []byte // the last key taken from the front
	// take goes one way until the end, an error, or what was taken before.
	take := func(forward bool) (damage error, err error) {
		it, err := db.NewIter(&bounds)
		if err != nil {
			return err, nil
		}
		defer func() { _ = it.Close() }() // it repeats the iterator's error
		step, ok := it.Next, false
		if forward {
			ok = it.First()
		} else {
			step, ok = it.Prev, it.Last()
		}
		for ; ok; ok = step() {
			if !forward && last != nil && string(it.Key()) <= string(last) {
				return nil, nil
			}
			v, damage := it.ValueAndErr()
			if damage != nil {
				return damage, nil
			}
			if err := s.Set(it.Key()[1:], v); err != nil {
				return nil, err
			}
			entries++
			if forward {
				last = append(last[:0], it.Key()...)
			}
		}
		return it.Error(), nil
	}
	damage, err := take(true)
	if damage == nil || err != nil {
		return entries, err
	}
	lost(&DamageError{"partition " + fmt.Sprint(shard), 0, damage})
	_, err = take(false)
	return entries, err
}
