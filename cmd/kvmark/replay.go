package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"kvmark/client/load"
	"kvmark/client/report"
	"kvmark/client/result"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:      "replay",
		Usage:     "measure again what a result of run was measured with: same plan, same seed",
		ArgsUsage: "RESULT",
		Description: "Every option comes from the plan in the result, also the server's path, what its runtime is told (GOGC, GOMEMLIMIT, GOMAXPROCS,\n" +
			"GODEBUG, whatever the environment says now), its CPUs and the directory for data. What no plan can bring back is named in warnings: the\n" +
			"toolchain, the server's binary, kvmark itself, the machine.\n" +
			"`kvmark report --diff OLD NEW` then tells what differs.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "`DIR` for result.json (default: results/ and the time)"},
			&cli.StringFlag{Name: "format", Value: string(report.Table), Usage: "table, json, csv, markdown or bench"},
			&cli.StringFlag{Name: "server", Usage: "`PATH` of another kvserver than then"},
		}, targetFlags()...), // a password is in no result
		Action: func(c *cli.Context) error {
			format, err := report.ParseFormat(c.String("format"))
			if err != nil {
				return usageError{err}
			}
			if c.NArg() != 1 {
				return usageError{errors.New("replay needs the path of one result.json")}
			}
			f, err := result.Read(resultFile(c.Args().First()))
			if err != nil {
				return err
			}
			if f.Command != "run" {
				return fmt.Errorf("%s is a result of %q: only those of run can be replayed", c.Args().First(), f.Command)
			}
			f.Plan.ServerEnv = runtimeOf(f)
			cfg, err := load.FromPlan(f.Plan)
			if err != nil {
				return err
			}
			switch {
			case c.IsSet("target") && f.Plan.Target == "":
				return usageError{errors.New("--target: the plan is about servers that kvmark starts")}
			case c.IsSet("server") && f.Plan.Target != "":
				return usageError{errors.New("--server: the plan is about a target")}
			case c.IsSet("target"):
				if cfg.Target, err = parseTarget(c); err != nil {
					return usageError{err}
				}
			case c.IsSet("server"):
				cfg.Server = c.String("server")
			}
			return measure(c, cfg, cfg.Server, f.Plan.Score, format, f)
		},
	}
}

// runtimeOf is what the runtime of f's servers was told: as the plan has it, and where it holds nothing, as older
// results do, by what the first server said of itself.
func runtimeOf(f *result.File) []string {
	env := slices.Clone(f.Plan.ServerEnv)
	if f.Plan.Target != "" {
		return env
	}
	s := f.Env.Server
	for _, v := range []struct{ name, value, byItself string }{
		{"GOGC", s.GOGC, "100"}, {"GOMEMLIMIT", s.GOMEMLIMIT, "off"}, {"GODEBUG", s.GODEBUG, ""}, {"GOMAXPROCS", s.GOMAXPROCS, cmp.Or(s.NumCPU, s.GOMAXPROCS)},
	} {
		planned := slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, v.name+"=") })
		if !planned && v.value != "" && v.value != v.byItself {
			env = append(env, v.name+"="+v.value)
		}
	}
	return env
}

// notRestored names what differs between a measurement and its replay that no plan brings back.
func notRestored(first, now *result.File) []result.Warning {
	var all []result.Warning
	differs := func(what, then, today string) {
		if then != today && then != "" && today != "" {
			all = append(all, result.Warning{Code: "replay-differs", Detail: fmt.Sprintf("%s: %s then, %s now", what, then, today)})
		}
	}
	a, b := first.Env, now.Env
	differs("the server's toolchain", a.Server.Go, b.Server.Go)
	differs("the server's build", a.Server.BuildSettings, b.Server.BuildSettings)
	differs("the server's binary, SHA-256", a.Binary.SHA256, b.Binary.SHA256)
	for _, v := range []struct{ name, then, now string }{
		{"GOGC", a.Server.GOGC, b.Server.GOGC},
		{"GOMEMLIMIT", a.Server.GOMEMLIMIT, b.Server.GOMEMLIMIT},
		{"GOMAXPROCS", a.Server.GOMAXPROCS, b.Server.GOMAXPROCS},
		{"I/O", a.Server.IO, b.Server.IO},
	} {
		differs("the server's "+v.name, v.then, v.now)
	}
	for _, v := range []struct{ name, then, now string }{
		{"toolchain", a.Client.Go, b.Client.Go},
		{"version", first.Version, now.Version},
		{"GOGC", a.Client.GOGC, b.Client.GOGC},
		{"GOMEMLIMIT", a.Client.GOMEMLIMIT, b.Client.GOMEMLIMIT},
		{"GOMAXPROCS", a.Client.GOMAXPROCS, b.Client.GOMAXPROCS},
	} {
		differs("kvmark's "+v.name, v.then, v.now)
	}
	h, i := a.Host, b.Host
	differs("the CPU", h.CPU, i.CPU)
	differs("the number of CPUs", fmt.Sprint(h.CPUs), fmt.Sprint(i.CPUs))
	differs("the kernel", h.Kernel, i.Kernel)
	differs("the memory", fmt.Sprint(h.MemoryBytes>>20)+" MiB", fmt.Sprint(i.MemoryBytes>>20)+" MiB")
	differs("the file system of the data", h.FileSystem, i.FileSystem)
	return all
}
