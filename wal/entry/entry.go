// Package entry is the payload of one log record: a group of one or more changes to keys that take effect together.
//
// Entries stand one behind the other, with nothing around them. Lengths are unsigned varints in their shortest form, at
// most 5 bytes long; times are little-endian.
//
//	Set        +----+-----------+-----+--------------+-------+
//	           | 1  | key bytes | key | value bytes  | value |
//	           +----+-----------+-----+--------------+-------+
//	Delete     | 2  | key bytes | key |
//	           +----+-----------+-----+
//	Clear      | 3  |
//	           +----+-----------+-----+--------------+-------+---------------+
//	SetExpire  | 4  | key bytes | key | value bytes  | value | expire at (8) |
//	           +----+-----------+-----+--------------+-------+---------------+
//	Expire     | 5  | key bytes | key | expire at (8) |
//	           +----+-----------+-----+---------------+
//	Persist    | 6  | key bytes | key |
//	           +----+-----------+-----+
//
// The group is what one command changes, or one transaction: a record has no other mark of a transaction, as it is read as a whole
// or not at all.
//
//	MSET a 1 b 2           | Set a 1 | Set b 2 |
//	MULTI, INCR n, DEL a,
//	FLUSHALL, SET c 3,
//	EXEC                   | Set n 8 | Delete a | Clear | Set c 3 |
//
// Every operation is absolute, so that replaying one twice, or over a newer state that is then replayed as well, is right.
package entry

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Op says what an entry does to its key. The numbers are part of the disk format; they must not change.
type Op uint8

const (
	Set       Op = 1 // key has this value, and no expiry
	Delete    Op = 2
	Clear     Op = 3 // of all keys
	SetExpire Op = 4 // key has this value until ExpireAt
	Expire    Op = 5 // key, if it is there, has its value until ExpireAt
	Persist   Op = 6 // key, if it is there, has no expiry
)

var names = [...]string{Set: "set", Delete: "delete", Clear: "clear", SetExpire: "set-expire", Expire: "expire", Persist: "persist"}

func (o Op) String() string {
	if o.known() {
		return names[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

func (o Op) known() bool     { return o >= Set && o <= Persist }
func (o Op) hasKey() bool    { return o != Clear }
func (o Op) hasValue() bool  { return o == Set || o == SetExpire }
func (o Op) hasExpire() bool { return o == SetExpire || o == Expire }

// ErrInvalid is returned by Decode for bytes that Append did not make.
var ErrInvalid = errors.New("invalid log entry")

// Entry is one change. Fields that its Op does not name are not stored.
type Entry struct {
	Op       Op
	Key      []byte
	Value    []byte
	ExpireAt int64 // unix time in milliseconds
}

// Append appends e to dst. The Op must be one of the above.
func Append(dst []byte, e Entry) []byte {
	dst = append(dst, byte(e.Op))
	if e.Op.hasKey() {
		dst = appendBytes(dst, e.Key)
	}
	if e.Op.hasValue() {
		dst = appendBytes(dst, e.Value)
	}
	if e.Op.hasExpire() {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(e.ExpireAt))
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// Decode calls fn for each entry of payload, in order. Key and Value alias payload. If a part of payload is not an entry,
// the error wraps [ErrInvalid] and says where; fn has then been called for the entries in front of it. To apply a group only as a whole,
// decode it once with a fn that does nothing.
func Decode(payload []byte, fn func(Entry) error) error {
	for rest := payload; len(rest) > 0; {
		e, n, reason := decodeOne(rest)
		if reason != "" {
			return fmt.Errorf("%w at byte %d of %d: %s", ErrInvalid, len(payload)-len(rest), len(payload), reason)
		}
		if err := fn(e); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// decodeOne returns the entry that b begins with and its size, or the reason why there is none.
func decodeOne(b []byte) (e Entry, n int, reason string) {
	rest, ok := b[1:], true
	if e.Op = Op(b[0]); !e.Op.known() {
		return e, 0, "unknown operation"
	}
	if e.Op.hasKey() {
		if e.Key, rest, ok = cutBytes(rest); !ok {
			return e, 0, "length of the key"
		}
	}
	if e.Op.hasValue() {
		if e.Value, rest, ok = cutBytes(rest); !ok {
			return e, 0, "length of the value"
		}
	}
	if e.Op.hasExpire() {
		if len(rest) < 8 {
			return e, 0, "time of expiry"
		}
		e.ExpireAt = int64(binary.LittleEndian.Uint64(rest))
		rest = rest[8:]
	}
	return e, len(b) - len(rest), ""
}

// cutBytes takes a length and as many bytes off b. The length must be in its shortest form, so that a group has one encoding.
func cutBytes(b []byte) (field, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || size > 5 || size > 1 && b[size-1] == 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	end := size + int(n)
	return b[size:end:end], b[end:], true
}
