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
//	+----------------+---------+---------+---------+
//	| magic          | version | number  | crc32c  |   header, 20 bytes; the
//	| 8 bytes        | 4       | 4       | 4       |   crc covers what precedes it
//	+----------------+---------+---------+---------+
//	| crc32c  | key length | value length | key | value |   record, repeated
//	| 4       | 4          | 4            |     |       |
//	+---------+------------+--------------+-----+-------+
//
// A record's crc32c covers
//
//	file number 4 | offset of the record 4 | key length 4 | value length 4 | key | value
//
// so that a good record in a wrong place is a bad record. The key is there for
// reclaiming and for salvage; a Get does not read it, because it knows it.
//
// This is part of the disk format and must not change.
const (
	magic         = "kvmarkVF"
	formatVersion = 1
	headerBytes   = 8 + 4 + 4 + 4
	recordHeader  = 4 + 4 + 4
)

// Limits of one record; no length above them is believed.
const (
	MaxKeyBytes   = 1 << 20
	MaxValueBytes = 1 << 29
)

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

func appendHeader(dst []byte, number uint32) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, formatVersion)
	dst = binary.LittleEndian.AppendUint32(dst, number)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], checksums()))
}

// checkHeader says what is wrong with the header of the file of that number.
func checkHeader(h []byte, number uint32) error {
	switch {
	case len(h) < headerBytes:
		return fmt.Errorf("header: %w", errShort)
	case string(h[:8]) != magic:
		return fmt.Errorf("not a value file: it starts with %q", h[:8])
	case binary.LittleEndian.Uint32(h[16:]) != crc32.Checksum(h[:16], checksums()):
		return fmt.Errorf("header: %w", errChecksum)
	case binary.LittleEndian.Uint32(h[8:]) != formatVersion:
		return fmt.Errorf("format version %d, this program knows %d", binary.LittleEndian.Uint32(h[8:]), formatVersion)
	case binary.LittleEndian.Uint32(h[12:]) != number:
		return fmt.Errorf("it says it is number %d: was it renamed?", binary.LittleEndian.Uint32(h[12:]))
	}
	return nil
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

// checksum is the crc32c of a record.
func checksum(number, offset uint32, key, value []byte) uint32 {
	table := checksums()
	var place [16]byte
	binary.LittleEndian.PutUint32(place[0:], number)
	binary.LittleEndian.PutUint32(place[4:], offset)
	binary.LittleEndian.PutUint32(place[8:], uint32(len(key)))
	binary.LittleEndian.PutUint32(place[12:], uint32(len(value)))
	// By hand, because place would move to the heap if crc32 got it.
	crc := ^uint32(0)
	for _, b := range place {
		crc = table[byte(crc)^b] ^ crc>>8
	}
	crc = crc32.Update(^crc, table, key)
	return crc32.Update(crc, table, value)
}

// Scan calls fn with every record of a value file, in order; key and value are
// valid during the call. It reads through a buffer that is no larger than the
// largest record needs and ends with a [DamageError] at the first damage.
func Scan(fs vfs.FS, path string, number uint32, fn func(offset int64, key, value []byte) error) error {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("file: open %s: %w", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("file: stat %s: %w", path, err)
	}
	return scan(f, path, st.Size(), number, fn)
}

func scan(f io.ReaderAt, path string, size int64, number uint32, fn func(offset int64, key, value []byte) error) error {
	in := window{f: f, size: size}
	damage := func(offset int64, err error) error { return &DamageError{path, offset, err} }
	h, err := in.read(0, min(headerBytes, size))
	if err != nil {
		return damage(0, err)
	}
	if err := checkHeader(h, number); err != nil {
		return damage(0, err)
	}
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
		if checksum(number, uint32(at), key, value) != crc {
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
