package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"kvmark/client/load"
)

// driveFlags are the options of all commands that measure about what a server and its client get.
func driveFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "io", Usage: "how kvserver moves bytes: loop (Linux) or goroutine", DefaultText: "its own: loop where it can"},
		&cli.StringFlag{Name: "server-cpus", Usage: "keep servers on these `CPUS`, such as 0-3,8 (Linux)", DefaultText: "all, or those that --client-cpus leaves"},
		&cli.StringFlag{Name: "client-cpus", Usage: "keep kvmark on these `CPUS`", DefaultText: "all, or those that --server-cpus leaves"},
	}
}

// driveOptions reads the flags of driveFlags; its errors are usage errors.
func driveOptions(c *cli.Context, cfg *load.Config) (err error) {
	cfg.IO = c.String("io")
	for _, list := range []struct {
		flag string
		cpus *load.CPUs
	}{{"server-cpus", &cfg.ServerCPUs}, {"client-cpus", &cfg.ClientCPUs}} {
		if *list.cpus, err = load.ParseCPUs(c.String(list.flag)); err != nil {
			return fmt.Errorf("--%s: %w", list.flag, err)
		}
		if c.IsSet(list.flag) && len(*list.cpus) == 0 {
			return fmt.Errorf("--%s names no CPU: leave it out for all of them", list.flag)
		}
	}
	return nil
}
