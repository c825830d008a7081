package kvserver

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvmark/kvserver/stats"
)

// Keys that are due go at once, however many others have an end.
func TestDueKeysGoWhateverTheOthersAre(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().UnixMilli())
	srv := open(t, Options{now: now.Load})
	c := speak(t, srv)
	var in []byte
	for i := range 100_000 {
		in = fmt.Appendf(in, "SET later:%d v EX 3600\r\n", i)
	}
	const due = 1000
	for i := range due {
		in = fmt.Appendf(in, "SET due:%d v PX 100000\r\n", i)
	}
	c.send(in)
	now.Add(100_000) // the server's own sweeps may begin, too
	for from, rounds := 0, 0; srv.db.ended.Load() < due; rounds++ {
		if from = srv.db.sweep(from); rounds > 50 {
			t.Fatalf("%d of %d keys are gone after %d rounds", srv.db.ended.Load(), due, rounds)
		}
	}
	c.want("DBSIZE", ":100000\r\n")
	if got := c.do("INFO keyspace"); !strings.Contains(got, "expires=100000,avg_ttl=3") {
		t.Errorf("got %q", got)
	}
}

// The heap finds what the map says, whatever happens to the ends in between, and has not many more entries.
func TestDueKeysModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st, ends, now := new(stripe), map[string]int64{}, int64(0)
		key := rapid.Custom(func(t *rapid.T) string { return strconv.Itoa(rapid.IntRange(0, 30).Draw(t, "key")) })
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				k, at := key.Draw(rt, "key"), now+rapid.Int64Range(1, 100).Draw(rt, "in")
				st.setEnd([]byte(k), at)
				ends[k] = at
			},
			"forget": func(rt *rapid.T) {
				k := key.Draw(rt, "key")
				st.setEnd([]byte(k), 0)
				delete(ends, k)
			},
			"clear": func(*rapid.T) {
				st.clearEnds()
				clear(ends)
			},
			"sweep": func(rt *rapid.T) {
				now += rapid.Int64Range(0, 30).Draw(rt, "later")
				most := rapid.IntRange(1, 5).Draw(rt, "most")
				for st.anyDue(now) {
					keys := st.takeDue(now, most)
					if rapid.IntRange(0, 9).Draw(rt, "refused") == 0 {
						st.putBack(keys)
						return
					}
					for _, k := range keys {
						if at, ok := ends[k]; !ok || at > now {
							rt.Fatalf("%s is not due: %d, %v", k, at, ok)
						}
						st.setEnd([]byte(k), 0)
						delete(ends, k)
					}
				}
				for k, at := range ends {
					if at <= now {
						rt.Fatalf("%s is still there", k)
					}
				}
			},
			"": func(rt *rapid.T) {
				if n := st.timed.Load(); n != int64(len(ends)) {
					rt.Fatalf("%d keys have an end, want %d", n, len(ends))
				}
				if st.due != nil && len(*st.due) > 2*len(ends)+spareDue {
					rt.Fatalf("%d entries for %d keys", len(*st.due), len(ends))
				}
			},
		})
	})
}

// What a client names, or an operator, makes no line of INFO.
func TestEveryValueOfINFOIsOneLine(t *testing.T) {
	srv := open(t, Options{Dir: "/d\nfake:1\r\nfake:2\u2028fake:3\x85\v\f", MinFree: 1 << 62})
	c := speak(t, srv)
	c.do("SET k v") // is refused, and the reason names the directory
	c.do("Host: x")
	info := c.do("INFO everything")
	for _, line := range strings.Split(info, "\r\n") {
		if strings.HasPrefix(line, "fake") || strings.Contains(strings.ToLower(line), "host:") {
			t.Errorf("INFO has the line %q", line)
		}
	}
	if strings.ContainsAny(strings.ReplaceAll(info, "\r\n", ""), "\r\n\v\f\u0085\u2028") {
		t.Errorf("INFO has other ends of lines: %q", info)
	}
	var text stats.Text
	text.Str("a", "\x00\x1cb\u2029")
	if got := string(text.Bytes()); got != "a:  b \r\n" {
		t.Errorf("got %q", got)
	}
}

func TestLinesOfHTTPEndTheConnection(t *testing.T) {
	for _, line := range []string{"POST / HTTP/1.1", "Host: x", "host:", "PoSt"} {
		notes := 0
		srv := open(t, Options{Logf: func(format string, args ...any) {
			if strings.Contains(fmt.Sprintf(format, args...), "HTTP") {
				notes++
			}
		}, Password: "p"})
		for range 3 {
			c := speak(t, srv)
			if got := c.do(line + "\r\nPING"); got != "" || !c.s.closing {
				t.Errorf("%s: got %q, closing %v", line, got, c.s.closing)
			}
		}
		if notes != 1 {
			t.Errorf("%s: %d notes, want one a minute", line, notes)
		}
	}
}
