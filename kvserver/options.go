package kvserver

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/kvserver/setting"
	"kvmark/storage"
	"kvmark/wal"
)

// Options configure a [Server]. Dir and Mode are required; every other zero field means its default.
type Options struct {
	Dir string // data directory; made with mode 0700 when it is missing
	FS  vfs.FS // default: the operating system's

	Mode          storage.Mode
	Codec         string // serialize: compression; default deflate
	Level         int    // serialize: its level; 0 = the codec's default
	BucketEntries int    // serialize: mean entries of a bucket; 0 = 8. More compress better and cost more on every operation

	WALPolicy    wal.Policy    // when a write counts as done; the zero value is wal.Buffered, the fastest and least safe
	SegmentBytes int64         // size at which the log begins a new file; 0 = 256 MiB
	SyncEvery    time.Duration // wal.Interval: time between syncs; 0 = 1 s

	// CheckpointBytes is the size of the log at which a checkpoint lets its older part go, provided that the log has also
	// outgrown the live data; 0 = [DefaultCheckpointBytes], negative = off (BGSAVE still makes one).
	CheckpointBytes int64
	// MinFree is the space that writes leave on the disk: with less, they are refused until there is more. 0 = no check.
	MinFree int64

	IO    IO  // how the bytes of connections are moved; default DefaultIO
	Loops int // Loop: number of loops; 0 = one for every two processors that Go may use

	Password   string // needed by clients, unless empty
	MaxClients int    // connections; 0 = 10000
	RunID      string // shown by INFO and in the ready line; default random

	MaxKey   int // bytes of a key; 0 = 64 KiB, or MaxValue if that is less
	MaxValue int // bytes of a value, or of any other argument; at most LargestValue; 0 = 64 MiB
	MaxArgs  int // arguments of one command; 0 = 1 Mi

	// MaxReply bounds the reply to one command in bytes; 0 = 256 MiB. MaxBuffered is the budget for the memory of the buffers
	// of all connections together for commands that have not run, and for unsent replies and messages, not counting the first
	// 64 KiB of each; 0 = 1 GiB.
	MaxReply    int
	MaxBuffered int64
	// MaxMailbox bounds what waits for one subscriber, in bytes; 0 = 32 MiB. One for whom more is published is cut off.
	MaxMailbox int

	IdleTimeout time.Duration // a connection that sends nothing for so long is closed; 0 = never
	// WriteTimeout closes a connection that does not take a reply, or does not send the rest of a command, for so long and a
	// second more for each 64 KiB of it; 0 = 60 s.
	WriteTimeout time.Duration

	Version string // of the program, for INFO
	// Logf takes notes, one line each; nil = discard. It must not wait: it is called by those who serve.
	Logf func(format string, args ...any)
	// NotesDropped returns how many notes could not be written, for INFO; nil = none.
	NotesDropped func() uint64

	// For tests.
	now       func() int64 // unix ms; default the system's clock
	noDirLock bool         // as on a system that has locks on files alone
}

// DefaultCheckpointBytes is that of [Options.CheckpointBytes], for the library and the program alike.
const DefaultCheckpointBytes = setting.DefaultCheckpointBytes

// maxCommandBytes bounds what one command may write: it becomes one record of the log.
const maxCommandBytes = setting.MaxCommandBytes

// LargestValue bounds [Options.MaxValue].
const LargestValue = setting.LargestValue

func (o Options) withDefaults() (Options, error) {
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"bucket entries", int64(o.BucketEntries)},
		{"segment bytes", o.SegmentBytes},
		{"sync interval", int64(o.SyncEvery)},
		{"number of loops", int64(o.Loops)},
		{"minimum of free space", o.MinFree},
		{"max clients", int64(o.MaxClients)},
		{"max key", int64(o.MaxKey)},
		{"max value", int64(o.MaxValue)},
		{"max arguments", int64(o.MaxArgs)},
		{"max reply", int64(o.MaxReply)},
		{"max buffered", o.MaxBuffered},
		{"max mailbox", int64(o.MaxMailbox)},
		{"idle timeout", int64(o.IdleTimeout)},
		{"write timeout", int64(o.WriteTimeout)},
	} {
		if n.value < 0 {
			return o, fmt.Errorf("kvserver: %s is %d; it must not be negative", n.name, n.value)
		}
	}
	if o.Dir == "" {
		return o, errors.New("kvserver: no data directory given")
	}
	mode, err := storage.ParseMode(string(o.Mode))
	if err != nil {
		return o, err
	}
	o.Mode = mode
	if o.IO == "" {
		o.IO = DefaultIO
	}
	if o.IO, err = ParseIO(string(o.IO)); err != nil {
		return o, err
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if o.NotesDropped == nil {
		o.NotesDropped = func() uint64 { return 0 }
	}
	if o.now == nil {
		o.now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Codec == "" {
		o.Codec = "deflate"
	}
	orDefault(&o.BucketEntries, 8)
	orDefault(&o.CheckpointBytes, DefaultCheckpointBytes)
	orDefault(&o.MaxClients, 10_000)
	orDefault(&o.MaxValue, 64<<20)
	orDefault(&o.MaxKey, min(64<<10, o.MaxValue))
	orDefault(&o.MaxArgs, 1<<20)
	orDefault(&o.MaxReply, 256<<20)
	orDefault(&o.MaxMailbox, 32<<20)
	orDefault(&o.MaxBuffered, 1<<30)
	orDefault(&o.WriteTimeout, 60*time.Second)
	if o.MaxValue > LargestValue {
		return o, fmt.Errorf("kvserver: max value is %d bytes; it must be at most %d: a record of the log has to hold it", o.MaxValue, LargestValue)
	}
	if o.MaxKey > o.MaxValue {
		return o, fmt.Errorf("kvserver: max key is %d bytes; it must not exceed max value (%d)", o.MaxKey, o.MaxValue)
	}
	return o, nil
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
