// Command restart shows what a start after a crash takes: it writes few and then many Sets over the same keys to every
// kind of server, kills it with SIGKILL, starts it on what is on disk, and prints seconds, bytes and memory. The log is
// bounded by the live data, so both starts should take about as long. It is for those who work on the server; `make
// restart` runs it. It needs Linux's /proc; redis is left out where redis-server is not installed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"kvmark/client/workload"
	"kvmark/cmd/internal/rig"
)

func main() { rig.Main("restart", run) }

const (
	workers = 8
	depth   = 64
)

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("restart", flag.ContinueOnError)
	kvserver := flags.String("kvserver", "bin/kvserver", "path of `kvserver`")
	servers := flags.String("servers", "memory,map,serialize,file,lsm,redis", "comma separated: MODE or MODE:flag=value:... (kvserver), redis, valkey")
	sets := flags.String("sets", "1000000,20000000", "number of Sets before the crash, comma separated")
	keys := flags.Int("keys", 1_000_000, "number of keys")
	walSync := flags.String("sync", "interval", "interval or always")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names := strings.Split(*servers, ",")
	for _, name := range names {
		if !(rig.Spec{Name: name}).HasLog() {
			return fmt.Errorf("-servers: %s keeps no log: it is empty after a crash, and there is no start to measure", name)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush() // also what there is before an error
	fmt.Fprintln(w, "server\tSets\tkeys\twritten k/s\tRSS MB\ton disk MB\tstart s\tMB/s\tk records/s\tpeak RSS MB in start\t")
	for _, name := range names {
		if name == "redis" || name == "valkey" {
			if _, err := exec.LookPath(name + "-server"); err != nil {
				fmt.Fprintf(os.Stderr, "no %s: %v\n", name, err)
				continue
			}
		}
		for _, text := range strings.Split(*sets, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return fmt.Errorf("-sets: %q is no positive number", text)
			}
			fmt.Fprintf(os.Stderr, "%s, %d Sets\n", name, n)
			if err := measure(ctx, w, rig.Spec{Name: name, Kvserver: *kvserver, Sync: *walSync}, n, *keys); err != nil {
				return fmt.Errorf("%s, %d Sets: %w", name, n, err)
			}
		}
	}
	return nil
}

func measure(ctx context.Context, out io.Writer, spec rig.Spec, sets, keys int) (err error) {
	s, err := rig.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.Connect(ctx, workload.Config{Seed: 1, Workers: workers, Keys: keys / workers}, 0); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.Set(sets, depth); err != nil {
		return err
	}
	rate := float64(sets) / time.Since(begin).Seconds()
	held, err := s.Keys()
	if err != nil {
		return err
	}
	resident, _, err := s.Memory()
	if err != nil {
		return err
	}
	disk, err := size(s.Dir)
	if err != nil {
		return err
	}
	begin = time.Now()
	if err := s.Restart(ctx); err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	_, peak, err := s.Memory()
	if err != nil {
		return err
	}
	records := "-"
	after, err := s.Info()
	if err != nil {
		return err
	}
	if n, ok := after["replay_records"]; ok {
		records = fmt.Sprintf("%.0f", n/took/1e3)
	}
	fmt.Fprintf(out, "%s\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.2f\t%.0f\t%s\t%.0f\t\n", s.Name, sets, held, rate/1e3, resident/1e6, disk/1e6, took, disk/took/1e6, records, peak/1e6)
	return nil
}

// size is the sum of the files' lengths.
func size(dir string) (bytes float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a segment that went while we looked
		}
		if err == nil && info.Mode().IsRegular() {
			bytes += float64(info.Size())
		}
		return err
	})
	return bytes, err
}
