package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"kvmark/client/chat"
	"kvmark/client/load"
	"kvmark/client/report"
	"kvmark/client/result"
)

func chatCommand() *cli.Command {
	d := chat.Default()
	return &cli.Command{
		Name:  "chat",
		Usage: "chat rooms, as VolanoMark: messages a second from one user to all others of a room",
		Description: "A room is a channel; each of its users is a connection that subscribes and publishes. The counts are law: of R rooms,\n" +
			"U users and C messages each, R*U*C are sent, R*U*C*(U-1) received, R*U*U*C in all, or the run is INVALID (exit 3).\n\n" +
			"  kvmark chat                                    the classic: 10 rooms, 20 users, 100 messages, one in flight per room\n" +
			"  kvmark chat --pace flood                       everybody sends at once\n" +
			"  kvmark chat --target redis://10.0.0.7:6379     another server, on another machine: \"does it scale?\"\n" +
			"  kvmark chat --scale 50..500                    1,000 to 10,000 connections: the highest level without error",
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "rooms", Value: d.Rooms, Usage: "channels"},
			&cli.IntFlag{Name: "users", Value: d.Users, Usage: "connections in each room"},
			&cli.IntFlag{Name: "messages", Value: d.Messages, Usage: "that each user sends"},
			&cli.DurationFlag{Name: "duration", Usage: "send for this `TIME` instead of a number of messages"},
			&cli.StringFlag{Name: "pace", Value: string(d.Pace), Usage: "turns: one message in flight per room, as VolanoMark; flood: everybody at once"},
			&cli.IntFlag{Name: "window", Value: d.Window, Usage: "of flood: own messages on their way before a user waits for one to come back"},
			&cli.IntFlag{Name: "text-size", Value: d.TextSize, Usage: "`BYTES` of a message"},
			&cli.IntFlag{Name: "protocol", Value: d.Proto, Usage: "RESP version; 2 takes two connections a user"},
			&cli.IntFlag{Name: "runs", Usage: "measured one after the other", DefaultText: "as many as --score wants"},
			&cli.StringFlag{Name: "score", Value: report.Last3, Usage: "last3: of 4 runs the first is dropped; trimmed: of 5 runs the best and the worst"},
			&cli.StringFlag{Name: "scale", Usage: "rooms `FROM..TO[:STEP]`: one run per level until one fails (default STEP: FROM)"},
			&cli.DurationFlag{Name: "rest", Usage: "`TIME` of rest before each run but the first"},
		}, hostFlags()...),
		Action: chatAction,
	}
}

// hostFlags are those of commands that bring their own load to one server.
func hostFlags() []cli.Flag {
	d := load.Default()
	return append([]cli.Flag{
		&cli.StringFlag{Name: "mode", Value: d.Modes[0], Usage: "storage mode of the server"},
		&cli.StringFlag{Name: "wal-sync", Value: d.WALSync, Usage: "when a Set is acknowledged: buffered, os, interval, always"},
		&cli.StringFlag{Name: "server", Usage: "`PATH` of kvserver (default: beside kvmark, else in PATH, else built if this is the kvmark module)"},
		&cli.StringFlag{Name: "dir", Usage: "`DIR` in which the server gets its data directory (default: the system's for temporary files)"},
		&cli.BoolFlag{Name: "keep", Usage: "leave the data directory"},
		&cli.StringFlag{Name: "out", Usage: "`DIR` for result.json (default: results/ and the time)"},
		&cli.StringFlag{Name: "format", Value: string(report.Table), Usage: "table, json, csv, markdown or bench"},
	}, append(targetFlags(), driveFlags()...)...)
}

// hostConfig reads the flags of hostFlags; its errors are usage errors.
func hostConfig(c *cli.Context) (cfg load.Config, format report.Format, err error) {
	if c.NArg() > 0 {
		return cfg, "", fmt.Errorf("%s takes no arguments, got %s: options begin with --", c.Command.Name, argument(c, c.Args().First()))
	}
	cfg = load.Default()
	cfg.Modes, cfg.WALSync, cfg.Dir, cfg.Keep = []string{c.String("mode")}, c.String("wal-sync"), c.String("dir"), c.Bool("keep")
	cfg.Server = "found later"
	if err := driveOptions(c, &cfg); err != nil {
		return cfg, "", err
	}
	if cfg.Target, err = parseTarget(c); err != nil {
		return cfg, "", err
	}
	if cfg.Target.Addr != "" {
		for _, name := range []string{"server", "mode", "wal-sync", "io", "server-cpus", "dir", "keep"} {
			if c.IsSet(name) {
				return cfg, "", fmt.Errorf("--%s is about a server of our own: it excludes --target", name)
			}
		}
	}
	if format, err = report.ParseFormat(c.String("format")); err != nil {
		return cfg, "", err
	}
	if err := checkDataDir(cfg.Dir); err != nil {
		return cfg, "", err
	}
	return cfg, format, cfg.Validate()
}

// hostRun is what a measurement on one server gets.
type hostRun struct {
	ctx context.Context
	f   *result.File
}

// host prepares what every measurement on one server needs, measures, and sees to the result: it is saved, printed, and
// judged. measure fills in cells; its error says that it could not run to its end. open: what is sent goes out on a schedule.
func host(c *cli.Context, format report.Format, cfg *load.Config, open bool, plan func() result.Plan, measure func(run hostRun) error) error {
	path, err := resultPath(c.String("out"), time.Now())
	if err != nil {
		return err
	}
	release, err := claimOut(path)
	if err != nil {
		return err
	}
	defer release()
	show := newDisplay(c.App.ErrWriter)
	ctx, kill, stop := interruptible(c.Context, show.note)
	defer stop()
	if cfg.Server = ""; cfg.Target.Addr == "" {
		if cfg.Server, err = findServer(ctx, c.String("server"), show.note); err != nil {
			return err
		}
	}
	restore, err := cfg.Divide(open)
	if err != nil {
		return usageError{err}
	}
	defer restore()
	cfg.Progress, cfg.Logf, cfg.Kill = show.progress, show.note, kill
	f := &result.File{Command: c.Command.Name, CommandLine: recorded(c), Started: time.Now().UTC(), Plan: plan()}
	if err := captureEnv(f, *cfg); err != nil {
		return err
	}
	err = measure(hostRun{ctx, f})
	show.clear()
	f.Env.After = result.CaptureLoad()
	f.Finished = time.Now().UTC()
	f.Warnings = f.FindWarnings()
	return deliver(c, show, f, path, format, err)
}

func chatAction(c *cli.Context) error {
	cfg, format, err := chatConfig(c)
	if err != nil {
		return usageError{err}
	}
	plan := func() result.Plan {
		p := cfg.Plan()
		p.Extra["score"] = c.String("score")
		return p
	}
	return host(c, format, &cfg.Load, false, plan, func(run hostRun) error {
		out, err := chat.Run(run.ctx, cfg)
		run.f.Cells, run.f.Env.Server, run.f.Interrupted = out.Cells, out.Server, out.Interrupted
		return err
	})
}

// chatConfig reads the flags; its errors are usage errors.
func chatConfig(c *cli.Context) (cfg chat.Config, format report.Format, err error) {
	cfg = chat.Default()
	if cfg.Load, format, err = hostConfig(c); err != nil {
		return cfg, "", err
	}
	cfg.Rooms, cfg.Users, cfg.Messages, cfg.Duration = c.Int("rooms"), c.Int("users"), c.Int("messages"), c.Duration("duration")
	cfg.Pace, cfg.Window, cfg.TextSize, cfg.Proto = chat.Pace(c.String("pace")), c.Int("window"), c.Int("text-size"), c.Int("protocol")
	cfg.Runs, cfg.Rest = c.Int("runs"), c.Duration("rest")
	if c.IsSet("duration") && !c.IsSet("messages") {
		cfg.Messages = 0
		if cfg.Duration == 0 {
			return cfg, "", errors.New("duration 0s: want 50ms or more")
		}
	}
	if cfg.Pace == chat.Turns && c.IsSet("window") {
		return cfg, "", errors.New("--window is about --pace flood: in turns there is one message in flight per room")
	}
	switch score := c.String("score"); score {
	case report.Last3, report.Trimmed:
		if !c.IsSet("runs") {
			cfg.Runs = map[string]int{report.Last3: 4, report.Trimmed: 5}[score]
		}
	default:
		return cfg, "", fmt.Errorf("score %q: want %s or %s", score, report.Last3, report.Trimmed)
	}
	if s := c.String("scale"); s != "" {
		if c.IsSet("rooms") || c.IsSet("runs") {
			return cfg, "", errors.New("--scale gives the rooms of each run: it excludes --rooms and --runs")
		}
		if cfg.Levels, err = parseLevels(s); err != nil {
			return cfg, "", err
		}
		cfg.Runs = 1
	}
	return cfg, format, cfg.Validate()
}

// parseLevels reads FROM..TO[:STEP].
func parseLevels(s string) ([]int, error) {
	bounds, stepText, given := strings.Cut(s, ":")
	fromText, toText, ok := strings.Cut(bounds, "..")
	from, errFrom := strconv.Atoi(fromText)
	to, errTo := strconv.Atoi(toText)
	step := from
	var errStep error
	if given {
		step, errStep = strconv.Atoi(stepText)
	}
	if !ok || errors.Join(errFrom, errTo, errStep) != nil || from < 1 || to < from || step < 1 || (to-from)/step > 1000 {
		return nil, fmt.Errorf("scale %q: want FROM..TO or FROM..TO:STEP, such as 50..500 or 50..500:50", s)
	}
	var levels []int
	for n := from; n <= to; n += step {
		levels = append(levels, n)
	}
	return levels, nil
}
