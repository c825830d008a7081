package lsm

import (
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"kvmark/storage/usage"
)

// places are the keys at which scans go on, by their positions. The keys of a
// partition are in the order of their bytes, and a position is too short to
// hold a key, so it is a part of the key's hash. The newest ones are kept: at
// least generation of them, or as many as fit.
type places struct {
	mu       sync.Mutex
	now, old map[place][]byte
	bytes    int // of the keys in now
}

type place struct {
	shard    int
	position uint64
}

const (
	generation      = 4096
	generationBytes = 1 << 20
)

// put notes a key, as it is in Pebble, and returns its position, which is not 0.
func (p *places) put(shard int, key []byte) (position uint64) {
	position = max(1, xxhash.Sum64(key)>>(64-usage.ScanBits))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep(place{shard, position}, slices.Clone(key))
	return position
}

// get returns the key of a position, if it is still known.
func (p *places) get(shard int, position uint64) (key []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := place{shard, position}
	if key, ok := p.now[at]; ok {
		return key, true
	}
	if key, ok = p.old[at]; ok {
		p.keep(at, key) // for the client that asks again
	}
	return key, ok
}

// REQUIRES: mu held.
func (p *places) keep(at place, key []byte) {
	if _, ok := p.now[at]; !ok && (len(p.now) >= generation || p.bytes+len(key) > generationBytes) {
		p.now, p.old, p.bytes = nil, p.now, 0
	}
	if p.now == nil {
		p.now = map[place][]byte{}
	}
	p.bytes += len(key) - len(p.now[at])
	p.now[at] = key
}
