package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"kvmark/client/experiment"
	"kvmark/cmd/internal/secret"
)

// badValue is how package flag refuses a value, with the kind of error alone.
var badValue = regexp.MustCompile(`^invalid value (".*") for flag -+([a-z-]+): `)

// unknownFlag is how package flag refuses a name.
var unknownFlag = regexp.MustCompile(`^flag provided but not defined: -+(.+)$`)

// explained says what a flag wants, in place of what package flag says of a value that it cannot read, and which flag may be
// meant by a name that there is not.
func explained(err error, flags []cli.Flag) error {
	if m := unknownFlag.FindStringSubmatch(err.Error()); m != nil {
		words := ""
		if near := cli.SuggestFlag(flags, m[1], true); strings.HasPrefix(near, "--"+m[1][:1]) { // else it is far
			words = ": did you mean " + near + "?"
		}
		return fmt.Errorf("unknown option --%s%s", secret.Option(m[1]), words)
	}
	m := badValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	for _, f := range flags {
		if !slices.Contains(f.Names(), m[2]) {
			continue
		}
		want := ""
		switch f.(type) {
		case *cli.DurationFlag:
			want = "a time with its unit, such as 5s, 250ms or 2m"
		case *cli.IntFlag:
			want = "a whole number"
		case *cli.Uint64Flag:
			want = "a whole number of 0 or more"
		case *cli.Float64Flag:
			want = "a number"
		default:
			return err
		}
		return fmt.Errorf("--%s %s: want %s", m[2], m[1], want)
	}
	return err
}

// checkSecrets refuses a command line with a password where none belongs.
func checkSecrets(app *cli.App, args []string) error {
	if len(args) < 3 || app.Command(args[1]) == nil {
		return nil
	}
	var flags []secret.Flag
	for _, f := range app.Command(args[1]).Flags {
		_, alone := f.(*cli.BoolFlag)
		d, ok := f.(cli.DocGenerationFlag)
		holds := ok && (strings.Contains(d.GetUsage(), "`URL`") || strings.Contains(d.GetUsage(), "`CMD`"))
		for _, name := range f.Names() {
			flags = append(flags, secret.Flag{Name: name, Valued: !alone, Holds: holds})
		}
	}
	if err := secret.Check(flags, args[2:]); err != nil {
		return usageError{err}
	}
	return nil
}

// maxSeed is the largest number up to which every reader of JSON, those of JavaScript and jq too, has all whole numbers.
const maxSeed = 1 << 53

// checkSeed refuses a seed that scripts would read from the result as another.
func checkSeed(seed uint64) error {
	if seed > maxSeed {
		return fmt.Errorf("seed %d: want at most %d, or programs that read the result as JSON would see another number", seed, uint64(maxSeed))
	}
	return nil
}

// checked is the action of a command behind what all of them check first.
func checked(c *cli.Command) cli.ActionFunc {
	action := c.Action
	return func(ctx *cli.Context) error {
		for _, f := range c.Flags {
			if name := f.Names()[0]; ctx.IsSet(name) {
				if _, text := f.(*cli.StringFlag); text && ctx.String(name) == "" {
					return usageError{fmt.Errorf("--%s is empty: give it a value or leave it out", name)}
				}
			}
		}
		if slices.Contains([]string{"run", "replay", "compare", "chat", "conns"}, c.Name) {
			if err := experiment.CheckEnvironment(os.Getenv); err != nil {
				return usageError{err}
			}
			if ctx.String("target") == "" {
				defer usualGC()()
			}
		}
		return action(ctx)
	}
}

// usualGC gives this process the collector's usual settings, and returns what restores those of its environment: GOGC and
// GOMEMLIMIT there are meant for the servers that we start, which inherit them, and the load should not change with them.
func usualGC() (restore func()) {
	const none = 1<<63 - 1
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(none)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// tidy shows defaults in words where the usual ones say little.
func tidy(flags []cli.Flag) {
	for _, f := range flags {
		if b, ok := f.(*cli.BoolFlag); ok && !b.Value && b.DefaultText == "" {
			b.DefaultText = "off"
		}
	}
}
