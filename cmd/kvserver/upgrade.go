package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"kvmark/kvserver"
)

func upgradeCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "upgrade",
		Usage: "make a data directory of one that an older kvserver has made",
		UsageText: "kvserver upgrade DIR TO\n\nDIR is not changed, and its server must not be running. TO must be empty or not exist. It gets the mode and all entries of\n" +
			"DIR, as a log, which takes as much space as the data and which the first start replays.\n\n" +
			"Exit code 0: TO is complete; 1: it is not, and what was written is removed; 2: a mistake in the command line.",
		Action: func(c *cli.Context) error {
			dirs, err := directories(c, "the old data directory and one for the new", 2)
			if err != nil {
				return err
			}
			logf := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
			done, err := kvserver.Upgrade(c.Context, kvserver.UpgradeOptions{Dir: dirs[0], To: dirs[1], Logf: logf})
			if err != nil {
				return errors.Join(fmt.Errorf("%s is not upgraded", dirs[0]), err)
			}
			if done.Cut != "" {
				logf("kvserver: %s", done.Cut)
			}
			_, err = fmt.Fprintf(stdout, "%s: made of %s: %d entries of its checkpoint, %d records of its log\n", dirs[1], dirs[0], done.Entries, done.Records)
			return err
		},
	}
}
