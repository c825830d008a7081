package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/urfave/cli/v2"

	"kvmark/cmd/internal/secret"
	"kvmark/kvserver"
	"kvmark/kvserver/setting"
	"kvmark/kvserver/stats"
	"kvmark/storage"
	"kvmark/wal"
)

// options reads the flags of serve.
func options(c *cli.Context) (kvserver.Options, error) {
	var o kvserver.Options
	if arg := c.Args().First(); c.Args().Present() {
		if arg != "serve" && c.App.Command(arg) != nil {
			return o, fmt.Errorf("the command goes first: kvserver %s", arg)
		}
		careful := c.IsSet("password")
		if careful {
			return o, fmt.Errorf("serve takes no argument, but there is %s", secret.Argument(arg, careful))
		}
		return o, fmt.Errorf("serve takes no argument, but there is %q; did you mean --dir %s?", arg, arg)
	}
	if c.String("dir") == "" {
		return o, errors.New("no data directory: give --dir DIR")
	}
	given := map[string]string{}
	for _, f := range c.Command.Flags {
		if name := f.Names()[0]; c.IsSet(name) {
			given[name] = fmt.Sprint(c.Value(name))
		}
	}
	if err := setting.Check(given); err != nil {
		return o, err
	}
	mode, _ := storage.ParseMode(c.String("mode"))
	policy, _ := wal.ParsePolicy(c.String("wal-sync"))
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
		IO: kvserver.IO(c.String("io")), Loops: c.Int("loops"),
		Password: c.String("password"), MaxClients: c.Int("max-clients"), RunID: c.String("run-id"),
		MaxKey: int(maxKey), MaxValue: int(size(c, "max-value")), MaxArgs: c.Int("max-args"),
		MaxReply: int(size(c, "max-reply")), MaxBuffered: size(c, "max-buffered"), MaxMailbox: int(size(c, "max-mailbox")),
		IdleTimeout: c.Duration("idle-timeout"), WriteTimeout: c.Duration("write-timeout"),
		Version: stats.ReadBuild().Version,
	}, nil
}
