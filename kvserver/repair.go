package kvserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/storage/file"
	"kvmark/storage/lsm"
	"kvmark/wal"
)

// damagedSuffix is what repair gives to the names of files that it replaces. It deletes nothing.
const damagedSuffix = ".damaged"

// Repair makes a data directory that a start refuses one that it takes. What cannot be read goes, moved aside under a name that
// ends in .damaged; everything else stays. It tells note of every file that it changes and of what is lost. The directory must
// not be in use. It may be interrupted at any moment and run again. fs nil = the operating system's.
//
// What is lost can have been a delete, or a newer value: then an older one is back. So can be, in mode file, a key that was deleted before
// a checkpoint that has lost frames: its value files do not say which are alive. A repaired directory is the best there
// is, not what was acknowledged.
func Repair(fs vfs.FS, dir string, mode storage.Mode, note func(path, what string)) (err error) {
	if fs == nil {
		fs = vfs.Default
	}
	p, damage, err := placeOf(fs, dir, mode)
	if err != nil {
		return err
	}
	lock, err := lockDir(fs, absolute(fs, dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	r := &repairer{place: p, note: note}
	id, err := proveIdentity(fs, dir, p.identity)
	if err != nil {
		return err
	}
	if damage == nil && id != p.identity {
		if p.mode, err = proveMode(fs, dir); err != nil && mode != "" {
			p.mode, err = mode, nil
		}
		if err != nil {
			return err
		}
		damage = fmt.Errorf("it belongs to another data directory: it says %s, and most files here %s", p.identity, id)
	}
	p.identity = id
	if damage != nil {
		if err := r.format(damage); err != nil {
			return err
		}
	}
	for _, step := range []func() error{r.directories, r.misplaced, r.values, r.tables, r.checkpoints, r.log, r.clean} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type repairer struct {
	*place
	note func(path, what string)
	base uint64 // first segment to replay
}

// placeOf returns a data directory whose mode the caller may have been told, and what is wrong with its FORMAT if something is. Beside an error,
// which is that of a mode that is not known, the place has none; it is nil if there is nothing to be known.
func placeOf(fs vfs.FS, dir string, told storage.Mode) (p *place, damage, err error) {
	format, damage := ReadFormat(fs, dir)
	p = &place{fs: fs, dir: dir, mode: format.Mode, identity: format.identity}
	if damage != nil {
		if !isDamage(damage) {
			return nil, damage, damage
		}
		if _, err := fs.Stat(dir); err != nil {
			return nil, damage, fmt.Errorf("kvserver: %w", err)
		}
		if p.identity, err = proveIdentity(fs, dir, identity{}); err != nil {
			err = errors.Join(damage, err)
		} else if p.mode, err = proveMode(fs, dir); err != nil {
			names, lerr := segmentNames(fs, fs.PathJoin(dir, walName))
			if told == "" || lerr != nil || len(names) == 0 {
				return p, damage, errors.Join(damage, err)
			}
			if fit, err := checkpointModes(fs, dir); err != nil || len(fit) > 0 && !slices.Contains(fit, told) {
				return nil, damage, errors.Join(err, fmt.Errorf("kvserver: the checkpoint in %s is not one of mode %s: give another --mode", dir, told))
			}
			p.mode, err = told, nil
		}
	}
	if err == nil && told != "" && told != p.mode {
		return nil, damage, fmt.Errorf("kvserver: data directory %s holds mode %s, not %s", dir, p.mode, told)
	}
	return p, damage, err
}

// format writes FORMAT anew. The old one is kept aside.
func (r *repairer) format(why error) error {
	path := r.fs.PathJoin(r.dir, formatName)
	if err := r.keepAside(path); err != nil {
		return err
	}
	if err := writeAtomically(r.fs, r.dir, formatName, Format{formatVersion, r.mode, r.identity}.text()); err != nil {
		return err
	}
	r.note(path, fmt.Sprintf("written anew for mode %s: %v", r.mode, why))
	return nil
}

// aside returns a free name for what path holds now.
func (r *repairer) aside(path string) (string, error) {
	for i := 1; i < 1000; i++ {
		name := path + damagedSuffix
		if i > 1 {
			name += fmt.Sprint(".", i)
		}
		if _, err := r.fs.Stat(name); errors.Is(err, os.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", fmt.Errorf("kvserver: repair: %w", err)
		}
	}
	return "", fmt.Errorf("kvserver: repair: %s%s and its followers are all taken; move them away", path, damagedSuffix)
}

// keepAside gives a file that is about to be replaced, if there is one, a second name.
func (r *repairer) keepAside(path string) error {
	if _, err := r.fs.Stat(path); err != nil {
		return nil
	}
	name, err := r.aside(path)
	if err != nil {
		return err
	}
	if err := vfs.LinkOrCopy(r.fs, path, name); err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	return syncDir(r.fs, r.fs.PathDir(path))
}

// moveAside renames a file or directory.
func (r *repairer) moveAside(path string, why error) error {
	name, err := r.aside(path)
	if err != nil {
		return err
	}
	if err := r.fs.Rename(path, name); err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	r.note(path, fmt.Sprintf("moved to %s: %v", name, why))
	return syncDir(r.fs, r.fs.PathDir(path))
}

// clean sets the note about the log's end aside if the log has another one, by now.
func (r *repairer) clean() error {
	end, err := r.readClean()
	if err == nil && end != nil {
		var reports []wal.SegmentReport
		if reports, err = wal.Scan(r.fs, r.path(walName), wal.Identity(r.identity), nil); err != nil {
			return err
		}
		err = wal.ErrMissing
		if n := len(reports); n > 0 {
			err = reports[n-1].Lost(*end)
		}
	}
	if err == nil {
		return nil
	}
	if _, damaged := errors.AsType[*wal.CorruptionError](err); !damaged && !errors.Is(err, wal.ErrMissing) {
		return err
	}
	return r.moveAside(r.path(cleanName), err)
}

// directories moves aside what has the name of a file and is a directory.
func (r *repairer) directories() error {
	paths := []string{r.path(cleanName)}
	for _, kind := range fileKinds {
		names, err := r.fs.List(r.path(kind.dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("kvserver: repair: %w", err)
		}
		for _, name := range names {
			if _, ours := kind.number(name); ours {
				paths = append(paths, r.path(kind.dir, name))
			}
		}
	}
	for _, path := range paths {
		if info, err := r.fs.Stat(path); err == nil && info.IsDir() {
			if err := r.moveAside(path, errors.New("it is a directory, in the place of a file")); err != nil {
				return err
			}
		}
	}
	return nil
}

// misplacedSuffix is what repair gives to the name of a file on its way to another one.
const misplacedSuffix = ".misplaced"

// misplaced gives the files that have the name of another one the name that their headers say, and moves those of other directories aside.
// First all of them give up the names that they have, which can be each other's.
func (r *repairer) misplaced() error {
	for _, kind := range fileKinds {
		dir := r.path(kind.dir)
		files, err := kind.list(r.fs, dir)
		if err != nil {
			return err
		}
		changed := false
		for _, f := range files {
			id, number, err := kind.header(r.fs, f.path)
			if err != nil {
				return err
			}
			switch {
			case number == 0 || id == r.identity && number == f.number:
			case id != r.identity:
				if err := r.moveAside(f.path, fmt.Errorf("it belongs to another data directory: its header says %s, this one is %s", id, r.identity)); err != nil {
					return err
				}
			default:
				to := r.fs.PathJoin(dir, kind.name(number)+misplacedSuffix)
				if _, err := r.fs.Stat(to); err == nil { // the second that says so
					if err := r.moveAside(f.path, fmt.Errorf("its header says that it is %s, as that of another file does", kind.name(number))); err != nil {
						return err
					}
					continue
				}
				if err := r.fs.Rename(f.path, to); err != nil {
					return fmt.Errorf("kvserver: repair: %w", err)
				}
				changed = true
				r.note(f.path, fmt.Sprintf("renamed, its header says that it is %s", kind.name(number)))
			}
		}
		if changed {
			if err := syncDir(r.fs, dir); err != nil {
				return err
			}
		}
		if err := r.settle(kind, dir); err != nil {
			return err
		}
	}
	return nil
}

// settle gives what misplaced has renamed its final name.
func (r *repairer) settle(kind fileKind, dir string) error {
	names, err := r.fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	for _, name := range names {
		base, is := strings.CutSuffix(name, misplacedSuffix)
		if _, ours := kind.number(base); !is || !ours {
			continue
		}
		from, to := r.fs.PathJoin(dir, name), r.fs.PathJoin(dir, base)
		if _, err := r.fs.Stat(to); err == nil {
			if err := r.moveAside(from, errors.New("there is another file of this number")); err != nil {
				return err
			}
			continue
		}
		if err := r.fs.Rename(from, to); err != nil {
			return fmt.Errorf("kvserver: repair: %w", err)
		}
	}
	return syncDir(r.fs, dir)
}

// values gives the value files whose header is damaged, and whose records are not, the header that belongs to their name.
func (r *repairer) values() error {
	if r.mode != storage.File {
		return nil
	}
	names, err := r.fs.List(r.path(valuesName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		number, ours := file.Number(name)
		if !ours {
			continue
		}
		path := r.path(valuesName, name)
		n, err := file.MendHeader(r.fs, path, file.Identity(r.identity), number, path+tmpSuffix)
		if err != nil {
			return fmt.Errorf("kvserver: repair: %w", err)
		}
		if n == 0 {
			continue
		}
		if err := r.keepAside(path); err != nil {
			return err
		}
		if err := r.fs.Rename(path+tmpSuffix, path); err != nil {
			return fmt.Errorf("kvserver: repair: %w", err)
		}
		if err := syncDir(r.fs, r.fs.PathDir(path)); err != nil {
			return err
		}
		r.note(path, fmt.Sprintf("its damaged header written anew: %d records say that it is this file; the damaged one is kept beside it (%s)", n, damagedSuffix))
	}
	return nil
}

// tables makes a new LSM tree of what can be read of a damaged one.
func (r *repairer) tables() error {
	if r.mode != storage.LSM {
		return nil
	}
	path, tmp := r.path(lsmName), r.path(lsmName+tmpSuffix)
	made := r.fs.PathJoin(tmp, lsmName)
	_, err := r.fs.Stat(path)
	missing := errors.Is(err, os.ErrNotExist)
	_, err = r.fs.Stat(r.fs.PathJoin(tmp, "complete"))
	if !missing || err != nil { // not interrupted between the two renames below
		numbers, _, err := listCheckpoints(r.fs, r.fs.PathJoin(r.dir, checkpointName))
		if err != nil {
			return err
		}
		rec := r.storeRecord(numbers)
		_, damage := lsm.Check(r.fs, r.dir, lsm.Identity(r.identity), rec)
		if damage == nil {
			damage = r.inspectTables(rec)
		}
		if damage == nil && !missing {
			return r.removeTree(tmp)
		}
		if missing {
			damage = os.ErrNotExist
		}
		if err := r.removeTree(tmp); err != nil {
			return err
		}
		n, err := lsm.Salvage(r.fs, r.dir, tmp, lsm.Identity(r.identity), func(err error) { r.note(path, fmt.Sprintf("lost: %v", err)) })
		if err != nil {
			return err
		}
		if err := writeAtomically(r.fs, tmp, "complete", ""); err != nil {
			return err
		}
		r.note(path, fmt.Sprintf("made again of %d entries", n))
		if !missing {
			if err := r.moveAside(path, damage); err != nil {
				return err
			}
		}
	}
	if err := r.fs.Rename(made, path); err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	if err := syncDir(r.fs, r.dir); err != nil {
		return err
	}
	return r.removeTree(tmp)
}

// removeTree removes what repair itself has made.
func (r *repairer) removeTree(path string) error {
	if err := r.fs.RemoveAll(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	return syncDir(r.fs, r.dir)
}

// checkpoints finds the checkpoint to begin with, and replaces it by what can be read of it and of the values that it refers
// to.
func (r *repairer) checkpoints() error {
	dir := r.fs.PathJoin(r.dir, checkpointName)
	numbers, _, err := listCheckpoints(r.fs, dir)
	if err != nil {
		return err
	}
	segments, err := segmentNames(r.fs, r.fs.PathJoin(r.dir, walName))
	if err != nil {
		return err
	}
	if len(numbers) == 0 {
		r.base = 1
		if len(segments) > 0 && segments[0] != segmentFile(1) {
			return r.noCheckpoint(segments[0])
		}
		return nil
	}
	newest := len(numbers) - 1
	for i := newest; i >= 0; i-- {
		r.base = numbers[i]
		damage := r.checkpointDamage(numbers[i])
		if damage == nil {
			// An older one will do, if the log behind it is still there: nothing is lost then.
			for _, n := range numbers[i+1:] {
				if err := r.moveAside(r.fs.PathJoin(dir, checkpointFile(n)), r.checkpointDamage(n)); err != nil {
					return err
				}
			}
			return nil
		}
		if i == 0 || len(segments) == 0 || segments[0] > segmentFile(numbers[i-1]) {
			break
		}
	}
	r.base = numbers[newest]
	return r.rewriteCheckpoint(r.fs.PathJoin(dir, checkpointFile(r.base)), r.checkpointDamage(r.base))
}

// header returns the header of the checkpoint to begin with, made again from what is left of it and of the log.
func (r *repairer) header() (checkpointHeader, error) {
	h := checkpointHeader{identity: r.identity, number: r.base, mode: r.mode}
	path := r.path(checkpointName, checkpointFile(r.base))
	if old, err := readCheckpointHeader(r.fs, path); err == nil && old.check(r.place, r.base) == nil {
		return old, nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return h, err
	}
	id, err := wal.SegmentID(r.fs, r.path(walName), wal.Identity(r.identity), r.base)
	h.segment = id
	return h, err
}

// noCheckpoint makes an empty one where the log does not begin with its first segment.
func (r *repairer) noCheckpoint(segment string) error {
	r.base, _ = wal.SegmentNumber(segment)
	dir := r.fs.PathJoin(r.dir, checkpointName)
	if err := r.fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	path := r.fs.PathJoin(dir, checkpointFile(r.base))
	head, err := r.header()
	if err != nil {
		return err
	}
	salvager := r.salvager()
	err = r.writeCheckpoint(path, head, func(w *checkpointWriter) error { return r.rebuild(w, salvager, true) })
	if err = errors.Join(err, salvager.Close()); err != nil {
		return err
	}
	r.note(path, "made: the checkpoint that the log was written over is missing")
	return syncDir(r.fs, r.dir)
}

// checkpointDamage returns what is wrong with a checkpoint or with the values that it refers to.
func (r *repairer) checkpointDamage(number uint64) error {
	reports, err := r.checkCheckpoint(number, r.mode == storage.File)
	for _, rep := range reports {
		if rep.State != wal.Clean && err == nil {
			err = fmt.Errorf("%s, offset %d: %w", rep.Path, rep.Offset, rep.Err)
		}
	}
	return err
}

func (r *repairer) salvager() *file.Salvager {
	s := file.NewSalvager(r.fs, r.dir, file.Identity(r.identity))
	s.NoteKeys()
	return s
}

// rebuild adds to a checkpoint, from which something is missing, what the value files hold of other keys, and moves those aside to
// which the checkpoint does not refer then: a start would remove them.
func (r *repairer) rebuild(w *checkpointWriter, salvager *file.Salvager, missing bool) error {
	if r.mode != storage.File {
		return nil
	}
	if missing {
		keys, err := salvager.Missed(func(rec []byte) error { return w.frame(frameStore, rec) })
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			list, err := r.listKeys(keys)
			if err != nil {
				return err
			}
			r.note(r.path(valuesName), fmt.Sprintf("%d keys that the checkpoint has lost are taken from the value files, each with its newest value there; "+
				"those that had been deleted before the checkpoint can be back, and expiry times be lost; %s lists them", len(keys), list))
		}
	}
	unused, err := salvager.Unused()
	if err != nil {
		return err
	}
	for _, path := range unused {
		if err := r.moveAside(path, errors.New("nothing in the repaired checkpoint refers to it, and a start would remove it")); err != nil {
			return err
		}
	}
	return nil
}

// listKeys writes keys to a file beside the damaged checkpoint, one quoted key a line.
func (r *repairer) listKeys(keys []string) (path string, err error) {
	path, err = r.aside(r.path(checkpointName, checkpointFile(r.base)))
	if err != nil {
		return "", err
	}
	path += ".keys"
	var text []byte
	for _, key := range keys {
		text = append(strconv.AppendQuote(text, key), '\n')
	}
	return path, writeAtomically(r.fs, r.fs.PathDir(path), r.fs.PathBase(path), string(text))
}

func (r *repairer) rewriteCheckpoint(path string, why error) error {
	head, err := r.header()
	if err != nil {
		return err
	}
	salvager := r.salvager()
	keys := 0
	var damage error
	var kept []byte
	frames, skipped := 0, int64(0)
	err = r.writeCheckpoint(path, head, func(w *checkpointWriter) (err error) {
		var complete bool
		frames, skipped, complete, err = r.salvageCheckpoint(r.base, func(kind byte, payload []byte) error {
			if kind != frameStore || r.mode != storage.File {
				return w.frame(kind, payload)
			}
			var err error
			kept, err = salvager.Record(kept[:0], payload, func(_ []byte, err error) { keys++; damage = err })
			if err != nil || len(kept) == 0 {
				return err
			}
			return w.frame(kind, kept)
		})
		if err != nil {
			return err
		}
		return r.rebuild(w, salvager, !complete)
	})
	if err = errors.Join(err, salvager.Close()); err != nil {
		return err
	}
	r.note(path, fmt.Sprintf("replaced by the %d frames that can be read, %d bytes cannot: %v", frames, skipped, why))
	if keys > 0 {
		r.note(path, fmt.Sprintf("%d keys lost from the checkpoint, whose values cannot be read; the log may hold newer ones: %v", keys, damage))
	}
	return nil
}

// writeCheckpoint makes a checkpoint in the place of the one at path, if there is one, which is kept aside.
func (r *repairer) writeCheckpoint(path string, head checkpointHeader, fill func(*checkpointWriter) error) error {
	f, err := r.fs.Create(path+tmpSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	w, err := newCheckpointWriter(&sequential{file: f}, head)
	if err == nil {
		err = fill(w)
	}
	if err == nil {
		err = w.frame(frameEnd, binary.LittleEndian.AppendUint64(nil, w.frames))
	}
	if err == nil {
		err = errors.Join(w.w.Flush(), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("kvserver: repair %s: %w", path, err)
	}
	if err := r.keepAside(path); err != nil {
		return err
	}
	if err := r.fs.Rename(path+tmpSuffix, path); err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	return syncDir(r.fs, r.fs.PathDir(path))
}

// log replaces damaged segments by what can be read of them, and missing ones by empty ones: a gap would end the log.
func (r *repairer) log() error {
	dir := r.fs.PathJoin(r.dir, walName)
	if err := r.fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	reports, err := wal.Scan(r.fs, dir, wal.Identity(r.identity), func(segment uint64, offset int64, payload []byte) error {
		err := checkEntries(payload)
		if err != nil && segment >= r.base {
			return fmt.Errorf("kvserver: repair %s: the record at offset %d is whole and makes no sense: %w; was it written by another version of kvserver? Nothing here can repair it",
				r.fs.PathJoin(dir, segmentFile(segment)), offset, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	next := r.base
	for _, rep := range reports {
		if rep.Segment < r.base {
			continue // superseded
		}
		for ; next < rep.Segment; next++ {
			if err := r.rewriteSegment(dir, next, wal.ErrMissing); err != nil {
				return err
			}
		}
		if rep.State == wal.Corrupt {
			if err := r.rewriteSegment(dir, rep.Segment, fmt.Errorf("offset %d: %w", rep.Offset, rep.Err)); err != nil {
				return err
			}
		}
		next = rep.Segment + 1
	}
	if next == r.base {
		return r.rewriteSegment(dir, r.base, wal.ErrMissing)
	}
	return nil
}

func (r *repairer) rewriteSegment(dir string, number uint64, why error) error {
	path := r.fs.PathJoin(dir, segmentFile(number))
	aside, err := r.aside(path)
	if err != nil {
		return err
	}
	id := uint64(0)
	if number == r.base {
		h, err := r.header()
		if err != nil {
			return err
		}
		id = h.segment
	}
	n, err := wal.Rewrite(r.fs, dir, wal.Identity(r.identity), number, id, aside)
	if err == nil {
		r.note(path, fmt.Sprintf("replaced by the %d records that can be read: %v", n, why))
	}
	return err
}

func segmentFile(number uint64) string { return wal.SegmentName(number) }

// salvageCheckpoint calls fn for the frames of a checkpoint that can be read, whatever stands between them, and returns their number
// and how many bytes it had to skip. The end is not among them. It is complete if the end counts these frames, or if nothing but
// the end is damaged.
//
// Behind damage it tries the place where the frame would end, if its length is right, and then every byte. A frame's
// checksum covers its place, so a frame that was only copied there does not pass. Should somebody have made up lengths that
// fit, the search gives up when it has summed many times the file in vain.
func (p *place) salvageCheckpoint(number uint64, fn func(kind byte, payload []byte) error) (frames int, skipped int64, complete bool, err error) {
	path := p.path(checkpointName, checkpointFile(number))
	f, err := p.fs.Open(path)
	if err != nil {
		return 0, 0, false, fmt.Errorf("kvserver: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, false, fmt.Errorf("kvserver: %w", err)
	}
	in := backReader{f: f, size: info.Size(), seed: checkpointHeader{identity: p.identity, number: number}.seed()}
	budget := 64 * in.size
	for at := int64(checkpointHeaderSize); at < in.size; {
		kind, payload, end, err := in.frame(at, &budget)
		if err != nil {
			return frames, skipped, false, fmt.Errorf("kvserver: read %s: %w", path, err)
		}
		if kind != 0 {
			if at = end; kind == frameEnd {
				complete = len(payload) == 8 && binary.LittleEndian.Uint64(payload) == uint64(frames)
				continue
			}
			frames++
			if err := fn(kind, payload); err != nil {
				return frames, skipped, false, err
			}
			continue
		}
		if skipped == 0 && in.size-at == frameHeader+8 {
			// No other frame is as short as the end, and of a cut one neither kind nor length are those of the end.
			h, err := in.bytes(at, frameHeader)
			if err != nil {
				return frames, skipped, false, fmt.Errorf("kvserver: read %s: %w", path, err)
			}
			if h[4] == frameEnd || binary.LittleEndian.Uint32(h[5:]) == 8 {
				return frames, in.size - at, true, nil
			}
		}
		if end > at { // its length may be right
			if next, _, _, err := in.frame(end, &budget); err == nil && next != 0 {
				skipped += end - at
				at = end
				continue
			}
		}
		if budget < 0 {
			return frames, skipped + in.size - at, false, nil
		}
		skipped++
		at++
	}
	return frames, skipped, complete, nil
}

// backReader reads a file through a buffer, mostly forward.
type backReader struct {
	f    vfs.File
	size int64
	seed uint32
	at   int64
	buf  []byte
}

func (in *backReader) bytes(at, n int64) ([]byte, error) {
	if skip := at - in.at; skip >= 0 && skip+n <= int64(len(in.buf)) {
		return in.buf[skip:][:n], nil
	}
	want := min(max(n, 1<<20), in.size-at)
	if int64(cap(in.buf)) < want {
		in.buf = make([]byte, want)
	}
	in.buf, in.at = in.buf[:want], at
	if m, err := in.f.ReadAt(in.buf, at); int64(m) < n {
		in.buf = in.buf[:0]
		return nil, err
	}
	return in.buf[:n], nil
}

// frame returns the frame at an offset, or kind 0 and where it would end; 0 if no frame can begin there.
func (in *backReader) frame(at int64, budget *int64) (kind byte, payload []byte, end int64, err error) {
	if in.size-at < frameHeader {
		return 0, nil, 0, nil
	}
	b, err := in.bytes(at, frameHeader)
	if err != nil {
		return 0, nil, 0, err
	}
	length := int64(binary.LittleEndian.Uint32(b[5:]))
	if b[4] < frameStore || b[4] > frameEnd || length > in.size-at-frameHeader {
		return 0, nil, 0, nil
	}
	end = at + frameHeader + length
	if b, err = in.bytes(at, frameHeader+length); err != nil {
		return 0, nil, 0, err
	}
	if frameSum(in.seed, at, b[:frameHeader], b[frameHeader:]) != binary.LittleEndian.Uint32(b) {
		*budget -= length
		return 0, nil, end, nil
	}
	return b[4], b[frameHeader:], end, nil
}
