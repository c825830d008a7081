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
		return 0, syscall.ENOSPC
	}
	defer f.disk.note()
	return f.File.Write(p)
}

func (f *fileOnSmallDisk) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	info, err := f.Stat()
	if err == nil && off+int64(len(p))-info.Size() > f.disk.free() {
		err = syscall.ENOSPC
	}
	if err != nil {
		return 0, err
	}
	defer f.disk.note()
	return f.File.WriteAt(p, off)
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
							got := c.do(fmt.Sprintf("SET key:%d:%d %s", w, i%100, strings.Repeat("v", valueBytes)))
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
