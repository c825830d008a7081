package kvserver

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/kvserver/resp"
	"kvmark/storage"
	"kvmark/wal"
)

// What a Set allocates is the key and the value that the store keeps, no more: of the server's own there is nothing. Over
// a key that is there already, the memory mode keeps the key and the file mode keeps neither.
func TestSetAndGetAllocateOnlyWhatIsStored(t *testing.T) {
	for _, tc := range []struct {
		mode storage.Mode
		set  float64 // allocations of a Set over an existing key
	}{
		{storage.Memory, 1},
		{storage.Map, 2},
		{storage.File, 0},
	} {
		t.Run(string(tc.mode), func(t *testing.T) {
			srv := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Mode: tc.mode, WALPolicy: wal.OS, CheckpointBytes: -1})
			c := speak(t, srv)
			run := func(in []byte, want int) {
				n, _ := c.s.run(in)
				c.s.commit()
				if n != len(in) || len(c.s.out) != want {
					t.Fatalf("took %d of %d bytes, replied %q", n, len(in), c.s.out)
				}
				c.s.sent()
			}
			set := resp.AppendCommand(nil, "SET", "DataSaveKey123456789ABC_0_0_1", "DataSaveValue_0987654321DEFGHIJKLMN0123456789_0_0_1")
			get := resp.AppendCommand(nil, "GET", "DataSaveKey123456789ABC_0_0_1")
			if n := testing.AllocsPerRun(1000, func() { run(set, len(ok)) }); n > tc.set {
				t.Errorf("SET: %v allocations, want %v", n, tc.set)
			}
			if n := testing.AllocsPerRun(1000, func() { run(get, len("$51\r\n")+51+2) }); n > 0 {
				t.Errorf("GET: %v allocations, want 0", n)
			}
			miss := resp.AppendCommand(nil, "GET", "none")
			if n := testing.AllocsPerRun(1000, func() { run(miss, len(null)) }); n > 0 {
				t.Errorf("GET of no key: %v allocations, want 0", n)
			}
		})
	}
}

func BenchmarkSession(b *testing.B) {
	for _, policy := range []wal.Policy{wal.Buffered, wal.OS} {
		for _, op := range []string{"SET", "GET"} {
			b.Run(fmt.Sprintf("wal=%s/op=%s", policy, op), func(b *testing.B) {
				srv := open(b, Options{FS: vfs.Default, Dir: b.TempDir(), WALPolicy: policy, CheckpointBytes: -1})
				c := speak(b, srv)
				in := resp.AppendCommand(nil, "SET", "DataSaveKey123456789ABC_0_0_1", "DataSaveValue_0987654321DEFGHIJKLMN0123456789_0_0_1")
				c.send(in)
				if op == "GET" {
					in = resp.AppendCommand(nil, "GET", "DataSaveKey123456789ABC_0_0_1")
				}
				b.ReportAllocs()
				for b.Loop() {
					c.s.run(in)
					c.s.commit()
					c.s.sent()
				}
			})
		}
	}
}
