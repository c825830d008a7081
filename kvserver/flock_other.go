//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package kvserver

import (
	"errors"
	"io"
)

// flockDir locks a directory itself, which this system cannot do: LOCK is what there is.
func flockDir(string) (io.Closer, error) { return nil, errors.ErrUnsupported }
