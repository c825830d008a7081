//go:build !unix

package client

import "errors"

func descriptorLimit() (uint64, bool) { return 0, false }

func raiseDescriptors(uint64) error { return errors.ErrUnsupported }
