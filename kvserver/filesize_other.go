//go:build !unix

package kvserver

import "math"

// fileSizeLimit returns how long a file of this process may be.
func fileSizeLimit() int64 { return math.MaxInt64 }
