package kvserver

import (
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kvmark/kvserver/resp"
	"kvmark/storage"
)

// scan sends SCAN and returns the next cursor and the keys.
func (c *speaker) scan(cursor, args string) (next string, keys []string) {
	c.t.Helper()
	var p resp.ReplyParser
	r, _, err := p.Next(c.send([]byte("SCAN " + cursor + args + "\r\n")))
	if err != nil || len(r.Elems) != 2 {
		c.t.Fatalf("SCAN %s%s: got %v, %v", cursor, args, r, err)
	}
	for _, k := range r.Elems[1].Elems {
		keys = append(keys, string(k.Bytes))
	}
	return string(r.Elems[0].Bytes), keys
}

// asNumber is what a client makes of a cursor that keeps it as a number of JavaScript.
func asNumber(t testing.TB, cursor string) string {
	t.Helper()
	v, err := strconv.ParseFloat(cursor, 64)
	if err != nil || v >= 1<<53 {
		t.Fatalf("cursor %s is no number below 2^53: %v", cursor, err)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// A client that keeps cursors as floating point numbers finds every key that is there all the time, whatever comes and goes.
func TestSCANFindsEveryKey(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			srv := open(t, Options{Mode: mode})
			c := speak(t, srv)
			const keys = 30_000 // more than a hundred in each partition, so that there are positions
			var in []byte
			for i := range keys {
				in = fmt.Appendf(in, "SET key:%d v\r\n", i)
			}
			c.send(in)
			for _, args := range []string{"", " COUNT 1", " COUNT 500", " MATCH key:1*", " COUNT 100000"} {
				seen, replies := map[string]int{}, 0
				for at := "0"; replies == 0 || at != "0"; replies++ {
					next, found := c.scan(at, args)
					for _, k := range found {
						seen[k]++
					}
					if at = asNumber(t, next); at != next {
						t.Fatalf("cursor %s becomes %s", next, at)
					}
					c.do(fmt.Sprintf("SET other:%d v\r\nDEL other:%d", replies, replies-3))
					if replies > keys {
						t.Fatalf("SCAN%s does not end", args)
					}
				}
				found, want := 0, keys
				for i := range keys {
					k := fmt.Sprintf("key:%d", i)
					found += min(1, seen[k])
					if seen[k] > 1 {
						t.Fatalf("SCAN%s found %s %d times", args, k, seen[k])
					}
				}
				if strings.Contains(args, "MATCH") {
					want = 11_111 // 1, 1?, 1??, 1???, 1????
				}
				if found != want {
					t.Errorf("SCAN%s found %d of %d keys in %d replies", args, found, want, replies)
				}
			}
		})
	}
}

// No cursor, whoever made it up, and no COUNT makes one SCAN do more than go through about scanMost keys.
func TestSCANAnswersEveryCursor(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			c := speak(t, open(t, Options{Mode: mode}))
			var in []byte
			for i := range 2*scanMost + 1000 {
				in = fmt.Appendf(in, "SET key:%d v\r\n", i)
			}
			c.send(in)
			for _, n := range []uint64{1, 255, 256, 1 << 22, 24 << 58, 36 << 58, 1<<53 - 1, 1 << 53, math.MaxInt64, 1 << 63, math.MaxUint64} {
				c.tryCursor(n)
			}
			made := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 1<<cursorBits-1))
			rapid.Check(t, func(rt *rapid.T) { c.tryCursor(made.Draw(rt, "cursor")) })
		})
	}
}

func (c *speaker) tryCursor(n uint64) {
	c.t.Helper()
	reply := c.do(fmt.Sprintf("SCAN %d COUNT 9223372036854775807", n))
	if strings.HasPrefix(reply, "-ERR invalid cursor") && (n >= 1<<cursorBits || cursor(n).partition() >= c.s.db.store.Shards()) {
		return
	}
	var p resp.ReplyParser
	r, _, err := p.Next([]byte(reply))
	if err != nil || len(r.Elems) != 2 || len(r.Elems[1].Elems) > scanMost+scanMost/2 {
		c.t.Errorf("SCAN %d: %.200q (%d bytes), %v", n, reply, len(reply), err)
	}
}

// What SCAN takes depends on what there is, not on the COUNT that is asked for.
func TestSCANOfFewKeysIsCheapWhateverCOUNTSays(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			c := speak(t, open(t, Options{Mode: mode}))
			c.send([]byte("MSET a v b v c v\r\n"))
			scan := []byte("SCAN 0 COUNT 99999999999\r\n")
			if next, keys := c.scan("0", " COUNT 99999999999"); next != "0" || len(keys) != 3 {
				t.Errorf("cursor %s, keys %v", next, keys)
			}
			const calls, most = 10, 1 << 20
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range calls {
				c.send(scan)
			}
			runtime.ReadMemStats(&after)
			if n := (after.TotalAlloc - before.TotalAlloc) / calls; n > most {
				t.Errorf("a call allocates %d bytes, want at most %d", n, most)
			}
		})
	}
}

// A cursor that SCAN has returned is good for any COUNT, and again, when thousands of others came after it.
func TestSCANTakesEveryCursorThatItHasReturned(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			c := speak(t, open(t, Options{Mode: mode}))
			const keys = 40_000
			var in []byte
			for i := range keys {
				in = fmt.Appendf(in, "SET key:%d v\r\n", i)
			}
			c.send(in)
			for _, count := range []string{"1", "1000", "100000000"} {
				var cursors []string
				rest := map[string]int{} // keys that came from a cursor on
				for at := "0"; len(cursors) == 0 || at != "0"; {
					cursors = append(cursors, at)
					var found []string
					at, found = c.scan(at, " COUNT "+count)
					rest[cursors[len(cursors)-1]] = len(found)
				}
				for _, at := range cursors {
					if _, found := c.scan(at, " COUNT "+count); len(found) != rest[at] {
						t.Fatalf("SCAN %s COUNT %s returned %d keys, and again %d", at, count, rest[at], len(found))
					}
					if _, found := c.scan(at, " COUNT 9223372036854775807"); len(found) == 0 && rest[at] > 0 {
						t.Fatalf("SCAN %s with another COUNT returned no key", at)
					}
				}
			}
		})
	}
}

func BenchmarkSCAN(b *testing.B) {
	for _, mode := range storage.Modes() {
		for _, args := range []string{"", " COUNT 99999999999"} {
			b.Run(fmt.Sprintf("mode=%s/keys=3/args=%s", mode, strings.TrimSpace(args)), func(b *testing.B) {
				c := speak(b, open(b, Options{Mode: mode}))
				c.send([]byte("MSET a v b v c v\r\n"))
				in := []byte("SCAN 0" + args + "\r\n")
				b.ReportAllocs()
				for b.Loop() {
					c.send(in)
				}
			})
		}
	}
}

// A reply of SCAN has no more than the server may reply, if a key fits at all.
func TestSCANKeepsToTheLimitOfReplies(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			c := speak(t, open(t, Options{Mode: mode, MaxReply: 16 << 10}))
			const keys = 10_000 // some 35 KiB in a partition, or more
			var in []byte
			for i := range keys {
				in = fmt.Appendf(in, "SET %d%s v\r\n", i, strings.Repeat("k", 900))
			}
			c.send(in)
			seen := map[string]bool{}
			for at, first := "0", true; first || at != "0"; first = false {
				var found []string
				at, found = c.scan(at, " COUNT 100")
				for _, k := range found {
					seen[k] = true
				}
			}
			if len(seen) != keys {
				t.Errorf("found %d of %d keys", len(seen), keys)
			}
		})
	}
}

// The model: whatever is set and deleted between the calls, a scan returns every key that was there from its beginning to its
// end, and no key that never was.
func TestSCANModel(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			srv := open(t, Options{Mode: mode})
			rapid.Check(t, func(rt *rapid.T) {
				c := speak(t, srv)
				c.want("FLUSHALL", ok)
				there, stays, ever := map[string]bool{}, map[string]bool{}, map[string]bool{}
				change := func(n int) {
					var in []byte
					for range n {
						k := strconv.Itoa(rapid.IntRange(0, 5000).Draw(rt, "key"))
						switch rapid.IntRange(0, 9).Draw(rt, "op") {
						default:
							in = fmt.Appendf(in, "SET %s v\r\n", k)
							there[k], ever[k] = true, true
						case 0, 1, 2:
							in = fmt.Appendf(in, "DEL %s\r\n", k)
							delete(there, k)
							delete(stays, k)
						}
					}
					c.send(in)
				}
				var in []byte
				for i := range rapid.IntRange(0, 5000).Draw(rt, "keys") {
					in = fmt.Appendf(in, "SET %d v\r\n", i)
					there[strconv.Itoa(i)], ever[strconv.Itoa(i)] = true, true
				}
				c.send(in)
				for k := range there {
					stays[k] = true
				}
				found := map[string]bool{}
				for at, first := "0", true; first || at != "0"; first = false {
					var keys []string
					at, keys = c.scan(at, fmt.Sprintf(" COUNT %d", rapid.IntRange(1, 3000).Draw(rt, "count")))
					for _, k := range keys {
						if found[k] = true; !ever[k] {
							rt.Fatalf("%q was never there", k)
						}
					}
					change(rapid.IntRange(0, 5).Draw(rt, "changes"))
				}
				for k := range stays {
					if !found[k] {
						rt.Fatalf("%q was there all the time and did not come", k)
					}
				}
			})
		})
	}
}

func TestRedisCliScans(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("redis-cli is not installed: it is not tried")
	}
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path})
		host, port, _ := strings.Cut(listen(t, srv), ":")
		c := speak(t, srv)
		var want []string
		for i := range 20_000 {
			want = append(want, fmt.Sprintf("key:%05d", i))
			c.do("SET " + want[i] + " v")
		}
		out, err := exec.Command(cli, "-h", host, "-p", port, "--scan", "--pattern", "key:*").CombinedOutput()
		got := strings.Fields(string(out))
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("redis-cli --scan found %d keys of %d; %v, %.200s", len(got), len(want), err, out)
		}
	})
}
