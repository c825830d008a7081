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

// A server that ends in good order leaves a file that says where the log ended, in text that is part of the disk format:
//
//	closed segment 0000000012.wal size 123456
//
// The next one removes it before it changes anything. So a log that lost its end while nobody used it is noticed, which a
// crash, after which the file is not there, could also have done.
const (
	cleanName = "CLEAN"
	endFormat = "closed segment %s size %d\n"
	noLog     = "closed without a log\n"
)

// logEnd describes the newest segment of the log, or that there is none.
func logEnd(fs vfs.FS, dir string) (string, error) {
	names, err := segmentNames(fs, fs.PathJoin(dir, walName))
	if err != nil || len(names) == 0 {
		return noLog, err
	}
	newest := names[len(names)-1]
	info, err := fs.Stat(fs.PathJoin(dir, walName, newest))
	if err != nil {
		return "", fmt.Errorf("kvserver: %w", err)
	}
	return fmt.Sprintf(endFormat, newest, info.Size()), nil
}

// isLogEnd reports whether logEnd can have made text.
func isLogEnd(text string) bool {
	var segment string
	var size int64
	_, err := fmt.Sscanf(text, endFormat, &segment, &size)
	return text == noLog || err == nil && strings.HasSuffix(segment, ".wal") && text == fmt.Sprintf(endFormat, segment, size)
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
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".wal") })
	slices.Sort(names)
	return names, nil
}

// checkClean compares the end of the log with what the last server left, if it ended in good order.
func checkClean(fs vfs.FS, dir string) (found bool, err error) {
	path := fs.PathJoin(dir, cleanName)
	want, err := readSmall(fs, path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("kvserver: %w", err)
	}
	if !isLogEnd(want) {
		return true, &wal.CorruptionError{Path: path, Err: fmt.Errorf("it holds %.60q, which no server leaves: whether the log lost its end cannot be told", want)}
	}
	got, err := logEnd(fs, dir)
	if err == nil && got != want {
		err = &wal.CorruptionError{Path: path, Err: fmt.Errorf("the log was %q when the server ended, and is %q now", strings.TrimSpace(want), strings.TrimSpace(got))}
	}
	return true, err
}

// removeClean is called when the log is about to be used.
func removeClean(fs vfs.FS, dir string) error {
	if err := fs.Remove(fs.PathJoin(dir, cleanName)); err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	return syncDir(fs, dir)
}

// leaveClean is called when the log has been closed without an error.
func leaveClean(fs vfs.FS, dir string) error {
	end, err := logEnd(fs, dir)
	if err != nil {
		return err
	}
	return writeAtomically(fs, dir, cleanName, end)
}
