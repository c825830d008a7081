package kvserver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/wal"
)

// A server that ends in good order leaves a file that says where the log ended, and with what (see [wal.End]), in text that is part
// of the disk format; the checksum is that of the lines before it:
//
//	closed segment 0000000012.wal id 89abcdef01234567 end 123456 sum 89abcdef
//	identity 00112233445566778899aabbccddeeff
//	checksum 89abcdef
//
// The next one removes it when it has read everything, right before it changes the log. So a log that lost its end while no server
// used it is noticed, which a crash, after which the file is not there, could also have done.
const (
	cleanName  = "CLEAN"
	closedWord = "closed "
)

func cleanText(id identity, end wal.End) string {
	return seal(fmt.Sprintf("%s%s\nidentity %s\n", closedWord, end, id))
}

func parseClean(text string) (id identity, end wal.End, err error) {
	lines, err := unseal(text)
	if err != nil {
		return id, end, err
	}
	if len(lines) != 2 {
		return id, end, fmt.Errorf("%d lines, not 2", len(lines))
	}
	closed, is := strings.CutPrefix(lines[0], closedWord)
	value, too := strings.CutPrefix(lines[1], "identity ")
	if !is || !too {
		return id, end, fmt.Errorf("line %.80q", lines[0])
	}
	if end, err = wal.ParseEnd(closed); err != nil {
		return id, end, err
	}
	id, err = parseIdentity(value)
	return id, end, err
}

// segmentNames returns the names of the log's segments in ascending order; none for a directory that is not there.
func segmentNames(fs vfs.FS, dir string) ([]string, error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kvserver: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { _, ours := wal.SegmentNumber(n); return !ours })
	slices.Sort(names)
	return names, nil
}

// readClean returns where the log ended if the last server ended in good order, and nil if it did not.
func (p *place) readClean() (*wal.End, error) {
	path := p.path(cleanName)
	text, err := readSmall(p.fs, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kvserver: %w", err)
	}
	id, end, err := parseClean(text)
	if err != nil {
		return nil, &wal.CorruptionError{Path: path, Err: fmt.Errorf("it holds %.60q, which no server leaves (%w): whether the log lost its end cannot be told", text, err)}
	}
	if id != p.identity {
		return nil, &wal.CorruptionError{Path: path, Err: fmt.Errorf("it belongs to another data directory (it says %s, this one is %s): move it away and put the right file here", id, p.identity)}
	}
	return &end, nil
}

// removeClean is called when the log is about to be used.
func removeClean(fs vfs.FS, dir string) error {
	if err := fs.Remove(fs.PathJoin(dir, cleanName)); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	return syncDir(fs, dir)
}

// leaveClean is called when the log has been closed without an error.
func (p *place) leaveClean(end wal.End) error {
	return writeAtomically(p.fs, p.dir, cleanName, cleanText(p.identity, end))
}
