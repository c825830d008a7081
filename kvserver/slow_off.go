//go:build !kvmark_slow || !linux

package kvserver

import "sync/atomic"

// slowdown makes commands cost more in a build with the tag kvmark_slow. In this one it is nothing.
type slowdown struct{}

func newSlowdown(*Options, *atomic.Int64) (*slowdown, error) { return nil, nil }

func (*slowdown) command() {}
