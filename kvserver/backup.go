package kvserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/storage/file"
	"kvmark/wal"
)

// A backup is a data directory that holds what another one held at one moment, under the same identity. Who copies the files of a
// running server one by one gets files of several moments: meanwhile a checkpoint removes the segments that the copied one needs.
// So the server itself makes a set of one moment, of hard links, when it is asked for one by files in its data directory:
//
//	backup/REQUEST   made and locked by the one who asks, for as long as it is at work
//	backup/set/      made by the server, which looks for a request once a second
//	backup/ANSWER    written when the set is complete: "ok", or why there is none
//
//	server                                      kvserver backup
//	                                            make and lock REQUEST
//	hold checkpoints back
//	link the newest checkpoint and its values, or tables
//	rotate the log                 -> segment N
//	link the segments before N, write N with its header alone
//	let checkpoints go on; ANSWER
//	                                            link or copy the set to where it is wanted
//	                                            read all of it, as check does; FORMAT comes last
//	                                            remove backup/
//
// All files of a set are complete and never change again, wherever else they have a name. Tables come before the log, because they
// may hold whatever was logged when they were written. If whoever asked is gone, REQUEST can be locked, and the server removes all.
const (
	backupName  = "backup"
	requestName = "REQUEST"
	answerName  = "ANSWER"
	setName     = "set"

	answerOK = "ok"
)

// snapshotter is a store whose files change while it is open, so that it must copy them itself.
type snapshotter interface {
	Snapshot(to string) error
}

// serveBackup makes the set that somebody asks for, and removes one that nobody needs any more.
func (srv *Server) serveBackup() {
	fs, dir := srv.opts.FS, srv.place.path(backupName)
	request := fs.PathJoin(dir, requestName)
	if _, err := fs.Stat(request); err != nil {
		return
	}
	if lock, err := fs.Lock(request); err == nil {
		if err := errors.Join(fs.RemoveAll(dir), lock.Close()); err != nil {
			srv.opts.Logf("kvserver: remove what an interrupted backup has left: %v", err)
		}
		return
	}
	if _, err := fs.Stat(fs.PathJoin(dir, answerName)); err == nil {
		return // it is being copied
	}
	answer := answerOK
	if err := srv.backUp(fs.PathJoin(dir, setName)); err != nil {
		answer = err.Error()
		srv.opts.Logf("kvserver: backup: %v", err)
	}
	if err := writeAtomically(fs, dir, answerName, answer); err != nil {
		srv.opts.Logf("kvserver: backup: %v", err)
	}
}

// backUp makes a set of the moment at which it rotates the log.
func (srv *Server) backUp(to string) error {
	srv.checkpoints.mu.Lock() // nothing that the newest checkpoint needs goes meanwhile
	defer srv.checkpoints.mu.Unlock()
	p := srv.place
	if err := p.fs.RemoveAll(to); err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	c := &copier{fs: p.fs, ctx: context.Background()}
	first, err := c.checkpoint(p, to)
	if err != nil {
		return err
	}
	if s, ok := srv.db.store.(snapshotter); ok {
		if err := s.Snapshot(p.fs.PathJoin(to, lsmName)); err != nil {
			return err
		}
	}
	newest, err := srv.db.log.Rotate()
	if err != nil {
		return err
	}
	return c.log(p, to, first, func(number uint64) error {
		switch {
		case number < newest:
			return c.link(p.path(walName, segmentFile(number)), p.fs.PathJoin(to, walName, segmentFile(number)))
		case number == newest:
			return c.copy(p.path(walName, segmentFile(number)), p.fs.PathJoin(to, walName, segmentFile(number)), wal.HeaderSize)
		}
		return nil
	})
}

// copyStopped makes a set of the files of a directory that nobody uses.
func (p *place) copyStopped(c *copier, to string) error {
	first, err := c.checkpoint(p, to)
	if err != nil {
		return err
	}
	names, err := segmentNames(p.fs, p.path(walName))
	if err != nil {
		return err
	}
	newest := uint64(0)
	if len(names) > 0 {
		newest, _ = wal.SegmentNumber(names[len(names)-1])
	}
	err = c.log(p, to, first, func(number uint64) error {
		from, name := p.path(walName, segmentFile(number)), p.fs.PathJoin(to, walName, segmentFile(number))
		if number == newest { // a start ends it in place
			return c.copy(from, name, -1)
		}
		return c.link(from, name)
	})
	if err == nil && p.mode == storage.LSM {
		err = c.tree(p.path(lsmName), p.fs.PathJoin(to, lsmName), func(name string) bool {
			return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob") // Pebble adds to others, or replaces them
		})
	}
	if err == nil {
		err = ignoreMissing(c.copy(p.path(cleanName), p.fs.PathJoin(to, cleanName), -1))
	}
	return err
}

// copier copies the files of a data directory.
type copier struct {
	fs                    vfs.FS
	ctx                   context.Context // ends it
	files, linked, copied int64           // the latter in bytes
}

// checkpoint copies the newest checkpoint and the value files that it refers to, and returns the first segment that it needs.
func (c *copier) checkpoint(p *place, to string) (first uint64, err error) {
	if err := c.fs.MkdirAll(c.fs.PathJoin(to, checkpointName), 0o700); err != nil {
		return 0, fmt.Errorf("kvserver: %w", err)
	}
	numbers, _, err := listCheckpoints(c.fs, p.path(checkpointName))
	if err != nil || len(numbers) == 0 {
		return 1, err
	}
	first = numbers[len(numbers)-1]
	from := p.path(checkpointName, checkpointFile(first))
	if err := c.link(from, c.fs.PathJoin(to, checkpointName, checkpointFile(first))); err != nil {
		return first, err
	}
	if p.mode == storage.File {
		files := map[uint32]bool{}
		if _, _, _, err = p.readCheckpoint(from, first, func(kind byte, payload []byte) error {
			if kind != frameStore {
				return nil
			}
			return file.Files(payload, files)
		}); err != nil {
			return first, err
		}
		values := c.fs.PathJoin(to, valuesName)
		if err := c.fs.MkdirAll(values, 0o700); err != nil {
			return first, fmt.Errorf("kvserver: %w", err)
		}
		for number := range files {
			if err := c.link(p.path(valuesName, file.Name(uint64(number))), c.fs.PathJoin(values, file.Name(uint64(number)))); err != nil {
				return first, err
			}
		}
		if err := syncDir(c.fs, values); err != nil {
			return first, err
		}
	}
	return first, syncDir(c.fs, c.fs.PathJoin(to, checkpointName))
}

// log calls one for every segment from first on.
func (c *copier) log(p *place, to string, first uint64, one func(number uint64) error) error {
	dir := c.fs.PathJoin(to, walName)
	if err := c.fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	names, err := segmentNames(p.fs, p.path(walName))
	if err != nil {
		return err
	}
	for _, name := range names {
		if number, _ := wal.SegmentNumber(name); number >= first {
			if err := one(number); err != nil {
				return err
			}
		}
	}
	return errors.Join(syncDir(c.fs, dir), syncDir(c.fs, to))
}

// tree copies all files below a directory, and links those that mayLink names.
func (c *copier) tree(from, to string, mayLink func(name string) bool) error {
	if err := c.fs.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	names, err := c.fs.List(from)
	if err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		path, target := c.fs.PathJoin(from, name), c.fs.PathJoin(to, name)
		info, err := c.fs.Stat(path)
		switch {
		case err != nil:
			return fmt.Errorf("kvserver: %w", err)
		case info.IsDir():
			err = c.tree(path, target, mayLink)
		case name == lockName: // Pebble's
		case mayLink(name):
			err = c.link(path, target)
		default:
			err = c.copy(path, target, -1)
		}
		if err != nil {
			return err
		}
	}
	return syncDir(c.fs, to)
}

// link makes to another name of from, a file that does not change any more, or, where that cannot be, a copy.
func (c *copier) link(from, to string) error {
	if err := c.fs.Link(from, to); err != nil {
		if errors.Is(err, os.ErrExist) || errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("kvserver: %w", err)
		}
		return c.copy(from, to, -1) // another file system, or one that has no links
	}
	c.files++
	c.linked++
	return nil
}

// copy copies the first n bytes of a file, all of it if n is negative, and syncs the copy.
func (c *copier) copy(from, to string, n int64) (err error) {
	f, err := c.fs.Open(from, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out, err := c.fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	in := io.Reader(endingReader{c.ctx, f})
	if n >= 0 {
		in = io.LimitReader(in, n)
	}
	size, err := io.Copy(struct{ io.Writer }{out}, in)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("kvserver: copy %s to %s: %w", from, to, err)
	}
	c.files++
	c.copied += size
	return nil
}

// endingReader reads until its context ends.
type endingReader struct {
	ctx context.Context
	r   io.Reader
}

func (e endingReader) Read(b []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.r.Read(b)
}

// BackupOptions configure [Backup].
type BackupOptions struct {
	FS   vfs.FS // nil = the operating system's
	Dir  string // the data directory
	To   string // where the backup goes: a directory that is missing or empty
	Wait time.Duration
	Logf func(format string, args ...any)
}

// BackedUp is what [Backup] has copied and read.
type BackedUp struct {
	Files, Linked int64 // Linked of them are other names of files of the data directory
	Copied        int64 // bytes of the others
	Records       int64 // of the log
}

// Backup makes a copy of a data directory as it is at one moment behind the call, whether a server uses it or not; so it has
// everything that was acknowledged before the call. The copy is read as [Check] does before it becomes a data directory; after an
// error there is none. A server that does not answer within Wait is an error.
func Backup(ctx context.Context, o BackupOptions) (done BackedUp, err error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	fs, dir, to := vfs.FS(&lenientFS{o.FS, o.Logf, new(sync.Once)}), o.Dir, o.To
	f, err := ReadFormat(fs, dir)
	if err != nil {
		return done, err
	}
	p := &place{fs: fs, dir: absolute(fs, dir), mode: f.Mode, identity: f.identity}
	made, err := makeEmpty(fs, p.dir, to)
	if err != nil {
		return done, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeCopy(fs, to, made))
		}
	}()
	c := &copier{fs: fs, ctx: ctx}
	live, err := c.either(p, to, o.Wait)
	if err != nil {
		return done, err
	}
	if done.Records, err = (&place{fs: fs, dir: to, mode: p.mode, identity: p.identity}).checkCopy(live); err != nil {
		return done, err
	}
	if err := ctx.Err(); err != nil {
		return done, err
	}
	done.Files, done.Linked, done.Copied = c.files, c.linked, c.copied
	if err := writeAtomically(fs, to, formatName, f.text()); err != nil {
		return done, err
	}
	return done, syncDir(fs, fs.PathDir(to))
}

// checkCopy returns what is wrong with a copy. Only one of a directory that a server left in disorder may have a torn tail.
func (p *place) checkCopy(live bool) (records int64, err error) {
	reports, err := p.check(nil)
	for _, r := range reports {
		if r.State == wal.Corrupt || r.State == wal.Torn && live {
			err = errors.Join(err, damageOf(r))
		}
		if r.Segment != 0 {
			records += r.Records
		}
	}
	if err != nil {
		return records, fmt.Errorf("kvserver: what was copied cannot be used, see kvserver check of the data directory itself: %w", err)
	}
	return records, nil
}

// makeEmpty makes sure that to is an empty directory outside of dir, and says whether it made it.
func makeEmpty(fs vfs.FS, dir, to string) (made bool, err error) {
	names, err := fs.List(to)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := fs.MkdirAll(to, 0o700); err != nil {
			return false, fmt.Errorf("kvserver: %w", err)
		}
		made = true
	case err != nil:
		return false, fmt.Errorf("kvserver: %w", err)
	case slices.ContainsFunc(names, func(name string) bool { return name != "lost+found" }):
		return false, fmt.Errorf("kvserver: %s is not empty: give a directory that is, or that does not exist", to)
	}
	if strings.HasPrefix(absolute(fs, to)+"/", dir+"/") {
		return false, errors.Join(fmt.Errorf("kvserver: %s is inside of the data directory %s: give one outside", to, dir), removeCopy(fs, to, made))
	}
	return made, nil
}

// removeCopy removes what a backup that failed has made.
func removeCopy(fs vfs.FS, to string, made bool) error {
	if made {
		return fs.RemoveAll(to)
	}
	var errs []error
	for _, name := range []string{formatName, formatName + tmpSuffix, cleanName, walName, checkpointName, valuesName, lsmName} {
		errs = append(errs, fs.RemoveAll(fs.PathJoin(to, name)))
	}
	return errors.Join(errs...)
}

// How often it is tried to get hold of a directory or of an answer, and how many times of the request, which a server that removes
// what an earlier one has left holds for a moment.
const (
	tryEvery  = 50 * time.Millisecond
	lockTries = 20
)

// either copies the files of a directory that no server uses, or lets its server do it. It tries both until one succeeds.
func (c *copier) either(p *place, to string, wait time.Duration) (live bool, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	var request io.Closer
	defer func() {
		if request != nil {
			err = errors.Join(err, p.fs.RemoveAll(p.path(backupName)), request.Close())
		}
	}()
	for tries := 1; ; tries++ {
		lock, lerr := lockDir(p.fs, p.dir)
		if lerr == nil {
			return false, errors.Join(p.copyStopped(c, to), lock.abandon())
		}
		if !errors.Is(lerr, ErrInUse) {
			return false, lerr
		}
		if request == nil {
			if request, err = ask(p); err != nil && tries > lockTries {
				return true, err
			}
		}
		if request != nil {
			text, rerr := readSmall(p.fs, p.path(backupName, answerName))
			if rerr == nil && text != answerOK {
				return true, fmt.Errorf("kvserver: the server of %s says: %s", p.dir, text)
			}
			if rerr == nil {
				return true, c.tree(p.path(backupName, setName), to, func(string) bool { return true })
			}
			if !errors.Is(rerr, os.ErrNotExist) {
				return true, fmt.Errorf("kvserver: %w", rerr)
			}
		}
		select {
		case <-time.After(tryEvery):
		case <-ctx.Done():
			if c.ctx.Err() != nil {
				return true, c.ctx.Err()
			}
			return true, fmt.Errorf("kvserver: no answer within %v from the server that uses %s (%w): it is starting, making a checkpoint, too old to know of backups, or not of this user", wait, p.dir, lerr)
		}
	}
}

// ask makes the request, and returns what keeps it up; nil if it was removed at this moment, so that it has to be made again.
func ask(p *place) (io.Closer, error) {
	dir := p.path(backupName)
	if err := p.fs.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("kvserver: ask the server for a backup: %w", err)
	}
	path := p.fs.PathJoin(dir, requestName)
	request, err := p.fs.Lock(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kvserver: another backup of %s is being made (%s is locked: %w)", p.dir, path, err)
	}
	if _, err := p.fs.Stat(path); err != nil {
		return nil, request.Close()
	}
	// That to an earlier request. The set of that is the server's to remove: it may be making this one's already.
	if err := p.fs.RemoveAll(p.fs.PathJoin(dir, answerName)); err != nil {
		return nil, errors.Join(fmt.Errorf("kvserver: remove what an interrupted backup has left: %w", err), request.Close())
	}
	return request, nil
}
