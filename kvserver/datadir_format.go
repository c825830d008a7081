package kvserver

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/storage/file"
	"kvmark/wal"
)

// identity names a data directory among all others: random, made with it, kept by its copies. It is in the header and in the
// checksums of every file, so that a file of another directory is never taken for one of this.
type identity [16]byte

func newIdentity() (id identity) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

func (id identity) String() string { return hex.EncodeToString(id[:]) }

func parseIdentity(text string) (id identity, err error) {
	b, err := hex.DecodeString(text)
	if err == nil && len(b) != len(id) {
		err = fmt.Errorf("%d bytes, not %d", len(b), len(id))
	}
	if err != nil {
		return id, fmt.Errorf("identity %.40q: %w", text, err)
	}
	return identity(b), nil
}

// FORMAT is text, and part of the disk format; the checksum, CRC-32C, is that of the lines before it:
//
//	kvmark data directory
//	version 2
//	mode memory
//	identity 00112233445566778899aabbccddeeff
//	checksum 89abcdef
//
// Version 1 had no identity and no checksum. It is refused; see upgrade.go.
const (
	formatTitle   = "kvmark data directory"
	formatVersion = 2
)

// Format is what a data directory says of itself.
type Format struct {
	Version  int
	Mode     storage.Mode
	identity identity
}

func (f Format) text() string {
	return seal(fmt.Sprintf("%s\nversion %d\nmode %s\nidentity %s\n", formatTitle, f.Version, f.Mode, f.identity))
}

// seal puts a line with the checksum of text behind it.
func seal(text string) string {
	return fmt.Sprintf("%schecksum %08x\n", text, crc32.Checksum([]byte(text), castagnoli()))
}

// unseal returns the lines that seal was given.
func unseal(text string) ([]string, error) {
	at := strings.LastIndex(text, "checksum ")
	if at < 0 || text != seal(text[:at]) {
		return nil, errors.New("its checksum is missing or wrong")
	}
	return strings.Split(strings.TrimSuffix(text[:at], "\n"), "\n"), nil
}

// oldFormat is the text of FORMAT in version 1.
func oldFormat(mode storage.Mode) string {
	return fmt.Sprintf("%s\nversion 1\nmode %s\n", formatTitle, mode)
}

// ErrOldFormat is returned for a data directory that an older kvserver has made.
var ErrOldFormat = errors.New("data directory of an older version")

// ReadFormat reads the FORMAT file of a data directory. The error is fs.ErrNotExist (wrapped) where there is none.
func ReadFormat(fs vfs.FS, dir string) (Format, error) {
	var f Format
	path := fs.PathJoin(dir, formatName)
	text, err := readSmall(fs, path)
	if err != nil {
		return f, fmt.Errorf("kvserver: %w", err)
	}
	damaged := func(err error) (Format, error) { return f, &wal.CorruptionError{Path: path, Err: err} }
	if !strings.HasPrefix(text, formatTitle+"\n") {
		first, _, _ := strings.Cut(text, "\n")
		return damaged(fmt.Errorf("it begins with %.40q, not %q: damaged, or not a data directory of kvserver", first, formatTitle))
	}
	for _, mode := range storage.Modes() {
		if text == oldFormat(mode) {
			return Format{Version: 1, Mode: mode}, fmt.Errorf("kvserver: %w: %s has version 1, this program reads version %d; kvserver upgrade %s TO makes a new directory of it, or give another --dir",
				ErrOldFormat, path, formatVersion, dir)
		}
	}
	lines, err := unseal(text)
	if err != nil {
		return damaged(err)
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, " ")
		switch name {
		case "version":
			f.Version, err = strconv.Atoi(value)
		case "mode":
			f.Mode = storage.Mode(value)
		case "identity":
			f.identity, err = parseIdentity(value)
		}
		if err != nil {
			return damaged(fmt.Errorf("%s: %w", name, err))
		}
	}
	if f.Version != formatVersion {
		return f, fmt.Errorf("kvserver: %s has version %d; this program reads version %d", path, f.Version, formatVersion)
	}
	if _, err := storage.ParseMode(string(f.Mode)); err != nil {
		return damaged(err)
	}
	return f, nil
}

// isDamage reports whether an error of ReadFormat is one that repair can undo: not that of another version, or of a file that
// cannot be read for now.
func isDamage(err error) bool {
	_, corrupt := errors.AsType[*wal.CorruptionError](err)
	return corrupt || errors.Is(err, os.ErrNotExist)
}

// proveIdentity returns the identity that most files of a data directory have in their headers; told, that of FORMAT unless it is
// damaged, counts as one of them, and wins a tie.
func proveIdentity(fs vfs.FS, dir string, told identity) (identity, error) {
	votes := map[identity]int{}
	if told != (identity{}) {
		votes[told]++
	}
	for _, kind := range fileKinds {
		files, err := kind.list(fs, fs.PathJoin(dir, kind.dir))
		if err != nil {
			return told, err
		}
		for _, f := range files {
			id, number, err := kind.header(fs, f.path)
			if err != nil {
				return told, err
			}
			if number != 0 {
				votes[id]++
			}
		}
	}
	if text, err := readSmall(fs, fs.PathJoin(dir, cleanName)); err == nil {
		if id, _, err := parseClean(text); err == nil {
			votes[id]++
		}
	}
	best := told
	for id, n := range votes {
		if n > votes[best] || n == votes[best] && best != told && slices.Compare(id[:], best[:]) < 0 {
			best = id
		}
	}
	if best == (identity{}) {
		// A line of a damaged FORMAT is better than nothing.
		text, _ := readSmall(fs, fs.PathJoin(dir, formatName))
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "identity "); ok {
				if id, err := parseIdentity(value); err == nil {
					return id, nil
				}
			}
		}
		return best, fmt.Errorf("kvserver: no file in %s has a header that can be read, so nothing tells the identity of the directory", dir)
	}
	return best, nil
}

// fileKind is one of the kinds of numbered files whose headers name directory and number.
type fileKind struct {
	dir    string
	name   func(number uint64) string
	number func(name string) (uint64, bool)
	header func(fs vfs.FS, path string) (id identity, number uint64, err error) // number 0: none that can be read
}

var fileKinds = []fileKind{
	{walName, wal.SegmentName, wal.SegmentNumber, func(fs vfs.FS, path string) (identity, uint64, error) {
		id, n, err := wal.ReadHeader(fs, path)
		return identity(id), n, err
	}},
	{checkpointName, checkpointFile, checkpointNumber, func(fs vfs.FS, path string) (identity, uint64, error) {
		h, err := readCheckpointHeader(fs, path)
		return h.identity, h.number, err
	}},
	{valuesName, file.Name, file.Number, func(fs vfs.FS, path string) (identity, uint64, error) {
		id, n, err := file.ReadHeader(fs, path)
		return identity(id), n, err
	}},
}

type numberedFile struct {
	number uint64
	path   string
}

// list returns the files of the kind, in ascending order; none for a directory that is not there. What is a directory itself is left out.
func (k *fileKind) list(fs vfs.FS, dir string) (files []numberedFile, err error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kvserver: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		n, ok := k.number(name)
		if info, err := fs.Stat(fs.PathJoin(dir, name)); ok && (err != nil || !info.IsDir()) {
			files = append(files, numberedFile{n, fs.PathJoin(dir, name)})
		}
	}
	return files, nil
}

// Ignored returns the paths of files that are among those of a data directory, and whose names are none that kvserver gives. Nothing
// uses them.
func Ignored(fs vfs.FS, dir string) (paths []string, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	for _, kind := range fileKinds {
		path := fs.PathJoin(dir, kind.dir)
		names, err := fs.List(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("kvserver: %w", err)
		}
		slices.Sort(names)
		for _, name := range names {
			base, _, _ := strings.Cut(name, damagedSuffix) // what repair has moved aside
			base = strings.TrimSuffix(strings.TrimSuffix(base, tmpSuffix), misplacedSuffix)
			if _, ours := kind.number(base); !ours {
				paths = append(paths, fs.PathJoin(path, name))
			}
		}
	}
	return paths, nil
}
