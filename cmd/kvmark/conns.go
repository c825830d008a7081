package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"kvmark/client/conns"
	"kvmark/client/report"
)

func connsCommand() *cli.Command {
	d := conns.Default()
	var connections []string
	for _, n := range d.Connections {
		connections = append(connections, strconv.Itoa(n))
	}
	return &cli.Command{
		Name:  "conns",
		Usage: "thousands of connections that each send little: messages a second received, memory per connection, the knee",
		Description: "On each of N connections in turn a command of 36 bytes is sent, without replies; the server counts what it receives.\n\n" +
			"  kvmark conns --connections 500,1000,2000,4000,8000,15000 --rate 30000   what connections cost, at one total rate\n" +
			"  kvmark conns --connections 4000 --rate 10000,30000,100000,max            what rate a number of connections bears\n" +
			"  kvmark conns --connections 1500,3000,6000 --interval 100ms               the original test, which confounds the two",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "connections", Value: strings.Join(connections, ","), Usage: "`N,...`, each a point"},
			&cli.StringFlag{Name: "rate", Value: "30000", Usage: "messages a second over all connections, `R,...`, each a point; max: as fast as possible"},
			&cli.DurationFlag{Name: "interval", Usage: "instead of a rate: a pause of this `TIME` after each round over the connections"},
			&cli.IntFlag{Name: "message-size", Value: d.MessageSize, Usage: "`BYTES` of a message, which is a whole command"},
			&cli.DurationFlag{Name: "duration", Value: d.Duration, Usage: "measured `TIME` of each point"},
			&cli.DurationFlag{Name: "warmup", Value: d.Warmup, Usage: "`TIME` before it that is not counted"},
			&cli.IntFlag{Name: "repeat", Value: d.Repeat, Usage: "rounds over the points, each with fresh servers"},
			&cli.Float64Flag{Name: "connect-rate", Value: d.ConnectRate, Usage: "connections a second while they are opened"},
			&cli.IntFlag{Name: "clients", Value: d.Clients, Usage: "processes among which the connections are shared"},
		}, hostFlags()...),
		Action: connsAction,
	}
}

func connsAction(c *cli.Context) error {
	cfg, format, err := connsConfig(c)
	if err != nil {
		return usageError{err}
	}
	return host(c, format, &cfg.Load, cfg.Open(), cfg.Plan, func(run hostRun) error {
		out, err := conns.Run(run.ctx, cfg)
		run.f.Cells, run.f.Env.Server, run.f.Interrupted = out.Cells, out.Server, out.Interrupted
		return err
	})
}

// connsConfig reads the flags; its errors are usage errors.
func connsConfig(c *cli.Context) (cfg conns.Config, format report.Format, err error) {
	cfg = conns.Default()
	if cfg.Load, format, err = hostConfig(c); err != nil {
		return cfg, "", err
	}
	connections, err := splitList(c, "connections")
	if err != nil {
		return cfg, "", err
	}
	cfg.Connections = nil
	for _, s := range connections {
		n, err := strconv.Atoi(s)
		if err != nil {
			return cfg, "", fmt.Errorf("connections %q: want whole numbers, such as 500,1000", s)
		}
		cfg.Connections = append(cfg.Connections, n)
	}
	cfg.Interval, cfg.MessageSize, cfg.Duration, cfg.Warmup = c.Duration("interval"), c.Int("message-size"), c.Duration("duration"), c.Duration("warmup")
	cfg.Repeat, cfg.ConnectRate, cfg.Clients = c.Int("repeat"), c.Float64("connect-rate"), c.Int("clients")
	cfg.Rates = nil
	if c.IsSet("interval") {
		if c.IsSet("rate") {
			return cfg, "", errors.New("--rate and --interval exclude each other")
		}
		if cfg.Interval == 0 {
			return cfg, "", errors.New("interval 0s: want 1ms or more, or --rate max")
		}
	} else {
		rates, err := splitList(c, "rate")
		if err != nil {
			return cfg, "", err
		}
		for _, s := range rates {
			r, err := conns.ParseRate(s)
			if err != nil {
				return cfg, "", err
			}
			cfg.Rates = append(cfg.Rates, r)
		}
	}
	if cfg.Clients > 1 {
		self, err := os.Executable()
		if err != nil {
			return cfg, "", fmt.Errorf("--clients: %w", err)
		}
		cfg.Client = []string{self, clientCommandName}
	}
	return cfg, format, cfg.Validate()
}

// clientCommandName is the command of a process that sends for another kvmark.
const clientCommandName = "conns-client"

func connsClientCommand() *cli.Command {
	return &cli.Command{
		Name:   clientCommandName,
		Hidden: true,
		Action: func(c *cli.Context) error {
			// A Ctrl-C at the terminal reaches us too; what it means, the other end of our input decides.
			signal.Ignore(os.Interrupt)
			return conns.Serve(c.Context, os.Stdin, c.App.Writer)
		},
	}
}
