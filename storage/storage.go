// Package storage is where the server keeps its entries: one interface, [Store],
// and the modes that are compared with each other behind it. It is for the
// server, which joins a store with the log, and for tests that run all modes.
//
// A store knows nothing of the log. It keeps what it is told, and it can write
// down its state beside concurrent use ([Store.Checkpoint]), so that the log's
// older part may go. After a crash its state is what [Store.Restore] took back,
// or what its own files hold, and replaying the log over that gives the exact
// state, because every logged operation is absolute.
package storage

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage/file"
	"kvmark/storage/gomap"
	"kvmark/storage/lsm"
	"kvmark/storage/memory"
	"kvmark/storage/mode"
	"kvmark/storage/serialize"
	"kvmark/storage/usage"
)

// Mode names how values are kept; see package mode.
type Mode = mode.Mode

// The modes.
const (
	Memory    = mode.Memory
	Map       = mode.Map
	Serialize = mode.Serialize
	File      = mode.File
	LSM       = mode.LSM
)

// Modes returns all modes in the order in which tables show them.
func Modes() []Mode { return mode.All() }

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) { return mode.Parse(name) }

// Options configure [Open]. The zero value is good for the modes that
// keep all in memory; file and lsm need a Dir.
type Options struct {
	// FS holds the files; nil = vfs.Default.
	FS vfs.FS
	// Dir is the data directory: file keeps its values in Dir/values, lsm its
	// tables in Dir/lsm. Both are made when they are missing.
	Dir string
	// Identity names the data directory: file and lsm refuse files of another one.
	Identity [16]byte
	// Segment returns the number of the log's current segment, for lsm to note when
	// it makes a checkpoint. nil = not noted.
	Segment func() uint64
	// Codec and Level say how the serialize mode compresses; see package codec.
	// Empty = deflate, 0 = the codec's default level.
	Codec string
	Level int
	// BucketEntries is the mean number of entries in a bucket of the serialize
	// mode; 0 = 8. More compress better, and cost more on every Get and Set.
	BucketEntries int
	// BeforeFlush is called by lsm before it makes entries durable on its own
	// account. It syncs the log, so that the state on disk is never ahead of
	// it; when it returns an error the entries stay in memory. nil = no call.
	BeforeFlush func() error
	// BeforeWait is called by lsm before a read that waits for the device, in the goroutine that does; done is called after it.
	// nil = no call. For file see [NoWaiter].
	BeforeWait func() (done func())
	// Logf takes notes on background work, one line each; nil = discard.
	Logf func(format string, args ...any)
}

// ScanBits is the length of a position of [Store.Scan]: with a partition of 8
// bits it is a whole number that a float64 holds exactly.
const ScanBits = usage.ScanBits

// Stats is what a store says about its size.
type Stats = usage.Stats

// Store keeps entries. Any byte string is a key or a value, the empty one
// included; an empty value is not a miss.
//
// A Store is safe for concurrent use. The caller serialises the writers of one
// key with each other, and Clear with all writers; readers need not care.
type Store interface {
	// Get appends the value of key to dst.
	Get(dst, key []byte) (val []byte, ok bool, err error)
	// ValueLen returns the length of the value, which is not read where the
	// mode can avoid it.
	ValueLen(key []byte) (n int, ok bool, err error)
	// Set stores copies of key and value.
	Set(key, value []byte) error
	// Delete removes key.
	Delete(key []byte) (existed bool, err error)
	// Clear removes every entry.
	Clear() error
	// Count returns the number of entries.
	Count() int64

	// Shards returns the number of partitions for Range and Keys.
	Shards() int
	// Range calls fn with every entry of one partition. An entry that is there
	// all the time is seen exactly once, also while others come and go; no
	// lock is held while fn runs. Key and value are valid during the call and
	// must not be changed. An error of fn ends the scan and is returned.
	Range(shard int, fn func(key, value []byte) error) error
	// Keys is Range without the values.
	Keys(shard int, fn func(key []byte) error) error
	// Scan calls fn with some n keys of one partition, beginning at a position,
	// and returns the position to go on from; 0 is both the beginning and the
	// end. The keys of a partition have an order that does not change while
	// they are there, so calls that go on from each other see every key that
	// is there all the time, whatever comes and goes, and whatever n is. No
	// call does much more than to walk the partition once: a position that no
	// Scan has returned is answered like any other. Positions are less than
	// 1<<ScanBits. An error of fn ends the scan and is returned.
	Scan(shard int, from uint64, n int, fn func(key []byte) error) (next uint64, err error)

	// Checkpoint emits records from which Restore rebuilds the state, beside
	// concurrent use: replaying the operations since a position taken before
	// the call, over the restored state, gives the exact state. What the
	// records say may already include operations that ran during the call, so
	// the log must be synced between this call and the moment at which the
	// records count. rec is valid during the call of emit.
	//
	// committed is called once the records are durable and the log is synced:
	// files that only an older checkpoint needs may go then.
	Checkpoint(emit func(rec []byte) error) (committed func() error, err error)
	// Restore takes back the records of a checkpoint in their order, before
	// any other use.
	Restore(rec []byte) error
	// Recovered is called once, after Restore and the replay of the log, also
	// when there was nothing to do: background work may start.
	Recovered() error

	Stats() Stats
	// Close waits for background work and releases what is held. The store
	// must not be in use any more. Nothing is flushed: the log has it.
	Close() error
}

// Warmer is a [Store] that reads memory faster if it knows beforehand what it
// will be asked for: memory, serialize and file are.
type Warmer interface {
	// Warm prepares for Gets and Sets of these keys, which are to come soon. It
	// changes nothing, and keeps no key.
	Warm(keys [][]byte)
}

// NoWaiter is a [Store] that can tell whether a Get would wait for the device: file is one.
type NoWaiter interface {
	// GetNoWait is Get, or returns [nowait.ErrWouldWait] for a value that is not in memory.
	GetNoWait(dst, key []byte) (val []byte, ok bool, err error)
}

// Open opens what is on disk (file, lsm) or an empty store (the other modes).
func Open(m Mode, o Options) (Store, error) {
	switch m {
	case Memory:
		return memory.New(), nil
	case Map:
		return gomap.New(), nil
	case Serialize:
		return opened(serialize.New(serialize.Options{Codec: o.Codec, Level: o.Level, BucketEntries: o.BucketEntries}))
	case File:
		return opened(file.Open(file.Options{FS: o.FS, Dir: o.Dir, Identity: o.Identity, Logf: o.Logf}))
	case LSM:
		return opened(lsm.Open(lsm.Options{FS: o.FS, Dir: o.Dir, Identity: o.Identity, Segment: o.Segment, BeforeFlush: o.BeforeFlush, BeforeWait: o.BeforeWait, Logf: o.Logf}))
	}
	_, err := ParseMode(string(m))
	return nil, err
}

// opened keeps a nil *S from becoming a Store that is not nil.
func opened[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Entries calls fn with every entry in a record of a checkpoint of a mode that keeps all in memory. Key and value are valid during
// the call.
func Entries(m Mode, rec []byte, fn func(key, value []byte) error) (err error) {
	s, err := Open(m, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	err = s.Restore(rec)
	for shard := 0; err == nil && shard < s.Shards(); shard++ {
		err = s.Range(shard, fn)
	}
	return err
}

// CheckRecord returns why a record is not one that a checkpoint of this mode has.
func CheckRecord(m Mode, rec []byte) error {
	switch m {
	case File:
		return file.CheckRecord(rec)
	case LSM:
		return lsm.CheckRecord(rec)
	}
	s, err := Open(m, Options{})
	if err != nil {
		return err
	}
	return errors.Join(s.Restore(rec), s.Close())
}
