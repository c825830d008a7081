package serialize_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"kvmark/storage"
	"kvmark/storage/memory"
	"kvmark/storage/serialize"
	"kvmark/storage/serialize/codec"
)

// record appends a value of 512 bytes as an application keeps it: the same fields in all, half of the bytes their own.
func record(dst []byte, i, version int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	const size = 512
	start := len(dst)
	r := rand.New(rand.NewPCG(uint64(i), uint64(version)))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	dst = fmt.Appendf(dst, `{"id":%d,"version":%d,"name":"%s %s","email":"user%d@example.com","active":%v,"balance":%d.%02d,"session":"`,
		i, version, pick("Alice", "Bob", "Carol", "Dan", "Erin"), pick("Smith", "Jones", "Taylor", "Brown", "Wilson"), i, r.IntN(2) == 0, r.IntN(100_000), r.IntN(100))
	for range 120 {
		dst = append(dst, letters[r.IntN(len(letters))])
	}
	dst = fmt.Appendf(dst, `","address":{"street":"%d Main Street","city":"%s","postcode":"%05d"},"items":[`, r.IntN(1000), pick("London", "Paris", "Berlin", "Tokyo"), r.IntN(100_000))
	for len(dst)-start < size-40 {
		dst = fmt.Appendf(dst, `{"sku":%d,"count":%d},`, r.IntN(1_000_000), r.IntN(10))
	}
	dst = append(dst[:len(dst)-1], `],"note":"`...)
	for len(dst)-start < size-2 {
		dst = append(dst, '.')
	}
	return append(dst[:start+size-2], `"}`...)
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // pools keep what they have for one more cycle
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkOps measures overwriting Sets, Gets and Gets of keys that are not there, beside memory mode. B/key is the heap.
func BenchmarkOps(b *testing.B) {
	const keys, versions = 200_000, 1 << 12
	stores := []struct {
		name string
		open func() storage.Store
	}{{"memory", func() storage.Store { return memory.New() }}}
	for _, name := range codec.Names() {
		stores = append(stores, struct {
			name string
			open func() storage.Store
		}{name, func() storage.Store { return open(b, serialize.Options{Codec: name}) }})
	}
	for _, data := range []struct {
		name  string
		value func(dst []byte, i, version int) []byte
	}{
		{"classic", func(dst []byte, i, _ int) []byte { return append(dst, value(i)...) }},
		{"json", record},
	} {
		// Random order, so that neither the processor's caches nor a bucket's neighbours help.
		r := rand.New(rand.NewPCG(1, 2))
		var ks, absent, vs [][]byte
		for range versions {
			i := r.IntN(keys)
			ks, absent = append(ks, key(i)), append(absent, key(i+keys))
			vs = append(vs, data.value(nil, i, 1))
		}
		for _, st := range stores {
			b.Run(fmt.Sprintf("data=%s/codec=%s", data.name, st.name), func(b *testing.B) {
				before := heap()
				s := st.open()
				defer s.Close()
				var v []byte
				for i := range keys {
					v = data.value(v[:0], i, 0)
					if err := s.Set(key(i), v); err != nil {
						b.Fatal(err)
					}
				}
				perKey := float64(heap()-before) / keys
				run := func(op string, do func(i int) error) {
					b.Run("op="+op, func(b *testing.B) {
						b.ReportAllocs()
						i := 0
						for b.Loop() {
							if err := do(i % versions); err != nil {
								b.Fatal(err)
							}
							i++
						}
						b.ReportMetric(perKey, "B/key")
					})
				}
				run("set", func(i int) error { return s.Set(ks[i], vs[i]) })
				get := func(keys [][]byte, want bool) func(i int) error {
					return func(i int) error {
						var ok bool
						var err error
						if v, ok, err = s.Get(v[:0], keys[i]); err == nil && ok != want {
							err = fmt.Errorf("%q: %v, want %v", keys[i], ok, want)
						}
						return err
					}
				}
				run("get", get(ks, true))
				run("get-absent", get(absent, false))
			})
		}
	}
}
