package storagetest

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvmark/storage"
)

// machine drives a store and a map with the same operations. Its log is what a
// server's log would be: the operations since the newest checkpoint.
type machine struct {
	t     testing.TB
	open  Open
	store storage.Store
	model map[string]string
	recs  [][]byte // the newest durable checkpoint
	log   []op     // since a position taken before it
}

func testModel(t *testing.T, fresh func(t testing.TB) Open) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{t: t, open: fresh(t), model: map[string]string{}}
		m.start(rt)
		defer func() {
			if err := m.store.Close(); err != nil {
				rt.Fatalf("close: %v", err)
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"Set":        m.set,
			"Overwrite":  m.overwrite,
			"Delete":     m.delete,
			"Get":        m.get,
			"Many":       m.many,
			"Clear":      m.clear,
			"Checkpoint": m.checkpoint,
			"Restart":    m.restart,
			"":           func(*rapid.T) {},
		})
		wantContents(failer{m.t, rt}, m.store, m.model)
	})
}

// failer makes helpers fail the run that rapid shrinks.
type failer struct {
	testing.TB
	rt *rapid.T
}

func (f failer) Fatalf(format string, args ...any) { f.rt.Fatalf(format, args...) }

func keys() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
			return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "key")
		}
		return fmt.Appendf(nil, "key %d", rapid.IntRange(0, 60).Draw(t, "n"))
	})
}

func values() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		switch rapid.IntRange(0, 12).Draw(t, "kind") {
		case 0:
			return []byte{}
		case 1:
			return noise(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 40_000).Draw(t, "size"))
		case 2:
			return make([]byte, rapid.IntRange(0, 40_000).Draw(t, "size"))
		}
		return rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "value")
	})
}

// do puts an operation into the log, then into the store, then into the map.
func (m *machine) do(rt *rapid.T, o op) {
	m.log = append(m.log, o)
	if err := o.apply(m.store); err != nil {
		rt.Fatalf("%v", err)
	}
	o.toModel(m.model)
}

func (m *machine) set(rt *rapid.T) {
	m.do(rt, op{key: keys().Draw(rt, "key"), value: values().Draw(rt, "value")})
}

func (m *machine) existing(rt *rapid.T) []byte {
	if len(m.model) == 0 {
		rt.Skip("nothing is there")
	}
	all := make([]string, 0, len(m.model))
	for k := range m.model {
		all = append(all, k)
	}
	slices.Sort(all)
	return []byte(rapid.SampledFrom(all).Draw(rt, "key"))
}

func (m *machine) overwrite(rt *rapid.T) {
	m.do(rt, op{key: m.existing(rt), value: values().Draw(rt, "value")})
}

func (m *machine) delete(rt *rapid.T) {
	key := keys().Draw(rt, "key")
	if rapid.Bool().Draw(rt, "existing") {
		key = m.existing(rt)
	}
	_, there := m.model[string(key)]
	m.log = append(m.log, op{key: key})
	got, err := m.store.Delete(key)
	if err != nil || got != there {
		rt.Fatalf("delete %q: got %v, %v; want %v", key, got, err, there)
	}
	delete(m.model, string(key))
}

func (m *machine) get(rt *rapid.T) {
	key := keys().Draw(rt, "key")
	f := failer{m.t, rt}
	if v, there := m.model[string(key)]; there {
		want(f, m.store, string(key), v)
	} else {
		wantMiss(f, m.store, string(key))
	}
}

// many fills buckets and files, so that they split and rotate.
func (m *machine) many(rt *rapid.T) {
	seed := rapid.Uint64().Draw(rt, "seed")
	for i := range rapid.IntRange(50, 300).Draw(rt, "n") {
		m.do(rt, op{key: fmt.Appendf(nil, "many %d", i), value: noise(seed, i)})
	}
}

func (m *machine) clear(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
		rt.Skip("rarely")
	}
	m.do(rt, op{clear: true})
}

// checkpoint takes one, with operations in its middle, and makes it durable or
// lets it fail.
func (m *machine) checkpoint(rt *rapid.T) {
	position := len(m.log)
	during := rapid.SliceOfN(keys(), 0, 20).Draw(rt, "during")
	var recs [][]byte
	committed, err := m.store.Checkpoint(func(rec []byte) error {
		recs = append(recs, slices.Clone(rec))
		for ; len(during) > 0; during = during[1:] {
			m.do(rt, op{key: during[0], value: []byte("during")})
		}
		return nil
	})
	if err != nil {
		rt.Fatalf("checkpoint: %v", err)
	}
	for ; len(during) > 0; during = during[1:] {
		m.do(rt, op{key: during[0], value: []byte("after")})
	}
	if rapid.IntRange(0, 3).Draw(rt, "fate") == 0 {
		return // it never became durable
	}
	if err := committed(); err != nil {
		rt.Fatalf("committed: %v", err)
	}
	m.recs, m.log = recs, slices.Clone(m.log[position:])
}

func (m *machine) restart(rt *rapid.T) {
	if err := m.store.Close(); err != nil {
		rt.Fatalf("close: %v", err)
	}
	m.start(rt)
	wantContents(failer{m.t, rt}, m.store, m.model)
}

func (m *machine) start(rt *rapid.T) {
	var err error
	if m.store, err = m.open(); err != nil {
		rt.Fatalf("open: %v", err)
	}
	for _, rec := range m.recs {
		if err := m.store.Restore(rec); err != nil {
			rt.Fatalf("restore: %v", err)
		}
	}
	for _, o := range m.log {
		if err := o.apply(m.store); err != nil {
			rt.Fatalf("replay: %v", err)
		}
	}
	if err := m.store.Recovered(); err != nil {
		rt.Fatalf("recovered: %v", err)
	}
}
