package main

import (
	"github.com/urfave/cli/v2"

	"kvmark/kvserver/setting"
)

// byteSize is the value of a flag in bytes: a number, with KiB, MiB, GiB or TiB behind it if need be.
type byteSize int64

func sizeFlag(name string, value int64, usage string) cli.Flag {
	v := byteSize(value)
	return &cli.GenericFlag{Name: name, Value: &v, Usage: usage + " (`BYTES`, or with KiB, MiB, GiB behind it)"}
}

func size(c *cli.Context, name string) int64 { return int64(*c.Generic(name).(*byteSize)) }

func (b *byteSize) String() string { return setting.FormatBytes(int64(*b)) }

// Get makes it a flag whose value the library can tell.
func (b *byteSize) Get() any { return b }

func (b *byteSize) Set(text string) error {
	v, err := setting.ParseBytes(text)
	if err == nil {
		*b = byteSize(v)
	}
	return err
}
