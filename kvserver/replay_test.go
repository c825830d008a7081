package kvserver

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal/entry"
)

// BenchmarkReplay applies records of the classic data, a million to 100,000 keys, without lanes and in two.
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
		for _, lanes := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("mode=%s/lanes=%d", mode, lanes), func(b *testing.B) {
				store, err := storage.Open(mode, storage.Options{FS: vfs.Default, Dir: b.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				defer store.Close()
				d := newDB(store)
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
