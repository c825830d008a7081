package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Part of the disk format; must not change. The package comment draws it.
const (
	segmentMagic      = "kvmark"
	segmentVersion    = 1
	segmentHeaderSize = len(segmentMagic) + 2 + 8 + 4

	frameHeaderSize = 1 + 4 + 4 + 4
	markFrameSize   = frameHeaderSize + 8
	maskSize        = 8

	// Letters, for a reader of a hex dump, and each with more than one bit set: one flipped bit never makes a zero.
	kindRecord = 'R'
	kindMasked = 'M'
	kindSynced = 'S'
	kindEnd    = 'E'

	// sectorSize is the smallest unit in which a device loses data.
	sectorSize = 512

	// maskBlock is the piece of a payload that must not be all zeros on disk. A sector without the first byte of a frame
	// lies in one payload but for at most frameHeaderSize-1 bytes, so it holds at least six such pieces.
	maskBlock = 64

	segmentSuffix = ".wal"
	segmentDigits = 10
	maxSegment    = 9_999_999_999
)

// MaxRecord is the largest payload that [Log.Append] takes, in bytes.
const MaxRecord = 512 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func segmentName(number uint64) string {
	return fmt.Sprintf("%0*d%s", segmentDigits, number, segmentSuffix)
}

// parseSegmentName returns the number in the name of a segment file; files of other names are not of the log.
func parseSegmentName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != segmentDigits || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0
}

func appendSegmentHeader(dst []byte, number uint64) []byte {
	start := len(dst)
	dst = append(dst, segmentMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, segmentVersion)
	dst = binary.LittleEndian.AppendUint64(dst, number)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// checkSegmentHeader says what is wrong with the header b, and at which offset.
// REQUIRES: len(b) == segmentHeaderSize.
func checkSegmentHeader(b []byte, number uint64) (offset int64, err error) {
	const afterMagic = len(segmentMagic)
	if string(b[:afterMagic]) != segmentMagic {
		return 0, fmt.Errorf("segment header: magic is %q, want %q", b[:afterMagic], segmentMagic)
	}
	if v := binary.LittleEndian.Uint16(b[afterMagic:]); v != segmentVersion {
		return int64(afterMagic), fmt.Errorf("segment header: format version is %d, this program reads %d", v, segmentVersion)
	}
	want := crc32.Checksum(b[:segmentHeaderSize-4], castagnoli)
	if got := binary.LittleEndian.Uint32(b[segmentHeaderSize-4:]); got != want {
		return int64(afterMagic), fmt.Errorf("segment header: checksum is %08x, want %08x", got, want)
	}
	if n := binary.LittleEndian.Uint64(b[afterMagic+2:]); n != number {
		return int64(afterMagic + 2), fmt.Errorf("segment header: number is %d, the file's name says %d", n, number)
	}
	return 0, nil
}

// summer computes the sums of the frames of one segment. Its scratch bytes live here because an argument of crc32.Update
// escapes: on the stack they would be one allocation per frame. Not safe for concurrent use.
type summer struct {
	segment uint32 // checksum of the segment number
	scratch [8 + 1 + 4]byte
}

func newSummer(number uint64) summer {
	return summer{segment: crc32.Checksum(binary.LittleEndian.AppendUint64(nil, number), castagnoli)}
}

func (s *summer) head(offset int64, kind byte, length uint32) uint32 {
	binary.LittleEndian.PutUint64(s.scratch[:], uint64(offset))
	s.scratch[8] = kind
	binary.LittleEndian.PutUint32(s.scratch[9:], length)
	return crc32.Update(s.segment, castagnoli, s.scratch[:])
}

func bodySum(head uint32, payload []byte) uint32 {
	return crc32.Update(head, castagnoli, payload)
}

// sign fills in the sums of frame, which will stand at offset. Kind, length and payload are in place.
func (s *summer) sign(frame []byte, offset int64) {
	head := s.head(offset, frame[0], binary.LittleEndian.Uint32(frame[1:]))
	binary.LittleEndian.PutUint32(frame[5:], head)
	binary.LittleEndian.PutUint32(frame[9:], bodySum(head, frame[frameHeaderSize:]))
}

// putMark makes dst a signed frame of the given kind that vouches for everything in front of synced.
// REQUIRES: len(dst) == markFrameSize.
func (s *summer) putMark(dst []byte, kind byte, offset, synced int64) {
	dst[0] = kind
	binary.LittleEndian.PutUint32(dst[1:], 8)
	binary.LittleEndian.PutUint64(dst[frameHeaderSize:], uint64(synced))
	s.sign(dst, offset)
}

// appendFrame appends a record's frame without its sums: where it will stand is known only when it is written.
func appendFrame(dst, payload []byte) []byte {
	if !hasBlock(payload, 0) {
		dst = appendFrameStart(dst, kindRecord, len(payload))
		return append(dst, payload...)
	}
	// Random, so that no sender of payloads can aim at it: the first one fits but for a chance of 1 in 2^40.
	mask := rand.Uint64()
	for mask == 0 || hasBlock(payload, mask) {
		mask = rand.Uint64()
	}
	dst = appendFrameStart(dst, kindMasked, maskSize+len(payload))
	dst = binary.LittleEndian.AppendUint64(dst, mask)
	return appendMasked(dst, payload, mask)
}

func appendFrameStart(dst []byte, kind byte, length int) []byte {
	dst = append(dst, kind)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(length))
	return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
}

// frameSize returns the size of the unsigned or signed frame that b begins with.
func frameSize(b []byte) int {
	return frameHeaderSize + int(binary.LittleEndian.Uint32(b[1:]))
}

// framePayload returns what the caller of Append passed for the record in frame; it aliases frame or scratch.
func framePayload(kind byte, body, scratch []byte) (payload, newScratch []byte) {
	if kind != kindMasked {
		return body, scratch
	}
	scratch = appendMasked(scratch[:0], body[maskSize:], binary.LittleEndian.Uint64(body))
	return scratch, scratch
}

// hasBlock reports whether a piece of maskBlock bytes of payload consists of word alone. Usually one load a piece.
func hasBlock(payload []byte, word uint64) bool {
	for ; len(payload) >= maskBlock; payload = payload[maskBlock:] {
		same := true
		for i := 0; same && i < maskBlock; i += 8 {
			same = binary.LittleEndian.Uint64(payload[i:]) == word
		}
		if same {
			return true
		}
	}
	return false
}

func appendMasked(dst, payload []byte, mask uint64) []byte {
	for ; len(payload) >= 8; payload = payload[8:] {
		dst = binary.LittleEndian.AppendUint64(dst, binary.LittleEndian.Uint64(payload)^mask)
	}
	for i, b := range payload {
		dst = append(dst, b^byte(mask>>(8*i)))
	}
	return dst
}
