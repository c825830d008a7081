package main

import (
	"errors"

	"github.com/urfave/cli/v2"

	"kvmark/client/report"
	"kvmark/client/result"
)

func reportCommand() *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "print results again, in any format",
		ArgsUsage: "RESULT...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Value: string(report.Table), Usage: "table, json, csv, markdown or bench"},
		},
		Action: func(c *cli.Context) error {
			format, err := report.ParseFormat(c.String("format"))
			if err != nil {
				return usageError{err}
			}
			if c.NArg() == 0 {
				return usageError{errors.New("report needs the path of a result.json")}
			}
			for _, path := range c.Args().Slice() {
				f, err := result.Read(path)
				if err != nil {
					return err
				}
				if err := report.Write(c.App.Writer, f, format); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
