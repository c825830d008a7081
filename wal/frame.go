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
	segmentVersion    = 2
	segmentHeaderSize = len(segmentMagic) + 2 + len(Identity{}) + 8 + 8 + 8 + 4

	frameHeaderSize = 1 + 4 + 4 + 4
	markFrameSize   = frameHeaderSize + 8
	nextMarkSize    = frameHeaderSize + 1
	maskSize        = 8

	// Letters, for a reader of a hex dump, and each with more than one bit set: one flipped bit never makes a zero.
	kindRecord = 'R'
	kindMasked = 'M'
	kindSynced = 'S'
	kindEnd    = 'E'
	kindNext   = 'N'

	// sectorSize is the smallest unit in which a device loses data.
	sectorSize = 512

	// maskBlock is the piece of a payload that must not be all zeros on disk. A sector without the first byte of a frame
	// lies in one payload but for at most frameHeaderSize-1 bytes, so it holds at least six such pieces.
	maskBlock = 64

	segmentSuffix = ".wal"
	segmentDigits = 10
	maxSegment    = 9_999_999_999
)

// HeaderSize is the size of a segment's header. A segment that is no longer is complete, and empty.
const HeaderSize = int64(segmentHeaderSize)

// RecordOverhead is the least that a record takes in a segment besides its payload, in bytes.
const RecordOverhead = frameHeaderSize

// MaxRecord is the largest payload that [Log.Append] takes, in bytes.
const MaxRecord = 512 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Identity names a log among all others. It is in every segment's header, and in the checksum of every record.
type Identity [16]byte

// SegmentName returns the name of a segment's file.
func SegmentName(number uint64) string { return segmentName(number) }

// SegmentNumber returns the number in the name of a segment's file; files of other names are not of the log.
func SegmentNumber(name string) (uint64, bool) { return parseSegmentName(name) }

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

// segmentHeader is what a segment says of itself. id is random, never 0: it tells a segment from another one of the same
// number that was written at another time, or by a server on a copy of the directory.
type segmentHeader struct {
	identity Identity
	number   uint64
	previous uint64 // id of the segment in front of it, 0 for none
	id       uint64
}

func newSegmentID() uint64 { return max(1, rand.Uint64()) }

func (h segmentHeader) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, segmentMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, segmentVersion)
	dst = append(dst, h.identity[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, h.number)
	dst = binary.LittleEndian.AppendUint64(dst, h.previous)
	dst = binary.LittleEndian.AppendUint64(dst, h.id)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

const (
	headerVersionAt  = int64(len(segmentMagic))
	headerIdentityAt = headerVersionAt + 2
	headerNumberAt   = headerIdentityAt + int64(len(Identity{}))
	headerPreviousAt = headerNumberAt + 8
)

// parseSegmentHeader says what is wrong with the header b, and at which offset.
// REQUIRES: len(b) == segmentHeaderSize.
func parseSegmentHeader(b []byte) (h segmentHeader, offset int64, err error) {
	if string(b[:headerVersionAt]) != segmentMagic {
		return h, 0, fmt.Errorf("segment header: magic is %q, want %q", b[:headerVersionAt], segmentMagic)
	}
	if v := binary.LittleEndian.Uint16(b[headerVersionAt:]); v != segmentVersion {
		return h, headerVersionAt, fmt.Errorf("segment header: format version is %d, this program reads %d", v, segmentVersion)
	}
	want := crc32.Checksum(b[:segmentHeaderSize-4], castagnoli)
	if got := binary.LittleEndian.Uint32(b[segmentHeaderSize-4:]); got != want {
		return h, headerVersionAt, fmt.Errorf("segment header: checksum is %08x, want %08x", got, want)
	}
	copy(h.identity[:], b[headerIdentityAt:])
	h.number = binary.LittleEndian.Uint64(b[headerNumberAt:])
	h.previous = binary.LittleEndian.Uint64(b[headerPreviousAt:])
	h.id = binary.LittleEndian.Uint64(b[headerPreviousAt+8:])
	return h, 0, nil
}

// check says why a good header is not the one that should be there, and at which offset.
func (h segmentHeader) check(p segmentPlace) (offset int64, err error) {
	switch {
	case h.identity != p.identity:
		return headerIdentityAt, fmt.Errorf("%w: its header says %x, this one is %x; move it away and put the right file here", ErrForeign, h.identity, p.identity)
	case h.number != p.number:
		return headerNumberAt, fmt.Errorf("%w: its header says that it is %s; was it renamed or copied? Put the right file here", ErrMisplaced, segmentName(h.number))
	case p.previous != 0 && h.previous != p.previous:
		return headerPreviousAt, fmt.Errorf("%w: it was written behind a segment with id %016x, but in front of it is one with id %016x; put the right files there", ErrUnlinked, h.previous, p.previous)
	case p.id != 0 && h.id != p.id:
		return headerPreviousAt + 8, fmt.Errorf("%w: its id is %016x, and the checkpoint was made over one with id %016x; put the right file here", ErrUnlinked, h.id, p.id)
	}
	return 0, nil
}

// summer computes the sums of the frames of one segment. Its scratch bytes live here because an argument of crc32.Update
// escapes: on the stack they would be one allocation per frame. Not safe for concurrent use.
type summer struct {
	segment uint32 // checksum of the log's identity and the segment's number
	scratch [8 + 1 + 4]byte
}

func newSummer(identity Identity, number uint64) summer {
	return summer{segment: crc32.Checksum(binary.LittleEndian.AppendUint64(identity[:], number), castagnoli)}
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

// frameSum returns the body sum of a signed frame.
func frameSum(frame []byte) uint32 { return binary.LittleEndian.Uint32(frame[9:]) }

// putMark makes dst a signed frame of the given kind that vouches for everything in front of synced.
// REQUIRES: len(dst) == markFrameSize.
func (s *summer) putMark(dst []byte, kind byte, offset, synced int64) {
	dst[0] = kind
	binary.LittleEndian.PutUint32(dst[1:], 8)
	binary.LittleEndian.PutUint64(dst[frameHeaderSize:], uint64(synced))
	s.sign(dst, offset)
}

// nextMark returns the frame at offset which says that the next segment is there. Its last byte has two bits set, so that no flipped
// bit makes a shorter part of it.
func (s *summer) nextMark(offset int64) []byte {
	dst := appendFrameStart(make([]byte, 0, nextMarkSize), kindNext, 1)
	dst = append(dst, kindNext)
	s.sign(dst, offset)
	return dst
}

// nextMarkAt returns where that mark stands in a segment whose end frame ends at end: behind it, and all of it in one sector, so that
// a power failure leaves the whole of it or nothing.
func nextMarkAt(end int64) int64 {
	if sector := (end/sectorSize + 1) * sectorSize; end+int64(nextMarkSize) > sector {
		return sector
	}
	return end
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
