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
// smaller number than what is known outside is not opened. Nor is one of another data directory: the first thing that is
// written to a new state, and so a part of everything that is ever flushed, is the identity of the directory.
//
//	keys in Pebble   +------+---+
//	                 | 0xff | i |           value: identity (16)
//	                 +------+---+
//	                 +------+---+
//	                 | 0xff | c |           value: number (8), segment (8): the log was written up to the begin of that segment
//	                 +------+---+
//	file lsm/TOKEN   +------------+---------------+------------+------------+
//	                 | "kvmtokn2" | identity (16) | number (8) | crc32c (4) |      crc of what precedes it
//	                 +------------+---------------+------------+------------+
//	checkpoint       +------------+
//	record           | number (8) |
//	                 +------------+
//
// Little-endian. This is part of the disk format and must not change.
const (
	tokenFile  = "TOKEN"
	tokenMagic = "kvmtokn2"
	tokenBytes = len(tokenMagic) + len(Identity{}) + 8 + 4
)

// Identity names a data directory among all others.
type Identity [16]byte

func identityKey() []byte { return []byte{totalsByte, 'i'} }

func tokenKey() []byte { return []byte{totalsByte, 'c'} }

// readToken returns the number outside, 0 for none.
func readToken(fs vfs.FS, dir string, id Identity) (uint64, error) {
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
	if got := Identity(b[len(tokenMagic):][:len(id)]); got != id {
		return 0, &DamageError{path, int64(len(tokenMagic)), foreign(got, id)}
	}
	return binary.LittleEndian.Uint64(b[at-8:]), nil
}

func foreign(got, want Identity) error {
	return fmt.Errorf("it belongs to another data directory (it says %x, this one is %x): move it away and put the right one here", got[:], want[:])
}

func writeToken(fs vfs.FS, dir string, id Identity, number uint64) error {
	b := append([]byte(tokenMagic), id[:]...)
	b = binary.LittleEndian.AppendUint64(b, number)
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

// marks is what a state says of itself.
type marks struct {
	identity        Identity
	known           bool // identity is there
	number, segment uint64
}

func readMarks(db *pebble.DB) (m marks, err error) {
	get := func(key []byte, size int, take func(v []byte)) error {
		v, c, err := db.Get(key)
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(v) != size {
			err = fmt.Errorf("damaged mark of %d bytes", len(v))
		} else {
			take(v)
		}
		return errors.Join(err, c.Close())
	}
	err = get(identityKey(), len(m.identity), func(v []byte) { m.identity, m.known = Identity(v), true })
	if err == nil {
		err = get(tokenKey(), 16, func(v []byte) {
			m.number, m.segment = binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:])
		})
	}
	return m, err
}

func (m *marks) value() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, m.number), m.segment)
}

// Inspect says, as far as [Open] would, why what is in Dir/lsm is not the state of this data directory, or is older than rec, the
// record of the checkpoint that it has to follow; nil = there is none. It changes nothing. segment is that of [Store.Segment].
func Inspect(fs vfs.FS, dir string, id Identity, rec []byte) (segment uint64, err error) {
	least := uint64(0)
	if rec != nil {
		if err := CheckRecord(rec); err != nil {
			return 0, err
		}
		least = binary.LittleEndian.Uint64(rec)
	}
	m, _, err := inspect(fs, fs.PathJoin(dir, "lsm"), id, least)
	return m.segment, err
}

// inspect is Inspect for Pebble's directory. exists is false where Pebble would make a new state.
func inspect(fs vfs.FS, dir string, id Identity, least uint64) (m marks, exists bool, err error) {
	want, err := readToken(fs, dir, id)
	if want = max(want, least); err != nil {
		return m, false, err
	}
	desc, err := pebble.Peek(dir, fs)
	if errors.Is(err, os.ErrNotExist) || err == nil && !desc.Exists {
		return m, false, compareTokens(dir, 0, want)
	}
	if err != nil {
		return m, false, openError(dir, err)
	}
	db, err := openReadOnly(fs, dir)
	if err != nil {
		return m, true, err
	}
	m, err = readMarks(db)
	if err == nil {
		err = m.check(db, dir, id)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return m, true, openError(dir, err)
	}
	return m, true, compareTokens(dir, m.number, want)
}

// check says why a state is not one of the data directory. One without an identity must be empty: nothing of it was ever flushed.
func (m *marks) check(db *pebble.DB, dir string, id Identity) error {
	if m.known && m.identity != id {
		return &DamageError{dir, 0, foreign(m.identity, id)}
	}
	if m.known {
		return nil
	}
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	found := it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if found {
		return &DamageError{dir, 0, errors.New("its entries do not say to which data directory they belong: move it away and put the right one here")}
	}
	return nil
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
		FormatMajorVersion: pebbleFormat, Merger: totalsMerger(), Logger: logger{quiet},
	})
	if err != nil {
		return nil, openError(dir, err)
	}
	return db, nil
}

// Check reads everything in Dir/lsm, changes nothing, and returns the number of entries and what is damaged, which the state
// also is if it is older than rec, the record of the checkpoint that it has to follow; nil = there is none. Nobody may use
// the directory meanwhile; a copy that was taken of one in use will do if it is of one moment.
func Check(fs vfs.FS, dir string, id Identity, rec []byte) (entries int64, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	path, want := fs.PathJoin(dir, "lsm"), uint64(0)
	if len(rec) == 8 {
		want = binary.LittleEndian.Uint64(rec)
	}
	if _, exists, err := inspect(fs, path, id, want); !exists || err != nil {
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
	s := &Store{db: db, dir: path}
	if err := s.loadTotals(); err != nil {
		return 0, &DamageError{path, 0, err}
	}
	for shard := range shardCount {
		if err := s.Range(shard, func(_, _ []byte) error { entries++; return nil }); err != nil {
			return entries, openError(path, err)
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
func Salvage(fs vfs.FS, dir, to string, id Identity, lost func(err error)) (entries int64, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	out, err := Open(Options{FS: fs, Dir: to, Identity: id})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	path := fs.PathJoin(dir, "lsm")
	if entries, err = out.takeFrom(fs, path, lost); err != nil {
		return entries, err
	}
	// Not smaller than any number that a checkpoint refers to, which a token that cannot be read would tell.
	out.marks.number = 1 << 40
	if n, err := readToken(fs, path, id); err == nil {
		out.marks.number = max(out.marks.number, n)
	}
	_, err = out.Checkpoint(func([]byte) error { return nil })
	return entries, err
}

func (s *Store) takeFrom(fs vfs.FS, path string, lost func(err error)) (entries int64, err error) {
	if _, _, err := inspect(fs, path, s.identity, 0); err != nil {
		lost(err)
	}
	db, err := openReadOnly(fs, path)
	if err != nil {
		lost(err)
		return 0, nil
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if m, err := readMarks(db); err != nil || m.known && m.identity != s.identity {
		return 0, nil // not one entry of it is of this directory
	}
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
