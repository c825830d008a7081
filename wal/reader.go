package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readBuffer is how much a reader asks the file for at once.
const readBuffer = 1 << 20

// damage says why bytes are not a frame. Everything else that a reader returns is an error of the file system.
type damage string

func (d damage) Error() string { return string(d) }

const (
	errShortHead  = damage("the file ends inside a frame header")
	errShortBody  = damage("the file ends inside a frame")
	errKind       = damage("no frame begins here")
	errLength     = damage("frame of impossible length")
	errHeadSum    = damage("wrong checksum of a frame header")
	errBodySum    = damage("wrong checksum of a frame")
	errMarkOffset = damage("mark that vouches for more than stands in front of it")
	errBehindEnd  = damage("bytes behind the end of the segment")
	errCrafted    = damage("what follows is made to look like frames")
	errDirectory  = damage("it is a directory, not a file")
	errNotEnded   = damage("the segment is not ended, although it is not the newest")
)

// frame is one readable frame; body is valid until the reader is used again.
type frame struct {
	kind byte
	body []byte
	sum  uint32
	end  int64 // offset behind it
}

// reader reads frames of one segment, in order through a buffer of bounded size. Replay, recovery and check all use it.
type reader struct {
	file    vfs.File
	path    string
	size    int64
	place   segmentPlace
	sum     summer
	buf     []byte // the file from base on
	base    int64
	scratch []byte // of an unmasked payload
	wasted  int64  // bytes of bodies that turned out not to fit their head
}

func openReader(fs vfs.FS, path string, p segmentPlace) (*reader, error) {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, fmt.Errorf("wal: open segment: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("wal: size of %s: %w", path, errors.Join(err, f.Close()))
	}
	if info.IsDir() {
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("wal: %w", err)
		}
		return nil, errDirectory
	}
	return &reader{file: f, path: path, size: info.Size(), place: p, sum: p.summer()}, nil
}

// window returns at least n bytes from offset on, more if they are at hand. A buffer grows only to n.
// REQUIRES: offset+n <= r.size.
func (r *reader) window(offset, n int64) ([]byte, error) {
	if offset >= r.base && offset+n <= r.base+int64(len(r.buf)) {
		return r.buf[offset-r.base:], nil
	}
	want := min(max(n, readBuffer), r.size-offset)
	if int64(cap(r.buf)) < want {
		r.buf = make([]byte, want)
	}
	r.buf, r.base = r.buf[:want], offset
	got, err := r.file.ReadAt(r.buf, offset)
	if int64(got) == want {
		return r.buf, nil
	}
	r.buf = r.buf[:0]
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF // the file shrank under us
	}
	return nil, fmt.Errorf("wal: read %s at offset %d: %w", r.path, offset, err)
}

// head reads a frame header and checks everything that does not need the payload. The length is bounded by the file's rest.
func (r *reader) head(offset int64) (kind byte, length int64, sums [2]uint32, err error) {
	if r.size-offset < int64(frameHeaderSize) {
		return 0, 0, sums, errShortHead
	}
	b, err := r.window(offset, int64(frameHeaderSize))
	if err != nil {
		return 0, 0, sums, err
	}
	kind = b[0]
	n := binary.LittleEndian.Uint32(b[1:])
	least, most := uint32(0), uint32(MaxRecord)
	switch kind {
	case kindRecord:
	case kindMasked:
		least, most = maskSize, MaxRecord+maskSize
	case kindSynced, kindEnd:
		least, most = 8, 8
	case kindNext:
		least, most = 1, 1
	default:
		return 0, 0, sums, errKind
	}
	if n < least || n > most {
		return 0, 0, sums, errLength
	}
	sums = [2]uint32{binary.LittleEndian.Uint32(b[5:]), binary.LittleEndian.Uint32(b[9:])}
	if r.sum.head(offset, kind, n) != sums[0] {
		return 0, 0, sums, errHeadSum
	}
	return kind, int64(n), sums, nil
}

// frame reads the frame at offset.
func (r *reader) frame(offset int64) (frame, error) {
	kind, length, sums, err := r.head(offset)
	if err != nil {
		return frame{}, err
	}
	end := offset + int64(frameHeaderSize) + length
	if end > r.size {
		return frame{}, errShortBody
	}
	b, err := r.window(offset, end-offset)
	if err != nil {
		return frame{}, err
	}
	body := b[frameHeaderSize : end-offset]
	if bodySum(sums[0], body) != sums[1] {
		r.wasted += length
		return frame{}, errBodySum
	}
	if (kind == kindSynced || kind == kindEnd) && binary.LittleEndian.Uint64(body) > uint64(offset) {
		return frame{}, errMarkOffset
	}
	return frame{kind: kind, body: body, sum: sums[1], end: end}, nil
}

func (r *reader) payload(fr frame) (payload []byte) {
	payload, r.scratch = framePayload(fr.kind, fr.body, r.scratch)
	return payload
}

// zeros reports whether the file holds only zeros from offset up to end.
func (r *reader) zeros(offset, end int64) (bool, error) {
	for offset < end {
		b, err := r.window(offset, 1)
		if err != nil {
			return false, err
		}
		b = b[:min(int64(len(b)), end-offset)]
		for _, c := range b {
			if c != 0 {
				return false, nil
			}
		}
		offset += int64(len(b))
	}
	return true, nil
}

// verify reads the whole segment and judges it by the rules of the package comment. It calls fn for every record in front
// of the first damage, and behind, if not nil, for every readable record after it. The error is fn's or the file system's.
func (r *reader) verify(rep *SegmentReport, fn, behind recordFunc) error {
	rep.Path, rep.Size = r.path, r.size
	newest := r.place.newest
	header, start := r.verifyHeader, int64(segmentHeaderSize)
	if r.place.old {
		header, start = r.verifyOldHeader, oldHeaderSize
	}
	if done, err := header(rep); done || err != nil {
		return err
	}
	if rep.State == Corrupt { // the header alone, for all that is known
		_, _, err := r.search(rep, start, behind)
		if err == errCrafted {
			err = nil
		}
		return err
	}
	offset, reason := start, error(nil)
	for offset < r.size {
		fr, err := r.frame(offset)
		if err == nil && (rep.ended || fr.kind == kindNext) {
			err = errBehindEnd
		}
		if err != nil {
			reason = err
			break
		}
		switch fr.kind {
		case kindRecord, kindMasked:
			rep.Records++
			rep.Bytes += fr.end - offset
			rep.last = fr.sum
			if err := fn(rep.Segment, offset, r.payload(fr)); err != nil {
				return err
			}
		case kindEnd:
			rep.ended, rep.endedAt = true, fr.end
			if fr.end, err = r.nextMark(rep, fr.end); err != nil {
				return err
			}
		}
		offset = fr.end
	}
	rep.end = offset
	if reason != nil {
		var d damage
		if !errors.As(reason, &d) {
			return reason
		}
		zeros, err := r.zeros(offset, r.size)
		if err != nil {
			return err
		}
		if !zeros {
			return r.verifyBehind(rep, reason, behind)
		}
	}
	if !newest && !rep.ended {
		rep.set(Corrupt, offset, errNotEnded)
	}
	return nil
}

// nextMark looks for the mark behind the end of the segment, and returns where what has to be zeros begins. A first part of it is what
// a write leaves that was interrupted; nothing is in the next segment then.
func (r *reader) nextMark(rep *SegmentReport, end int64) (int64, error) {
	at := nextMarkAt(end)
	if at >= r.size {
		return end, nil
	}
	if zeros, err := r.zeros(end, at); err != nil || !zeros {
		return end, err
	}
	want := r.sum.nextMark(at)
	want = want[:min(int64(len(want)), r.size-at)]
	b, err := r.window(at, int64(len(want)))
	if err != nil {
		return end, err
	}
	same := 0
	for same < len(want) && b[same] == want[same] {
		same++
	}
	rep.followed = same == nextMarkSize
	if zeros, err := r.zeros(at+int64(same), at+int64(len(want))); err != nil || !zeros {
		return end, err
	}
	if same == 0 {
		return end, nil
	}
	return at + int64(same), nil
}

// verifyHeader reports done when there is nothing to read behind the header, or nothing that belongs here.
func (r *reader) verifyHeader(rep *SegmentReport) (done bool, err error) {
	n := min(r.size, int64(segmentHeaderSize))
	b, err := r.window(0, n)
	if err != nil {
		return true, err
	}
	b = b[:n]
	// The header is synced before the first record is written, so a file that is no longer than a header, and holds a first
	// part of it and then zeros, is a creation that a crash interrupted. It can hold no record.
	if r.size <= int64(segmentHeaderSize) && r.place.newest && r.place.id == 0 && !r.place.complete && r.isHeaderPart(b) {
		rep.unfinished = true
		rep.end = n
		return true, nil
	}
	if n < int64(segmentHeaderSize) {
		rep.set(Corrupt, 0, damage("the file ends inside the segment header"))
		return true, nil
	}
	h, offset, err := parseSegmentHeader(b)
	if err != nil {
		rep.set(Corrupt, offset, err)
		return binary.LittleEndian.Uint16(b[headerVersionAt:]) < segmentVersion, nil
	}
	if offset, err := h.check(r.place); err != nil {
		rep.set(Corrupt, offset, err)
		return true, nil
	}
	rep.ID, rep.previous, rep.end = h.id, h.previous, n
	return r.size == n && r.place.newest, nil
}

// isHeaderPart reports whether b can be the header of the segment, written in part, with zeros behind. Its ids are random.
func (r *reader) isHeaderPart(b []byte) bool {
	if len(b) == segmentHeaderSize {
		if _, _, err := parseSegmentHeader(b); err == nil {
			return false
		}
	}
	part := bytes.TrimRight(b, "\x00")
	known := segmentHeader{identity: r.place.identity, number: r.place.number}.append(nil)[:headerPreviousAt]
	if len(part) <= len(known) {
		return bytes.HasPrefix(known, part)
	}
	return bytes.HasPrefix(part, known) && len(part) < segmentHeaderSize
}

// verifyBehind decides what damage at rep.end is, by what is readable behind it.
//
// Every byte offset is tried as the start of a frame. That costs a few comparisons a byte: only a byte that is a kind,
// with a length in bounds, has its head sum computed (over 13 bytes), and only if that fits is a payload summed. A head
// fits by chance once in 2^32 offsets, so payloads that are summed in vain are those of frames that were written here and
// damaged, which do not overlap: the whole search is O(size). Should somebody have crafted heads that fit, the search
// gives up once it has summed a file's worth in vain, and the segment counts as corrupt.
func (r *reader) verifyBehind(rep *SegmentReport, reason error, behind recordFunc) error {
	at := rep.end
	next, vouched, err := r.search(rep, at+1, behind)
	switch {
	case err == errCrafted:
		rep.set(Corrupt, at, fmt.Errorf("%w, %w", reason, err))
		return nil
	case err != nil:
		return err
	case !r.place.newest:
		rep.set(Corrupt, at, reason)
		return nil
	case vouched > at:
		rep.set(Corrupt, at, fmt.Errorf("%w, in front of offset %d up to which the segment was synced", reason, vouched))
		return nil
	case next >= 0:
		explained, err := r.lost(at, next)
		if err != nil {
			return err
		}
		if !explained {
			rep.set(Corrupt, at, fmt.Errorf("%w, in front of a readable frame at offset %d, and no sector is missing", reason, next))
			return nil
		}
	}
	rep.set(Torn, at, reason)
	return nil
}

// search passes every readable record from an offset on to behind, unless that is nil. next is where the first readable frame
// begins, -1 if there is none, and vouched how far the segment is known to be synced. The error can be errCrafted.
func (r *reader) search(rep *SegmentReport, offset int64, behind recordFunc) (next, vouched int64, err error) {
	next = -1
	r.wasted = 0
	for offset < r.size {
		b, err := r.window(offset, 1)
		if err != nil {
			return next, vouched, err
		}
		skip := 0
		for skip < len(b) && !isKind(b[skip]) {
			skip++
		}
		if offset += int64(skip); skip == len(b) {
			continue
		}
		fr, err := r.frame(offset)
		if err != nil {
			var d damage
			if !errors.As(err, &d) {
				return next, vouched, err
			}
			if r.wasted > r.size {
				return next, vouched, errCrafted
			}
			offset++
			continue
		}
		if next < 0 {
			next = offset
		}
		switch fr.kind {
		case kindSynced, kindEnd:
			vouched = max(vouched, int64(binary.LittleEndian.Uint64(fr.body)))
		case kindNext:
			vouched = max(vouched, offset) // it is written when all of the segment has been synced
		default:
			rep.Behind++
			if behind != nil {
				if err := behind(rep.Segment, offset, r.payload(fr)); err != nil {
					return next, vouched, err
				}
			}
		}
		offset = fr.end
	}
	return next, vouched, nil
}

// lost reports whether the frame at offset is unreadable because sectors of it never reached the device; (a) and (b) are
// those of the package comment. next is the first readable frame behind it.
func (r *reader) lost(offset, next int64) (bool, error) {
	sector := (offset/sectorSize + 1) * sectorSize
	if zeros, err := r.zeros(offset, min(sector, next)); zeros || err != nil {
		return zeros && sector <= next, err // (a)
	}
	end := offset + int64(frameHeaderSize)
	_, length, _, err := r.head(offset)
	if err == nil {
		end += length
	}
	for end = min(end, next); sector < end; sector += sectorSize {
		if sector+sectorSize > next {
			break
		}
		if zeros, err := r.zeros(sector, sector+sectorSize); zeros || err != nil {
			return zeros, err // (b)
		}
	}
	return false, nil
}

func isKind(b byte) bool {
	return b == kindRecord || b == kindMasked || b == kindSynced || b == kindEnd || b == kindNext
}
