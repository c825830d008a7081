package kvserver

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal/entry"
)

// TestReplayInLanesIsReplayInOrder applies the same records with and without lanes.
func TestReplayInLanesIsReplayInOrder(t *testing.T) {
	for _, mode := range []storage.Mode{storage.Memory, storage.Map, storage.Serialize} {
		for _, records := range []int{0, 1, 3000, 30_000} { // the last two need one batch of a lane and several
			t.Run(fmt.Sprintf("mode=%s/records=%d", mode, records), func(t *testing.T) {
				payloads := randomPayloads(records)
				want := replayed(t, mode, 0, payloads)
				for _, lanes := range []int{1, 2, 3} {
					if got := replayed(t, mode, lanes, payloads); !maps.Equal(got, want) {
						t.Errorf("%d lanes: %d entries that differ from the %d without", lanes, len(got), len(want))
					}
				}
			})
		}
	}
}

// randomPayloads makes groups of all operations, on few keys, so that most of them undo one before. Some values are too big
// for a batch.
func randomPayloads(n int) (payloads [][]byte) {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range n {
		var p []byte
		for range 1 + r.IntN(3) {
			e := entry.Entry{Op: entry.Set, Key: fmt.Appendf(nil, "key %d", r.IntN(500)), Value: fmt.Appendf(nil, "value %d", i), ExpireAt: 1e15 + int64(i)}
			switch r.IntN(20) {
			case 0, 1:
				e.Op = entry.Delete
			case 2, 3:
				e.Op = entry.SetExpire
			case 4:
				e.Op = entry.Expire
			case 5:
				e.Op = entry.Persist
			case 6:
				if r.IntN(100) == 0 {
					e.Value = bytes.Repeat(e.Value, 2*laneBatch/len(e.Value))
				}
			case 7:
				if r.IntN(max(1, n/10)) == 0 {
					e.Op = entry.Clear
				}
			}
			p = entry.Append(p, e)
		}
		payloads = append(payloads, p)
	}
	return payloads
}

// replayed returns the values, and the ends of the keys that have one.
func replayed(t *testing.T, mode storage.Mode, lanes int, payloads [][]byte) map[string]string {
	t.Helper()
	store, err := storage.Open(mode, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d := dbOn(store)
	r := newReplayer(d, lanes)
	scratch := []byte{}
	for _, p := range payloads {
		scratch = append(scratch[:0], p...) // what record gets is valid during the call
		if err := r.record(scratch); err != nil {
			t.Error(err)
		}
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
	state := map[string]string{}
	for shard := range store.Shards() {
		err := store.Range(shard, func(key, value []byte) error {
			state[string(key)] = string(value)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for i := range d.stripes {
		for key, at := range d.stripes[i].ttl {
			state["end of "+key] = fmt.Sprint(at)
		}
	}
	return state
}

// dbOn returns a db with a store and without a log.
func dbOn(store storage.Store) *db {
	d := newDB(func() int64 { return time.Now().UnixMilli() })
	d.setStore(store)
	return d
}

// TestReplayEndsWithTheErrorOfALane has a store that refuses what a lane brings it.
func TestReplayEndsWithTheErrorOfALane(t *testing.T) {
	store, err := storage.Open(storage.Memory, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	refused := errors.New("refused")
	for name, store := range map[string]storage.Store{
		"set one by one":   struct{ refusing }{refusing{store, refused}},
		"set many at once": refusingMany{refusing{store, refused}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplayer(dbOn(store), 2)
			set := entry.Append(nil, entry.Entry{Op: entry.Set, Key: []byte("key"), Value: make([]byte, 1000)})
			for range 10_000 {
				if err = r.record(set); err != nil {
					break
				}
			}
			if err != nil && !errors.Is(err, refused) {
				t.Errorf("record: %v", err)
			}
			if err := r.close(); !errors.Is(err, refused) {
				t.Errorf("close: %v, want the store's error", err)
			}
		})
	}
}

type refusing struct {
	storage.Store
	err error
}

func (r refusing) Set(_, _ []byte) error { return r.err }

type refusingMany struct{ refusing }

func (r refusingMany) SetAll(_, _ [][]byte) error { return r.err }

// BenchmarkReplay applies records of the classic data, each to another key, without lanes and with some.
func BenchmarkReplay(b *testing.B) {
	const records, keys = 100_000, 100_000
	var payloads [][]byte
	for i := range records {
		k := i * 7919 % keys
		payloads = append(payloads, entry.Append(nil, entry.Entry{
			Op:    entry.Set,
			Key:   fmt.Appendf(nil, "DataSaveKey123456789ABC_0_0_%d", k),
			Value: fmt.Appendf(nil, "DataSaveValue_0987654321DEFGHIJKLMN0123456789_0_0_%d", k),
		}))
	}
	for _, mode := range storage.Modes() {
		for _, lanes := range []int{0, 1, 2, 4} {
			b.Run(fmt.Sprintf("mode=%s/lanes=%d", mode, lanes), func(b *testing.B) {
				store, err := storage.Open(mode, storage.Options{FS: vfs.Default, Dir: b.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				defer store.Close()
				d := dbOn(store)
				for b.Loop() {
					r := newReplayer(d, lanes)
					for _, p := range payloads {
						if err := r.record(p); err != nil {
							b.Fatal(err)
						}
					}
					if err := r.close(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*records), "ns/record")
			})
		}
	}
}
