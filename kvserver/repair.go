package kvserver

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

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
// What is lost can have been a delete, or a newer value: then an older one is back. A repaired directory is the best there
// is, not what was acknowledged.
func Repair(fs vfs.FS, dir string, mode storage.Mode, note func(path, what string)) (err error) {
	if fs == nil {
		fs = vfs.Default
	}
	mode, damage, err := modeOf(fs, dir, mode)
	if err != nil {
		return err
	}
	lock, err := lockDir(fs, absolute(fs, dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	r := &repairer{fs: fs, dir: dir, mode: mode, note: note}
	if damage != nil {
		if err := r.format(damage); err != nil {
			return err
		}
	}
	for _, step := range []func() error{r.tables, r.checkpoints, r.log, r.clean} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type repairer struct {
	fs   vfs.FS
	dir  string
	mode storage.Mode
	note func(path, what string)
	base uint64 // first segment to replay
}

// modeOf returns the mode of a data directory, which who calls may have been told, and what is wrong with its FORMAT if
// something is, also beside an error.
func modeOf(fs vfs.FS, dir string, told storage.Mode) (mode storage.Mode, damage, err error) {
	format, damage := ReadFormat(fs, dir)
	mode = format.Mode
	if damage != nil {
		if !isDamage(damage) {
			return "", damage, damage
		}
		if _, err := fs.Stat(dir); err != nil {
			return "", damage, fmt.Errorf("kvserver: %w", err)
		}
		if mode, err = proveMode(fs, dir); err != nil {
			names, lerr := segmentNames(fs, fs.PathJoin(dir, walName))
			if told == "" || lerr != nil || len(names) == 0 {
				return "", damage, errors.Join(damage, err)
			}
			if fit, err := checkpointModes(fs, dir); err != nil || len(fit) > 0 && !slices.Contains(fit, told) {
				return "", damage, errors.Join(err, fmt.Errorf("kvserver: the checkpoint in %s is not one of mode %s: give another --mode", dir, told))
			}
			mode = told
		}
	}
	if told != "" && told != mode {
		return "", damage, fmt.Errorf("kvserver: data directory %s holds mode %s, not %s", dir, mode, told)
	}
	return mode, damage, nil
}

// format writes FORMAT anew. The old one is kept aside.
func (r *repairer) format(why error) error {
	path := r.fs.PathJoin(r.dir, formatName)
	if err := r.keepAside(path); err != nil {
		return err
	}
	if err := writeAtomically(r.fs, r.dir, formatName, formatText(r.mode)); err != nil {
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
	if found, err := checkClean(r.fs, r.dir); found && err != nil {
		return r.moveAside(r.fs.PathJoin(r.dir, cleanName), err)
	}
	return nil
}

// tables makes a new LSM tree of what can be read of a damaged one.
func (r *repairer) tables() error {
	if r.mode != storage.LSM {
		return nil
	}
	path, tmp := r.fs.PathJoin(r.dir, "lsm"), r.fs.PathJoin(r.dir, "lsm"+tmpSuffix)
	made := r.fs.PathJoin(tmp, "lsm")
	_, err := r.fs.Stat(path)
	missing := errors.Is(err, os.ErrNotExist)
	_, err = r.fs.Stat(r.fs.PathJoin(tmp, "complete"))
	if !missing || err != nil { // not interrupted between the two renames below
		numbers, _, err := listCheckpoints(r.fs, r.fs.PathJoin(r.dir, checkpointName))
		if err != nil {
			return err
		}
		_, damage := lsm.Check(r.fs, r.dir, storeRecord(r.fs, r.dir, numbers))
		if damage == nil && !missing {
			return r.removeTree(tmp)
		}
		if missing {
			damage = os.ErrNotExist
		}
		if err := r.removeTree(tmp); err != nil {
			return err
		}
		n, err := lsm.Salvage(r.fs, r.dir, tmp, func(err error) { r.note(path, fmt.Sprintf("lost: %v", err)) })
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

// noCheckpoint makes an empty one where the log does not begin with its first segment.
func (r *repairer) noCheckpoint(segment string) error {
	if _, err := fmt.Sscanf(segment, "%d.wal", &r.base); err != nil {
		return fmt.Errorf("kvserver: repair: segment %s: %w", segment, err)
	}
	dir := r.fs.PathJoin(r.dir, checkpointName)
	if err := r.fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	path := r.fs.PathJoin(dir, checkpointFile(r.base))
	err := r.writeCheckpoint(path, func(*checkpointWriter) error { return nil })
	if err == nil {
		r.note(path, "made, empty: the checkpoint that the log was written over is missing")
	}
	return errors.Join(err, syncDir(r.fs, r.dir))
}

// checkpointDamage returns what is wrong with a checkpoint or with the values that it refers to.
func (r *repairer) checkpointDamage(number uint64) error {
	reports, err := checkCheckpoint(r.fs, r.dir, number, r.mode == storage.File)
	for _, rep := range reports {
		if rep.State != wal.Clean && err == nil {
			err = fmt.Errorf("%s, offset %d: %w", rep.Path, rep.Offset, rep.Err)
		}
	}
	return err
}

func (r *repairer) rewriteCheckpoint(path string, why error) error {
	salvager := file.NewSalvager(r.fs, r.dir)
	keys := 0
	var damage error
	var kept []byte
	frames, skipped := 0, int64(0)
	err := r.writeCheckpoint(path, func(w *checkpointWriter) (err error) {
		frames, skipped, err = salvageCheckpoint(r.fs, path, func(kind byte, payload []byte) error {
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
		return err
	})
	if err = errors.Join(err, salvager.Close()); err != nil {
		return err
	}
	r.note(path, fmt.Sprintf("replaced by the %d frames that can be read, %d bytes cannot: %v", frames, skipped, why))
	if keys > 0 {
		r.note(path, fmt.Sprintf("%d keys lost, whose values cannot be read: %v", keys, damage))
	}
	return nil
}

// writeCheckpoint makes a checkpoint in the place of the one at path, if there is one, which is kept aside.
func (r *repairer) writeCheckpoint(path string, fill func(*checkpointWriter) error) error {
	f, err := r.fs.Create(path+tmpSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("kvserver: repair: %w", err)
	}
	w := &checkpointWriter{w: bufio.NewWriterSize(&sequential{file: f}, 1<<20)}
	n, err := w.w.WriteString(checkpointMagic)
	w.offset = int64(n)
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
	reports, err := wal.Scan(r.fs, dir, func(segment uint64, offset int64, payload []byte) error {
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
		if rep.State == wal.Corrupt && !errors.Is(rep.Err, wal.ErrMissing) {
			if err := r.rewriteSegment(dir, rep.Segment, fmt.Errorf("offset %d: %w", rep.Offset, rep.Err)); err != nil {
				return err
			}
		}
		if !errors.Is(rep.Err, wal.ErrMissing) {
			next = rep.Segment + 1
		}
	}
	if next == r.base && r.base > 1 {
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
	n, err := wal.Rewrite(r.fs, dir, number, aside)
	if err == nil {
		r.note(path, fmt.Sprintf("replaced by the %d records that can be read: %v", n, why))
	}
	return err
}

func segmentFile(number uint64) string { return fmt.Sprintf("%010d.wal", number) }

// salvageCheckpoint calls fn for the frames of a checkpoint that can be read, whatever stands between them, and returns their number
// and how many bytes it had to skip. The end is not among them.
//
// Behind damage it tries the place where the frame would end, if its length is right, and then every byte. A frame's
// checksum covers its place, so a frame that was only copied there does not pass. Should somebody have made up lengths that
// fit, the search gives up when it has summed many times the file in vain.
func salvageCheckpoint(fs vfs.FS, path string, fn func(kind byte, payload []byte) error) (frames int, skipped int64, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return 0, 0, fmt.Errorf("kvserver: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, fmt.Errorf("kvserver: %w", err)
	}
	in := backReader{f: f, size: info.Size()}
	budget := 64 * in.size
	for at := int64(len(checkpointMagic)); at < in.size; {
		kind, payload, end, err := in.frame(at, &budget)
		if err != nil {
			return frames, skipped, fmt.Errorf("kvserver: read %s: %w", path, err)
		}
		if kind != 0 {
			if at = end; kind != frameEnd {
				frames++
				if err := fn(kind, payload); err != nil {
					return frames, skipped, err
				}
			}
			continue
		}
		if end > at { // its length may be right
			if next, _, _, err := in.frame(end, &budget); err == nil && next != 0 {
				skipped += end - at
				at = end
				continue
			}
		}
		if budget < 0 {
			return frames, skipped + in.size - at, nil
		}
		skipped++
		at++
	}
	return frames, skipped, nil
}

// backReader reads a file through a buffer, mostly forward.
type backReader struct {
	f    vfs.File
	size int64
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
	if frameSum(at, b[:frameHeader], b[frameHeader:]) != binary.LittleEndian.Uint32(b) {
		*budget -= length
		return 0, nil, end, nil
	}
	return b[4], b[frameHeader:], end, nil
}
