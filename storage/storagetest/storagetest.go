// Package storagetest is one conformance suite and one model test that every
// storage mode passes. It is for the tests of the modes.
package storagetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"kvmark/storage"
)

// Open opens the store of one directory; after a Close, again and again. It is
// what a restart does: the next store holds what the files hold.
type Open func() (storage.Store, error)

// Run runs the whole suite. fresh returns an Open that is bound to a new, empty
// directory.
func Run(t *testing.T, fresh func(t testing.TB) Open) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, open Open)
	}{
		{"any bytes are a key and a value", testAnyBytes},
		{"a get appends to what it is given", testAppends},
		{"what is returned and what was given are not shared", testNotShared},
		{"delete says whether the key was there", testDelete},
		{"values change their size", testSizes},
		{"many keys are counted and found", testMany},
		{"clear removes everything and the store goes on", testClear},
		{"range and keys see each entry once", testRange},
		{"an error of the callback ends the scan", testCallbackError},
		{"a scan beside writers sees what stays exactly once", testScanBesideWriters},
		{"a scan in steps finds every key, and answers every position", testScanSteps},
		{"the callback of a scan may use the store", testScanReenters},
		{"readers beside writers see whole values only", testConcurrent},
		{"a checkpoint restores the state", testCheckpoint},
		{"a checkpoint beside writers is made exact by replay", testFuzzyCheckpoint},
		{"a failed emit fails the checkpoint and the next one works", testEmitFails},
		{"damaged checkpoint records are refused", testDamagedRecords},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, fresh(t)) })
	}
	t.Run("model", func(t *testing.T) { testModel(t, fresh) })
}

// long says whether the long forms of tests are wanted.
func long() bool { return os.Getenv("KVMARK_LONG") != "" }

func pick(short, longForm int) int {
	if long() {
		return longForm
	}
	if testing.Short() {
		return max(1, short/4)
	}
	return short
}

// start opens a store that is ready for use and closed at the end of the test.
func start(t testing.TB, open Open) storage.Store {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if err := s.Recovered(); err != nil {
		t.Fatalf("recovered: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func set(t testing.TB, s storage.Store, key, value string) {
	t.Helper()
	if err := s.Set([]byte(key), []byte(value)); err != nil {
		t.Fatalf("set %.40q: %v", key, err)
	}
}

// want checks one key with all ways to read it.
func want(t testing.TB, s storage.Store, key, value string) {
	t.Helper()
	got, ok, err := s.Get(nil, []byte(key))
	if err != nil || !ok || string(got) != value {
		t.Fatalf("get %.40q: got %.40q (%d bytes), %v, %v; want %.40q (%d bytes)", key, got, len(got), ok, err, value, len(value))
	}
	if n, ok, err := s.ValueLen([]byte(key)); err != nil || !ok || n != len(value) {
		t.Fatalf("length of %.40q: got %d, %v, %v; want %d", key, n, ok, err, len(value))
	}
}

func wantMiss(t testing.TB, s storage.Store, key string) {
	t.Helper()
	got, ok, err := s.Get([]byte("kept"), []byte(key))
	if err != nil || ok || string(got) != "kept" {
		t.Fatalf("get %.40q: got %.40q, %v, %v; want a miss", key, got, ok, err)
	}
	if n, ok, err := s.ValueLen([]byte(key)); err != nil || ok || n != 0 {
		t.Fatalf("length of %.40q: got %d, %v, %v; want a miss", key, n, ok, err)
	}
}

// contents returns everything, and fails if an entry comes twice.
func contents(t testing.TB, s storage.Store) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for shard := range s.Shards() {
		err := s.Range(shard, func(key, value []byte) error {
			if _, twice := all[string(key)]; twice {
				return fmt.Errorf("key %.40q came twice", key)
			}
			all[string(key)] = string(value)
			return nil
		})
		if err != nil {
			t.Fatalf("range over shard %d: %v", shard, err)
		}
	}
	return all
}

// wantContents compares a store with a map in every way there is.
func wantContents(t testing.TB, s storage.Store, model map[string]string) {
	t.Helper()
	got := contents(t, s)
	var keyBytes, valueBytes int64
	for k, v := range model {
		if g, ok := got[k]; !ok || g != v {
			t.Fatalf("key %.40q: range has %.40q (%d bytes), %v; want %.40q (%d bytes)", k, g, len(g), ok, v, len(v))
		}
		want(t, s, k, v)
		keyBytes += int64(len(k))
		valueBytes += int64(len(v))
	}
	for k := range got {
		if _, ok := model[k]; !ok {
			t.Fatalf("key %.40q is there, and should not be", k)
		}
	}
	if n := s.Count(); n != int64(len(model)) {
		t.Fatalf("count: got %d, want %d", n, len(model))
	}
	st := s.Stats()
	if st.Keys != int64(len(model)) || st.KeyBytes != keyBytes || st.ValueBytes != valueBytes {
		t.Fatalf("stats: got %d keys of %d bytes and values of %d bytes; want %d, %d, %d",
			st.Keys, st.KeyBytes, st.ValueBytes, len(model), keyBytes, valueBytes)
	}
}

// records takes a checkpoint.
func records(t testing.TB, s storage.Store) [][]byte {
	t.Helper()
	var recs [][]byte
	committed, err := s.Checkpoint(func(rec []byte) error {
		recs = append(recs, slices.Clone(rec))
		return nil
	})
	if err != nil {
		t.Fatalf("checkpoint: %v", err)
	}
	if err := committed(); err != nil {
		t.Fatalf("committed: %v", err)
	}
	return recs
}

// restart opens the store again and restores a checkpoint.
func restart(t testing.TB, open Open, recs [][]byte) storage.Store {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatalf("open again: %v", err)
	}
	for i, rec := range recs {
		if err := s.Restore(rec); err != nil {
			t.Fatalf("restore record %d of %d: %v", i+1, len(recs), err)
		}
	}
	return s
}

func testAnyBytes(t *testing.T, open Open) {
	s := start(t, open)
	model := map[string]string{}
	var every []byte
	for i := range 256 {
		every = append(every, byte(i))
	}
	for _, k := range []string{
		"", "\x00", "\x00\x00", "\xff", "\xff\xff", "a", "a\x00", "key with spaces\r\n", "ключ", string(every),
		string(bytes.Repeat([]byte{0xff}, 1000)),
	} {
		wantMiss(t, s, k)
		for _, v := range []string{"x", string(every), "\x00", ""} {
			set(t, s, k, v)
			want(t, s, k, v)
		}
		model[k] = ""
	}
	wantContents(t, s, model)
	if err := s.Set(nil, nil); err != nil {
		t.Fatal(err)
	}
	want(t, s, "", "")
	wantContents(t, s, model)
}

func testAppends(t *testing.T, open Open) {
	s := start(t, open)
	set(t, s, "k", "value")
	for _, spare := range []int{0, 3, 100} {
		dst := append(make([]byte, 0, 6+spare), "before"...)
		got, ok, err := s.Get(dst, []byte("k"))
		if err != nil || !ok || string(got) != "beforevalue" {
			t.Errorf("with %d spare bytes: got %q, %v, %v", spare, got, ok, err)
		}
	}
}

func testNotShared(t *testing.T, open Open) {
	s := start(t, open)
	key, value := []byte("key"), []byte("value")
	if err := s.Set(key, value); err != nil {
		t.Fatal(err)
	}
	copy(key, "xxx")
	copy(value, "xxxxx")
	want(t, s, "key", "value")
	got, _, err := s.Get(nil, []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	copy(got, "yyyyy")
	want(t, s, "key", "value")
}

func testDelete(t *testing.T, open Open) {
	s := start(t, open)
	for _, key := range []string{"", "a", "\x00"} {
		for _, exists := range []bool{false, true, false} {
			if exists {
				set(t, s, key, "v")
			}
			if got, err := s.Delete([]byte(key)); err != nil || got != exists {
				t.Fatalf("delete %q: got %v, %v; want %v", key, got, err, exists)
			}
			wantMiss(t, s, key)
		}
	}
	wantContents(t, s, map[string]string{})
}

// noise returns n bytes that do not compress.
func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}

func testSizes(t *testing.T, open Open) {
	s := start(t, open)
	model := map[string]string{}
	sizes := []int{0, 1, 127, 128, 4095, 70_000, 300_000, 1 << 20, 3 << 20, 5, 0}
	if long() {
		sizes = append(sizes, 64<<20)
	}
	for round := range 2 {
		for i, n := range sizes {
			key := fmt.Sprintf("key %d", i%5)
			value := noise(uint64(i), n)
			if round == 1 {
				value = bytes.Repeat([]byte{'r'}, n)
			}
			set(t, s, key, string(value))
			set(t, s, fmt.Sprintf("neighbour %d", i), "small")
			model[key], model[fmt.Sprintf("neighbour %d", i)] = string(value), "small"
		}
		wantContents(t, s, model)
	}
}

func testMany(t *testing.T, open Open) {
	s := start(t, open)
	n := pick(20_000, 1_000_000)
	key := func(i int) string { return fmt.Sprintf("DataSaveKey123456789ABC_%d_pfx_%d", i%8, i) }
	value := func(i, round int) string { return fmt.Sprintf("DataSaveValue_0987654321_%d_%d", i, round) }
	for round := range 2 {
		for i := range n {
			set(t, s, key(i), value(i, round))
		}
		if got := s.Count(); got != int64(n) {
			t.Fatalf("count: got %d, want %d", got, n)
		}
	}
	for i := range n {
		want(t, s, key(i), value(i, 1))
	}
	for i := 0; i < n; i++ {
		if i%10 == 0 {
			continue
		}
		if ok, err := s.Delete([]byte(key(i))); err != nil || !ok {
			t.Fatalf("delete %q: %v, %v", key(i), ok, err)
		}
	}
	model := map[string]string{}
	for i := 0; i < n; i += 10 {
		model[key(i)] = value(i, 1)
	}
	wantContents(t, s, model)
}

func testClear(t *testing.T, open Open) {
	s := start(t, open)
	for round := range 3 {
		model := map[string]string{}
		for i := range 1000 {
			k, v := fmt.Sprintf("%d", i), fmt.Sprintf("%d %d", round, i)
			set(t, s, k, v)
			model[k] = v
		}
		wantContents(t, s, model)
		if err := s.Clear(); err != nil {
			t.Fatal(err)
		}
		wantContents(t, s, map[string]string{})
		wantMiss(t, s, "1")
	}
}

func testRange(t *testing.T, open Open) {
	s := start(t, open)
	model := map[string]string{}
	for i := range 5000 {
		k, v := fmt.Sprintf("key %d", i), fmt.Sprintf("value %d", i)
		set(t, s, k, v)
		model[k] = v
	}
	wantContents(t, s, model)
	keys := map[string]int{}
	for shard := range s.Shards() {
		if err := s.Keys(shard, func(key []byte) error { keys[string(key)]++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for k, n := range keys {
		if _, ok := model[k]; !ok || n != 1 {
			t.Errorf("key %q came %d times", k, n)
		}
	}
	if len(keys) != len(model) {
		t.Errorf("%d keys, want %d", len(keys), len(model))
	}
}

func testCallbackError(t *testing.T, open Open) {
	s := start(t, open)
	for i := range 2000 {
		set(t, s, fmt.Sprint(i), "v")
	}
	enough := errors.New("enough")
	calls, hit := 0, 0
	for shard := range s.Shards() {
		before := calls
		err := s.Range(shard, func(_, _ []byte) error { calls++; return enough })
		kerr := s.Keys(shard, func([]byte) error { return enough })
		if calls > before {
			hit++
			if !errors.Is(err, enough) || !errors.Is(kerr, enough) {
				t.Fatalf("shard %d: got errors %v and %v, want the callback's", shard, err, kerr)
			}
		}
	}
	if calls != hit || hit == 0 {
		t.Errorf("%d calls in %d shards with entries, want one each", calls, hit)
	}
}

func testScanBesideWriters(t *testing.T, open Open) {
	s := start(t, open)
	stays := pick(4000, 50_000)
	for i := range stays {
		set(t, s, fmt.Sprintf("stays %d", i), "first")
	}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	writers.Go(func() { // makes shards grow and shrink
		for n := 0; ; n++ {
			for i := range 3000 {
				select {
				case <-stop:
					return
				default:
				}
				key := []byte(fmt.Sprintf("comes and goes %d", i))
				if n%2 == 0 {
					if err := s.Set(key, []byte("x")); err != nil {
						t.Errorf("set: %v", err)
						return
					}
				} else if _, err := s.Delete(key); err != nil {
					t.Errorf("delete: %v", err)
					return
				}
			}
		}
	})
	writers.Go(func() { // changes what stays
		for n := 0; ; n++ {
			for i := range stays {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Set([]byte(fmt.Sprintf("stays %d", i)), bytes.Repeat([]byte{'s'}, n%50)); err != nil {
					t.Errorf("set: %v", err)
					return
				}
			}
		}
	})
	for range pick(3, 10) {
		seen := map[string]int{}
		keys := map[string]int{}
		for shard := range s.Shards() {
			if err := s.Range(shard, func(key, _ []byte) error { seen[string(key)]++; return nil }); err != nil {
				t.Errorf("range: %v", err)
			}
			if err := s.Keys(shard, func(key []byte) error { keys[string(key)]++; return nil }); err != nil {
				t.Errorf("keys: %v", err)
			}
		}
		for i := range stays {
			k := fmt.Sprintf("stays %d", i)
			if seen[k] != 1 || keys[k] != 1 {
				t.Errorf("%q came %d times in Range and %d times in Keys, want once", k, seen[k], keys[k])
			}
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	writers.Wait()
}

// testScanSteps goes through all keys, some at a time, while others come and go.
func testScanSteps(t *testing.T, open Open) {
	s := start(t, open)
	const stays = 5000
	for i := range stays {
		set(t, s, fmt.Sprintf("stays %d", i), "v")
	}
	for _, n := range []int{1, 7, 5000} {
		seen, calls := map[string]int{}, 0
		for shard := range s.Shards() {
			for from, first := uint64(0), true; first || from > 0; first = false {
				last := from
				next, err := s.Scan(shard, from, n, func(key []byte) error { seen[string(key)]++; return nil })
				if err != nil {
					t.Fatal(err)
				}
				if from = next; from >= 1<<storage.ScanBits || from == last && from > 0 {
					t.Fatalf("from position %d to %d", last, from)
				}
				if calls++; calls%10 == 0 {
					set(t, s, fmt.Sprintf("comes %d", calls), "v")
					if _, err := s.Delete(fmt.Appendf(nil, "comes %d", calls-500)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for i := range stays {
			if k := fmt.Sprintf("stays %d", i); seen[k] != 1 {
				t.Fatalf("%d at a time: %q came %d times", n, k, seen[k])
			}
		}
	}
	enough := errors.New("enough")
	for _, from := range []uint64{1, 1 << 20, 1<<storage.ScanBits - 1} {
		for shard := range s.Shards() {
			if _, err := s.Scan(shard, from, 10, func([]byte) error { return nil }); err != nil {
				t.Fatalf("position %d: %v", from, err)
			}
		}
	}
	if _, err := s.Scan(0, 0, 10, func([]byte) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v, want the callback's error", err)
	}
}

func testScanReenters(t *testing.T, open Open) {
	s := start(t, open)
	for i := range 1000 {
		set(t, s, fmt.Sprint(i), "v")
	}
	for shard := range s.Shards() {
		err := s.Range(shard, func(key, _ []byte) error {
			key = slices.Clone(key)
			if _, _, err := s.Get(nil, key); err != nil {
				return err
			}
			if err := s.Set(key, []byte("seen")); err != nil {
				return err
			}
			_, err := s.Delete(key)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wantContents(t, s, map[string]string{})
}

// selfProving returns a value that says for which key it is and which version.
func selfProving(key []byte, version uint64, size int) []byte {
	v := append([]byte(nil), key...)
	v = binary.LittleEndian.AppendUint64(v, version)
	r := rand.New(rand.NewPCG(version, uint64(len(key))))
	for range size {
		v = append(v, byte('a'+r.IntN(16)))
	}
	return v
}

func checkProof(key, value []byte) (version uint64, err error) {
	rest, ok := bytes.CutPrefix(value, key)
	if !ok || len(rest) < 8 {
		return 0, fmt.Errorf("value of %q is %.60q", key, value)
	}
	version = binary.LittleEndian.Uint64(rest)
	if !bytes.Equal(value, selfProving(key, version, len(rest)-8)) {
		return 0, fmt.Errorf("value of %q, version %d, is mixed up", key, version)
	}
	return version, nil
}

func testConcurrent(t *testing.T, open Open) {
	s := start(t, open)
	const workers, keys = 4, 300
	ops := pick(1500, 100_000)
	var newest [workers][keys]atomic.Uint64
	key := func(w, i int) []byte { return fmt.Appendf(nil, "worker %d key %d", w, i) }
	var all sync.WaitGroup
	stop := make(chan struct{})
	for w := range workers {
		all.Go(func() { // the one writer of its keys
			r := rand.New(rand.NewPCG(uint64(w), 2))
			for n := range ops {
				i := r.IntN(keys)
				version := newest[w][i].Load() + 1
				if n%7 == 3 {
					if _, err := s.Delete(key(w, i)); err != nil {
						t.Errorf("delete: %v", err)
						return
					}
				}
				if err := s.Set(key(w, i), selfProving(key(w, i), version, r.IntN(300))); err != nil {
					t.Errorf("set: %v", err)
					return
				}
				newest[w][i].Store(version)
			}
		})
	}
	var readers sync.WaitGroup
	if s, ok := s.(storage.Warmer); ok {
		readers.Go(func() { // nothing comes of it, but for locks
			r := rand.New(rand.NewPCG(1, 4))
			var ks [][]byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				ks = ks[:0]
				for range r.IntN(100) { // some of them twice, some of nobody
					ks = append(ks, key(r.IntN(workers+1), r.IntN(keys)))
				}
				s.Warm(ks)
			}
		})
	}
	for w := range workers / 2 {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			var buf []byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				v, i := r.IntN(workers), r.IntN(keys)
				atLeast := newest[v][i].Load()
				got, ok, err := s.Get(buf[:0], key(v, i))
				if err != nil {
					t.Errorf("get: %v", err)
					return
				}
				if !ok {
					continue // deleted, or not there yet
				}
				buf = got
				version, err := checkProof(key(v, i), got)
				if err != nil {
					t.Error(err)
					return
				}
				if version < atLeast {
					t.Errorf("%q: read version %d after version %d was written", key(v, i), version, atLeast)
					return
				}
			}
		})
	}
	all.Wait()
	close(stop)
	readers.Wait()
	for w := range workers {
		for i := range keys {
			version := newest[w][i].Load()
			got, ok, err := s.Get(nil, key(w, i))
			if err != nil || ok != (version > 0) {
				t.Fatalf("%q: got %v, %v; want version %d", key(w, i), ok, err, version)
			}
			if !ok {
				continue
			}
			if v, err := checkProof(key(w, i), got); err != nil || v != version {
				t.Fatalf("%q: version %d, %v; want %d", key(w, i), v, err, version)
			}
		}
	}
}

func testCheckpoint(t *testing.T, open Open) {
	model := map[string]string{}
	var recs [][]byte
	for round := range 3 {
		s := restart(t, open, recs)
		if err := s.Recovered(); err != nil {
			t.Fatal(err)
		}
		wantContents(t, s, model)
		for i := range 2000 {
			k, v := fmt.Sprintf("%d", i*(round+1)), fmt.Sprintf("value %d of round %d", i, round)
			set(t, s, k, v)
			model[k] = v
		}
		set(t, s, "", "")
		model[""] = ""
		big := string(noise(uint64(round), 200_000))
		set(t, s, "big", big)
		model["big"] = big
		if _, err := s.Delete([]byte("0")); err != nil {
			t.Fatal(err)
		}
		delete(model, "0")
		recs = records(t, s)
		wantContents(t, s, model)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := restart(t, open, recs)
	defer s.Close()
	if err := s.Recovered(); err != nil {
		t.Fatal(err)
	}
	wantContents(t, s, model)
}

// op is an operation as a log would have it.
type op struct {
	clear      bool
	key, value []byte // a nil value is a delete
}

func (o op) apply(s storage.Store) error {
	var err error
	switch {
	case o.clear:
		err = s.Clear()
	case o.value == nil:
		_, err = s.Delete(o.key)
	default:
		err = s.Set(o.key, o.value)
	}
	return err
}

// toModel applies the operation to a map.
func (o op) toModel(m map[string]string) {
	switch {
	case o.clear:
		clear(m)
	case o.value == nil:
		delete(m, string(o.key))
	default:
		m[string(o.key)] = string(o.value)
	}
}

func testFuzzyCheckpoint(t *testing.T, open Open) {
	var recs [][]byte
	var replay []op
	model := map[string]string{}
	for round := range pick(3, 20) {
		s := restart(t, open, recs)
		for _, o := range replay {
			if err := o.apply(s); err != nil {
				t.Fatalf("replay: %v", err)
			}
		}
		if err := s.Recovered(); err != nil {
			t.Fatal(err)
		}
		wantContents(t, s, model)

		// One log, appended to before the store is written to, per writer:
		// writers have their own keys, so that any mix of the logs is right.
		const writers, keys = 3, 400
		var logs [writers][]op
		var mu [writers]sync.Mutex
		stop := make(chan struct{})
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(round), uint64(w)))
				for {
					select {
					case <-stop:
						return
					default:
					}
					o := op{key: fmt.Appendf(nil, "%d %d", w, r.IntN(keys))}
					if r.IntN(4) > 0 {
						o.value = noise(r.Uint64(), r.IntN(200))
					}
					mu[w].Lock()
					logs[w] = append(logs[w], o)
					err := o.apply(s)
					mu[w].Unlock()
					if err != nil {
						t.Errorf("%v", err)
						return
					}
				}
			})
		}
		logged := func() int {
			n := 0
			for w := range writers {
				mu[w].Lock()
				n += len(logs[w])
				mu[w].Unlock()
			}
			return n
		}
		for n := logged(); logged() < n+2000 && !t.Failed(); {
		}
		var from [writers]int
		for w := range writers {
			mu[w].Lock()
			from[w] = len(logs[w])
			mu[w].Unlock()
		}
		recs = nil
		committed, err := s.Checkpoint(func(rec []byte) error {
			recs = append(recs, slices.Clone(rec))
			return nil
		})
		if err != nil {
			t.Fatalf("checkpoint: %v", err)
		}
		for n := logged(); logged() < n+2000 && !t.Failed(); {
		}
		if err := committed(); err != nil {
			t.Fatalf("committed: %v", err)
		}
		for n := logged(); logged() < n+500 && !t.Failed(); {
		}
		close(stop)
		all.Wait()
		replay = nil
		for w := range writers {
			for _, o := range logs[w] {
				o.toModel(model)
			}
			replay = append(replay, logs[w][from[w]:]...)
		}
		wantContents(t, s, model)
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
}

func testEmitFails(t *testing.T, open Open) {
	s := start(t, open)
	model := map[string]string{}
	for i := range 1000 {
		k, v := fmt.Sprint(i), fmt.Sprint("value ", i)
		set(t, s, k, v)
		model[k] = v
	}
	full := errors.New("no space")
	calls := 0
	_, err := s.Checkpoint(func([]byte) error { calls++; return full })
	if calls > 0 && !errors.Is(err, full) {
		t.Errorf("emit failed, and Checkpoint returned %v", err)
	}
	if calls > 1 {
		t.Errorf("emit was called %d times, want no call after an error", calls)
	}
	wantContents(t, s, model)
	records(t, s)
	wantContents(t, s, model)
}

func testDamagedRecords(t *testing.T, open Open) {
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	model := map[string]string{}
	for i := range 100 {
		k, v := fmt.Sprint("key ", i), fmt.Sprint("value ", i)
		set(t, s, k, v)
		model[k] = v
	}
	recs := records(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		refused := 0
		for n := 1; n < len(rec); n += 1 + n/50 {
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			// A cut between two entries leaves a shorter record, which is one.
			if err := s.Restore(rec[:n]); err != nil {
				refused++
			} else {
				for k, v := range contents(t, s) {
					if model[k] != v {
						t.Errorf("a record cut to %d of %d bytes gave %q the value %q, want %q", n, len(rec), k, v, model[k])
					}
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if refused == 0 && len(rec) > 1 {
			t.Errorf("no cut of a record of %d bytes was refused", len(rec))
		}
	}
}
