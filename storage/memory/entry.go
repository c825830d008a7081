package memory

import (
	"unsafe"

	"kvmark/storage/pair"
)

// entry is a key and its value: one pair (see package pair) in an allocation of
// its own, which nothing changes once it is stored. It is no more than the
// address of the first byte, because the pair says how long it is. The zero
// value is no entry.
type entry struct{ first *byte }

func newEntry(key, value []byte) entry {
	b := pair.Append(make([]byte, 0, pair.Size(len(key), len(value))), key, value)
	return entry{unsafe.SliceData(b)}
}

// pair returns key and value. No byte of them may be changed.
func (e entry) pair() (key, value []byte) {
	keyLen, keyAt := e.length(0)
	valueLen, valueAt := e.length(keyAt + keyLen)
	// Sliced from the whole, so that an empty value is not an address behind it.
	all := unsafe.Slice(e.first, valueAt+valueLen)
	return all[keyAt : keyAt+keyLen : keyAt+keyLen], all[valueAt:]
}

func (e entry) key() []byte {
	n, at := e.length(0)
	return unsafe.Slice(e.first, at+n)[at:]
}

// length reads the length at an offset, and says where what is so long begins.
func (e entry) length(at int) (n, begins int) {
	for shift := 0; ; shift += 7 {
		b := *(*byte)(unsafe.Add(unsafe.Pointer(e.first), at))
		at++
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			return n, at
		}
	}
}
