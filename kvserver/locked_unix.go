//go:build unix

package kvserver

import (
	"errors"
	"syscall"
)

const errReadOnly = syscall.EROFS

// isLocked reports whether taking a kernel lock failed because somebody else holds it. POSIX leaves it to the system
// which of the two codes it is; EACCES then means the same as a missing permission to open the file.
func isLocked(err error) bool { return errors.Is(err, syscall.EAGAIN) }
