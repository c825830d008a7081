package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Salvager reads the values that a checkpoint refers to, without a [Store] and without changing anything, to say which of
// them are what was stored. It is for those who check or repair a data directory that is not in use.
type Salvager struct {
	fs   vfs.FS
	dir  string
	id   Identity
	seed uint32
	old  bool                // of version 1
	open map[uint32]vfs.File // nil for a file that cannot be used
	why  map[uint32]error    // why not
	size map[uint32]int64
	buf  []byte

	keys   map[string]bool // that were in the records; nil = not noted
	refers map[uint32]bool // files with a value that is referred to and can be read
}

// NewSalvager returns one for the value files of a data directory.
func NewSalvager(fs vfs.FS, dir string, id Identity) *Salvager {
	if fs == nil {
		fs = vfs.Default
	}
	return &Salvager{fs: fs, dir: fs.PathJoin(dir, "values"), id: id, seed: id.seed(), open: map[uint32]vfs.File{}, why: map[uint32]error{}, size: map[uint32]int64{}, refers: map[uint32]bool{}}
}

// NoteKeys makes Record note its keys, for Missed. Call it first.
func (s *Salvager) NoteKeys() { s.keys = map[string]bool{} }

// NewOldSalvager returns one for value files of version 1, which have a header of 20 bytes, and no identity in it and in checksums:
//
//	+----------------+---------+---------+---------+
//	| magic          | version | number  | crc32c  |
//	| 8 bytes        | 4       | 4       | 4       |
//	+----------------+---------+---------+---------+
func NewOldSalvager(fs vfs.FS, dir string) *Salvager {
	s := NewSalvager(fs, dir, Identity{})
	s.seed, s.old = 0, true
	return s
}

const oldHeaderBytes = 8 + 4 + 4 + 4

func checkOldHeader(h []byte, number uint32) error {
	switch {
	case len(h) < oldHeaderBytes:
		return fmt.Errorf("header: %w", errShort)
	case string(h[:8]) != magic || binary.LittleEndian.Uint32(h[8:]) != 1:
		return fmt.Errorf("not a value file of version 1: it starts with %q", h[:12])
	case binary.LittleEndian.Uint32(h[16:]) != crc32.Checksum(h[:16], checksums()):
		return fmt.Errorf("header: %w", errChecksum)
	case binary.LittleEndian.Uint32(h[12:]) != number:
		return fmt.Errorf("its header says that it is %s", fileName(binary.LittleEndian.Uint32(h[12:])))
	}
	return nil
}

// Entries calls fn with every entry that a record of a checkpoint refers to; key and value are valid during the call. It ends with a
// [DamageError] at the first value that is not what was stored.
func (s *Salvager) Entries(rec []byte, fn func(key, value []byte) error) error {
	for rest := rec; len(rest) > 0; {
		key, loc, after, err := nextLocation(rest)
		if err != nil {
			return fmt.Errorf("file: checkpoint record of %d bytes, byte %d: %w", len(rec), len(rec)-len(rest), err)
		}
		value, err := s.read(key, loc)
		if err == nil {
			err = fn(key, value)
		}
		if err != nil {
			return err
		}
		rest = after
	}
	return nil
}

// Record goes through one record of a checkpoint. It appends to good the part of it whose values can be read, and calls bad
// for the others with an error that is a [DamageError]. The error is of a record that is not what Checkpoint emits.
func (s *Salvager) Record(good, rec []byte, bad func(key []byte, err error)) ([]byte, error) {
	for rest := rec; len(rest) > 0; {
		key, loc, after, err := nextLocation(rest)
		if err != nil {
			return good, fmt.Errorf("file: checkpoint record of %d bytes, byte %d: %w", len(rec), len(rec)-len(rest), err)
		}
		if s.keys != nil {
			s.keys[string(key)] = true
		}
		if _, err := s.read(key, loc); err != nil {
			bad(key, err)
		} else {
			s.refers[loc.pos.file()] = true
			good = append(good, rest[:len(rest)-len(after)]...)
		}
		rest = after
	}
	return good, nil
}

// Refers returns why [Store.Restore] would not take a record of a checkpoint. It reads no value.
func (s *Salvager) Refers(rec []byte) error {
	for rest := rec; len(rest) > 0; {
		key, loc, after, err := nextLocation(rest)
		if err != nil {
			return fmt.Errorf("file: checkpoint record of %d bytes, byte %d: %w", len(rec), len(rec)-len(rest), err)
		}
		rest = after
		number := loc.pos.file()
		path := s.fs.PathJoin(s.dir, fileName(number))
		if s.file(number, path) == nil {
			return &DamageError{path, 0, s.why[number]}
		}
		if err := within(path, key, loc, s.size[number]); err != nil {
			return err
		}
	}
	return nil
}

// Files adds the numbers of the value files that a record of a checkpoint refers to.
func Files(rec []byte, numbers map[uint32]bool) error {
	for rest := rec; len(rest) > 0; {
		_, loc, after, err := nextLocation(rest)
		if err != nil {
			return fmt.Errorf("file: checkpoint record of %d bytes, byte %d: %w", len(rec), len(rec)-len(rest), err)
		}
		numbers[loc.pos.file()] = true
		rest = after
	}
	return nil
}

// CheckRecord returns why a record is not what Checkpoint emits. It reads no value.
func CheckRecord(rec []byte) error {
	for rest := rec; len(rest) > 0; {
		var err error
		if _, _, rest, err = nextLocation(rest); err != nil {
			return fmt.Errorf("file: checkpoint record of %d bytes: %w", len(rec), err)
		}
	}
	return nil
}

func (s *Salvager) read(key []byte, loc location) (value []byte, err error) {
	number, offset := loc.pos.file(), loc.pos.offset()
	path := s.fs.PathJoin(s.dir, fileName(number))
	f := s.file(number, path)
	if f == nil {
		return nil, &DamageError{path, 0, s.why[number]}
	}
	if loc.valueLen > MaxValueBytes {
		return nil, &DamageError{path, offset, fmt.Errorf("a value of %d bytes is impossible", loc.valueLen)}
	}
	n := int(loc.valueLen)
	if cap(s.buf) < n {
		info, err := f.Stat()
		if err != nil {
			return nil, &DamageError{path, offset, err}
		}
		if int64(n) > info.Size() {
			return nil, &DamageError{path, offset, errShort}
		}
		s.buf = make([]byte, n)
	}
	value = s.buf[:n]
	if m, err := f.ReadAt(value, offset+recordHeader+int64(len(key))); m < n {
		return nil, &DamageError{path, offset, fmt.Errorf("read %d of %d bytes of a value: %w", m, n, err)}
	}
	if checksum(s.seed, number, uint32(offset), key, value) != loc.crc {
		return nil, &DamageError{path, offset, errChecksum}
	}
	return value, nil
}

// file returns a file that is open and has a good header, or nil.
func (s *Salvager) file(number uint32, path string) vfs.File {
	f, known := s.open[number]
	if known {
		return f
	}
	f, err := s.fs.Open(path, vfs.RandomReadsOption)
	if err == nil {
		var head [headerBytes]byte
		n, rerr := f.ReadAt(head[:], 0)
		if s.old {
			err = checkOldHeader(head[:n], number)
		} else {
			err = checkHeader(head[:n], s.id, number)
		}
		if err != nil {
			if n < headerBytes {
				err = rerr
			}
			_ = f.Close()
			f = nil
		}
	} else {
		f = nil
		if oserror.IsNotExist(err) {
			err = errMissing
		}
	}
	if f != nil {
		info, serr := f.Stat()
		if serr != nil {
			_ = f.Close()
			f, err = nil, serr
		} else {
			s.size[number] = info.Size()
		}
	}
	s.open[number], s.why[number] = f, err
	return f
}

// Missed emits records of a checkpoint for the keys that are in the value files and were in none of the records that Record got. The
// newest value of a key wins. A value file does not say what was deleted, so a key that was can be among them, which are returned in
// their order.
func (s *Salvager) Missed(emit func(rec []byte) error) (keys []string, err error) {
	numbers, err := s.list()
	if err != nil {
		return nil, err
	}
	found := map[string]location{}
	for _, number := range numbers {
		f := s.file(number, s.fs.PathJoin(s.dir, fileName(number)))
		if f == nil {
			continue
		}
		err := records(f, s.size[number], s.seed, number, func(offset int64, r record) {
			if !s.keys[string(r.key)] {
				found[string(r.key)] = location{pos: at(number, offset), valueLen: uint32(len(r.value)), crc: r.crc}
			}
		})
		if err != nil {
			return nil, fmt.Errorf("file: %s: %w", fileName(number), err)
		}
	}
	var rec []byte
	keys = slices.Sorted(maps.Keys(found))
	for _, key := range keys {
		s.refers[found[key].pos.file()] = true
		if rec = appendLocation(rec, []byte(key), found[key]); len(rec) >= checkpointBytes {
			if err := emit(rec); err != nil {
				return nil, err
			}
			rec = rec[:0]
		}
	}
	if len(rec) > 0 {
		err = emit(rec)
	}
	return keys, err
}

// Unused returns the paths of the value files to which nothing refers that Record has found good or Missed has emitted.
func (s *Salvager) Unused() (paths []string, err error) {
	numbers, err := s.list()
	for _, number := range numbers {
		if !s.refers[number] {
			paths = append(paths, s.fs.PathJoin(s.dir, fileName(number)))
		}
	}
	return paths, err
}

// list returns the numbers of the value files, ascending.
func (s *Salvager) list() (numbers []uint32, err error) {
	names, err := s.fs.List(s.dir)
	if oserror.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("file: list directory %s: %w", s.dir, err)
	}
	for _, name := range names {
		if n, ok := parseFileName(name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// MendHeader writes to a new file what is in the value file of that number, whose header is damaged, behind the header that it has to
// have. It returns how many records of the file prove that it is the one; if none does, or if the header is whole, it writes nothing.
func MendHeader(fs vfs.FS, path string, id Identity, number uint64, to string) (n int, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return 0, fmt.Errorf("file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || info.Size() < headerBytes {
		return 0, err
	}
	in := window{f: f, size: info.Size()}
	head, err := in.read(0, headerBytes)
	if err != nil {
		return 0, fmt.Errorf("file: %s: %w", path, err)
	}
	if binary.LittleEndian.Uint32(head[headerBytes-4:]) == crc32.Checksum(head[:headerBytes-4], checksums()) {
		return 0, nil
	}
	err = records(f, info.Size(), id.seed(), uint32(number), func(int64, record) { n++ })
	if err != nil || n == 0 {
		return 0, err
	}
	out, err := fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, fmt.Errorf("file: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if vfs.Root(fs) == vfs.Default {
		if err := os.Chmod(to, 0o600); err != nil {
			return 0, fmt.Errorf("file: %w", err)
		}
	}
	if _, err := out.WriteAt(appendHeader(nil, id, uint32(number)), 0); err != nil {
		return 0, fmt.Errorf("file: %w", err)
	}
	for off := int64(headerBytes); off < info.Size(); {
		b, err := in.read(off, min(windowBytes, info.Size()-off))
		if err != nil {
			return 0, fmt.Errorf("file: %s, offset %d: %w", path, off, err)
		}
		// A copy, for the window is read again, and a file may change what it is given to write.
		if _, err := out.WriteAt(slices.Clone(b), off); err != nil {
			return 0, fmt.Errorf("file: %w", err)
		}
		off += int64(len(b))
	}
	return n, out.Sync()
}

// record is one of a value file; key and value are valid until the next one is read.
type record struct {
	crc        uint32
	key, value []byte
	bytes      int64 // it would have, by its lengths, which are believed if this is not 0
	good       bool
}

// record returns what is at an offset.
func (w *window) record(seed, number uint32, at int64) (r record, err error) {
	if w.size-at < recordHeader {
		return r, nil
	}
	h, err := w.read(at, recordHeader)
	if err != nil {
		return r, err
	}
	keyLen, valueLen := int64(binary.LittleEndian.Uint32(h[4:])), int64(binary.LittleEndian.Uint32(h[8:]))
	n := recordHeader + keyLen + valueLen
	if keyLen > MaxKeyBytes || valueLen > MaxValueBytes || n > w.size-at {
		return r, nil
	}
	b, err := w.read(at, n)
	if err != nil {
		return r, err
	}
	r = record{crc: binary.LittleEndian.Uint32(b), key: b[recordHeader:][:keyLen], value: b[recordHeader+keyLen:], bytes: n}
	r.good = checksum(seed, number, uint32(at), r.key, r.value) == r.crc
	return r, nil
}

// records calls fn for every good record of a value file, whatever its header is and whatever stands between them. Behind damage it
// tries the place where the record would end, if its lengths are right, and then every byte, until it has summed many times
// the file in vain.
func records(f vfs.File, size int64, seed, number uint32, fn func(offset int64, r record)) error {
	in := window{f: f, size: size}
	budget := 64 * size
	for at := int64(headerBytes); size-at >= recordHeader && budget >= 0; {
		r, err := in.record(seed, number, at)
		if err != nil {
			return err
		}
		if r.good {
			fn(at, r)
			at += r.bytes
			continue
		}
		if budget -= r.bytes; r.bytes > 0 {
			next, err := in.record(seed, number, at+r.bytes)
			if err != nil {
				return err
			}
			if next.good || at+r.bytes == size {
				at += r.bytes
				continue
			}
		}
		at++
	}
	return nil
}

// Close closes the files.
func (s *Salvager) Close() error {
	var errs []error
	for _, f := range s.open {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
