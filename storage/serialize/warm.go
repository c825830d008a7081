package serialize

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"

	"kvmark/storage/warm"
)

// Warm prepares for Gets and Sets of these keys, which are to come soon: see
// package warm. Of a bucket it reads the front, and then the piece of the key.
func (s *Store) Warm(keys [][]byte) { warm.InTurn(keys, s.warm) }

func (s *Store) warm(keys [][]byte) {
	const line = 64
	var (
		numbers [warm.AtOnce]int
		paths   [warm.AtOnce]uint64
		buckets [warm.AtOnce]string
		shards  warm.Shards
		sum     byte
	)
	for i, key := range keys {
		numbers[i], paths[i] = s.place(key)
		shards.Add(uint64(numbers[i]))
	}
	for i := range shards.All() {
		s.shards[i].mu.RLock()
	}
	for i := range keys {
		at, _ := s.shards[numbers[i]].leaf(paths[i])
		buckets[i] = at.bucket
	}
	for i := range shards.All() {
		s.shards[i].mu.RUnlock()
	}
	for _, b := range buckets[:len(keys)] {
		for at := 0; at < min(len(b), 2*line); at += line {
			sum += b[at]
		}
	}
	for i, b := range buckets[:len(keys)] {
		for piece := glance(b, tagOf(paths[i])); len(piece) > 0; piece = piece[min(len(piece), line):] {
			sum += piece[0]
		}
	}
	runtime.KeepAlive(sum) // so that it is computed
}

// glance returns the first piece with a tag, of a bucket in pieces. It checks
// nothing, for it is only to be looked at.
func glance(bucket string, tag byte) []byte {
	if !isPieces(bucket) {
		return nil
	}
	b := bytesOf(bucket)[1:]
	var fields [3]uint64 // entries, raw length, number of the code
	for i := range fields {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil
		}
		fields[i], b = v, b[n:]
	}
	b = b[min(len(b), crc32.Size):]
	if fields[0] > uint64(len(b)/indexEntry) {
		return nil
	}
	index, pieces := b[:fields[0]*indexEntry], b[fields[0]*indexEntry:]
	for ; len(index) > 0; index = index[indexEntry:] {
		n := min(len(pieces), int(binary.LittleEndian.Uint16(index[indexEntry-2:])))
		if index[0] == tag {
			return pieces[:n]
		}
		pieces = pieces[n:]
	}
	return nil
}
