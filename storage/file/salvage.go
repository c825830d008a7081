package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

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
}

// NewSalvager returns one for the value files of a data directory.
func NewSalvager(fs vfs.FS, dir string, id Identity) *Salvager {
	if fs == nil {
		fs = vfs.Default
	}
	return &Salvager{fs: fs, dir: fs.PathJoin(dir, "values"), id: id, seed: id.seed(), open: map[uint32]vfs.File{}, why: map[uint32]error{}, size: map[uint32]int64{}}
}

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
		if _, err := s.read(key, loc); err != nil {
			bad(key, err)
		} else {
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
