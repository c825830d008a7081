package lsm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// DamageError is returned when what is on disk is not what was written there.
type DamageError struct {
	Path   string
	Offset int64
	Err    error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("lsm: %s, offset %d: %v", e.Path, e.Offset, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }

// readError is the error of a read. Damage is that of the table in which it is.
func (s *Store) readError(what string, err error) error {
	if pebble.IsCorruptionError(err) {
		return damageOf(s.dir, err)
	}
	return fmt.Errorf("lsm: %s: %w", what, err)
}

// openError says that what is in dir cannot be opened, in the words of the one damage if it is one.
func openError(dir string, err error) error {
	if d, ok := errors.AsType[*DamageError](err); ok {
		return d
	}
	if pebble.IsCorruptionError(err) {
		return damageOf(dir, err)
	}
	return fmt.Errorf("lsm: open %s: %w", dir, plainError{err})
}

// damageOf names the file that Pebble found damaged, dir if it does not say which.
func damageOf(dir string, err error) error {
	path := dir
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil && info.Path != "" {
		path = info.Path
	}
	return &DamageError{path, 0, plainError{err}}
}

// plainError is an error of Pebble without what only its authors can use.
type plainError struct{ error }

func (e plainError) Error() string { return plain(e.error) }
func (e plainError) Unwrap() error { return e.error }

func plain(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.ReplaceAll(line, "<corruption detail carrier>: ", "")
}

// oneLine cuts notes behind their first line: what follows are stack traces.
func oneLine(logf func(string, ...any)) func(string, ...any) {
	return func(format string, args ...any) {
		line, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
		logf("%s", strings.ReplaceAll(line, "<corruption detail carrier>: ", ""))
	}
}
