package kvserver

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal/entry"
)

// space keeps MinFree bytes of the disk free, and enough for a start at any rate. Asking the file system before every write
// would cost a system call, and asking it now and then would let a fast writer through; so it is asked how much is free, and
// everything that consumes space counts from then on:
//
//	what                            when it counts
//	a record of the log             before it is appended
//	value files, tables, the rest   as they are written
//	a checkpoint                    before each of its writes; it is given up rather than go below
//
// What gives space back may go below MinFree, each to its own floor: see purpose. Free is what the fullest of the file systems
// has that the data directory is on: wal, values or any other part of it may be a link to another one.
//
// When the count has used up what was free above MinFree, or lookEvery bytes, the file system is asked again, for others may
// use the disk, and writes are refused if too little is left. So after every write MinFree bytes are left, but for what the log writes ahead (policy always, 1 MiB), what the file
// mode still has in its buffers (2 MiB), and what the lsm mode has yet to write of its memtables and makes of its tables.
type space struct {
	fs       vfs.FS
	dir      string
	parts    []string      // directories below dir that are written to, and may be on file systems of their own
	fileMost func() int64  // longest file that the process may write
	fileNeed int64         // longest file that it does write
	least    *atomic.Int64 // MinFree
	flush    func() error  // lets the log write what it holds back
	logf     func(format string, args ...any)
	measured bool // the file system says what is free

	used   atomic.Int64 // bytes counted since the start
	limit  atomic.Int64 // what used may come to; unlimited, or below 0 for no write at all
	short  atomic.Bool  // when it was looked last, writes were refused, or about to be
	flying atomic.Int64 // bytes that count and may not have been handed to the log, or written, yet

	mu      sync.Mutex
	reserve bool      // the file is there
	fillErr error     // why it could not be made
	fillAt  time.Time // when that is tried again
	why     error     // writes are refused; nil = they are not
}

const (
	unlimited = math.MaxInt64
	lookEvery = 256 << 10 // bytes
	shortOf   = 1 << 20   // bytes above MinFree at which space is short
	// recordOverhead is what a record takes in the log besides its payload, with its share of marks.
	recordOverhead = 64

	// RESERVE is what a start on a full disk gives up to have room for its own files: a segment of the log, a manifest,
	// and so on. While it is missing no write is taken.
	reserveName  = "RESERVE"
	reserveBytes = 1 << 20
)

// newSpace returns the space of a data directory, and the file system to be used in it. It takes nothing.
func newSpace(o *Options, least *atomic.Int64) (*space, vfs.FS) {
	sp := &space{fs: o.FS, dir: o.Dir, least: least, logf: o.Logf, flush: func() error { return nil }}
	for _, name := range []string{walName, checkpointName, "values", "lsm"} {
		sp.parts = append(sp.parts, o.FS.PathJoin(o.Dir, name))
	}
	sp.fileMost, sp.fileNeed = fileSizeLimit, max(o.SegmentBytes, reserveBytes)
	if o.SegmentBytes == 0 {
		sp.fileNeed = 256 << 20
	}
	sp.limit.Store(unlimited)
	_, _, err := sp.free()
	sp.measured = err == nil
	return sp, &countingFS{o.FS, &sp.used}
}

// purpose says what a write is for, and so how much it has to leave.
type purpose uint8

const (
	growing       purpose = iota // leaves MinFree
	deleting                     // makes the next checkpoint shorter; leaves half of it
	checkpointing                // lets the log go; leaves a quarter of it
)

// deletingFloor is what is left where there is no MinFree to take a part of.
const deletingFloor = 256 << 10

func (sp *space) floor(p purpose) int64 {
	least := sp.least.Load()
	if !sp.reserve {
		least = max(least, 4*deletingFloor)
	}
	switch p {
	case deleting:
		return least / 2
	case checkpointing:
		return least / 4
	}
	return least
}

// free returns how many bytes there are, for a user who is not root, on the file system that has the fewest, and a directory
// on it.
func (sp *space) free() (n int64, dir string, err error) {
	u, err := sp.fs.GetDiskUsage(sp.dir)
	if err != nil {
		return 0, sp.dir, err
	}
	n, dir = available(u), sp.dir
	for _, part := range sp.parts {
		// The file system of the directory itself is seen again here, perhaps a moment later.
		v, err := sp.fs.GetDiskUsage(part)
		if err == nil && (v.TotalBytes != u.TotalBytes || available(v) < available(u)-lookEvery) && available(v) < n {
			n, dir = available(v), part
		}
	}
	return n, dir, nil
}

func available(u vfs.DiskUsage) int64 { return int64(min(u.AvailBytes, math.MaxInt64)) }

// limited returns why the process cannot write the files that it needs, whatever is free.
func (sp *space) limited() error {
	if most := sp.fileMost(); most < sp.fileNeed {
		return fmt.Errorf("the process may write files of at most %d bytes (ulimit -f), and one of the log gets %d (--segment-bytes); writes are refused until it may write more", most, sp.fileNeed)
	}
	return nil
}

// makeRoom lets a start have the reserve, if it needs it.
func (sp *space) makeRoom() error {
	info, err := sp.fs.Stat(sp.fs.PathJoin(sp.dir, reserveName))
	sp.reserve = err == nil && info.Size() == reserveBytes
	if free, _, ferr := sp.free(); err != nil || ferr != nil || free >= reserveBytes {
		return nil
	}
	return sp.giveUpReserve()
}

// giveUpReserve removes the reserve, which is there.
func (sp *space) giveUpReserve() error {
	sp.reserve = false
	if err := sp.fs.Remove(sp.fs.PathJoin(sp.dir, reserveName)); err != nil {
		return fmt.Errorf("kvserver: give up the reserve on a full disk: %w", err)
	}
	return syncDir(sp.fs, sp.dir)
}

// take counts a record that is about to be appended to the log, or refuses it. Whoever took it calls landed when it has been
// appended, or has not.
func (sp *space) take(payload []byte) (n int64, err error) {
	if sp == nil || sp.limit.Load() == unlimited {
		return 0, nil
	}
	n = int64(len(payload)) + recordOverhead
	if err := sp.hold(n, func() purpose { return purposeOf(payload) }); err != nil {
		return 0, err
	}
	return n, nil
}

// purposeOf returns what a record is for.
func purposeOf(payload []byte) purpose {
	p := deleting
	_ = entry.Decode(payload, func(e entry.Entry) error {
		if e.Op != entry.Delete && e.Op != entry.Clear {
			p = growing
		}
		return nil
	})
	return p
}

func (sp *space) landed(n int64) { sp.flying.Add(-n) }

// write lets a checkpoint have n bytes, which count by themselves once they are written, or refuses them.
func (sp *space) write(n int, write func() (int, error)) (int, error) {
	if sp == nil || sp.limit.Load() == unlimited {
		return write()
	}
	held := int64(n)
	if err := sp.hold(held, func() purpose { return checkpointing }); err != nil {
		return 0, err
	}
	defer func() {
		sp.used.Add(-held)
		sp.flying.Add(-held)
	}()
	return write()
}

// hold counts n bytes that are on their way, or refuses them. What they are for is asked when there are too few for all.
func (sp *space) hold(n int64, what func() purpose) error {
	sp.flying.Add(n)
	if sp.used.Add(n) <= sp.limit.Load() {
		return nil
	}
	err := sp.look(n, false)
	if err == nil || sp.fits(n, n, what()) {
		return nil
	}
	sp.used.Add(-n)
	sp.flying.Add(-n)
	return err
}

// fits reports whether there is room for n bytes that give some back, of which counted are on their way already.
func (sp *space) fits(n, counted int64, p purpose) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if p == growing || sp.limited() != nil {
		return false
	}
	free, _, err := sp.free()
	return err == nil && free-(sp.flying.Load()-counted)-n >= sp.floor(p)
}

// checkpoint returns why there is no room for a checkpoint of some n bytes, or nil.
func (sp *space) checkpoint(n int64) error {
	if sp == nil || sp.limit.Load() == unlimited || sp.fits(n, 0, checkpointing) {
		return nil
	}
	if err := sp.full(); err != nil {
		return err
	}
	free, dir, _ := sp.free()
	return fmt.Errorf("some %d bytes do not fit: %d bytes are free in %s, and --min-free keeps %d", n, free, dir, sp.least.Load())
}

// full returns why writes were refused when last looked, or nil, without asking anybody.
func (sp *space) full() error {
	if sp == nil || sp.used.Load() <= sp.limit.Load() {
		return nil
	}
	return sp.refused()
}

// look asks the file system what is free, and returns why what has been counted does not fit, n bytes of it being the caller's and
// not written yet. Unless it must, it does not do so right after somebody else.
func (sp *space) look(n int64, must bool) error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if !must && sp.used.Load() <= sp.limit.Load() {
		return nil
	}
	if err := sp.limited(); err != nil {
		sp.limit.Store(math.MinInt64)
		return sp.refuse(err)
	}
	least := sp.least.Load()
	if !sp.measured || least == 0 && sp.reserve && sp.why == nil {
		sp.short.Store(false)
		sp.limit.Store(unlimited)
		return nil
	}
	// What counts by now is either on its way, or seen by the file system: hence this order.
	used := sp.used.Load()
	flying := sp.flying.Load() - n
	_ = sp.flush() // its error is the log's, and final
	free, dir, err := sp.free()
	if err != nil {
		return nil // the write itself will tell
	}
	if !sp.reserve && time.Now().After(sp.fillAt) && free >= max(least, reserveBytes)+reserveBytes && sp.fill() {
		free -= reserveBytes
	}
	limit := int64(unlimited)
	switch {
	case !sp.reserve:
		sp.limit.Store(math.MinInt64)
		if sp.fillErr != nil {
			return sp.refuse(fmt.Errorf("the reserve of %d bytes cannot be made: %w; writes are refused until it can", reserveBytes, sp.fillErr))
		}
		return sp.refuse(fmt.Errorf("the disk is full: %d bytes are free in %s, and writes need %d", free, dir, max(least, reserveBytes)+reserveBytes))
	case least > 0:
		// used holds the caller's n, which free does not.
		limit = used - n + free - least - flying
	}
	sp.short.Store(limit-sp.used.Load() < shortOf)
	if sp.used.Load() > limit {
		sp.limit.Store(limit)
		return sp.refuse(fmt.Errorf("%d bytes are free in %s, and --min-free keeps %d; writes are refused until there are more", free, dir, least))
	}
	if least > 0 {
		limit = min(limit, used+lookEvery)
	}
	sp.limit.Store(limit)
	if sp.why != nil {
		sp.why = nil
		sp.logf("kvserver: %d bytes are free in %s; writes are taken again", free, dir)
	}
	return nil
}

// refuse notes the first of many. REQUIRES: mu held.
func (sp *space) refuse(why error) error {
	if sp.why == nil {
		sp.logf("kvserver: %v", why)
	}
	sp.why = why
	sp.short.Store(true)
	return why
}

// poll looks anew, for somebody else may use the disk as well, or the setting has changed.
func (sp *space) poll() error { return sp.look(0, true) }

// refused returns why writes are refused at the moment; nil = they are not.
func (sp *space) refused() error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.why
}

// fill makes the reserve and reports whether it is there. Its bytes are such that no file system can store them in fewer.
func (sp *space) fill() bool {
	path := sp.fs.PathJoin(sp.dir, reserveName)
	bytes := make([]byte, reserveBytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(bytes) // never fails
	f, err := sp.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(bytes)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = syncDir(sp.fs, sp.dir)
	}
	if err != nil {
		_ = sp.fs.Remove(path) // it is of no use, and is made again
		sp.fillAt = time.Now().Add(time.Second)
	}
	sp.reserve, sp.fillErr = err == nil, limitNamed(err, sp.dir)
	return sp.reserve
}

// countingFS counts what is written to files, but for the log's, whose records count before they are written.
type countingFS struct {
	vfs.FS
	used *atomic.Int64
}

// Unwrap implements vfs.FS.
func (c *countingFS) Unwrap() vfs.FS { return c.FS }

// Create implements vfs.FS.
func (c *countingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := c.FS.Create(name, category)
	return c.counted(name, f, err)
}

// OpenReadWrite implements vfs.FS.
func (c *countingFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.FS.OpenReadWrite(name, category, opts...)
	return c.counted(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (c *countingFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := c.FS.ReuseForWrite(oldname, newname, category)
	return c.counted(newname, f, err)
}

func (c *countingFS) counted(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || strings.HasSuffix(name, ".wal") {
		return f, err
	}
	return &countingFile{f, c.used}, nil
}

type countingFile struct {
	vfs.File
	used *atomic.Int64
}

// Write implements vfs.File.
func (f *countingFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.used.Add(int64(n))
	return n, err
}

// WriteAt implements vfs.File.
func (f *countingFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	f.used.Add(int64(n))
	return n, err
}

// noSpace reports whether an error is that of a full disk or of a quota that is used up.
func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// fullDisk adds to the error of a start that met a full disk how much has to be freed, and where.
func fullDisk(err error, o *Options) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return limitNamed(err, o.Dir)
	}
	need := int64(reserveBytes)
	if total, lerr := logBytes(o.FS, o.FS.PathJoin(o.Dir, walName), 0); lerr == nil && (o.Mode == storage.File || o.Mode == storage.LSM) {
		need += total // these write the values of the log to files of their own
	}
	sp, _ := newSpace(o, new(atomic.Int64))
	free, dir, uerr := sp.free()
	if uerr == nil {
		need -= min(need-1, free)
	}
	return fmt.Errorf("%w; the disk is full, and a start needs some of it: free %d bytes on the file system of %s and try again", err, need, dir)
}

// limitNamed adds to an error which limit it met, if it met one that is not the disk's.
func limitNamed(err error, dir string) error {
	switch {
	case errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w: the process may write files of at most %d bytes (ulimit -f)", err, fileSizeLimit())
	case errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: the quota of this user, or of the project, on the file system of %s is used up", err, dir)
	}
	return err
}
