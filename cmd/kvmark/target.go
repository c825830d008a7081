package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"kvmark/client"
	"kvmark/client/load"
	"kvmark/cmd/internal/secret"
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
			return t, fmt.Errorf("--%s has no effect without --target rediss://HOST", name)
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

// carefulKey is where they have whether it holds what may be a password.
const carefulKey = "careful"

// commandLine is args as they would be typed, without passwords.
func commandLine(args []string) string {
	return secret.CommandLine(args, func(url string) string {
		t, _ := load.ParseTarget(url)
		return t.String()
	})
}

// recorded is the command line that a result gets.
func recorded(c *cli.Context) string {
	s, _ := c.App.Metadata[commandLineKey].(string)
	return s
}

// argument shows a word that nothing can be done with, unless it may be a secret.
func argument(c *cli.Context, word string) string {
	careful, _ := c.App.Metadata[carefulKey].(bool)
	return secret.Argument(word, careful)
}
