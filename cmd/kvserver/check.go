package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"kvmark/kvserver"
	"kvmark/storage"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// Exit codes of check, which say something of the directory; hence 3 for whatever kept it from being read. A mistake in the command
// line is what it is for every command.
const (
	exitTorn      = 1
	exitCorrupt   = 2
	exitUnchecked = 3
)

func checkCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "read everything, change nothing, say what is damaged",
		UsageText: "kvserver check DIR\n\nExit code 0: clean; 1: an unsynced tail that the next start will cut; 2: damaged, or a mistake in the command line, and nothing is\nprinted on stdout;\n3: could not be checked (no such directory, not a data directory, not readable),\nand what could be is not damaged. The directory must not be in use: the end of a log that is being written is torn.",
		Action: func(c *cli.Context) error {
			dir, err := oneDir(c)
			if err != nil {
				return err
			}
			files, err := kvserver.Check(nil, dir)
			worst := wal.Clean
			for _, f := range files {
				line := fmt.Sprintf("%s: %s, %d records, %d bytes", f.Path, f.State, f.Records, f.Bytes)
				if f.Err != nil {
					line += fmt.Sprintf("; first damage at offset %d: %v; %d readable records behind it", f.Offset, f.Err, f.Behind)
				}
				if _, werr := fmt.Fprintln(stdout, strings.ReplaceAll(line, "\n", "; ")); werr != nil {
					return unchecked(fmt.Errorf("print the verdicts: %w", werr))
				}
				worst = max(worst, f.State)
			}
			strays, serr := kvserver.Ignored(nil, dir)
			for _, path := range strays {
				if _, werr := fmt.Fprintf(stdout, "%s: ignored: that is no name that kvserver gives to a file\n", path); werr != nil {
					return unchecked(fmt.Errorf("print the verdicts: %w", werr))
				}
			}
			if err == nil {
				err = serr
			}
			switch {
			case worst == wal.Corrupt && err != nil:
				return checkError{err, exitCorrupt}
			case worst == wal.Corrupt:
				return exitError(exitCorrupt)
			case err != nil:
				return unchecked(err)
			case worst == wal.Torn:
				return exitError(exitTorn)
			}
			return nil
		},
	}
}

// checkError is what check could not read, and its exit code all the same.
type checkError struct {
	error
	code int
}

func unchecked(err error) error { return checkError{err, exitUnchecked} }

func repairCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "repair",
		Usage: "make a damaged directory usable: move what cannot be read aside, keep the rest, delete nothing",
		UsageText: "kvserver repair [--mode MODE] DIR\n\nThe server must not be running. What is replaced stays under a name that ends in .damaged. What is lost may have been a\n" +
			"delete or a newer value, so an older value can be back.\n\n" +
			"Exit code 0: a start takes it now, or did before; 1: could not repair it; 2: a mistake in the command line.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "mode", Usage: "the directory's mode, where its FORMAT file is damaged and nothing else tells: memory, map, serialize, file or lsm"},
		},
		Action: func(c *cli.Context) error {
			dir, err := oneDir(c)
			if err != nil {
				return err
			}
			mode := storage.Mode(c.String("mode"))
			if mode != "" {
				if mode, err = storage.ParseMode(string(mode)); err != nil {
					return usageError{fmt.Errorf("--mode: %w", err)}
				}
			}
			changed := false
			outliveReaders() // a repair goes on if what it prints is not read
			err = kvserver.Repair(nil, dir, mode, func(path, what string) {
				changed = true
				fmt.Fprintf(stdout, "%s: %s\n", path, strings.ReplaceAll(what, "\n", "; "))
			})
			if err == nil && !changed {
				fmt.Fprintf(stdout, "%s: nothing to repair\n", dir)
			}
			return err
		},
	}
}

func oneDir(c *cli.Context) (string, error) {
	dirs, err := directories(c, "one data directory", 1)
	if err != nil {
		return "", err
	}
	return dirs[0], nil
}

// directories returns the n arguments of a command that takes directories.
func directories(c *cli.Context, what string, n int) ([]string, error) {
	args := c.Args().Slice()
	for i, a := range args {
		if i > 0 && strings.HasPrefix(a, "-") {
			return nil, usageError{fmt.Errorf("options go before the directory, but %s follows %s: see kvserver %s --help", a, args[0], c.Command.Name)}
		}
	}
	if len(args) != n {
		return nil, usageError{fmt.Errorf("%s takes %s, not %d arguments", c.Command.Name, what, len(args))}
	}
	if slices.Contains(args, "") {
		return nil, usageError{fmt.Errorf("%s takes %s, and what is given is empty", c.Command.Name, what)}
	}
	return args, nil
}

// dumpedState is a line of dump for an entry of the checkpoint.
type dumpedState struct {
	Checkpoint uint64        `json:"checkpoint"`
	Entries    []dumpedEntry `json:"entries"`
}

// dumpedRecord is a line of dump for a record of the log. Bytes that are no UTF-8 are given in base64, under another name.
type dumpedRecord struct {
	Segment uint64        `json:"segment"`
	Offset  int64         `json:"offset"`
	Entries []dumpedEntry `json:"entries"`
}

type dumpedEntry struct {
	Op          string  `json:"op"`
	Key         *string `json:"key,omitempty"`
	KeyBase64   []byte  `json:"key_base64,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
	ExpireAt    int64   `json:"expire_at,omitempty"` // unix milliseconds
}

func dumpCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "dump",
		Usage: "print the newest checkpoint and the log, a JSON line for each entry and record",
		UsageText: "kvserver dump DIR\n\nLines of the checkpoint have \"checkpoint\", the first segment of the log that is replayed over it; first all values, then when\n" +
			"keys end. Lines of the log have \"segment\" and \"offset\". The tables of lsm, from which the values of its checkpoint are, can\n" +
			"hold newer ones that are in the log, too.\n\nExit code 0: all of it but for a torn tail; 1: not all of it, stderr says what is missing where; 2: a mistake in the\ncommand line.",
		Action: func(c *cli.Context) error {
			dir, err := oneDir(c)
			if err != nil {
				return err
			}
			out := json.NewEncoder(stdout)
			out.SetEscapeHTML(false)
			var unread error // the first record that makes no sense
			err = kvserver.Dump(nil, dir, func(checkpoint uint64, e entry.Entry) error {
				return out.Encode(dumpedState{checkpoint, []dumpedEntry{dumped(e)}})
			}, func(segment uint64, offset int64, payload []byte) error {
				r := dumpedRecord{Segment: segment, Offset: offset}
				if err := entry.Decode(payload, func(e entry.Entry) error {
					r.Entries = append(r.Entries, dumped(e))
					return nil
				}); err != nil {
					if unread == nil {
						unread = fmt.Errorf("%s: the record at offset %d of segment %d is left out: %w", dir, offset, segment, err)
					}
					return nil
				}
				return out.Encode(r)
			})
			return errors.Join(unread, err)
		},
	}
}

func dumped(e entry.Entry) dumpedEntry {
	d := dumpedEntry{Op: e.Op.String(), ExpireAt: e.ExpireAt}
	text := func(b []byte) (*string, []byte) {
		if utf8.Valid(b) {
			s := string(b)
			return &s, nil
		}
		return nil, b
	}
	if e.Op != entry.Clear {
		d.Key, d.KeyBase64 = text(e.Key)
	}
	if e.Op == entry.Set || e.Op == entry.SetExpire {
		d.Value, d.ValueBase64 = text(e.Value)
	}
	return d
}
