// Package nowait reads what the system has in its page cache, and says so when the rest would have to come from the device.
// It is for stores whose caller must not wait there: an event loop, which has other connections to serve.
package nowait

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrWouldWait is returned instead of a value that is not in memory. Nothing has changed, and the system may have begun to
// read it: the same call can succeed later, or the caller uses one that waits.
var ErrWouldWait = errors.New("the value has to be read from the device")

// ReaderAt is a file that can do by itself what [ReadAt] asks the system for.
type ReaderAt interface {
	// ReadAtNoWait fills p from the offset, or returns ErrWouldWait.
	ReadAtNoWait(p []byte, off int64) (n int, err error)
}

// ReadAt fills p from the offset if that needs no device, and otherwise returns [ErrWouldWait]. Where neither the file nor the
// system can tell, it waits.
func ReadAt(f vfs.File, p []byte, off int64) (n int, err error) {
	if r, ok := f.(ReaderAt); ok {
		return r.ReadAtNoWait(p, off)
	}
	return readAt(f, p, off)
}
