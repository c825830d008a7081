package memory

import "runtime"

// manyAtOnce is how many entries SetAll works on at a time. What it keeps of
// them is on the stack.
const manyAtOnce = 1024

// SetAll is Set for many entries, of which keys and values are at the same
// index; they are stored in that order where keys are equal. The error is always
// nil. It is for a start, which waits for memory more than for anything else:
//
//	hash the keys, copy the entries, sort them by shard
//	for each shard, with one hold of its lock:
//	    look all of its keys up, one lookup right behind the other
//	    read the entries that this found, likewise
//	    set them, which by now finds everything in the cache
//
// Package warm says why that is faster.
func (s *Store) SetAll(keys, values [][]byte) error {
	for len(keys) > 0 {
		n := min(len(keys), manyAtOnce)
		s.setSome(keys[:n], values[:n])
		keys, values = keys[n:], values[n:]
	}
	return nil
}

func (s *Store) setSome(keys, values [][]byte) {
	var (
		hashes  [manyAtOnce]uint64
		entries [manyAtOnce]entry
		found   [manyAtOnce]entry
		order   [manyAtOnce]uint16 // indices of keys, by shard
	)
	ends := make([]int, len(s.shards)) // of each shard's part of order
	for i, key := range keys {
		hashes[i] = s.hash(key)
		entries[i] = newEntry(key, values[i])
		ends[s.shardOf(hashes[i])]++
	}
	at := 0
	for i, n := range ends {
		ends[i] = at
		at += n
	}
	for i := range keys {
		end := &ends[s.shardOf(hashes[i])]
		order[*end] = uint16(i)
		*end++
	}
	begin := 0
	for i, end := range ends {
		if begin == end {
			continue
		}
		sh, mine := &s.shards[i], order[begin:end]
		begin = end
		sh.mu.Lock()
		for j, k := range mine {
			found[j] = sh.m[hashes[k]]
		}
		sum := 0
		for _, e := range found[:len(mine)] {
			if e.first != nil {
				_, v := e.pair()
				sum += len(v)
			}
		}
		runtime.KeepAlive(sum) // so that it is computed
		for _, k := range mine {
			sh.set(hashes[k], keys[k], len(values[k]), entries[k])
		}
		sh.mu.Unlock()
	}
}
