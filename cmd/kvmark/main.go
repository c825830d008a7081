// Command kvmark measures how many operations a second a key-value server gives in each of its storage modes, and what
// they cost. See `kvmark run --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"kvmark/client/load"
	"kvmark/client/result"
	"kvmark/cmd/internal/secret"
)

// Exit codes; part of the command's contract.
const (
	exitGood    = 0
	exitFailed  = 1 // could not run
	exitUsage   = 2
	exitInvalid = 3 // ran, but a check failed or the run was interrupted
)

func main() {
	keepGODEBUG()
	debug.SetTraceback("crash")                             // a crash ends with SIGABRT, not with the exit code of a mistake on the command line
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a reader of our output that is gone is an error of writing, not our end
	os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr))
}

// keepGODEBUG starts this program again without GODEBUG, which is for the server: gctrace=1 would write into our own output, and other
// keys would change what measures. Where a program can not replace itself (Windows), it stays as it is.
func keepGODEBUG() {
	value := os.Getenv("GODEBUG")
	self, err := os.Executable()
	if value == "" || err != nil {
		return
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "GODEBUG=") || strings.HasPrefix(kv, load.ServerGODEBUG+"=")
	})
	_ = syscall.Exec(self, os.Args, append(env, load.ServerGODEBUG+"="+value)) // returns only if it cannot
}

// usageError is a command line that cannot work.
type usageError struct{ error }

// exitError ends the program with a code when everything there is to say has been said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// run is the whole program: data on stdout, all else on stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	usage := func(c *cli.Context, err error, _ bool) error {
		if c.Command != nil {
			err = explained(err, c.Command.Flags)
		}
		return usageError{err}
	}
	out := &output{w: stdout}
	app := &cli.App{
		Metadata:        map[string]any{commandLineKey: commandLine(args), carefulKey: secret.Careful(args)},
		Name:            "kvmark",
		Usage:           "measure a key-value server: operations a second in each storage mode",
		Version:         result.CaptureProcess().Words(),
		Writer:          out,
		ErrWriter:       stderr,
		HideHelpCommand: true,
		OnUsageError:    usage,
		ExitErrHandler:  func(*cli.Context, error) {}, // or it exits
		Commands:        []*cli.Command{runCommand(), compareCommand(), chatCommand(), connsCommand(), connsClientCommand(), reportCommand(), replayCommand(), explainCommand()},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return usageError{errors.New("no command")}
			}
			return usageError{fmt.Errorf("unknown command %s", argument(c, c.Args().First()))}
		},
	}
	for _, c := range app.Commands {
		c.OnUsageError = usage
		c.HideHelpCommand = true
		c.Action = checked(c)
		tidy(c.Flags)
	}
	err := checkSecrets(app, args)
	if err == nil {
		err = app.RunContext(ctx, flagsFirst(app, helpFirst(app, args)))
	}
	if err == nil {
		err = out.err // the library writes help without looking whether it can
	}
	var code exitError
	switch {
	case err == nil:
		return exitGood
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, new(usageError)):
		help := "kvmark --help"
		if len(args) > 1 && app.Command(args[1]) != nil {
			help = "kvmark " + args[1] + " --help"
		}
		fmt.Fprint(stderr, prefixed(fmt.Sprintf("%v (see %s)", err, help)))
		return exitUsage
	}
	fmt.Fprint(stderr, prefixed(err.Error()))
	return exitFailed
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

// helpFirst makes `kvmark help COMMAND`, as people type it, into `kvmark COMMAND --help`.
func helpFirst(app *cli.App, args []string) []string {
	switch {
	case len(args) == 2 && args[1] == "help":
		return []string{args[0], "--help"}
	case len(args) == 3 && args[1] == "help" && app.Command(args[2]) != nil:
		return []string{args[0], args[2], "--help"}
	case len(args) == 3 && args[1] == "help":
		return []string{args[0], args[2]} // which is unknown
	}
	return args
}

// flagsFirst moves the flags of a command before its arguments, where the flag package wants them; everything behind
// "--" is an argument. Where help is asked for, nothing else matters.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 3 {
		return args
	}
	command := app.Command(args[1])
	if command == nil {
		return args
	}
	takesValue := map[string]bool{}
	for _, f := range command.Flags {
		_, isBool := f.(*cli.BoolFlag)
		for _, name := range f.Names() {
			takesValue[name] = !isBool
		}
	}
	flags, rest := []string{args[0], args[1]}, []string{}
	for i := 2; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return append(append(append(flags, "--"), rest...), args[i+1:]...)
		case len(a) < 2 || a[0] != '-':
			rest = append(rest, a)
		case a == "-h" || trimDashes(a) == "help":
			return []string{args[0], args[1], "--help"} // with an argument, the library explains the command of that name
		default:
			flags = append(flags, a)
			if takesValue[trimDashes(a)] && i+1 < len(args) {
				i++
				flags = append(flags, args[i])
			}
		}
	}
	return append(append(flags, "--"), rest...)
}

func trimDashes(s string) string {
	for len(s) > 0 && s[0] == '-' {
		s = s[1:]
	}
	return s
}
