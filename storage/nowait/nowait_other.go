//go:build !linux

package nowait

import "github.com/cockroachdb/pebble/v2/vfs"

func readAt(f vfs.File, p []byte, off int64) (int, error) { return f.ReadAt(p, off) }
