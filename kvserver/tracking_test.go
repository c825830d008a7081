package kvserver

import (
	"fmt"
	"strings"
	"testing"

	"kvmark/kvserver/resp"
)

func invalidation(keys ...string) string {
	text := ">2\r\n" + bulk("invalidate") + fmt.Sprintf("*%d\r\n", len(keys))
	for _, k := range keys {
		text += bulk(k)
	}
	return text
}

const allInvalid = ">2\r\n$10\r\ninvalidate\r\n_\r\n"

// tracker is a RESP3 connection with tracking on.
func tracker(t *testing.T, addr string, options ...string) *client {
	t.Helper()
	c := dial(t, addr)
	if got, err := c.do("HELLO", "3"); err != nil || !strings.HasPrefix(got, "%") {
		t.Fatalf("%q, %v", got, err)
	}
	c.want(ok, append([]string{"CLIENT", "TRACKING", "ON"}, options...)...)
	return c
}

// next checks the next message that comes by itself.
func (c *client) next(want string) {
	c.t.Helper()
	if got, err := c.read(); err != nil || got != want {
		c.t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// silent checks that nothing has come but the reply to a PING.
func (c *client) silent() {
	c.t.Helper()
	c.want("+PONG\r\n", "PING")
}

func TestTrackingTellsOfChanges(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path}))
		w := dial(t, addr)
		for _, tc := range []struct {
			name  string
			write []string
			want  string
		}{
			{"SET", []string{"SET", "k", "2"}, invalidation("k")},
			{"DEL", []string{"DEL", "k"}, invalidation("k")},
			{"EXPIRE", []string{"EXPIRE", "k", "100"}, invalidation("k")},
			{"RENAME", []string{"RENAME", "k", "k2"}, invalidation("k")},
			{"INCR", []string{"INCR", "k"}, invalidation("k")},
			{"FLUSHALL", []string{"FLUSHALL"}, allInvalid},
		} {
			t.Run(tc.name, func(t *testing.T) {
				w.want(ok, "SET", "k", "1")
				c := tracker(t, addr)
				c.want(bulk("1"), "GET", "k")
				if _, err := w.do(tc.write...); err != nil {
					t.Fatal(err)
				}
				c.next(tc.want)
				w.want(ok, "SET", "k", "3") // not read since
				c.silent()
			})
		}
	})
}

func TestTrackingOptions(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path})
		addr := listen(t, srv)
		w := dial(t, addr)
		t.Run("own changes come behind the reply", func(t *testing.T) {
			c := tracker(t, addr)
			c.want("_\r\n", "GET", "k")
			c.want(ok, "SET", "k", "1")
			c.next(invalidation("k"))
			c.want("*2\r\n$1\r\n1\r\n_\r\n", "MGET", "k", "none")
			c.want(ok, "MULTI")
			c.want(queuedReply, "SET", "k", "2")
			c.want(queuedReply, "SET", "none", "2")
			c.want("*2\r\n+OK\r\n+OK\r\n", "EXEC")
			c.next(invalidation("k"))
			c.next(invalidation("none"))
		})
		t.Run("NOLOOP", func(t *testing.T) {
			c := tracker(t, addr, "NOLOOP")
			c.want(bulk("2"), "GET", "k")
			c.want(ok, "SET", "k", "3")
			c.silent()
			c.want(bulk("3"), "GET", "k")
			w.want(ok, "SET", "k", "4")
			c.next(invalidation("k"))
		})
		t.Run("OPTIN", func(t *testing.T) {
			c := tracker(t, addr, "OPTIN")
			c.want(bulk("4"), "GET", "k")
			w.want(ok, "SET", "k", "5")
			c.silent()
			c.want(ok, "CLIENT", "CACHING", "YES")
			c.want(ok, "MULTI")
			c.want(queuedReply, "PTTL", "k")
			c.want(queuedReply, "GET", "k")
			c.want("*2\r\n:-1\r\n$1\r\n5\r\n", "EXEC")
			c.want("_\r\n", "GET", "other") // not asked for any more
			w.want(ok, "MSET", "other", "1", "k", "6")
			c.next(invalidation("k"))
			c.silent()
		})
		t.Run("OPTOUT", func(t *testing.T) {
			c := tracker(t, addr, "OPTOUT")
			c.want(ok, "CLIENT", "CACHING", "NO")
			c.want(bulk("6"), "GET", "k")
			c.want(bulk("1"), "GET", "other")
			w.want(ok, "MSET", "k", "7", "other", "2")
			c.next(invalidation("other"))
			c.silent()
		})
		t.Run("BCAST", func(t *testing.T) {
			c := tracker(t, addr, "BCAST", "PREFIX", "user:", "PREFIX", "item:")
			w.want(ok, "MSET", "user:1", "x", "none", "x")
			c.next(invalidation("user:1"))
			w.want(ok, "MSET", "item:1", "x", "item:2", "x")
			c.next(invalidation("item:1", "item:2"))
			all := tracker(t, addr, "BCAST")
			w.want(ok, "SET", "any", "x")
			all.next(invalidation("any"))
			c.silent()
		})
		t.Run("REDIRECT", func(t *testing.T) {
			to := dial(t, addr)
			id, err := to.do("CLIENT", "ID")
			if err != nil {
				t.Fatal(err)
			}
			to.want("*3\r\n"+bulk("subscribe")+bulk("__redis__:invalidate")+":1\r\n", "SUBSCRIBE", "__redis__:invalidate")
			c := dial(t, addr) // RESP2
			c.want(ok, "CLIENT", "TRACKING", "ON", "REDIRECT", strings.Trim(id, ":\r\n"))
			c.want(id, "CLIENT", "GETREDIR")
			c.want(bulk("7"), "GET", "k")
			w.want(ok, "SET", "k", "8")
			to.next("*3\r\n" + bulk("message") + bulk("__redis__:invalidate") + "*1\r\n" + bulk("k"))
			c.silent()
			three := tracker(t, addr, "REDIRECT", strings.Trim(id, ":\r\n"))
			three.want(bulk("8"), "GET", "k")
			w.want(":1\r\n", "CLIENT", "KILL", "ID", strings.Trim(id, ":\r\n"))
			if _, err := to.read(); err == nil {
				t.Fatal("the other one is still there")
			}
			three.want(ok, "SET", "k", "9")
			three.next(">2\r\n" + bulk("tracking-redir-broken") + id)
		})
	})
}

// A table that is full throws keys out, and says so to those who hold them.
func TestTrackingTableIsBounded(t *testing.T) {
	srv := open(t, Options{})
	addr := listen(t, srv)
	c := tracker(t, addr)
	c.want(ok, "CONFIG", "SET", "tracking-table-max-keys", "2")
	told := 0
	for i := range 10 {
		if got, err := c.do("GET", fmt.Sprint("k", i)); err != nil || got != "_\r\n" {
			if !strings.HasPrefix(got, ">2\r\n") {
				t.Fatalf("%q, %v", got, err)
			}
			told++
			c.next("_\r\n")
		}
	}
	reg := srv.db.observers.tracking
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if len(reg.keys) != 2 || reg.items != 2 {
		t.Errorf("the table holds %d keys, %d items", len(reg.keys), reg.items)
	}
}

// Keys that come to their end are told of, and clients that are gone are forgotten.
func TestTrackingForgetsAndExpires(t *testing.T) {
	srv := open(t, Options{})
	addr := listen(t, srv)
	w, c := dial(t, addr), tracker(t, addr)
	w.want(ok, "SET", "k", "1", "PX", "300")
	if got, err := c.do("GET", "k"); err != nil || got != bulk("1") {
		t.Fatalf("%q, %v", got, err)
	}
	c.next(invalidation("k")) // by the sweeper
	c.want(ok, "CLIENT", "TRACKING", "OFF")
	if n := srv.db.observers.count.Load(); n != 0 {
		t.Errorf("%d observers are left", n)
	}
}

func BenchmarkTrackedWrite(b *testing.B) {
	for _, observers := range []bool{false, true} {
		b.Run(fmt.Sprintf("tracking=%v", observers), func(b *testing.B) {
			srv := open(b, Options{CheckpointBytes: -1})
			c := speak(b, srv)
			if observers {
				other := speak(b, srv)
				other.do("HELLO 3")
				other.do("CLIENT TRACKING ON")
			}
			in := resp.AppendCommand(nil, "SET", "key", "value")
			b.ReportAllocs()
			for b.Loop() {
				c.s.run(in)
				c.s.commit()
				c.s.sent()
			}
		})
	}
}
