package wal

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func BenchmarkCommit(b *testing.B) {
	for _, p := range policies {
		for _, size := range []int{100, 1000} {
			payload := bytes.Repeat([]byte("p"), size)
			one := func(b *testing.B, l *Log) {
				pos, err := l.Append(payload)
				if err == nil {
					err = l.Commit(pos)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			start := func(b *testing.B) *Log {
				l, _, err := Open(b.TempDir(), Options{Policy: p}, nil)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { mustClose(b, l) })
				b.SetBytes(int64(size))
				b.ReportAllocs()
				return l
			}
			b.Run(fmt.Sprintf("policy=%v/size=%d/writers=1", p, size), func(b *testing.B) {
				l := start(b)
				for b.Loop() {
					one(b, l)
				}
			})
			b.Run(fmt.Sprintf("policy=%v/size=%d/writers=16", p, size), func(b *testing.B) {
				l := start(b)
				b.SetParallelism(8) // times GOMAXPROCS
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						one(b, l)
					}
				})
			})
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	for _, size := range []int{16, 100, 1000} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			const n = 200_000
			o := Options{FS: vfs.NewMem(), Policy: Buffered}
			l, _, err := Open(testDir, o, nil)
			if err != nil {
				b.Fatal(err)
			}
			payload := bytes.Repeat([]byte("p"), size)
			for range n {
				if _, err := l.Append(payload); err != nil {
					b.Fatal(err)
				}
			}
			mustClose(b, l)
			b.SetBytes(n * int64(size))
			for b.Loop() {
				reports, err := Scan(o.FS, testDir, Identity{}, nil)
				if err != nil || reports[0].Records != n {
					b.Fatal(err, reports)
				}
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
