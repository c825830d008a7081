package kvserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage/serialize"
	"kvmark/wal"
	"kvmark/wal/entry"
)

// A data directory of version 1 is as one of version 2, but no file of it says to which directory it belongs, or, but for segments
// and value files, which number it has. The bytes of each kind are drawn where version 1 is read: wal/old.go, checkpointHeaderSize,
// file.NewOldSalvager, lsm.OldEntries. CLEAN was one line, "closed segment 0000000012.wal size 123456".
const (
	oldCleanFormat = "closed segment %s size %d\n"
	oldNoLog       = "closed without a log\n"
)

// Upgraded is what [Upgrade] has written.
type Upgraded struct {
	Entries int64 // of the checkpoint
	Records int64 // of the log behind it
	Cut     string
}

// UpgradeOptions configure [Upgrade].
type UpgradeOptions struct {
	FS   vfs.FS // nil = the operating system's
	Dir  string // a data directory of version 1
	To   string // the new one: a directory that is missing or empty
	Logf func(format string, args ...any)
}

// upgradeBytes is the size from which the entries of a checkpoint become a record.
const upgradeBytes = 64 << 10

// Upgrade makes a data directory of what is in one of version 1, which it does not change. All of it, the checkpoint too, goes to the
// log of the new one, so that the first start takes longer. The new one is read as [Check] does before it becomes a data directory;
// after an error there is none.
func Upgrade(ctx context.Context, o UpgradeOptions) (done Upgraded, err error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	fs := vfs.FS(&lenientFS{o.FS, o.Logf, new(sync.Once)})
	f, err := ReadFormat(fs, o.Dir)
	if err == nil {
		return done, fmt.Errorf("kvserver: %s has version %d already", o.Dir, f.Version)
	}
	if !errors.Is(err, ErrOldFormat) {
		return done, err
	}
	old := &place{fs: fs, dir: absolute(fs, o.Dir), mode: f.Mode, old: true}
	lock, err := lockDir(fs, old.dir)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, lock.abandon()) }()
	made, err := makeEmpty(fs, old.dir, o.To)
	if err != nil {
		return done, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeCopy(fs, o.To, made))
		}
	}()
	p := &place{fs: fs, dir: o.To, mode: old.mode, identity: newIdentity()}
	if done, err = p.takeOld(ctx, old, o.Logf); err != nil {
		return done, err
	}
	if _, err := p.checkCopy(true); err != nil {
		return done, err
	}
	if err := ctx.Err(); err != nil {
		return done, err
	}
	if err := writeAtomically(fs, o.To, formatName, Format{formatVersion, p.mode, p.identity}.text()); err != nil {
		return done, err
	}
	return done, syncDir(fs, fs.PathDir(o.To))
}

// takeOld writes a log of everything in a directory of version 1.
func (p *place) takeOld(ctx context.Context, old *place, logf func(format string, args ...any)) (done Upgraded, err error) {
	log, _, err := wal.Open(p.path(walName), wal.Options{FS: p.fs, Policy: wal.OS, Identity: wal.Identity(p.identity), Logf: logf}, nil)
	if err != nil {
		return done, err
	}
	add := func(payload []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := log.Append(payload)
		return err
	}
	var group []byte
	first, err := old.state(func(_ uint64, e entry.Entry) error {
		done.Entries++
		if group = entry.Append(group, e); len(group) < upgradeBytes {
			return nil
		}
		err := add(group)
		group = group[:0]
		return err
	})
	if err == nil && len(group) > 0 {
		err = add(group)
	}
	if errors.Is(err, serialize.ErrUnknownKind) {
		err = fmt.Errorf("%w: its deflate had codes of its own, which this program does not read; serve %s with the kvserver that made it and --codec s2, send BGSAVE, stop it, and upgrade again", err, old.dir)
	}
	var newest wal.SegmentReport
	if err == nil {
		newest, err = wal.ReplayOld(p.fs, old.path(walName), max(1, first), func(payload []byte) error {
			done.Records++
			return errors.Join(checkEntries(payload), add(payload))
		})
	}
	if err == nil {
		err = old.checkOldClean(newest)
	}
	if err = errors.Join(err, log.Close()); err != nil {
		return done, err
	}
	if newest.State == wal.Torn {
		done.Cut = fmt.Sprintf("%s ends with an unsynced tail, which is left out: %d bytes from offset %d on, %d readable records in it", newest.Path, newest.Size-newest.Offset, newest.Offset, newest.Behind)
	}
	return done, p.leaveClean(log.End())
}

// checkOldClean says whether the log ends where the last server of version 1 left it, if that ended in good order.
func (p *place) checkOldClean(newest wal.SegmentReport) error {
	path := p.path(cleanName)
	text, err := readSmall(p.fs, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kvserver: %w", err)
	}
	want := oldNoLog
	if newest.Segment != 0 {
		want = fmt.Sprintf(oldCleanFormat, filepath.Base(newest.Path), newest.Size)
	}
	if text != want || newest.State != wal.Clean {
		return &wal.CorruptionError{Path: path, Err: fmt.Errorf("it says %.80q, and the log is %.80q (%v): it lost its end after the server had stopped in good order", text, want, newest.State)}
	}
	return nil
}
