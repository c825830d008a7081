//go:build !linux

package load

import "errors"

var errNoPinning = errors.New("to keep a process on some CPUs needs Linux")

func ownCPUs() (CPUs, error) { return nil, errNoPinning }

func (c CPUs) onThread(f func() error) error {
	if len(c) > 0 {
		return errNoPinning
	}
	return f()
}

func (c CPUs) onProcess() error { return errNoPinning }
