package kvserver

import (
	"errors"
	"slices"

	"kvmark/storage"
	"kvmark/storage/file"
	"kvmark/storage/lsm"
	"kvmark/wal/entry"
)

// state calls fn with what the newest checkpoint tells: a Set for every entry of the store, then an Expire for every key that has an
// end. It returns the number of the checkpoint, 0 if there is none. The lsm mode's tables may also have entries that are only in the
// log. Damage ends it.
func (p *place) state(fn func(checkpoint uint64, e entry.Entry) error) (number uint64, err error) {
	numbers, _, err := listCheckpoints(p.fs, p.path(checkpointName))
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	number = numbers[len(numbers)-1]
	set := func(key, value []byte) error { return fn(number, entry.Entry{Op: entry.Set, Key: key, Value: value}) }
	values := file.NewSalvager(p.fs, p.dir, file.Identity(p.identity))
	if p.old {
		values = file.NewOldSalvager(p.fs, p.dir)
	}
	defer func() { err = errors.Join(err, values.Close()) }()
	_, _, _, err = p.readCheckpoint(p.path(checkpointName, checkpointFile(number)), number, func(kind byte, payload []byte) error {
		switch {
		case kind == frameEnds:
			return entry.Decode(payload, func(e entry.Entry) error { return fn(number, e) })
		case p.mode == storage.File:
			return values.Entries(payload, set)
		case p.mode == storage.LSM && p.old:
			return lsm.OldEntries(p.fs, p.dir, slices.Clone(payload), set)
		case p.mode == storage.LSM:
			return lsm.Entries(p.fs, p.dir, lsm.Identity(p.identity), slices.Clone(payload), set)
		}
		return storage.Entries(p.mode, payload, set)
	})
	return number, err
}
