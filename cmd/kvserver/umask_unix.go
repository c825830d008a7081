//go:build unix

package main

import "syscall"

// ownFiles makes every file that the process creates its owner's alone, whoever creates it: values are in many of them.
func ownFiles() { syscall.Umask(0o077) }
