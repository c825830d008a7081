package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"kvmark/kvserver"
)

func backupCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "backup",
		Usage: "copy a data directory as it is at one moment, also while a server uses it",
		UsageText: "kvserver backup [--wait TIME] DIR TO\n\nTO must be empty or not exist. It gets everything that was acknowledged before, and the same identity: it is a data\n" +
			"directory, to be served in place of DIR. Files that never change again are hard links where TO is on the file system of\n" +
			"DIR: to be safe from a broken disk, copy TO to another one. A server that uses DIR is asked by a file in it, so run this\n" +
			"as the user of the server. TO is read as kvserver check does before it is said to be good.\n\n" +
			"Exit code 0: TO is complete; 1: it is not, and what was copied is removed; 2: a mistake in the command line.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "wait", Value: 5 * time.Minute, Usage: "how long to wait for a server that is starting or makes a checkpoint"},
		},
		Action: func(c *cli.Context) error {
			dirs, err := directories(c, "a data directory and one for the backup", 2)
			if err != nil {
				return err
			}
			wait := c.Duration("wait")
			if wait <= 0 {
				return usageError{fmt.Errorf("--wait is %v: want a time above 0", wait)}
			}
			done, err := kvserver.Backup(c.Context, kvserver.BackupOptions{
				Dir: dirs[0], To: dirs[1], Wait: wait,
				Logf: func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) },
			})
			if err != nil {
				return errors.Join(fmt.Errorf("no backup of %s", dirs[0]), err)
			}
			_, err = fmt.Fprintf(stdout, "%s: backup of %s, complete: %d files, %d of them hard links, %d bytes copied; %d records in its log\n",
				dirs[1], dirs[0], done.Files, done.Linked, done.Copied, done.Records)
			return err
		},
	}
}
