package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"kvmark/cmd/internal/secret"
)

// checkSecrets refuses a command line with a password where none belongs.
func checkSecrets(app *cli.App, args []string) error {
	command := app.Command(args[1])
	if command == nil {
		return nil
	}
	var flags []secret.Flag
	for _, f := range command.Flags {
		_, alone := f.(*cli.BoolFlag)
		for _, name := range f.Names() {
			flags = append(flags, secret.Flag{Name: name, Valued: !alone, Holds: name == "password"})
		}
	}
	if err := secret.Check(flags, args[2:]); err != nil {
		return usageError{err}
	}
	return nil
}

// onUsageError is called with what package flag says of a command line that it cannot read.
func onUsageError(c *cli.Context, err error, _ bool) error {
	help := "kvserver --help"
	if c.Command != nil && c.Command.Name != c.App.Name {
		help = "kvserver " + c.Command.Name + " --help"
		err = explained(err, c.Command.Flags)
	}
	return usageError{fmt.Errorf("%w (see %s)", err, help)}
}

var (
	// badValue is how package flag refuses a value, and unknownFlag how it refuses a name.
	badValue    = regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-([a-z-]+): (.*)$`)
	unknownFlag = regexp.MustCompile(`^flag provided but not defined: -+(.+)$`)
)

// explained says what an option wants, in place of the kind of error alone.
func explained(err error, flags []cli.Flag) error {
	if m := unknownFlag.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("unknown option --%s", secret.Option(m[1]))
	}
	m := badValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	want := m[3]
	for _, f := range flags {
		if !slices.Contains(f.Names(), m[2]) {
			continue
		}
		switch f.(type) {
		case *cli.DurationFlag:
			want = "want a time with its unit, such as 5s or 250ms"
		case *cli.IntFlag:
			want = "want a whole number"
		case *cli.BoolFlag:
			want = "want true or false, or no value at all"
		}
	}
	return fmt.Errorf("--%s %s: %s", m[2], m[1], want)
}

// onceEach refuses an option of a command that is given more than once, of which only the last would count, or as an empty
// text, as by a script whose variable is not set. args are those of the command.
func onceEach(command *cli.Command, args []string) cli.BeforeFunc {
	return func(c *cli.Context) error {
		count := given(command.Flags, args)
		for _, f := range command.Flags {
			name := f.Names()[0]
			if n := count[name]; n > 1 {
				return usageError{fmt.Errorf("--%s is given %d times: give it once", name, n)}
			}
			if _, text := f.(*cli.StringFlag); text && count[name] == 1 && c.String(name) == "" {
				return usageError{fmt.Errorf("--%s is empty: give it a value or leave it out", name)}
			}
		}
		return nil
	}
}

// given counts the options in args, which package flag has accepted.
func given(flags []cli.Flag, args []string) map[string]int {
	count := map[string]int{}
	for i := 0; i < len(args) && len(args[i]) > 1 && args[i][0] == '-' && args[i] != "--"; i++ {
		name, _, valued := strings.Cut(strings.TrimPrefix(args[i][1:], "-"), "=")
		count[name]++
		for _, f := range flags {
			if _, alone := f.(*cli.BoolFlag); !alone && !valued && slices.Contains(f.Names(), name) {
				i++ // its value
			}
		}
	}
	return count
}
