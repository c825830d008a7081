package file

import (
	"hash/maphash"
	"runtime"
	"sync"
	"unsafe"

	"kvmark/storage/warm"
)

// location is where the record of a key is.
type location struct {
	pos      position
	valueLen uint32
	crc      uint32 // of the record, so that a Get reads the value and no more
}

// position is a file number and an offset in one ordered number: later written
// is greater.
type position uint64

func at(file uint32, offset int64) position { return position(file)<<32 | position(offset) }

func (p position) file() uint32  { return uint32(p >> 32) }
func (p position) offset() int64 { return int64(uint32(p)) }

// index finds the location of a key. A key costs a string and a number in a
// map, 16 bytes of location in a slice, and the allocation of its bytes;
// replacing a location allocates nothing.
type index struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

const (
	shardCount = 256  // a power of two
	scanBatch  = 256  // locations taken under one hold of a shard's lock
	scanLook   = 4096 // slots looked at under one hold
)

// shard is two cache lines and more apart from its neighbour's lock.
type shard struct {
	mu         sync.RWMutex
	slots      map[string]uint32 // guarded by mu, as is all below
	locations  []location        // by slot
	free       []uint32          // slots that are not used
	clears     uint64            // tells a scan that slots was replaced
	keyBytes   int64
	valueBytes int64
	_          [64]byte
}

func newIndex() *index {
	x := &index{seed: maphash.MakeSeed()}
	for i := range x.shards {
		x.shards[i].slots = make(map[string]uint32)
	}
	return x
}

func (x *index) number(key []byte) uint64 {
	return maphash.Bytes(x.seed, key) & (shardCount - 1)
}

func (x *index) shard(key []byte) *shard { return &x.shards[x.number(key)] }

func (x *index) get(key []byte) (location, bool) {
	sh := x.shard(key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	slot, ok := sh.slots[string(key)]
	if !ok {
		return location{}, false
	}
	return sh.locations[slot], true
}

// warm prepares for get and set of these keys: see package warm.
func (x *index) warm(keys [][]byte) {
	var (
		numbers [warm.AtOnce]uint64
		shards  warm.Shards
		sum     uint32
	)
	for i, key := range keys {
		numbers[i] = x.number(key)
		shards.Add(numbers[i])
	}
	for i := range shards.All() {
		x.shards[i].mu.RLock()
	}
	for i, key := range keys {
		sh := &x.shards[numbers[i]]
		if slot, ok := sh.slots[string(key)]; ok {
			sum += sh.locations[slot].crc
		}
	}
	for i := range shards.All() {
		x.shards[i].mu.RUnlock()
	}
	runtime.KeepAlive(sum) // so that it is computed
}

// set stores a location and returns the one it replaces.
func (x *index) set(key []byte, loc location) (old location, replaced bool) {
	sh := x.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.valueBytes += int64(loc.valueLen)
	if slot, ok := sh.slots[string(key)]; ok {
		old = sh.locations[slot]
		sh.valueBytes -= int64(old.valueLen)
		sh.locations[slot] = loc
		return old, true
	}
	sh.keyBytes += int64(len(key))
	var slot uint32
	if n := len(sh.free); n > 0 {
		slot, sh.free = sh.free[n-1], sh.free[:n-1]
		sh.locations[slot] = loc
	} else {
		slot = uint32(len(sh.locations))
		sh.locations = append(sh.locations, loc)
	}
	sh.slots[string(key)] = slot
	return location{}, false
}

// move replaces a location if it is still the old one.
func (x *index) move(key []byte, old, loc location) bool {
	sh := x.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slot, ok := sh.slots[string(key)]
	if !ok || sh.locations[slot].pos != old.pos {
		return false
	}
	sh.locations[slot] = loc
	return true
}

func (x *index) delete(key []byte) (old location, existed bool) {
	sh := x.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slot, ok := sh.slots[string(key)]
	if !ok {
		return location{}, false
	}
	old = sh.locations[slot]
	delete(sh.slots, string(key))
	sh.free = append(sh.free, slot)
	sh.keyBytes -= int64(len(key))
	sh.valueBytes -= int64(old.valueLen)
	return old, true
}

// clear empties the index and calls gone with what was in it.
func (x *index) clear(gone func(keyLen int, loc location)) {
	for i := range x.shards {
		sh := &x.shards[i]
		sh.mu.Lock()
		slots, locations := sh.slots, sh.locations
		sh.slots, sh.locations, sh.free = make(map[string]uint32), nil, nil
		sh.clears++
		sh.keyBytes, sh.valueBytes = 0, 0
		sh.mu.Unlock()
		// Nobody else uses the old slice; a scan that still walks the old map
		// only reads it.
		for key, slot := range slots {
			gone(len(key), locations[slot])
		}
	}
}

func (x *index) totals() (keys, keyBytes, valueBytes int64) {
	for i := range x.shards {
		sh := &x.shards[i]
		sh.mu.RLock()
		keys += int64(len(sh.slots))
		keyBytes += sh.keyBytes
		valueBytes += sh.valueBytes
		sh.mu.RUnlock()
	}
	return keys, keyBytes, valueBytes
}

// scan calls fn with every key of a shard and its location, without a lock. A
// key that is there all the time is seen exactly once.
func (x *index) scan(shard int, fn func(key []byte, loc location) error) error {
	sh := &x.shards[shard]
	type entry struct {
		key string
		loc location
	}
	batch := make([]entry, 0, scanBatch)
	hand := func() error {
		for _, e := range batch {
			if err := fn(bytesOf(e.key), e.loc); err != nil {
				return err
			}
		}
		batch = batch[:0]
		return nil
	}
	sh.mu.RLock()
	clears := sh.clears
	// A map may change between two steps of a range over it, and entries that
	// stay are produced exactly once; the lock orders each step with writers.
	for key, slot := range sh.slots {
		if batch = append(batch, entry{key, sh.locations[slot]}); len(batch) < scanBatch {
			continue
		}
		sh.mu.RUnlock()
		if err := hand(); err != nil {
			return err
		}
		sh.mu.RLock()
		if sh.clears != clears {
			break // what is left in the old map is gone
		}
	}
	sh.mu.RUnlock()
	return hand()
}

// scanFrom is Scan: see storage.Store. A position is a slot, which a key keeps
// while it is there.
func (x *index) scanFrom(shard int, from uint64, n int, fn func(key []byte) error) (next uint64, err error) {
	sh := &x.shards[shard]
	sh.mu.RLock()
	found := make([]string, 0, min(n, len(sh.slots)))
	end := uint64(len(sh.locations))
	to := end
	if keys := uint64(len(sh.slots)); keys > 0 {
		to = min(end, from+(end*uint64(n)+keys-1)/keys) // some slots are free
	}
	clears, looked := sh.clears, 0
	for key, slot := range sh.slots {
		if uint64(slot) >= from && uint64(slot) < to {
			found = append(found, key)
		}
		if looked++; looked%scanLook > 0 {
			continue
		}
		sh.mu.RUnlock() // as in scan
		sh.mu.RLock()
		if sh.clears != clears {
			break
		}
	}
	sh.mu.RUnlock()
	for _, key := range found {
		if err := fn(bytesOf(key)); err != nil {
			return from, err
		}
	}
	if to == end {
		to = 0
	}
	return to, nil
}

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
