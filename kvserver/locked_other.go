//go:build !unix

package kvserver

import "errors"

var errReadOnly = errors.New("read-only file system")

// isLocked reports whether taking a kernel lock failed because somebody else holds it.
func isLocked(error) bool { return false }
