// Command kvserver is the key-value server that kvmark measures. It speaks the Redis protocol, logs every write, and keeps
// its entries in one of several ways.
//
//	kvserver --mode memory --dir DIR     serve
//	kvserver check DIR                   read everything, change nothing, say what is damaged
//	kvserver repair DIR                  make a damaged directory usable; delete nothing
//	kvserver dump DIR                    print the newest checkpoint and the log, a JSON line for each entry and record
//	kvserver backup DIR TO               copy a data directory as it is at one moment, also while it is served
//	kvserver upgrade DIR TO              make a data directory of one that an older kvserver has made
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"kvmark/cmd/internal/secret"
	"kvmark/kvserver/stats"
)

// Exit codes; check has its own.
const (
	exitOK     = 0
	exitFailed = 1 // could not do it, or not all of it
	exitUsage  = 2
)

func main() {
	ownFiles()
	debug.SetTraceback("crash") // a crash ends with SIGABRT, not with the exit code of a mistake in the command line
	stderr := newNotes(os.Stderr)
	code := run(untilSignal(stderr), os.Args, os.Stdout, stderr)
	stderr.close()
	os.Exit(code)
}

// usageError is a mistake in the command line.
type usageError struct{ error }

// exitError carries the exit code of a command that has said all there is to say.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &output{w: stdout}
	app := &cli.App{
		Name:            "kvserver",
		Usage:           "a key-value server with a write-ahead log, made to be measured",
		UsageText:       "kvserver [serve] --mode memory|map|serialize|file|lsm --dir DIR [options]\nkvserver check DIR\nkvserver repair [--mode MODE] DIR\nkvserver dump DIR\nkvserver backup [--wait TIME] DIR TO\nkvserver upgrade DIR TO",
		Version:         stats.ReadBuild().Words(),
		HideHelpCommand: true,
		Writer:          out,
		ErrWriter:       stderr,
		Commands:        []*cli.Command{serveCommand(stdout, stderr), checkCommand(stdout), repairCommand(stdout), dumpCommand(stdout), backupCommand(stdout, stderr), upgradeCommand(stdout, stderr)},
		ExitErrHandler:  func(*cli.Context, error) {}, // exit codes are made below
		OnUsageError:    onUsageError,
	}
	for _, c := range app.Commands {
		c.OnUsageError = onUsageError
		c.HideHelpCommand = true
	}
	args = withCommand(app, args)
	if c := app.Command(args[1]); c != nil {
		c.Before = onceEach(c, args[2:])
	}
	err := checkSecrets(app, args)
	if err == nil {
		err = app.RunContext(ctx, args)
	}
	if err == nil {
		err = out.err // the library writes help without looking whether it can
	}
	code := exitFailed
	var usage usageError
	var exit exitError
	var check checkError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &check):
		code = check.code
	case errors.As(err, &usage):
		code = exitUsage
	}
	fmt.Fprintln(stderr, oneLine(err))
	return code
}

// output is where data go, and remembers that they could not.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("standard output: %w", err)
	}
	return n, err
}

// withCommand makes serve the command of an invocation that names none, and an unknown command an error of ours.
func withCommand(app *cli.App, args []string) []string {
	if len(args) == 1 || strings.HasPrefix(args[1], "-") && !slices.Contains([]string{"-h", "--help", "-help", "-v", "--version", "-version"}, args[1]) {
		return slices.Insert(slices.Clone(args), 1, "serve")
	}
	app.Action = func(c *cli.Context) error {
		return usageError{fmt.Errorf("unknown command %s: use serve, check, repair, dump, backup or upgrade", secret.Argument(c.Args().First(), secret.Careful(args)))}
	}
	return args
}

// oneLine makes an error a line that begins with the program's name and holds no password.
func oneLine(err error) string {
	text := strings.ReplaceAll(secret.Text(err.Error()), "\n", "; ")
	if strings.HasPrefix(text, "kvserver: ") {
		return text
	}
	return "kvserver: " + text
}
