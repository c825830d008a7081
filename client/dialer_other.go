//go:build !linux

package client

import "syscall"

func lateBind(string, string, syscall.RawConn) error { return nil }

func readText(string) string { return "" }
