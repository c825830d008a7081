package kvserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
)

// A data directory:
//
//	LOCK         held by the kernel for as long as a server has the directory open; its content means nothing
//	PID          process id of the server that opened it last, for the text of an error only
//	FORMAT       what the directory is; written last when it is made
//	RESERVE      space for a start on a full disk; its content means nothing
//	CLEAN        where the log ended, if the last server ended in good order
//	wal/         segments of the log
//	checkpoint/  states of the store from which a start need not replay the whole log
//	values/      the file mode's values
//	lsm/         the lsm mode's tables
//	backup/      while a backup is being made, see backup.go
const (
	lockName       = "LOCK"
	pidName        = "PID"
	formatName     = "FORMAT"
	walName        = "wal"
	checkpointName = "checkpoint"
	valuesName     = "values"
	lsmName        = "lsm"
	tmpSuffix      = ".tmp"
)

// ErrInUse is returned when another server has the data directory open.
var ErrInUse = errors.New("data directory is in use")

// place is a data directory whose mode and identity are known.
type place struct {
	fs       vfs.FS
	dir      string
	mode     storage.Mode
	identity identity
	old      bool // of version 1, see upgrade.go
}

func (p *place) path(elem ...string) string {
	return p.fs.PathJoin(append([]string{p.dir}, elem...)...)
}

// proveMode returns the mode of a data directory whose FORMAT file is missing or damaged: lsm and file have directories of
// their own, and the others a line of FORMAT that may still be readable.
func proveMode(fs vfs.FS, dir string) (storage.Mode, error) {
	names, err := fs.List(dir)
	if err != nil {
		return "", fmt.Errorf("kvserver: %w", err)
	}
	has := func(name string) bool { return slices.Contains(names, name) }
	if begun, err := onlyBegun(fs, dir); err != nil {
		return "", err
	} else if begun && !has(checkpointName) {
		return "", fmt.Errorf("kvserver: %s holds neither a log nor a checkpoint: not a data directory of kvserver", dir)
	}
	switch values, tables := has(valuesName), has(lsmName) || has(lsmName+tmpSuffix); {
	case values && tables:
		return "", fmt.Errorf("kvserver: %s holds both values and lsm, so its mode is not certain; name it with --mode", dir)
	case values:
		return storage.File, nil
	case tables:
		return storage.LSM, nil
	}
	fit, err := checkpointModes(fs, dir)
	if err != nil {
		return "", err
	}
	if len(fit) == 1 {
		return fit[0], nil
	}
	text, err := readSmall(fs, fs.PathJoin(dir, formatName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("kvserver: %w", err)
	}
	lines := strings.Split(text, "\n")
	for _, mode := range []storage.Mode{storage.Memory, storage.Map, storage.Serialize} {
		if slices.Contains(lines, "mode "+string(mode)) {
			return mode, nil
		}
	}
	return "", fmt.Errorf("kvserver: nothing in %s tells whether its mode is memory, map or serialize; name it with --mode", dir)
}

// checkpointModes returns the modes that the newest checkpoint can be of, by its first record that can be read: nil if there
// is none.
func checkpointModes(fs vfs.FS, dir string) (fit []storage.Mode, err error) {
	path := fs.PathJoin(dir, checkpointName)
	numbers, _, err := listCheckpoints(fs, path)
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	newest := numbers[len(numbers)-1]
	if h, err := readCheckpointHeader(fs, fs.PathJoin(path, checkpointFile(newest))); err == nil && slices.Contains(storage.Modes(), h.mode) {
		return []storage.Mode{h.mode}, nil
	}
	id, err := proveIdentity(fs, dir, identity{})
	if err != nil {
		return nil, nil
	}
	p := &place{fs: fs, dir: dir, identity: id}
	enough := errors.New("enough")
	_, _, _, err = p.salvageCheckpoint(newest, func(kind byte, payload []byte) error {
		if kind != frameStore {
			return nil
		}
		for _, mode := range storage.Modes() {
			if storage.CheckRecord(mode, payload) == nil {
				fit = append(fit, mode)
			}
		}
		// Its buckets have checksums. What is around them looks like pairs.
		if slices.Contains(fit, storage.Serialize) {
			fit = []storage.Mode{storage.Serialize}
		}
		return enough
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return fit, err
}

// openDir makes dir a data directory of the given mode if it is missing or empty, checks that it is one otherwise, and
// locks it until the returned lock is closed. Nothing is changed in a directory that is there already.
func openDir(fs vfs.FS, dir string, mode storage.Mode) (*place, *dirLock, error) {
	if info, err := fs.Stat(dir); err == nil && !info.IsDir() {
		return nil, nil, fmt.Errorf("kvserver: data directory %s is a file; give --dir a directory", dir)
	} else if errors.Is(err, os.ErrNotExist) {
		if target, err := os.Readlink(dir); err == nil && vfs.Root(fs) == vfs.Default {
			return nil, nil, fmt.Errorf("kvserver: data directory %s is a symbolic link to %s, which does not exist; make that directory, or give --dir another", dir, target)
		}
		if err := fs.MkdirAll(dir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("kvserver: make data directory: %w", err)
		}
		if err := syncDir(fs, fs.PathDir(dir)); err != nil {
			return nil, nil, err
		}
	} else if err != nil {
		return nil, nil, fmt.Errorf("kvserver: data directory: %w", err)
	}
	if _, err := checkOurs(fs, dir, mode); err != nil {
		return nil, nil, err
	}
	lock, err := lockDir(fs, dir)
	if err != nil {
		if errors.Is(err, ErrInUse) {
			err = fmt.Errorf("%w or give another --dir", err)
		}
		return nil, nil, err
	}
	p, err := claim(fs, dir, mode)
	if err != nil {
		return nil, nil, errors.Join(err, lock.abandon())
	}
	return p, lock, nil
}

// dirLock is a locked data directory. The lock is on the directory itself where the system can do that, so that nobody who
// removes or replaces a file makes room for a second server; and on LOCK, for network file systems that know no other.
type dirLock struct {
	fs   vfs.FS
	dir  io.Closer // nil where there is none
	file io.Closer
	made string // path of LOCK if it was not there before

	path string      // of LOCK
	held os.FileInfo // what was locked there; nil where that is not known
}

// lost returns why another server may have locked the directory: LOCK, where it is all that is locked, was removed or replaced.
func (l *dirLock) lost() error {
	if l.dir != nil || l.held == nil {
		return nil
	}
	now, err := os.Stat(l.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("kvserver: %s was removed, so that another server can use the directory", l.path)
	case err == nil && !os.SameFile(now, l.held):
		return fmt.Errorf("kvserver: %s was replaced, so that another server can use the directory", l.path)
	}
	return nil // or it cannot be looked at for now
}

// Close gives the lock back.
func (l *dirLock) Close() error {
	err := l.file.Close()
	if l.dir != nil {
		err = errors.Join(err, l.dir.Close())
	}
	return err
}

// abandon is Close for a start that failed, which leaves nothing behind.
func (l *dirLock) abandon() error {
	if l.made != "" {
		_ = l.fs.Remove(l.made) // it means nothing
	}
	return l.Close()
}

// lockDir locks a data directory until the returned lock is closed.
func lockDir(fs vfs.FS, dir string) (*dirLock, error) {
	l := &dirLock{fs: fs}
	if vfs.Root(fs) == vfs.Default {
		d, err := flockDir(dir)
		if err != nil && isLocked(err) {
			return nil, inUse(fs, dir, err)
		}
		l.dir = d
	}
	path := fs.PathJoin(dir, lockName)
	if _, err := fs.Stat(path); errors.Is(err, os.ErrNotExist) {
		l.made = path
	}
	lock, err := fs.Lock(path)
	if err == nil {
		l.file, l.path = lock, path
		if vfs.Root(fs) == vfs.Default {
			l.held, _ = os.Stat(path)
		}
		return l, nil
	}
	if l.dir != nil {
		_ = l.dir.Close()
	}
	if errors.Is(err, os.ErrPermission) && !isLocked(err) || errors.Is(err, errReadOnly) {
		return nil, fmt.Errorf("kvserver: data directory %s is not writable: %w", dir, err)
	}
	if _, other := errors.AsType[syscall.Errno](err); other && !isLocked(err) {
		return nil, fmt.Errorf("kvserver: lock data directory %s: %w", dir, err)
	}
	return nil, inUse(fs, dir, err)
}

func inUse(fs vfs.FS, dir string, err error) error {
	pid, _ := readSmall(fs, fs.PathJoin(dir, pidName))
	if pid = strings.TrimSpace(pid); pid == "" {
		pid = "unknown"
	}
	return fmt.Errorf("kvserver: %w: %s (last opened by process %s; lock: %v); stop its server first", ErrInUse, dir, pid, err)
}

// checkOurs refuses a directory that holds something else than our data. It returns the zero Format for one that is yet to be made.
func checkOurs(fs vfs.FS, dir string, mode storage.Mode) (f Format, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return f, fmt.Errorf("kvserver: data directory: %w", err)
	}
	if slices.Contains(names, formatName) {
		f, err := ReadFormat(fs, dir)
		if err == nil && f.Mode != mode {
			err = fmt.Errorf("kvserver: data directory %s holds mode %s, not %s; use --mode %s or another --dir", dir, f.Mode, mode, f.Mode)
		}
		if err == nil && !slices.Contains(names, walName) {
			err = &wal.CorruptionError{Path: fs.PathJoin(dir, walName), Err: errLogGone}
		}
		return f, err
	}
	// What a start that was interrupted before it wrote FORMAT leaves behind, and what a file system puts into its root.
	started := []string{lockName, pidName, pidName + tmpSuffix, formatName + tmpSuffix, "lost+found"}
	if begun, err := onlyBegun(fs, dir); err == nil && begun {
		started = append(started, walName)
	}
	for _, name := range names {
		if !slices.Contains(started, name) {
			return f, fmt.Errorf("kvserver: directory %s is not empty and not a data directory (it holds %q but no %s); give another --dir, or, if it was one, see kvserver check and kvserver repair", dir, name, formatName)
		}
	}
	return f, nil
}

// claim makes the directory what it is, unless it is that already. The lock is held.
func claim(fs vfs.FS, dir string, mode storage.Mode) (*place, error) {
	f, err := checkOurs(fs, dir, mode) // again: another server may have made it just before
	if err != nil {
		return nil, err
	}
	if f == (Format{}) {
		f = Format{formatVersion, mode, newIdentity()}
		if err := beginLog(fs, dir, f.identity); err != nil {
			return nil, err
		}
		if err := writeAtomically(fs, dir, formatName, f.text()); err != nil {
			return nil, err
		}
	}
	return &place{fs: fs, dir: dir, mode: f.Mode, identity: f.identity}, nil
}

// beginLog makes a log without records. That comes before FORMAT, so that a data directory without one has lost it.
func beginLog(fs vfs.FS, dir string, id identity) error {
	path := fs.PathJoin(dir, walName)
	if err := fs.Remove(fs.PathJoin(path, segmentFile(1))); err != nil && !errors.Is(err, os.ErrNotExist) { // of an interrupted start
		return fmt.Errorf("kvserver: make the log: %w", err)
	}
	log, _, err := wal.Open(path, wal.Options{FS: fs, Identity: wal.Identity(id)}, nil)
	if err == nil {
		err = log.Close()
	}
	if err != nil {
		return fmt.Errorf("kvserver: make the log: %w", err)
	}
	return nil
}

// onlyBegun reports whether there is no more of a log than beginLog makes.
func onlyBegun(fs vfs.FS, dir string) (bool, error) {
	path := fs.PathJoin(dir, walName)
	names, err := segmentNames(fs, path)
	if err != nil || len(names) == 0 {
		return err == nil, err
	}
	info, err := fs.Stat(fs.PathJoin(path, names[0]))
	if err != nil {
		return false, fmt.Errorf("kvserver: %w", err)
	}
	return len(names) == 1 && names[0] == segmentFile(1) && !info.IsDir() && info.Size() <= wal.HeaderSize, nil
}

// writePID writes down who has the directory. On a full disk that is not worth a start.
func writePID(fs vfs.FS, dir string) error {
	err := writeAtomically(fs, dir, pidName, fmt.Sprintf("%d\n", os.Getpid()))
	if noSpace(err) {
		return nil
	}
	return err
}

// writeAtomically makes a file that after a crash is there completely or not at all.
func writeAtomically(fs vfs.FS, dir, name, text string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("kvserver: write %s: %w", fs.PathJoin(dir, name), err)
		}
	}()
	tmp := fs.PathJoin(dir, name+tmpSuffix)
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(tmp, fs.PathJoin(dir, name)); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("kvserver: sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("kvserver: sync directory %s: %w", dir, err)
	}
	return nil
}

// readSmall reads a file of a few lines.
func readSmall(fs vfs.FS, path string) (string, error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	return string(data), errors.Join(err, f.Close())
}

// absolute gives dir one spelling, by which a second opening within this process is noticed too.
func absolute(fs vfs.FS, dir string) string {
	if vfs.Root(fs) != vfs.Default {
		return dir
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return dir
}
