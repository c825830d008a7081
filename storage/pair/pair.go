// Package pair is the byte format of a key and its value, back to back with
// other pairs, as the stores keep and checkpoint them.
//
//	+-------------+-----+---------------+-------+
//	| key length  | key | value length  | value |   repeated
//	| uvarint     |     | uvarint       |       |
//	+-------------+-----+---------------+-------+
//
// Any bytes are a key or a value, none at all included. The format is part of
// the checkpoint format of the memory, map and serialize modes and must not
// change.
package pair

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt is returned when bytes are not a sequence of pairs.
var ErrCorrupt = errors.New("pair: a length is damaged or reaches beyond the data")

// Append appends one pair to dst.
func Append(dst, key, value []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	dst = append(dst, key...)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// Size returns the number of bytes that Append adds for a key and a value of
// these lengths.
func Size(keyLen, valueLen int) int {
	return uvarintLen(keyLen) + keyLen + uvarintLen(valueLen) + valueLen
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}

// Next splits the first pair off b. Key and value alias b. The caller stops
// when rest is empty.
func Next(b []byte) (key, value, rest []byte, err error) {
	key, b, err = field(b)
	if err != nil {
		return nil, nil, nil, err
	}
	value, rest, err = field(b)
	return key, value, rest, err
}

func field(b []byte) (f, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, ErrCorrupt
	}
	end := w + int(n)
	return b[w:end:end], b[end:], nil
}

// recordBytes is the size from which Emit hands over a record.
const recordBytes = 64 << 10

// Emit emits the pairs that scan finds in each of so many shards, many to a
// record, each of which begins with head. rec is valid during the call of emit.
func Emit(head string, shards int, scan func(shard int, fn func(key, value []byte) error) error, emit func(rec []byte) error) error {
	rec := append(make([]byte, 0, 2*recordBytes), head...)
	for i := range shards {
		err := scan(i, func(key, value []byte) error {
			rec = Append(rec, key, value)
			if len(rec) < recordBytes {
				return nil
			}
			err := emit(rec)
			rec = rec[:len(head)]
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(rec) > len(head) {
		return emit(rec)
	}
	return nil
}

// Read calls fn with each pair of a record without its head; key and value alias it.
func Read(rec []byte, fn func(key, value []byte) error) error {
	for rest := rec; len(rest) > 0; {
		at := len(rec) - len(rest)
		key, value, after, err := Next(rest)
		if err == nil {
			err = fn(key, value)
		}
		if err != nil {
			return fmt.Errorf("checkpoint record of %d bytes, byte %d: %w", len(rec), at, err)
		}
		rest = after
	}
	return nil
}
