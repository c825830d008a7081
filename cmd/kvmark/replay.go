package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"kvmark/client/load"
	"kvmark/client/report"
	"kvmark/client/result"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:      "replay",
		Usage:     "measure again what a result of run was measured with: same plan, same seed",
		ArgsUsage: "RESULT",
		Description: "Every option comes from the plan in the result, also the server's path, its environment and the directory for data.\n" +
			"`kvmark report --diff OLD NEW` then tells what differs.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "`DIR` for result.json (default: results/ and the time)"},
			&cli.StringFlag{Name: "format", Value: string(report.Table), Usage: "table, json, csv, markdown or bench"},
			&cli.StringFlag{Name: "server", Usage: "`PATH` of another kvserver than then"},
		}, targetFlags()...), // a password is in no result
		Action: func(c *cli.Context) error {
			format, err := report.ParseFormat(c.String("format"))
			if err != nil {
				return usageError{err}
			}
			if c.NArg() != 1 {
				return usageError{errors.New("replay needs the path of one result.json")}
			}
			f, err := result.Read(resultFile(c.Args().First()))
			if err != nil {
				return err
			}
			if f.Command != "run" {
				return fmt.Errorf("%s is a result of %q: only those of run can be replayed", c.Args().First(), f.Command)
			}
			cfg, err := load.FromPlan(f.Plan)
			if err != nil {
				return err
			}
			switch {
			case c.IsSet("target") && f.Plan.Target == "":
				return usageError{errors.New("--target: the plan is about servers that kvmark starts")}
			case c.IsSet("server") && f.Plan.Target != "":
				return usageError{errors.New("--server: the plan is about a target")}
			case c.IsSet("target"):
				if cfg.Target, err = parseTarget(c); err != nil {
					return usageError{err}
				}
			case c.IsSet("server"):
				cfg.Server = c.String("server")
			}
			return measure(c, cfg, cfg.Server, f.Plan.Score, format)
		},
	}
}
