package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
)

// checkpointBytes is the size from which a checkpoint record is handed over.
const checkpointBytes = 64 << 10

// A checkpoint record is a piece of the index:
//
//	+------------+-----+-------------+--------+--------------+--------+
//	| key length | key | file number | offset | value length | crc32c |   repeated
//	| uvarint    |     | 4           | 4      | 4            | 4      |
//	+------------+-----+-------------+--------+--------------+--------+
//
// Integers are little endian. This is part of the checkpoint format and must
// not change.
const locationBytes = 4 * 4

func appendLocation(dst, key []byte, loc location) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	dst = append(dst, key...)
	dst = binary.LittleEndian.AppendUint32(dst, loc.pos.file())
	dst = binary.LittleEndian.AppendUint32(dst, uint32(loc.pos.offset()))
	dst = binary.LittleEndian.AppendUint32(dst, loc.valueLen)
	return binary.LittleEndian.AppendUint32(dst, loc.crc)
}

func nextLocation(b []byte) (key []byte, loc location, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > MaxKeyBytes || len(b)-w-int(n) < locationBytes {
		return nil, location{}, nil, errors.New("damaged entry of the index")
	}
	key, b = b[w:w+int(n)], b[w+int(n):]
	loc = location{
		pos:      at(binary.LittleEndian.Uint32(b), int64(binary.LittleEndian.Uint32(b[4:]))),
		valueLen: binary.LittleEndian.Uint32(b[8:]),
		crc:      binary.LittleEndian.Uint32(b[12:]),
	}
	return key, loc, b[locationBytes:], nil
}

// Checkpoint emits the index and then makes the value files that it refers to
// durable, with their directory. Files that only an older checkpoint refers to
// are removed by committed, and none before: a checkpoint that never becomes
// durable takes nothing away from the one before it.
func (s *Store) Checkpoint(emit func(rec []byte) error) (committed func() error, err error) {
	s.checkpoint.Lock()
	defer s.checkpoint.Unlock()
	// Nothing is removed while the lock is held, so every file is there that
	// the index refers to at some moment of the scan.
	refers := make(map[uint32]bool)
	rec := make([]byte, 0, 2*checkpointBytes)
	for shard := range shardCount {
		err := s.index.scan(shard, func(key []byte, loc location) error {
			refers[loc.pos.file()] = true
			rec = appendLocation(rec, key, loc)
			if len(rec) < checkpointBytes {
				return nil
			}
			err := emit(rec)
			rec = rec[:0]
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(rec) > 0 {
		if err := emit(rec); err != nil {
			return nil, err
		}
	}
	// After the scan, because a record that was copied by reclaiming meanwhile
	// is in no log: what the checkpoint says of it must be on the device.
	if err := s.w.sync(); err != nil {
		return nil, err
	}
	// It may become durable from here on, even if the caller never learns it.
	maps.Copy(s.pending, refers)
	return func() error {
		s.checkpoint.Lock()
		defer s.checkpoint.Unlock()
		s.committed = refers
		clear(s.pending)
		return s.removeUnreferencedLocked()
	}, nil
}

// Restore takes back one record of a checkpoint. It fails if a file that the
// record refers to is missing, too short, or by its header not that file; whether values are what they were
// is checked when they are read.
func (s *Store) Restore(rec []byte) error {
	for rest := rec; len(rest) > 0; {
		off := len(rec) - len(rest)
		key, loc, after, err := nextLocation(rest)
		if err != nil {
			return fmt.Errorf("file: checkpoint record of %d bytes, byte %d: %w", len(rec), off, err)
		}
		rest = after
		n := recordBytes(len(key), int(loc.valueLen))
		f := s.files.get(loc.pos.file())
		if f == nil {
			return &DamageError{s.path(loc.pos.file()), loc.pos.offset(), errMissing}
		}
		if !f.known {
			h, err := s.files.acquire(f)
			if err != nil {
				return err
			}
			h.release()
			f.known = true
		}
		if err := within(f.path, key, loc, f.size.Load()); err != nil {
			return err
		}
		f.live.Add(1)
		f.liveBytes.Add(n)
		s.committed[f.number] = true
		if old, replaced := s.index.set(key, loc); replaced {
			s.files.dead(old, len(key))
		}
	}
	return nil
}

var errMissing = errors.New("the checkpoint refers to it, but the file is missing")

// within returns why a record does not lie in a file of that size.
func within(path string, key []byte, loc location, size int64) error {
	if n := recordBytes(len(key), int(loc.valueLen)); loc.pos.offset() < headerBytes || loc.pos.offset()+n > size {
		return &DamageError{path, loc.pos.offset(), fmt.Errorf("the checkpoint refers to %d bytes there, but the file has only %d", n, size)}
	}
	return nil
}

// Recovered removes the files that nothing refers to and starts reclaiming.
func (s *Store) Recovered() error {
	s.checkpoint.Lock()
	defer s.checkpoint.Unlock()
	if err := s.removeUnreferencedLocked(); err != nil {
		return err
	}
	s.reclaim.start(s)
	s.recovered.Store(true)
	return nil
}
