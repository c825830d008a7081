package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"kvmark/client/result"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "say what a check or a warning means, why it matters and what helps; without a code, list all",
		ArgsUsage: "[CODE...]",
		Action: func(c *cli.Context) error {
			all := result.Explanations()
			if c.NArg() == 0 {
				for _, e := range all {
					fmt.Fprintf(c.App.Writer, "%-20s %s\n", e.Code, e.Says)
				}
				return nil
			}
			for i, code := range c.Args().Slice() {
				e, ok := find(all, code)
				if !ok {
					return usageError{fmt.Errorf("there is no code %s: kvmark explain lists all", argument(c, code))}
				}
				if i > 0 {
					fmt.Fprintln(c.App.Writer)
				}
				fmt.Fprintf(c.App.Writer, "%s: %s\n\n%s\n\nWhat helps: %s\n", e.Code, e.Says, e.Why, e.Do)
			}
			return nil
		},
	}
}

func find(all []result.Explanation, code string) (result.Explanation, bool) {
	for _, e := range all {
		if e.Code == code {
			return e, true
		}
	}
	return result.Explanation{}, false
}
