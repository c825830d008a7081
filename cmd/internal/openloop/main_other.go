//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "openloop: the minimal client is written for Linux")
	os.Exit(1)
}
