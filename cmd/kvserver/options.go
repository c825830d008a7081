package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"

	"kvmark/kvserver"
	"kvmark/kvserver/stats"
	"kvmark/storage"
	"kvmark/storage/serialize"
	"kvmark/storage/serialize/codec"
	"kvmark/wal"
)

// Least values, below which an option would do something else than it says.
const (
	leastSegment = 4 << 10     // smaller files cost more than the records in them
	leastValue   = 64          // it bounds every argument, names of commands included
	leastReply   = 1 << 10     // a reply to one command
	leastArgs    = 8           // SET with its options
	leastTimeout = time.Second // connections are looked at once a second
)

// options reads the flags of serve.
func options(c *cli.Context) (kvserver.Options, error) {
	var o kvserver.Options
	if arg := c.Args().First(); c.Args().Present() {
		if arg != "serve" && c.App.Command(arg) != nil {
			return o, fmt.Errorf("the command goes first: kvserver %s", arg)
		}
		return o, fmt.Errorf("serve takes no argument, but there is %q; did you mean --dir %s?", arg, arg)
	}
	if c.String("dir") == "" {
		return o, errors.New("no data directory: give --dir DIR")
	}
	mode, err := storage.ParseMode(c.String("mode"))
	if err != nil {
		return o, fmt.Errorf("--mode: %w", err)
	}
	policy, err := wal.ParsePolicy(c.String("wal-sync"))
	if err != nil {
		return o, fmt.Errorf("--wal-sync: %w", err)
	}
	ioPath, err := kvserver.ParseIO(c.String("io"))
	if err != nil {
		return o, fmt.Errorf("--io: %w", err)
	}
	if _, err := codec.New(c.String("codec"), c.Int("level")); err != nil {
		return o, fmt.Errorf("--codec, --level: %w", err)
	}
	if err := effective(c, mode, policy, ioPath); err != nil {
		return o, err
	}
	if err := inRange(c); err != nil {
		return o, err
	}
	if i := strings.IndexFunc(c.String("run-id"), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || len(c.String("run-id")) > 200 {
		return o, fmt.Errorf("--run-id %.220q: want at most 200 bytes of printable text, for it is part of a line of INFO", c.String("run-id"))
	}
	checkpoint := size(c, "checkpoint-bytes")
	if checkpoint == 0 {
		checkpoint = -1
	}
	maxKey := size(c, "max-key")
	if !c.IsSet("max-key") {
		maxKey = 0 // follows --max-value
	}
	return kvserver.Options{
		Dir: c.String("dir"), Mode: mode, Codec: c.String("codec"), Level: c.Int("level"), BucketEntries: c.Int("bucket-entries"),
		WALPolicy: policy, SegmentBytes: size(c, "segment-bytes"), SyncEvery: c.Duration("sync-every"),
		CheckpointBytes: checkpoint, MinFree: size(c, "min-free"),
		IO: ioPath, Loops: c.Int("loops"),
		Password: c.String("password"), MaxClients: c.Int("max-clients"), RunID: c.String("run-id"),
		MaxKey: int(maxKey), MaxValue: int(size(c, "max-value")), MaxArgs: c.Int("max-args"),
		MaxReply: int(size(c, "max-reply")), MaxBuffered: size(c, "max-buffered"), MaxMailbox: int(size(c, "max-mailbox")),
		IdleTimeout: c.Duration("idle-timeout"), WriteTimeout: c.Duration("write-timeout"),
		Version: stats.ReadBuild().Version,
	}, nil
}

// effective refuses an option that has no effect beside the others: who gives it believes that it has one. Its default is let
// pass, for scripts that go through modes with one set of options.
func effective(c *cli.Context, mode storage.Mode, policy wal.Policy, ioPath kvserver.IO) error {
	for _, rule := range []struct {
		idle          bool
		beside, wants string
		names         []string
	}{
		{mode != storage.Serialize, "--mode " + string(mode), "--mode serialize", []string{"codec", "level", "bucket-entries"}},
		{policy != wal.Interval, "--wal-sync " + policy.String(), "--wal-sync interval", []string{"sync-every"}},
		{ioPath != kvserver.Loop, "--io " + string(ioPath), "--io loop", []string{"loops"}},
		{c.IsSet("tls-cert") && ioPath == kvserver.Loop, "--tls-cert, whose connections have a goroutine each", "no TLS", []string{"io", "loops"}},
	} {
		for _, name := range rule.names {
			if rule.idle && c.IsSet(name) && !byDefault(c, name) {
				return fmt.Errorf("--%s %v has no effect beside %s: leave it out, or use %s", name, c.Value(name), rule.beside, rule.wants)
			}
		}
	}
	return nil
}

// byDefault reports whether an option has the value that it would have had anyway.
func byDefault(c *cli.Context, name string) bool {
	for _, f := range c.Command.Flags {
		if d, ok := f.(cli.DocGenerationFlag); ok && slices.Contains(f.Names(), name) {
			return fmt.Sprint(c.Value(name)) == strings.Trim(d.GetDefaultText(), `"`)
		}
	}
	return false
}

// inRange refuses numbers that make no sense.
func inRange(c *cli.Context) error {
	const most = math.MaxInt64
	for _, n := range []struct {
		name        string
		value       int64
		least, most int64
		zero        bool // is allowed as well
		why         string
	}{
		{"segment-bytes", size(c, "segment-bytes"), leastSegment, most, false, "smaller files of the log cost more than their records"},
		{"checkpoint-bytes", size(c, "checkpoint-bytes"), leastSegment, most, true, "or a checkpoint follows the other; 0 turns them off"},
		{"bucket-entries", int64(c.Int("bucket-entries")), 1, serialize.MaxBucketEntries, false, "a bucket is unpacked for every Get"},
		{"loops", int64(c.Int("loops")), 0, 1 << 16, false, "0 is one for every two processors"},
		{"max-clients", int64(c.Int("max-clients")), 1, math.MaxInt32, false, "a client is a file descriptor"},
		{"max-key", size(c, "max-key"), 1, kvserver.LargestValue, false, "a record of the log has to hold it"},
		{"max-value", size(c, "max-value"), leastValue, kvserver.LargestValue, false, "a record of the log has to hold it, and the names of commands count as well"},
		{"max-args", int64(c.Int("max-args")), leastArgs, math.MaxInt32, false, "a SET with options has that many"},
		{"max-reply", size(c, "max-reply"), leastReply, math.MaxInt, false, "shorter ones are needed to serve at all"},
		{"max-buffered", size(c, "max-buffered"), 64 << 10, most, false, "each connection may hold as much in any case"},
		{"max-mailbox", size(c, "max-mailbox"), leastReply, math.MaxInt, false, "or a subscriber is cut off by its first message"},
	} {
		if (n.value < n.least || n.value > n.most) && !(n.zero && n.value == 0) {
			bound := fmt.Sprintf("at least %d", n.least)
			if n.value > n.most {
				bound = fmt.Sprintf("at most %d", n.most)
			}
			return fmt.Errorf("--%s is %d; it must be %s: %s", n.name, n.value, bound, n.why)
		}
	}
	if key, value := size(c, "max-key"), size(c, "max-value"); c.IsSet("max-key") && key > value {
		return fmt.Errorf("--max-key is %d; it must be at most %d, as is --max-value, which bounds every argument", key, value)
	}
	if every := c.Duration("sync-every"); every < time.Millisecond {
		return fmt.Errorf("--sync-every is %v; it must be at least 1ms", every)
	}
	for _, name := range []string{"idle-timeout", "write-timeout"} {
		if d := c.Duration(name); d < leastTimeout && !(d == 0 && name == "idle-timeout") {
			return fmt.Errorf("--%s is %v; it must be at least %v: connections are looked at once a second", name, d, leastTimeout)
		}
	}
	return nil
}
