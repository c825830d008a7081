package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"kvmark/client/load"
	"kvmark/client/result"
	"kvmark/client/workload"
)

// Another load generator than this process is a process of its own: `kvmark compare --sample`, built with the toolchain that
// is asked. It reads one task from stdin, measures it, and writes the sample to stdout; both are JSON.

// task is one sample to be measured by another kvmark.
type task struct {
	Cell    Cell     `json:"cell"`
	Layout  uint64   `json:"layout"`
	Ops     []string `json:"ops"`
	Options options  `json:"options"`
}

// options is a load.Config that can be written down.
type options struct {
	Mode            string        `json:"mode"`
	Duration        time.Duration `json:"duration"`
	Warmup          time.Duration `json:"warmup"`
	Repeat          int           `json:"repeat"`
	Pipeline        int           `json:"pipeline"`
	Server          string        `json:"server"`
	ServerArgs      []string      `json:"server_args"`
	ServerEnv       []string      `json:"server_env"`
	WALSync         string        `json:"wal_sync"`
	Codec           string        `json:"codec"`
	Level           *int          `json:"level"`
	BucketEntries   int           `json:"bucket_entries"`
	Dir             string        `json:"dir"`
	Seed            uint64        `json:"seed"`
	Workers         int           `json:"workers"`
	Keys            int           `json:"keys"`
	ValueSize       string        `json:"value_size"`
	Compressibility float64       `json:"compressibility"`
	Distribution    string        `json:"distribution"`
	Mix             string        `json:"mix"`
	Rate            string        `json:"rate"`
	Arrivals        string        `json:"arrivals"`
	IO              string        `json:"io"`
	ServerCPUs      string        `json:"server_cpus"`
	ClientCPUs      string        `json:"client_cpus"`
}

func optionsOf(c load.Config) options {
	w := c.Workload
	return options{
		Mode: c.Modes[0], Duration: c.Duration, Warmup: c.Warmup, Repeat: c.Repeat, Pipeline: c.Pipeline,
		Server: c.Server, ServerArgs: c.ServerArgs, ServerEnv: c.ServerEnv, WALSync: c.WALSync, Codec: c.Codec, Level: c.Level, BucketEntries: c.BucketEntries, Dir: c.Dir,
		Seed: w.Seed, Workers: w.Workers, Keys: w.Keys, ValueSize: w.ValueSize.String(), Compressibility: w.Compressibility,
		Distribution: w.Distribution.String(), Mix: w.Mix.String(), Rate: c.Rate.String(), Arrivals: c.Arrivals,
		IO: c.IO, ServerCPUs: c.ServerCPUs.String(), ClientCPUs: c.ClientCPUs.String(),
	}
}

func (o options) config() (load.Config, error) {
	c := load.Default()
	c.Modes, c.Duration, c.Warmup, c.Repeat, c.Pipeline = []string{o.Mode}, o.Duration, o.Warmup, o.Repeat, o.Pipeline
	c.Server, c.ServerArgs, c.ServerEnv, c.WALSync, c.Codec, c.Level, c.BucketEntries, c.Dir = o.Server, o.ServerArgs, o.ServerEnv, o.WALSync, o.Codec, o.Level, o.BucketEntries, o.Dir
	c.Workload = workload.Config{Seed: o.Seed, Workers: o.Workers, Keys: o.Keys, Compressibility: o.Compressibility}
	c.Arrivals, c.IO = o.Arrivals, o.IO
	var err [6]error
	c.Workload.ValueSize, err[0] = workload.ParseSize(o.ValueSize)
	c.Workload.Distribution, err[1] = workload.ParseDistribution(o.Distribution)
	c.Workload.Mix, err[2] = workload.ParseMix(o.Mix)
	c.Rate, err[3] = load.ParseRate(o.Rate)
	c.ServerCPUs, err[4] = load.ParseCPUs(o.ServerCPUs)
	c.ClientCPUs, err[5] = load.ParseCPUs(o.ClientCPUs)
	return c, errors.Join(err[:]...)
}

// ServeSample measures the task on in and writes its sample to out.
func ServeSample(ctx context.Context, kill <-chan struct{}, in io.Reader, out io.Writer) error {
	var t task
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return fmt.Errorf("task: %w", err)
	}
	config, err := t.Options.config()
	if err != nil {
		return fmt.Errorf("task: %w", err)
	}
	config.Kill = kill
	restore, err := config.Divide(false)
	if err != nil {
		return fmt.Errorf("task: %w", err)
	}
	defer restore()
	samples, err := measure(ctx, []arm{{cell: t.Cell, layout: t.Layout, config: config}}, t.Ops, 0, func(int, result.Process) error { return nil })
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(samples[0])
}

// measureBy has another kvmark measure one sample.
func measureBy(ctx context.Context, client program, a arm, ops []string, check func(arm int, p result.Process) error) ([]Sample, error) {
	input, err := json.Marshal(task{a.cell, a.layout, ops, optionsOf(a.config)})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, client.Path, "compare", "--sample")
	// Asked to end, it stops its server; killed, it takes the server along where the system can do that.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	cmd.SysProcAttr = childAttributes()
	cmd.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runtime.LockOSThread() // the child may be tied to the life of the thread that starts it
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("client %s: %w", client.Path, err)
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		select {
		case <-a.config.Kill:
			_ = cmd.Process.Signal(os.Kill)
		case <-ended:
		}
	}()
	err = cmd.Wait()
	close(ended)
	if ctx.Err() != nil || killed(a.config.Kill) {
		return nil, context.Canceled
	}
	if err != nil {
		return nil, fmt.Errorf("client %s: %w: %s", client.Path, err, lastLines(stderr.String(), 5))
	}
	var s Sample
	if err := json.Unmarshal(stdout.Bytes(), &s); err != nil {
		return nil, fmt.Errorf("client %s: its sample: %w", client.Path, err)
	}
	if s.Cell() != a.cell || s.Client != client.Version {
		return nil, fmt.Errorf("client %s: it measured as %s, cell %v; asked were %s, cell %v", client.Path, s.Client, s.Cell(), client.Version, a.cell)
	}
	if s.Failed != "" {
		return []Sample{s}, nil
	}
	return []Sample{s}, check(0, s.Process)
}
