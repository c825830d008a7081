package kvserver

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// A checkpoint is a state of the store from which a start replays only the log's newer segments. The file is named
// checkpoint/NNNNNNNNNN after the first segment to replay over it, in ten digits, and is made beside the load:
//
//	rotate the log              -> segment N: everything before is synced
//	lock each stripe once          what is logged before N is in the store, too
//	write NNNNNNNNNN.tmp           what the store emits, then the keys' ends
//	sync the log                   the state may include records of N that were not synced yet
//	sync and rename the file, sync the directory
//	let go of what only older checkpoints need: the store's files, older checkpoints, the log before N
//
// Operations that run meanwhile are in the state or not; replaying N makes them so, since all of them are absolute.
// A start takes the newest checkpoint there is. All integers are little-endian, checksums CRC-32C:
//
//	+------------+-------+-------+-----+-----------+
//	| header, 60 | frame | frame | ... | end frame |
//	+------------+-------+-------+-----+-----------+
//
//	header +----------------+---------------+------------+----------------+-----------+--------------+
//	       | "kvmckpt2" (8) | identity (16) | number (8) | segment id (8) | mode (16) | checksum (4) |
//	       +----------------+---------------+------------+----------------+-----------+--------------+
//	         identity: the data directory's; segment id: of segment N, see package wal; mode: its name, then zeros;
//	         checksum: of the bytes before it
//
//	frame  +--------------+-----------+------------+------------------+
//	       | checksum (4) | kind (1)  | length (4) | payload          |
//	       +--------------+-----------+------------+------------------+
//	         of identity (16), number (8), the frame's offset in the file (8), kind, length, payload
//
//	kind 1: a record of the store    kind 2: entries of the log's format, for the keys' ends
//	kind 3: the end; payload: number of frames before it (8)
//
// These are part of the disk format and must not change.
const (
	checkpointMagic = "kvmckpt2"
	frameStore      = 1
	frameEnds       = 2
	frameEnd        = 3
	frameHeader     = 4 + 1 + 4

	checkpointHeaderSize = len(checkpointMagic) + len(identity{}) + 8 + 8 + modeSize + 4
	modeSize             = 16
)

// checkpointHeader is what a checkpoint says of itself.
type checkpointHeader struct {
	identity identity
	number   uint64 // the first segment to replay
	segment  uint64 // the id of that
	mode     storage.Mode
}

func (h checkpointHeader) append(dst []byte) []byte {
	start := len(dst)
	dst = append(append(dst, checkpointMagic...), h.identity[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, h.number)
	dst = binary.LittleEndian.AppendUint64(dst, h.segment)
	var mode [modeSize]byte
	copy(mode[:], h.mode)
	dst = append(dst, mode[:]...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli()))
}

// seed is where the checksum of every frame begins.
func (h checkpointHeader) seed() uint32 {
	return crc32.Checksum(binary.LittleEndian.AppendUint64(h.identity[:], h.number), castagnoli())
}

// parseCheckpointHeader says what is wrong with the header that b begins with.
func parseCheckpointHeader(b []byte) (h checkpointHeader, err error) {
	n := len(checkpointMagic)
	if len(b) < checkpointHeaderSize {
		return h, errors.New("the file ends inside the checkpoint's header")
	}
	if string(b[:n]) != checkpointMagic {
		return h, fmt.Errorf("checkpoint begins with %q, not %q", b[:n], checkpointMagic)
	}
	at := checkpointHeaderSize - 4
	if got, want := crc32.Checksum(b[:at], castagnoli()), binary.LittleEndian.Uint32(b[at:]); got != want {
		return h, fmt.Errorf("checkpoint header: checksum is %08x, want %08x", want, got)
	}
	n += copy(h.identity[:], b[n:])
	h.number, h.segment = binary.LittleEndian.Uint64(b[n:]), binary.LittleEndian.Uint64(b[n+8:])
	h.mode = storage.Mode(bytes.TrimRight(b[n+16:at], "\x00"))
	return h, nil
}

// check says why a good header is not that of the checkpoint that should be there.
func (h checkpointHeader) check(p *place, number uint64) error {
	switch {
	case h.identity != p.identity:
		return fmt.Errorf("the checkpoint belongs to another data directory (its header says %s, this one is %s): move it away and put the right file here", h.identity, p.identity)
	case h.number != number:
		return fmt.Errorf("its header says that it is checkpoint %s: was it renamed or copied? Put the right file here", checkpointFile(h.number))
	case p.mode != "" && h.mode != p.mode:
		return fmt.Errorf("it was made by mode %s, and the directory is one of mode %s", h.mode, p.mode)
	}
	return nil
}

// Checkpoints of version 1 have a header of oldCheckpointMagic alone, and the checksums of their frames begin with 0. All else is as
// in version 2.
const oldCheckpointMagic = "kvmckpt1"

func (p *place) checkpointHeaderSize() int64 {
	if p.old {
		return int64(len(oldCheckpointMagic))
	}
	return int64(checkpointHeaderSize)
}

// parseCheckpointHeader says what is wrong with the header of that checkpoint. seed is where the checksum of every frame begins.
func (p *place) parseCheckpointHeader(b []byte, number uint64) (h checkpointHeader, seed uint32, err error) {
	if p.old {
		if string(b) != oldCheckpointMagic {
			err = fmt.Errorf("checkpoint begins with %q, not %q", b, oldCheckpointMagic)
		}
		return h, 0, err
	}
	if h, err = parseCheckpointHeader(b); err == nil {
		err = h.check(p, number)
	}
	return h, h.seed(), err
}

// readCheckpointHeader returns the header of a checkpoint; the zero one if it has none that can be read.
func readCheckpointHeader(fs vfs.FS, path string) (h checkpointHeader, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return h, fmt.Errorf("kvserver: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(checkpointHeaderSize)))
	if err = errors.Join(err, f.Close()); err != nil {
		return h, fmt.Errorf("kvserver: read %s: %w", path, err)
	}
	if parsed, err := parseCheckpointHeader(b); err == nil {
		h = parsed
	}
	return h, nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // made once by the library

func frameSum(seed uint32, offset int64, header, payload []byte) uint32 {
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(offset))
	sum := crc32.Update(seed, castagnoli(), at[:])
	sum = crc32.Update(sum, castagnoli(), header[4:])
	return crc32.Update(sum, castagnoli(), payload)
}

// checkpointWriter writes a checkpoint.
type checkpointWriter struct {
	w      *bufio.Writer
	seed   uint32
	offset int64
	frames uint64
}

func newCheckpointWriter(w io.Writer, h checkpointHeader) (*checkpointWriter, error) {
	c := &checkpointWriter{w: bufio.NewWriterSize(w, 1<<20), seed: h.seed()}
	n, err := c.w.Write(h.append(nil))
	c.offset = int64(n)
	return c, err
}

func (c *checkpointWriter) frame(kind byte, payload []byte) error {
	if len(payload) > 1<<31-1 {
		return fmt.Errorf("kvserver: checkpoint record of %d bytes", len(payload))
	}
	var header [frameHeader]byte
	header[4] = kind
	binary.LittleEndian.PutUint32(header[5:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(header[:], frameSum(c.seed, c.offset, header[:], payload))
	if _, err := c.w.Write(header[:]); err != nil {
		return err
	}
	if _, err := c.w.Write(payload); err != nil {
		return err
	}
	c.offset += frameHeader + int64(len(payload))
	c.frames++
	return nil
}

// sequential writes one piece behind the other. A vfs.File's Write may change the bytes that it is given, which here can
// be the store's own; WriteAt may not.
type sequential struct {
	file   vfs.File
	offset int64
	space  *space // nil = write as much as there is
}

func (s *sequential) Write(b []byte) (int, error) {
	n, err := s.space.write(len(b), func() (int, error) { return s.file.WriteAt(b, s.offset) })
	s.offset += int64(n)
	return n, err
}

// readCheckpoint calls fn for the frames of a checkpoint, in order, and returns their number. The payload is valid during
// the call. Damage is a [wal.CorruptionError].
func (p *place) readCheckpoint(path string, number uint64, fn func(kind byte, payload []byte) error) (h checkpointHeader, frames, size int64, err error) {
	f, err := p.fs.Open(path)
	if err != nil {
		return h, 0, 0, fmt.Errorf("kvserver: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return h, 0, 0, fmt.Errorf("kvserver: %w", err)
	}
	size = info.Size()
	r := bufio.NewReaderSize(f, 1<<20)
	offset := int64(0)
	damaged := func(format string, args ...any) (checkpointHeader, int64, int64, error) {
		return h, frames, size, &wal.CorruptionError{Path: path, Offset: offset, Err: fmt.Errorf(format, args...)}
	}
	head := make([]byte, min(size, p.checkpointHeaderSize()))
	if _, err := io.ReadFull(r, head); err != nil {
		return damaged("%w", err)
	}
	var seed uint32
	if h, seed, err = p.parseCheckpointHeader(head, number); err != nil {
		return damaged("%w", err)
	}
	offset = int64(len(head))
	var payload []byte
	for {
		var header [frameHeader]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return damaged("checkpoint has no end: %w", err)
		}
		length := int64(binary.LittleEndian.Uint32(header[5:]))
		if length > size-offset-frameHeader {
			return damaged("frame of %d bytes, %d are left in the file", length, size-offset-frameHeader)
		}
		payload = slices.Grow(payload[:0], int(length))[:length]
		if _, err := io.ReadFull(r, payload); err != nil {
			return damaged("%w", err)
		}
		if got, want := frameSum(seed, offset, header[:], payload), binary.LittleEndian.Uint32(header[:]); got != want {
			return damaged("checksum is %#08x, not %#08x", got, want)
		}
		if header[4] == frameEnd {
			if length != 8 || binary.LittleEndian.Uint64(payload) != uint64(frames) {
				return damaged("the end counts %x frames, %d were read", payload, frames)
			}
			if offset+frameHeader+length != size {
				return damaged("%d bytes behind the end", size-offset-frameHeader-length)
			}
			return h, frames, size, nil
		}
		if err := fn(header[4], payload); err != nil {
			return h, frames, size, fmt.Errorf("kvserver: %s: frame at offset %d: %w", path, offset, err)
		}
		offset += frameHeader + length
		frames++
	}
}

// listCheckpoints returns the numbers of the checkpoints in ascending order, and the names of files that are incomplete.
func listCheckpoints(fs vfs.FS, dir string) (numbers []uint64, incomplete []string, err error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("kvserver: %w", err)
	}
	for _, name := range names {
		if base, is := strings.CutSuffix(name, tmpSuffix); is {
			if _, ours := checkpointNumber(base); ours {
				incomplete = append(incomplete, name)
			}
		} else if n, ours := checkpointNumber(name); ours {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, incomplete, nil
}

// checkpointNumber returns the number in the name of a checkpoint; files of other names are none.
func checkpointNumber(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 64)
	return n, err == nil && n > 0 && name == checkpointFile(n)
}

func checkpointFile(segment uint64) string { return fmt.Sprintf("%010d", segment) }

// checkpointStats is what INFO says of checkpoints.
type checkpointStats struct {
	count, nanos, bytes atomic.Int64  // since the start; bytes of the last one
	last                atomic.Int64  // Unix time of the last one
	lastNanos           atomic.Int64  // that it took
	began               atomic.Int64  // Unix nanoseconds at which the newest one began
	records             atomic.Uint64 // of the log when it began
	running             atomic.Bool
	err                 atomic.Pointer[error] // of the last try; nil = it succeeded
	wanted              chan struct{}         // BGSAVE
	segment             atomic.Uint64         // the first to replay over the one that is being made

	mu sync.Mutex // held while one is made
}

// checkpointWhenDue is the goroutine that makes checkpoints: when a client wants one, and whenever the log is longer than
// asked for, and than twice the data, so that neither the disk nor the time of a start grows with the number of writes.
func (srv *Server) checkpointWhenDue() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var notBefore, noteNext time.Time
	for {
		select {
		case <-srv.quit:
			return
		case <-srv.checkpoints.wanted:
		case <-ticker.C:
			srv.serveBackup()
			if time.Now().Before(notBefore) || !srv.checkpointDue() {
				continue
			}
		}
		if err := srv.Checkpoint(); err != nil && !errors.Is(err, ErrServerClosed) {
			now := time.Now()
			notBefore = now.Add(nextTry(err))
			if now.After(noteNext) {
				noteNext = now.Add(time.Minute)
				srv.opts.Logf("kvserver: checkpoint: %v; the log is kept, and a checkpoint is tried again", err)
			}
		}
	}
}

// errNoRoom says that a checkpoint was not begun, for it would not fit.
var errNoRoom = errors.New("a checkpoint needs room before it makes some")

// nextTry returns how long to wait after a checkpoint that failed. One that has no room costs nothing to try, and the next
// delete may be what makes it fit, while all writes wait for it.
func nextTry(err error) time.Duration {
	if errors.Is(err, errNoRoom) {
		return time.Second
	}
	return time.Minute
}

func (srv *Server) checkpointDue() bool {
	size, asked := srv.db.log.Stats().DiskBytes, srv.settings.checkpointBytes.Load()
	needed := srv.space.short.Load() && size >= leastGain
	if asked == 0 || size < asked && !needed || srv.db.failed.Load() != nil {
		return false
	}
	st := srv.db.store.Stats()
	return size >= 2*(st.KeyBytes+st.ValueBytes)
}

// leastGain is the size of a log that is worth a checkpoint for the space alone.
const leastGain = 1 << 20

// checkpointSize estimates how many bytes a checkpoint takes while the log is still there.
func (srv *Server) checkpointSize() int64 {
	const frame = 32 // of a key and its place or value
	st := srv.db.store.Stats()
	ends, _ := srv.db.timed()
	size := frame * (st.Keys + ends)
	switch srv.opts.Mode {
	case storage.File: // the index
		return size + st.KeyBytes
	case storage.LSM: // what is not in tables yet, at most all that is in the log
		return size + min(st.KeyBytes+st.ValueBytes, srv.db.log.Stats().DiskBytes)
	case storage.Serialize:
		return size + st.StoredBytes
	}
	return size + st.KeyBytes + st.ValueBytes
}

// Checkpoint makes a checkpoint beside the load and lets the older part of the log go. An error takes nothing away: the log
// and the checkpoint before it are still there.
func (srv *Server) Checkpoint() error {
	srv.checkpoints.mu.Lock()
	defer srv.checkpoints.mu.Unlock()
	srv.checkpoints.running.Store(true)
	defer srv.checkpoints.running.Store(false)
	srv.checkpoints.began.Store(time.Now().UnixNano())
	err := srv.checkLock()
	if err == nil {
		err = srv.checkpoint()
	}
	if err == nil {
		srv.checkpoints.err.Store(nil)
	} else {
		srv.checkpoints.err.Store(&err)
	}
	return err
}

func (srv *Server) checkpoint() (err error) {
	if err := srv.space.checkpoint(srv.checkpointSize()); err != nil {
		return fmt.Errorf("kvserver: %w: %w", errNoRoom, err)
	}
	start := time.Now()
	fs, dir := srv.opts.FS, srv.opts.FS.PathJoin(srv.opts.Dir, checkpointName)
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	if err := syncDir(fs, srv.opts.Dir); err != nil {
		return err
	}
	segment, err := srv.db.log.Rotate()
	if err != nil {
		return err
	}
	records := srv.db.log.Stats().Records
	srv.db.settle()
	path := fs.PathJoin(dir, checkpointFile(segment))
	srv.checkpoints.segment.Store(segment)
	head := checkpointHeader{srv.place.identity, segment, srv.db.log.SegmentID(segment), srv.place.mode}
	committed, size, err := srv.writeCheckpoint(path+tmpSuffix, head)
	if err == nil { // it is read before anything that it replaces goes
		_, _, _, err = srv.place.readCheckpoint(path+tmpSuffix, segment, func(byte, []byte) error { return nil })
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(fs.Remove(path+tmpSuffix)))
	}
	if err := fs.Rename(path+tmpSuffix, path); err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	if err := syncDir(fs, dir); err != nil {
		return err
	}
	if err := committed(); err != nil {
		return err
	}
	numbers, _, err := listCheckpoints(fs, dir)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if n < segment {
			if err := fs.Remove(fs.PathJoin(dir, checkpointFile(n))); err != nil {
				return fmt.Errorf("kvserver: %w", err)
			}
		}
	}
	if err := srv.db.log.RemoveBefore(segment); err != nil {
		return err
	}
	srv.checkpoints.count.Add(1)
	srv.checkpoints.nanos.Add(int64(time.Since(start)))
	srv.checkpoints.lastNanos.Store(int64(time.Since(start)))
	srv.checkpoints.records.Store(records)
	srv.checkpoints.bytes.Store(size)
	srv.checkpoints.last.Store(time.Now().Unix())
	_ = srv.space.poll() // what has become free is there for writes at once
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// writeCheckpoint writes and syncs the state.
func (srv *Server) writeCheckpoint(path string, head checkpointHeader) (committed func() error, size int64, err error) {
	f, err := srv.opts.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, 0, fmt.Errorf("kvserver: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := newCheckpointWriter(&sequential{file: f, space: srv.space}, head)
	if err != nil {
		return nil, 0, fmt.Errorf("kvserver: %w", err)
	}
	committed, err = srv.db.store.Checkpoint(func(rec []byte) error {
		select {
		case <-srv.quit:
			return ErrServerClosed
		default:
			return w.frame(frameStore, rec)
		}
	})
	if err != nil {
		return nil, 0, err
	}
	if err := srv.db.eachEnds(func(payload []byte) error { return w.frame(frameEnds, payload) }); err != nil {
		return nil, 0, fmt.Errorf("kvserver: %w", err)
	}
	if err := w.frame(frameEnd, binary.LittleEndian.AppendUint64(nil, w.frames)); err != nil {
		return nil, 0, fmt.Errorf("kvserver: %w", err)
	}
	if err := srv.db.log.Sync(); err != nil {
		return nil, 0, err
	}
	if err := errors.Join(w.w.Flush(), f.Sync()); err != nil {
		return nil, 0, fmt.Errorf("kvserver: %w", err)
	}
	return committed, w.offset, nil
}

// eachEnds emits the keys' ends as groups of entries, a stripe at a time.
func (d *db) eachEnds(emit func(payload []byte) error) error {
	var payload []byte
	for i := range d.stripes {
		st := &d.stripes[i]
		payload = payload[:0]
		st.ttlMu.RLock()
		for key, at := range st.ttl {
			payload = entry.Append(payload, entry.Entry{Op: entry.Expire, Key: []byte(key), ExpireAt: at})
		}
		st.ttlMu.RUnlock()
		if len(payload) == 0 {
			continue
		}
		if err := emit(payload); err != nil {
			return err
		}
	}
	return nil
}
