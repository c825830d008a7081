package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A value file is a header and records, appended and never changed. Integers
// are little endian.
//
//	+----------------+---------+----------+---------+---------+
//	| magic          | version | identity | number  | crc32c  |   header, 36 bytes; the
//	| 8 bytes        | 4       | 16       | 4       | 4       |   crc covers what precedes it
//	+----------------+---------+----------+---------+---------+
//	| crc32c  | key length | value length | key | value |   record, repeated
//	| 4       | 4          | 4            |     |       |
//	+---------+------------+--------------+-----+-------+
//
// A record's crc32c covers
//
//	identity 16 | file number 4 | offset of the record 4 | key length 4 | value length 4 | key | value
//
// so that a good record in a wrong place, or in a file of another data directory, is a bad record. The key is there for
// reclaiming and for salvage; a Get does not read it, because it knows it.
//
// This is part of the disk format and must not change.
const (
	magic         = "kvmarkVF"
	formatVersion = 2
	headerBytes   = 8 + 4 + 16 + 4 + 4
	recordHeader  = 4 + 4 + 4
)

// Limits of one record; no length above them is believed.
const (
	MaxKeyBytes   = 1 << 20
	MaxValueBytes = 1 << 29
)

// Identity names a data directory among all others.
type Identity [16]byte

// seed is where the checksum of every record begins.
func (id Identity) seed() uint32 { return crc32.Checksum(id[:], checksums()) }

var (
	errChecksum = errors.New("checksum does not match")
	errShort    = errors.New("the file ends inside a record")
)

// DamageError is returned when what is in a value file is not what was written.
type DamageError struct {
	Path   string
	Offset int64 // of the record or, when 0, of the file's header
	Err    error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("file: %s, offset %d: %v", e.Path, e.Offset, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }

// checksums is the table of crc32c.
func checksums() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func appendHeader(dst []byte, id Identity, number uint32) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, formatVersion)
	dst = append(dst, id[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, number)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], checksums()))
}

// checkHeader says what is wrong with the header of the file of that number.
func checkHeader(h []byte, id Identity, number uint32) error {
	const identityAt, numberAt, crcAt = 12, headerBytes - 8, headerBytes - 4
	switch {
	case len(h) < headerBytes:
		return fmt.Errorf("header: %w", errShort)
	case string(h[:8]) != magic:
		return fmt.Errorf("not a value file: it starts with %q", h[:8])
	case binary.LittleEndian.Uint32(h[crcAt:]) != crc32.Checksum(h[:crcAt], checksums()):
		return fmt.Errorf("header: %w", errChecksum)
	case binary.LittleEndian.Uint32(h[8:]) != formatVersion:
		return fmt.Errorf("format version %d, this program knows %d", binary.LittleEndian.Uint32(h[8:]), formatVersion)
	case Identity(h[identityAt:numberAt]) != id:
		return fmt.Errorf("it belongs to another data directory (its header says %x, this one is %x): move it away and put the right file here", h[identityAt:numberAt], id)
	case binary.LittleEndian.Uint32(h[numberAt:]) != number:
		return fmt.Errorf("its header says that it is %s: was it renamed or copied? Put the right file here", fileName(binary.LittleEndian.Uint32(h[numberAt:])))
	}
	return nil
}

// ReadHeader returns which data directory and which number a value file says that it is of; number 0 if it has no header that can
// be read.
func ReadHeader(fs vfs.FS, path string) (id Identity, number uint64, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return id, 0, fmt.Errorf("file: open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := make([]byte, headerBytes)
	if n, err := f.ReadAt(h, 0); n < len(h) {
		if err != nil && err != io.EOF {
			return id, 0, fmt.Errorf("file: read %s: %w", path, err)
		}
		return id, 0, nil
	}
	claimed, n := Identity(h[12:28]), binary.LittleEndian.Uint32(h[28:])
	if checkHeader(h, claimed, n) != nil {
		return id, 0, nil
	}
	return claimed, uint64(n), nil
}

func appendRecord(dst []byte, crc uint32, key, value []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, crc)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(key)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(value)))
	dst = append(dst, key...)
	return append(dst, value...)
}

func recordBytes(keyLen, valueLen int) int64 {
	return recordHeader + int64(keyLen) + int64(valueLen)
}

// checksum is the crc32c of a record in a directory of that seed.
func checksum(seed, number, offset uint32, key, value []byte) uint32 {
	table := checksums()
	var place [16]byte
	binary.LittleEndian.PutUint32(place[0:], number)
	binary.LittleEndian.PutUint32(place[4:], offset)
	binary.LittleEndian.PutUint32(place[8:], uint32(len(key)))
	binary.LittleEndian.PutUint32(place[12:], uint32(len(value)))
	// By hand, because place would move to the heap if crc32 got it.
	crc := ^seed
	for _, b := range place {
		crc = table[byte(crc)^b] ^ crc>>8
	}
	crc = crc32.Update(^crc, table, key)
	return crc32.Update(crc, table, value)
}

// Scan calls fn with every record of a value file, in order; key and value are
// valid during the call. It reads through a buffer that is no larger than the
// largest record needs and ends with a [DamageError] at the first damage.
func Scan(fs vfs.FS, path string, id Identity, number uint32, fn func(offset int64, key, value []byte) error) error {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("file: open %s: %w", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("file: stat %s: %w", path, err)
	}
	return scan(f, path, st.Size(), id, number, fn)
}

func scan(f io.ReaderAt, path string, size int64, id Identity, number uint32, fn func(offset int64, key, value []byte) error) error {
	in := window{f: f, size: size}
	damage := func(offset int64, err error) error { return &DamageError{path, offset, err} }
	h, err := in.read(0, min(headerBytes, size))
	if err != nil {
		return damage(0, err)
	}
	if err := checkHeader(h, id, number); err != nil {
		return damage(0, err)
	}
	seed := id.seed()
	for at := int64(headerBytes); at < size; {
		if size-at < recordHeader {
			return damage(at, errShort)
		}
		h, err := in.read(at, recordHeader)
		if err != nil {
			return damage(at, err)
		}
		crc := binary.LittleEndian.Uint32(h)
		keyLen, valueLen := int64(binary.LittleEndian.Uint32(h[4:])), int64(binary.LittleEndian.Uint32(h[8:]))
		if keyLen > MaxKeyBytes || valueLen > MaxValueBytes {
			return damage(at, fmt.Errorf("lengths %d and %d of key and value are impossible", keyLen, valueLen))
		}
		if keyLen+valueLen > size-at-recordHeader {
			return damage(at, errShort)
		}
		b, err := in.read(at+recordHeader, keyLen+valueLen)
		if err != nil {
			return damage(at, err)
		}
		key, value := b[:keyLen:keyLen], b[keyLen:]
		if checksum(seed, number, uint32(at), key, value) != crc {
			return damage(at, errChecksum)
		}
		if err := fn(at, key, value); err != nil {
			return err
		}
		at += recordHeader + keyLen + valueLen
	}
	return nil
}

// window reads a file forward through a buffer.
type window struct {
	f    io.ReaderAt
	size int64
	at   int64 // of buf in the file
	buf  []byte
}

const windowBytes = 256 << 10

// read returns n bytes at off. REQUIRES: off+n <= size.
func (w *window) read(off, n int64) ([]byte, error) {
	if skip := off - w.at; skip < 0 || skip+n > int64(len(w.buf)) {
		want := min(max(n, windowBytes), w.size-off)
		if int64(cap(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		w.buf, w.at = w.buf[:want], off
		if m, err := w.f.ReadAt(w.buf, off); int64(m) < n {
			w.buf = w.buf[:0]
			return nil, fmt.Errorf("read %d of %d bytes: %w", m, n, err)
		} else {
			w.buf = w.buf[:m]
		}
	}
	return w.buf[off-w.at:][:n:n], nil
}
