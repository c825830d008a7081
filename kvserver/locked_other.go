//go:build !unix

package kvserver

import (
	"errors"
	"os"
)

var errReadOnly = errors.New("read-only file system")

// isLocked reports whether taking a kernel lock failed because somebody else holds it.
func isLocked(err error) bool { return !errors.Is(err, os.ErrPermission) }
