package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"kvmark/client"
	"kvmark/client/load"
)

// targetFlags are those by which a server that runs already is reached.
func targetFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "target", Usage: "`URL` of a server that runs already, instead of one of our own; it is never flushed: " + load.TargetForms},
		&cli.StringFlag{Name: "tls-ca", Usage: "of a rediss:// target: PEM `FILE` of the authorities to trust (default: the system's)"},
		&cli.StringFlag{Name: "tls-cert", Usage: "of a rediss:// target that wants one: PEM `FILE` of the client's certificate"},
		&cli.StringFlag{Name: "tls-key", Usage: "the certificate's private key, a PEM `FILE`"},
		&cli.BoolFlag{Name: "tls-skip-verify", Usage: "trust whatever certificate a rediss:// target shows"},
	}
}

// parseTarget reads targetFlags; without --target it returns the zero Target. Its errors are usage errors.
func parseTarget(c *cli.Context) (t load.Target, err error) {
	if c.IsSet("target") {
		if t, err = load.ParseTarget(c.String("target")); err != nil {
			return t, err
		}
	}
	for _, name := range []string{"tls-ca", "tls-cert", "tls-key", "tls-skip-verify"} {
		if c.IsSet(name) && !t.TLS.On {
			return t, fmt.Errorf("--%s has no effect without --target rediss://...", name)
		}
	}
	if !t.TLS.On {
		return t, nil
	}
	switch {
	case c.IsSet("tls-ca") && c.Bool("tls-skip-verify"):
		return t, errors.New("--tls-ca says whom to trust, --tls-skip-verify to trust anybody: use one of them")
	case c.IsSet("tls-cert") != c.IsSet("tls-key"):
		return t, errors.New("--tls-cert and --tls-key go together")
	}
	t.TLS = client.TLS{On: true, CA: c.String("tls-ca"), Cert: c.String("tls-cert"), Key: c.String("tls-key"), SkipVerify: c.Bool("tls-skip-verify")}
	_, err = t.TLS.Load() // a file that cannot be read is a mistake now, not in each connection
	return t, err
}

// commandLineKey is where the application's metadata have the command line.
const commandLineKey = "command line"

// commandLine is args as they would be typed, without the passwords of targets.
func commandLine(args []string) string {
	var words []string
	for i, a := range args {
		flag, value, valued := "", a, false
		if strings.HasPrefix(a, "-") {
			if flag, value, valued = strings.Cut(a, "="); !valued {
				words = append(words, a)
				continue
			}
			flag += "="
		}
		if i == 0 {
			value = filepath.Base(value)
		}
		if strings.ContainsAny(value, "@") || strings.Contains(value, "://") {
			t, _ := load.ParseTarget(value)
			value = cmp.Or(t.String(), "xxxxx")
		}
		if strings.ContainsAny(value, " \t\n'\"$&|;<>()*?#\\`~") {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		words = append(words, flag+value)
	}
	return strings.Join(words, " ")
}

// recorded is the command line that a result gets.
func recorded(c *cli.Context) string {
	s, _ := c.App.Metadata[commandLineKey].(string)
	return s
}

// argument shows an argument that nothing can be done with, unless it may be a URL with a password.
func argument(s string) string {
	if strings.ContainsAny(s, "@") || strings.Contains(s, "://") {
		return "one that looks like a URL (not shown: it may hold a password; a server is named with --target)"
	}
	return fmt.Sprintf("%q", s)
}
