package kvserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
)

// smallDisk is a file system of a given size.
type smallDisk struct {
	vfs.FS
	size   atomic.Int64
	mu     sync.Mutex // a write that is checked is made before the next one is
	lowest int64      // free bytes there have been after a write
	quota  bool       // the size is that of a quota, which the file system does not show
}

func newSmallDisk(size int64) *smallDisk {
	d := &smallDisk{FS: vfs.NewMem()}
	d.size.Store(size)
	d.lowest = size
	return d
}

// used returns the bytes of all files below a directory.
func (d *smallDisk) used(dir string) (n int64) {
	names, err := d.FS.List(dir)
	if err != nil {
		return 0
	}
	for _, name := range names {
		path := d.PathJoin(dir, name)
		if info, err := d.FS.Stat(path); err != nil {
			continue // it has just gone
		} else if info.IsDir() {
			n += d.used(path)
		} else {
			n += info.Size()
		}
	}
	return n
}

func (d *smallDisk) free() int64 { return d.size.Load() - d.used("/data") }

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if d.quota {
		return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40}, nil
	}
	return vfs.DiskUsage{AvailBytes: uint64(max(0, d.free())), TotalBytes: uint64(d.size.Load())}, nil
}

func (d *smallDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	return &fileOnSmallDisk{f, d}, err
}

func (d *smallDisk) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, category, opts...)
	return &fileOnSmallDisk{f, d}, err
}

type fileOnSmallDisk struct {
	vfs.File
	disk *smallDisk
}

func (f *fileOnSmallDisk) Write(p []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if int64(len(p)) > f.disk.free() {
		return 0, f.disk.full()
	}
	defer f.disk.note()
	return f.File.Write(p)
}

func (f *fileOnSmallDisk) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	info, err := f.Stat()
	if err == nil && off+int64(len(p))-info.Size() > f.disk.free() {
		err = f.disk.full()
	}
	if err != nil {
		return 0, err
	}
	defer f.disk.note()
	return f.File.WriteAt(p, off)
}

// full is the error of a write that does not fit.
func (d *smallDisk) full() error {
	if d.quota {
		return syscall.EDQUOT
	}
	return syscall.ENOSPC
}

// note notes what is free after a write. REQUIRES: mu held.
func (d *smallDisk) note() { d.lowest = min(d.lowest, d.free()) }

func (d *smallDisk) lowestFree() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lowest
}

// However fast one writes, MinFree bytes are left after every write.
func TestEveryWriteLeavesMinFree(t *testing.T) {
	const least, size, valueBytes = 2 << 20, 7 << 20, 10_000
	for _, mode := range storage.Modes() {
		for _, policy := range []wal.Policy{wal.Buffered, wal.OS, wal.Interval, wal.Always} {
			t.Run(fmt.Sprintf("%s/%s", mode, policy), func(t *testing.T) {
				disk := newSmallDisk(size)
				srv := open(t, Options{FS: disk, Mode: mode, WALPolicy: policy, MinFree: least, SegmentBytes: 1 << 20, CheckpointBytes: -1})
				// What is written ahead, and what may still be in a buffer when the file system is asked.
				slack := int64(4 << 10)
				if policy == wal.Always {
					slack += 1 << 20
				}
				if mode == storage.File {
					slack += 2 << 20
				}
				c := speak(t, srv)
				c.want("SET first "+strings.Repeat("v", valueBytes), ok)
				var writers sync.WaitGroup
				var acked, refused atomic.Int64
				for w := range 3 {
					writers.Go(func() {
						c := speak(t, srv)
						for i := 0; i < 1000; i++ {
							got := c.do(fmt.Sprintf("SET key:%d:%d %s", w, i, strings.Repeat("v", valueBytes)))
							if got != ok {
								if !strings.HasPrefix(got, "-IOERR ") || !strings.Contains(got, "--min-free") {
									t.Errorf("got %q", got)
								}
								refused.Add(1)
								return
							}
							acked.Add(1)
						}
					})
				}
				writers.Wait()
				if refused.Load() != 3 || acked.Load() < 100 {
					t.Fatalf("%d writes are acknowledged, %d refused", acked.Load(), refused.Load())
				}
				c.want("STRLEN first", fmt.Sprintf(":%d\r\n", valueBytes)) // reads go on
				if info := c.do("INFO persistence"); !strings.Contains(info, "--min-free") || !strings.Contains(info, "wal_error:ok") {
					t.Errorf("INFO says %q", info)
				}
				if mode == storage.Memory {
					if err := srv.Checkpoint(); err == nil {
						t.Error("a checkpoint is written that does not fit")
					}
				}
				if free := disk.lowestFree(); free < least-slack {
					t.Errorf("%d bytes were free after a write, %d have to be", free, least)
				}
				disk.size.Add(8 << 20)
				c.want("SET more v", ok) // without waiting for anything
				if err := srv.Checkpoint(); err != nil {
					t.Errorf("with room, a checkpoint: %v", err)
				}
			})
		}
	}
}

// A server starts on a full disk, serves what there is, takes no write, and takes them again when there is room.
func TestAStartOnAFullDisk(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			disk := newSmallDisk(6 << 20)
			o := Options{FS: disk, Dir: "/data", Mode: mode, WALPolicy: wal.OS, SegmentBytes: 1 << 20, CheckpointBytes: -1}
			srv, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			c := speak(t, srv)
			keys := 0
			for ; ; keys++ {
				if got := c.do(fmt.Sprintf("SET key:%d %s", keys, strings.Repeat("v", 10_000))); got != ok {
					if !strings.Contains(got, "no space left on device") {
						t.Fatalf("got %q", got)
					}
					break
				}
			}
			if keys < 50 {
				t.Fatalf("only %d writes", keys)
			}
			_ = srv.Shutdown(background())
			disk.size.Store(disk.used("/data")) // others take the rest

			srv, err = Open(o)
			if mode == storage.File && err != nil {
				// A start that fails leaves nothing behind, however often it is tried and however much it could write.
				disk.size.Add(1100 << 10)
				was := disk.used("/data")
				for range 3 {
					if _, err = Open(o); err == nil || disk.used("/data") > was {
						t.Fatalf("%d bytes are used, %d were; error %v", disk.used("/data"), was, err)
					}
				}
				// Values of the log have to be written again. How much that is, is said; and it is enough.
				_, text, _ := strings.Cut(err.Error(), "free ")
				text, _, _ = strings.Cut(text, " bytes on the file system of /data")
				need, perr := strconv.ParseInt(text, 10, 64)
				if perr != nil || need < 1 {
					t.Fatalf("got %v", err)
				}
				disk.size.Add(need)
				srv, err = Open(o)
			}
			if err != nil {
				t.Fatalf("no start: %v", err)
			}
			c = speak(t, srv)
			for i := range keys {
				c.want(fmt.Sprintf("STRLEN key:%d", i), ":10000\r\n")
			}
			if mode != storage.File {
				if got := c.do("SET more v"); !strings.HasPrefix(got, "-IOERR the disk is full: ") || !strings.Contains(got, "/data") {
					t.Errorf("a write: got %q", got)
				}
				shutdown(t, srv)
				if srv, err = Open(o); err != nil { // again, now without a reserve
					t.Fatalf("no second start: %v", err)
				}
				c = speak(t, srv)
				c.want("STRLEN key:0", ":10000\r\n")
			}
			disk.size.Add(8 << 20)
			_ = srv.space.poll()
			c.want("SET more v", ok)
			if err := srv.Checkpoint(); err != nil {
				t.Error(err)
			}
			shutdown(t, srv)
			speak(t, open(t, o)).want("GET more", "$1\r\nv\r\n")
		})
	}
}

// So it does where a quota is used up, of which the file system shows nothing.
func TestAStartUnderAUsedUpQuota(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			disk := newSmallDisk(1 << 30)
			disk.quota = true
			o := Options{FS: disk, Dir: "/data", Mode: mode, WALPolicy: wal.OS, SegmentBytes: 1 << 20, CheckpointBytes: -1}
			srv := open(t, o)
			speak(t, srv).want("SET k v", ok)
			shutdown(t, srv)
			disk.size.Store(disk.used("/data") - 4096)
			for range 2 { // with a reserve, and without
				srv = open(t, o)
				c := speak(t, srv)
				c.want("GET k", "$1\r\nv\r\n")
				if got := c.do("SET k w"); !strings.HasPrefix(got, "-IOERR ") || !strings.Contains(got, "quota") {
					t.Errorf("a write: got %q", got)
				}
				shutdown(t, srv)
			}
			disk.size.Add(8 << 20)
			c := speak(t, open(t, o))
			c.want("SET k w", ok)
			c.want("GET k", "$1\r\nw\r\n")
		})
	}
}

// A directory that has never had a reserve cannot start on a full disk. The error says what it needs.
func TestAStartWithoutAReserveSaysWhatToFree(t *testing.T) {
	disk := newSmallDisk(8 << 20)
	srv := open(t, Options{FS: disk})
	speak(t, srv).want("SET k v", ok)
	shutdown(t, srv)
	if err := disk.Remove("/data/" + reserveName); err != nil {
		t.Fatal(err)
	}
	const less = 200 // than what the removal of CLEAN frees
	disk.size.Store(disk.used("/data") - less)
	_, err := Open(Options{FS: disk, Dir: "/data", Mode: storage.Memory})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), fmt.Sprintf("free %d bytes on the file system of /data", reserveBytes)) {
		t.Fatalf("got %v", err)
	}
	disk.size.Add(less + reserveBytes)
	speak(t, open(t, Options{FS: disk})).want("GET k", "$1\r\nv\r\n")
}

// What gives space back is possible when writes are not: deletes, FLUSHALL, and a checkpoint, which then comes by itself.
func TestWhatFreesSpaceIsPossibleAtMinFree(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			disk := newSmallDisk(26 << 20)
			srv := open(t, Options{FS: disk, Mode: mode, WALPolicy: wal.OS, MinFree: 4 << 20, SegmentBytes: 1 << 20, CheckpointBytes: 1 << 40})
			c := speak(t, srv)
			for i := 0; c.do(fmt.Sprintf("SET key:%d %s", i%10, strings.Repeat("v", 10_000))) == ok; i++ {
				if i > 10_000 {
					t.Fatal("writes are never refused")
				}
			}
			c.want("DEL key:1 key:2", ":2\r\n")
			c.want("GETDEL key:3", "$10000\r\n"+strings.Repeat("v", 10_000)+"\r\n")
			if got := c.do("MULTI\r\nDEL key:4\r\nSET other " + strings.Repeat("v", 10_000) + "\r\nEXEC"); !strings.Contains(got, "IOERR") {
				t.Errorf("a transaction that writes as well: %q", got)
			}
			if !srv.checkpointDue() {
				t.Error("no checkpoint is due")
			}
			if got := c.do("BGSAVE"); strings.HasPrefix(got, "-IOERR") {
				t.Errorf("BGSAVE: %q", got)
			}
			if err := srv.Checkpoint(); err != nil { // beside that of BGSAVE, or after it
				t.Fatalf("checkpoint: %v", err)
			}
			c.want("SET key:1 v", ok)
			c.want("GET key:2", "$-1\r\n")
			for i := 0; c.do(fmt.Sprintf("SET key:%d %s", i%10, strings.Repeat("v", 10_000))) == ok; i++ {
			}
			c.want("FLUSHALL", ok)
			if err := srv.Checkpoint(); err != nil {
				t.Fatalf("checkpoint: %v", err)
			}
			c.want("SET key:1 v", ok)
			if free := disk.lowestFree(); free < 1<<20-4<<10 && mode != storage.File { // which has 2 MiB in its buffers
				t.Errorf("%d bytes were free after a write", free)
			}
		})
	}
}

// A checkpoint that has no room is tried again as soon as the data have shrunk, not a minute later.
func TestACheckpointWithoutRoomIsTriedAgainSoon(t *testing.T) {
	disk := newSmallDisk(14 << 20)
	srv := open(t, Options{FS: disk, Mode: storage.Memory, WALPolicy: wal.OS, MinFree: 4 << 20, SegmentBytes: 1 << 20, CheckpointBytes: 1 << 40})
	c := speak(t, srv)
	n := 0
	for c.do(fmt.Sprintf("SET key:%d %s", n, strings.Repeat("v", 10_000))) == ok {
		n++
	}
	err := srv.Checkpoint()
	if !errors.Is(err, errNoRoom) || nextTry(err) > time.Second {
		t.Fatalf("the checkpoint ends with %v, and the next try is in %v", err, nextTry(err))
	}
	if other := errors.New("disk on fire"); nextTry(other) < time.Minute {
		t.Errorf("the next try after %q is in %v", other, nextTry(other))
	}
	for i := range n {
		c.want(fmt.Sprintf("DEL key:%d", i), ":1\r\n")
	}
	if err := srv.Checkpoint(); err != nil {
		t.Fatalf("checkpoint of what is left: %v", err)
	}
	c.want("SET key:1 v", ok)
}

// parted is a file system on which a part of the data directory is another one.
type parted struct {
	vfs.FS
	part string
	free atomic.Int64 // of the part
}

func (p *parted) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	if path == p.part {
		return vfs.DiskUsage{AvailBytes: uint64(p.free.Load()), TotalBytes: 10 << 20}, nil
	}
	return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41}, nil
}

func TestFreeSpaceIsThatOfEveryPartOfTheDirectory(t *testing.T) {
	for mode, part := range map[storage.Mode]string{storage.Memory: "/data/wal", storage.File: "/data/values", storage.LSM: "/data/lsm"} {
		t.Run(part, func(t *testing.T) {
			fs := &parted{FS: vfs.NewMem(), part: part}
			fs.free.Store(8 << 20)
			srv := open(t, Options{FS: fs, Mode: mode, MinFree: 4 << 20, SegmentBytes: 1 << 20})
			c := speak(t, srv)
			c.want("SET k v", ok)
			fs.free.Store(4<<20 - 1)
			_ = srv.space.poll()
			if got := c.do("SET k w"); !strings.HasPrefix(got, "-IOERR ") || !strings.Contains(got, "are free in "+part+",") {
				t.Errorf("got %q", got)
			}
			c.want("GET k", "$1\r\nv\r\n")
			fs.free.Store(8 << 20)
			c.want("SET k w", ok)
		})
	}
}

// A limit on the size of files is named, refuses writes only, and is looked at again.
func TestALimitOfFilesIsNamed(t *testing.T) {
	srv := open(t, Options{SegmentBytes: 1 << 20})
	c := speak(t, srv)
	c.want("SET k v", ok)
	most := srv.space.fileMost
	srv.space.fileMost = func() int64 { return 500 << 10 }
	_ = srv.space.poll()
	if got := c.do("SET k w"); !strings.HasPrefix(got, "-IOERR ") || !strings.Contains(got, "at most 512000 bytes (ulimit -f)") {
		t.Errorf("got %q", got)
	}
	c.want("GET k", "$1\r\nv\r\n")
	srv.space.fileMost = most
	c.want("SET k w", ok)
}

// quota is a file system on which the user may not write any more.
type quota struct {
	*smallDisk
	over atomic.Bool
}

func (q *quota) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := q.smallDisk.Create(name, category)
	return &fileUnderQuota{f, q}, err
}

type fileUnderQuota struct {
	vfs.File
	quota *quota
}

func (f *fileUnderQuota) Write(p []byte) (int, error) {
	if f.quota.over.Load() && len(p) >= reserveBytes {
		return 0, syscall.EDQUOT
	}
	return f.File.Write(p)
}

func TestAQuotaIsNamed(t *testing.T) {
	fs := &quota{smallDisk: newSmallDisk(1 << 30)}
	fs.over.Store(true)
	srv := open(t, Options{FS: fs, MinFree: 1 << 20, SegmentBytes: 1 << 20})
	c := speak(t, srv)
	if got := c.do("SET k v"); !strings.HasPrefix(got, "-IOERR ") || !strings.Contains(got, "quota") || strings.Contains(got, "disk is full") {
		t.Errorf("got %q", got)
	}
	c.want("GET k", "$-1\r\n")
	fs.over.Store(false)
	srv.space.mu.Lock()
	srv.space.fillAt = time.Time{}
	srv.space.mu.Unlock()
	c.want("SET k v", ok)
	if err := limitNamed(fmt.Errorf("write: %w", syscall.EFBIG), "/d"); !strings.Contains(err.Error(), "ulimit -f") || !errors.Is(err, syscall.EFBIG) {
		t.Errorf("got %v", err)
	}
}
