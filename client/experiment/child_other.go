//go:build !linux

package experiment

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
