package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Segments of format version 1 have a shorter header, and no identity in it and in the sums of frames. All else is as in version 2:
//
//	segment header   0        6         8                  16          20
//	                 +--------+---------+------------------+-----------+
//	                 | kvmark | version | number           | checksum  |
//	                 +--------+---------+------------------+-----------+
//	                   version: 1         checksum of the 16 bytes before it
const (
	oldVersion    = 1
	oldHeaderSize = headerVersionAt + 2 + 8 + 4
)

func appendOldHeader(dst []byte, number uint64) []byte {
	start := len(dst)
	dst = append(dst, segmentMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, oldVersion)
	dst = binary.LittleEndian.AppendUint64(dst, number)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// summer returns what computes the sums of the frames there.
func (p *segmentPlace) summer() summer {
	if p.old {
		return summer{segment: crc32.Checksum(binary.LittleEndian.AppendUint64(nil, p.number), castagnoli)}
	}
	return newSummer(p.identity, p.number)
}

// verifyOldHeader is verifyHeader for a segment of version 1. Every byte of its header is known.
func (r *reader) verifyOldHeader(rep *SegmentReport) (done bool, err error) {
	want := appendOldHeader(nil, r.place.number)
	n := min(r.size, oldHeaderSize)
	b, err := r.window(0, n)
	if err != nil {
		return true, err
	}
	same := int64(0)
	for same < n && b[same] == want[same] {
		same++
	}
	if rep.end = same; same == oldHeaderSize {
		return r.size == n && r.place.newest, nil
	}
	if r.size <= oldHeaderSize && r.place.newest {
		if zeros, err := r.zeros(same, n); zeros || err != nil {
			rep.unfinished = true
			return true, err
		}
	}
	rep.set(Corrupt, same, damage("this is no header of version 1 of that segment"))
	return true, nil
}

// ReplayOld passes every record of a log of format version 1 in order to fn, from segment first on, and changes nothing. It returns
// the newest segment, whose torn tail is left out; other damage is a [CorruptionError].
func ReplayOld(fs vfs.FS, dir string, first uint64, fn func(payload []byte) error) (newest SegmentReport, err error) {
	numbers, err := listSegments(fs, dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return newest, err
	}
	numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n < first })
	l := newLog(dir, Options{FS: fs, FirstSegment: first})
	if err := l.checkComplete(numbers); err != nil {
		return newest, err
	}
	for i, number := range numbers {
		newest, err = l.replay(segmentPlace{number: number, newest: i == len(numbers)-1, old: true}, fn)
		if err != nil {
			return newest, fmt.Errorf("format version 1: %w", err)
		}
	}
	return newest, nil
}
