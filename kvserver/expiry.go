package kvserver

import (
	"math"
	"slices"
	"time"

	"kvmark/wal/entry"
)

// dueKeys finds the keys of a stripe whose end comes first: a binary heap of ends. What is found is compared with the stripe's
// map of ends, which alone is right, so that most changes need not touch the heap:
//
//	a key gets an end, or an earlier one    it is pushed
//	a later one                             nothing: it is found too early, and pushed again then
//	none, or the key goes                   nothing: it is found, and is not in the map any more
//
// So there is an entry that is not later than the end for every key of the map. Those that are left over are dropped when they
// outnumber the keys. An entry takes 24 bytes, and shares the bytes of its key with the map.
type dueKeys []dueKey

type dueKey struct {
	at  int64
	key string
}

func (d *dueKeys) push(k dueKey) {
	*d = append(*d, k)
	h := *d
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= k.at {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = k
}

// first returns the earliest end, or one that never comes.
func (d *dueKeys) first() int64 {
	if d == nil || len(*d) == 0 {
		return math.MaxInt64
	}
	return (*d)[0].at
}

// pop removes the first one. REQUIRES: there is one.
func (d *dueKeys) pop() dueKey {
	h := *d
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = dueKey{}
	*d = h[:len(h)-1]
	if len(*d) > 0 {
		(*d)[0] = last
		d.sink(0)
	}
	return first
}

// sink lets the entry at i sink to its place.
func (d dueKeys) sink(i int) {
	k := d[i]
	for {
		child := 2*i + 1
		if child >= len(d) {
			break
		}
		if child+1 < len(d) && d[child+1].at < d[child].at {
			child++
		}
		if d[child].at >= k.at {
			break
		}
		d[i] = d[child]
		i = child
	}
	d[i] = k
}

// of makes the heap that of these ends.
func (d *dueKeys) of(ends map[string]int64) {
	*d = make(dueKeys, 0, len(ends)+len(ends)/4)
	for key, at := range ends {
		*d = append(*d, dueKey{at, key})
	}
	for i := len(*d)/2 - 1; i >= 0; i-- {
		d.sink(i)
	}
}

// spareDue is how many entries may be left over beside as many as there are keys.
const spareDue = 64

// setEnd sets when a key ends; 0 = never. REQUIRES: mu held, except during replay.
func (st *stripe) setEnd(key []byte, at int64) {
	if at == 0 && st.timed.Load() == 0 {
		return
	}
	st.ttlMu.Lock()
	defer st.ttlMu.Unlock()
	old, known := st.ttl[string(key)]
	switch {
	case at == 0:
		delete(st.ttl, string(key))
	case known && at >= old:
		st.ttl[string(key)] = at
	default:
		if st.ttl == nil {
			st.ttl = map[string]int64{}
		}
		k := string(key)
		st.ttl[k] = at
		if st.due == nil {
			st.due = new(dueKeys)
		}
		st.due.push(dueKey{at, k})
	}
	if st.due != nil && len(*st.due) > 2*len(st.ttl)+spareDue {
		st.due.of(st.ttl)
	}
	st.timed.Store(int64(len(st.ttl)))
}

func (st *stripe) clearEnds() {
	st.ttlMu.Lock()
	defer st.ttlMu.Unlock()
	st.ttl, st.due = nil, nil
	st.timed.Store(0)
}

// anyDue reports whether an entry has come to its end.
func (st *stripe) anyDue(now int64) bool {
	if st.timed.Load() == 0 {
		return false
	}
	st.ttlMu.RLock()
	defer st.ttlMu.RUnlock()
	return st.due.first() <= now
}

// takeDue returns up to most keys that have come to their end. They stay in the map until they are deleted.
// REQUIRES: mu held.
func (st *stripe) takeDue(now int64, most int) (keys []string) {
	st.ttlMu.Lock()
	defer st.ttlMu.Unlock()
	for len(keys) < most && st.due.first() <= now {
		k := st.due.pop()
		switch at, ok := st.ttl[k.key]; {
		case ok && at <= now && !slices.Contains(keys, k.key):
			keys = append(keys, k.key)
		case ok && at > now:
			st.due.push(dueKey{at, k.key})
		}
	}
	return keys
}

// putBack has keys found again that could not be deleted. REQUIRES: mu held.
func (st *stripe) putBack(keys []string) {
	st.ttlMu.Lock()
	defer st.ttlMu.Unlock()
	for _, key := range keys {
		if at, ok := st.ttl[key]; ok {
			st.due.push(dueKey{at, key})
		}
	}
}

// timed returns how many keys have an end, and how many milliseconds they have left on average, from a sample of one key a
// stripe.
func (d *db) timed() (keys, left int64) {
	now, sampled, sum := d.now(), int64(0), float64(0)
	for i := range d.stripes {
		st := &d.stripes[i]
		if keys += st.timed.Load(); st.timed.Load() == 0 {
			continue
		}
		st.ttlMu.RLock()
		for _, at := range st.ttl {
			sum += float64(max(0, at-now))
			sampled++
			break
		}
		st.ttlMu.RUnlock()
	}
	return keys, int64(sum / float64(max(1, sampled)))
}

// sweepBudget is how long one round of the removal of ended keys may take, of which there are ten a second; sweepMost, how many
// keys of a stripe are removed under one hold of its lock, by one record of the log.
const (
	sweepBudget = 20 * time.Millisecond
	sweepMost   = 64
)

// sweep removes the keys that have come to their end, beginning at stripe from, until there are none or the budget is used up.
// It returns where to go on. What it costs depends on how many keys are due, not on how many have an end.
func (d *db) sweep(from int) (next int) {
	start, now := time.Now(), d.now()
	defer func() { d.sweepNanos.Add(int64(time.Since(start))) }()
	l := &locks{d: d}
	for i := range stripeCount {
		next = (from + i) % stripeCount
		for st := &d.stripes[next]; st.anyDue(now); {
			if d.failed.Load() != nil {
				return next
			}
			if time.Since(start) > sweepBudget {
				d.sweepsCut.Add(1)
				return next
			}
			l.addStripe(next)
			l.lock()
			keys := st.takeDue(now, sweepMost)
			err := d.remove(l, keys)
			if err != nil {
				st.putBack(keys)
			}
			l.unlock()
			if err != nil {
				return next // the log has failed for good, or there is no room for the time being
			}
		}
	}
	return from
}

// remove deletes keys that have come to their end. Nothing waits for it: an end that a crash takes back comes again.
// REQUIRES: l holds their stripes.
func (d *db) remove(l *locks, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	var payload []byte
	for _, key := range keys {
		payload = entry.Append(payload, entry.Entry{Op: entry.Delete, Key: []byte(key)})
	}
	if _, err := d.write(l, payload, false); err != nil {
		return err
	}
	d.ended.Add(uint64(len(keys)))
	return nil
}
