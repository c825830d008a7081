package kvserver

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvmark/kvserver/resp"
	"kvmark/storage"
	"kvmark/wal/entry"
)

const (
	queuedReply = "+QUEUED\r\n"
	nullArray   = "*-1\r\n"
)

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// A command sees what those before it in the transaction have done, and nobody else does before EXEC.
func TestTransactionsSeeTheirOwnChanges(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			srv := open(t, Options{Mode: mode})
			c, other := speak(t, srv), speak(t, srv)
			for _, line := range []string{"SET kept 1 EX 100", "SET gone 2", "SET n 41"} {
				c.want(line, ok)
			}
			c.want("MULTI", ok)
			steps := []step{
				{"INCR n", ":42\r\n"},
				{"GET n", bulk("42")},
				{"APPEND n x", ":3\r\n"},
				{"INCR n", integer},
				{"GETRANGE n 1 -1", bulk("2x")},
				{"DEL gone none", ":1\r\n"},
				{"EXISTS gone", ":0\r\n"},
				{"SET gone back XX", null},
				{"SET gone back NX", ok},
				{"EXPIRE gone 50", ":1\r\n"},
				{"TTL gone", ":50\r\n"},
				{"PERSIST kept", ":1\r\n"},
				{"TTL kept", ":-1\r\n"},
				{"GET kept", bulk("1")},
				{"RENAME kept moved", ok},
				{"MGET kept moved", "*2\r\n$-1\r\n" + bulk("1")},
				{"DBSIZE", ":3\r\n"},
				{"FLUSHALL", ok},
				{"DBSIZE", ":0\r\n"},
				{"RANDOMKEY", null},
				{"SET a 1 PX 100000", ok},
				{"SET b 2 PXAT 1", ok},
				{"KEYS *", "*1\r\n" + bulk("a")},
				{"SCAN 0", "*2\r\n" + bulk("0") + "*1\r\n" + bulk("a")},
				{"EXISTS b", ":0\r\n"},
				{"COPY a c", ":1\r\n"},
				{"STRLEN c", ":1\r\n"},
			}
			reply := fmt.Sprintf("*%d\r\n", len(steps))
			for _, s := range steps {
				c.want(s.line, queuedReply)
				reply += s.want
			}
			other.want("GET n", bulk("41"))
			before := srv.db.log.Stats().Records
			c.want("EXEC", reply)
			if n := srv.db.log.Stats().Records - before; n != 1 {
				t.Errorf("the transaction made %d records, want 1", n)
			}
			other.want("MGET a c n gone", "*4\r\n"+bulk("1")+bulk("1")+null+null)
			other.want("TTL c", ":100\r\n")
			other.want("EXEC", "-ERR EXEC without MULTI\r\n")
		})
	}
}

func TestTransactionsThatDoNothing(t *testing.T) {
	srv := open(t, Options{MaxKey: 8, MaxReply: 4 << 10})
	c, other := speak(t, srv), speak(t, srv)
	const aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n"
	for _, bad := range []string{"SET k", "NONSENSE", "CONFIG NONSENSE", "SHUTDOWN", "GET toolongakey"} {
		c.want("MULTI", ok)
		c.want("SET k 1", queuedReply)
		if got := c.do(bad); got[0] != resp.Error {
			t.Errorf("%s: %q", bad, got)
		}
		c.want("EXEC", aborted)
		c.want("EXISTS k", ":0\r\n")
	}
	c.want("MULTI", ok)
	c.want("SET k 1", queuedReply)
	c.want("DISCARD", ok)
	c.want("EXISTS k", ":0\r\n")
	c.want("MULTI", ok)
	c.want("SET k 1", queuedReply)
	c.want("RESET", "+RESET\r\n")
	c.want("EXISTS k", ":0\r\n")

	// One that would reply more than it may is not done.
	other.want("SET big "+strings.Repeat("x", 3000), ok)
	c.want("MULTI", ok)
	for _, line := range []string{"SET k 1", "GET big", "GET big"} {
		c.want(line, queuedReply)
	}
	if got := c.do("EXEC"); !strings.HasPrefix(got, "-ERR reply of ") {
		t.Errorf("%.100q", got)
	}
	c.want("EXISTS k", ":0\r\n")
}

func TestWatch(t *testing.T) {
	for _, tc := range []struct {
		name       string
		setup, act []string
		fails      bool
	}{
		{"nothing", nil, nil, false},
		{"another key", nil, []string{"SET other 1"}, false},
		{"made", nil, []string{"SET k 1"}, true},
		{"changed", []string{"SET k 1"}, []string{"SET k 1"}, true},
		{"deleted", []string{"SET k 1"}, []string{"DEL k"}, true},
		{"none deleted", nil, []string{"DEL k"}, false},
		{"an end", []string{"SET k 1"}, []string{"EXPIRE k 100"}, true},
		{"no end", []string{"SET k 1"}, []string{"PERSIST k"}, false},
		{"renamed to", []string{"SET other 1"}, []string{"RENAME other k"}, true},
		{"in another transaction", []string{"SET k 1"}, []string{"MULTI", "SET k 2", "EXEC"}, true},
		{"cleared", []string{"SET k 1"}, []string{"FLUSHALL"}, true},
		{"cleared without it", nil, []string{"FLUSHALL"}, false},
		{"SET NX that did nothing", []string{"SET k 1"}, []string{"SET k 2 NX"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := open(t, Options{})
			c, other := speak(t, srv), speak(t, srv)
			for _, line := range tc.setup {
				other.do(line)
			}
			c.want("WATCH k k unrelated", ok)
			for _, line := range tc.act {
				other.do(line)
			}
			c.want("MULTI", ok)
			c.want("SET mine 1", queuedReply)
			want := "*1\r\n" + ok
			if tc.fails {
				want = nullArray
			}
			c.want("EXEC", want)
			c.want("EXISTS mine", map[bool]string{true: ":0\r\n", false: ":1\r\n"}[tc.fails])
			if n := srv.db.observers.count.Load(); n != 0 || len(srv.db.observers.watched) != 0 {
				t.Errorf("%d keys are still watched", n)
			}
		})
	}
}

func TestWatchedKeysThatEnd(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().UnixMilli())
	srv := open(t, Options{now: now.Load})
	c := speak(t, srv)
	c.want("SET k v PX 1000000000", ok)
	c.want("WATCH k", ok)
	now.Add(2_000_000_000)
	c.want("MULTI", ok)
	c.want("EXEC", nullArray)
	c.want("SET k v PX 1000000000", ok)
	now.Add(2_000_000_000)
	c.want("WATCH k", ok) // not there already
	c.want("EXISTS k", ":0\r\n")
	c.want("MULTI", ok)
	c.want("EXEC", "*0\r\n")
	// Its own change counts, and UNWATCH and DISCARD forget.
	for _, forget := range []string{"", "UNWATCH", "DISCARD"} {
		c.want("WATCH k", ok)
		c.want("SET k v", ok)
		want := "*0\r\n"
		switch forget {
		case "":
			want = nullArray
		case "DISCARD":
			c.want("MULTI", ok)
			fallthrough
		default:
			c.want(forget, ok)
		}
		c.want("MULTI", ok)
		c.want("EXEC", want)
	}
}

// Clients move amounts between accounts, in transactions and with WATCH, while others look: the sum never changes, whether they
// look with MGET, in a transaction, or at one after the other.
func TestTransactionsAreSeenWhole(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path})
		addr := listen(t, srv)
		const movers, moves = 3, 150
		setup := dial(t, addr)
		setup.want(ok, "MSET", "a", "1000", "b", "1000")
		var wg sync.WaitGroup
		over := make(chan struct{})
		for m := range movers {
			c := dial(t, addr)
			wg.Go(func() {
				for n := range moves {
					if m == 0 { // optimistic
						for done := false; !done; {
							_, _ = c.do("WATCH", "a", "b")
							a, _ := c.do("GET", "a")
							b, _ := c.do("GET", "b")
							x, _ := number(a)
							y, _ := number(b)
							_, _ = c.do("MULTI")
							_, _ = c.do("SET", "a", strconv.Itoa(x-1))
							_, _ = c.do("SET", "b", strconv.Itoa(y+1))
							reply, err := c.do("EXEC")
							if done = reply != nullArray; err != nil {
								t.Error(err)
								return
							}
						}
						continue
					}
					_, _ = c.do("MULTI")
					_, _ = c.do("DECRBY", "a", strconv.Itoa(n))
					_, _ = c.do("INCRBY", "b", strconv.Itoa(n))
					if reply, err := c.do("EXEC"); err != nil || !strings.HasPrefix(reply, "*2\r\n:") {
						t.Errorf("%q, %v", reply, err)
						return
					}
				}
			})
		}
		var readers sync.WaitGroup
		c := dial(t, addr)
		readers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				reply, err := c.do("MGET", "a", "b")
				f := strings.Split(reply, "\r\n")
				if err != nil || len(f) < 5 {
					t.Errorf("%q, %v", reply, err)
					return
				}
				a, _ := strconv.Atoi(f[2])
				b, _ := strconv.Atoi(f[4])
				if a+b != 2000 {
					t.Errorf("a and b are %d and %d", a, b)
					return
				}
			}
		})
		wg.Wait()
		close(over)
		readers.Wait()
	})
}

// Readers take no locks. One that has seen one change of a record must not miss another one.
func TestReadersSeeAllOrNothingOfARecord(t *testing.T) {
	srv := open(t, Options{})
	w := speak(t, srv)
	keys := make([]string, 64)
	for i := range keys {
		keys[i] = fmt.Sprintf("key%d", i)
	}
	mset := func(v int) []byte {
		args := []string{"MSET"}
		for _, k := range keys {
			args = append(args, k, strconv.Itoa(v))
		}
		return resp.AppendCommand(nil, args...)
	}
	w.send(mset(0))
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		r := speak(t, srv)
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				last := -1
				for _, k := range keys { // set in this order, so the first to change is read first
					v, _ := number(r.do("GET " + k))
					if v < last {
						t.Errorf("%s is %d after another key was %d", k, v, last)
						return
					}
					last = v
				}
			}
		})
	}
	for v := range 300 {
		w.send(mset(v))
	}
	close(done)
	wg.Wait()
}

// What a queue holds counts in the budget of all connections, and what has no room aborts the transaction.
func TestQueuedCommandsCountInTheBudget(t *testing.T) {
	srv := open(t, Options{MaxBuffered: 1 << 20, MaxValue: 1 << 18})
	c := speak(t, srv)
	c.want("MULTI", ok)
	value := strings.Repeat("x", 200<<10)
	set := resp.AppendCommand(nil, "SET", "k", value)
	refused := false
	for range 8 {
		switch got := string(c.send(set)); {
		case got == "-"+errBudget+"\r\n":
			refused = true
		case got != queuedReply:
			t.Fatalf("%.100q", got)
		}
	}
	if held := srv.buffered.Load(); !refused || held < 200<<10 || held > 1<<20 {
		t.Errorf("%d bytes are held; refused: %v", held, refused)
	}
	c.want("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
	c.want("PING", "+PONG\r\n")
	if held := srv.buffered.Load(); held != 0 {
		t.Errorf("%d bytes are held after the end", held)
	}
}

// Where the log refuses the record, nothing has happened.
func TestTransactionsThatTheLogRefuses(t *testing.T) {
	srv := open(t, Options{MaxValue: 64 << 20, MaxBuffered: 4 << 30})
	c := speak(t, srv)
	c.want("SET k 1", ok)
	srv.db.failed.Store(&failure{err: fmt.Errorf("no disk")})
	c.want("MULTI", ok)
	c.want("SET k 2", queuedReply)
	c.want("EXEC", "-IOERR no disk\r\n")
	srv.db.failed.Store(nil)
	c.want("GET k", bulk("1"))
}

func TestStagedChanges(t *testing.T) {
	var s staged
	for _, e := range []entry.Entry{
		{Op: entry.Set, Key: []byte("a"), Value: []byte("1")},
		{Op: entry.Expire, Key: []byte("a"), ExpireAt: 50},
		{Op: entry.Expire, Key: []byte("b"), ExpireAt: 50},
		{Op: entry.Delete, Key: []byte("c")},
	} {
		if err := s.add(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		key   string
		now   int64
		known bool
		there bool
	}{{"a", 10, true, true}, {"a", 50, true, false}, {"b", 10, true, true}, {"b", 60, true, false}, {"c", 0, true, false}, {"d", 0, false, false}} {
		if k, known := s.find([]byte(tc.key), tc.now); known != tc.known || k.there != tc.there {
			t.Errorf("%s at %d: %+v, %v", tc.key, tc.now, k, known)
		}
	}
	if s.add(entry.Entry{Op: 99}) == nil {
		t.Error("an unknown operation was taken")
	}
}
