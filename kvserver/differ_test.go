package kvserver

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kvmark/kvserver/resp"
)

// accepted are the differences from Redis that are meant, or cannot be otherwise: the first row that fits a command decides what of the
// two replies is compared.
var accepted = []struct {
	reason  string
	fits    func(args []string) bool
	compare func(redis, ours string) bool
}{
	{"values are at most --max-value, not 512 MiB, and are not filled up to there", func(a []string) bool { return named(a, "setrange") && len(a) == 4 && len(a[2]) > 6 }, notCompared},
	{"the order of keys is that of the store", func(a []string) bool { return named(a, "keys") }, sameLines},
	{"a cursor means nothing to another server, and how many keys come at once is for the server to say", func(a []string) bool { return named(a, "scan") }, sameKind},
	{"some key is not the same key", func(a []string) bool { return named(a, "randomkey") }, sameKind},
	{"nothing remembers accesses", func(a []string) bool { return named(a, "object") && len(a) == 3 && strings.EqualFold(a[1], "idletime") }, sameKind},
	{"what Redis keeps as raw because it was appended to is kept as what it is", func(a []string) bool { return named(a, "object") && len(a) == 3 && strings.EqualFold(a[1], "encoding") }, sameKind},
	{"there are no shared numbers", func(a []string) bool { return named(a, "object") && len(a) == 3 && strings.EqualFold(a[1], "refcount") }, sameKind},
	{"memory is laid out otherwise, and Redis counts that of a key that has ended until something else removes it", func(a []string) bool {
		return named(a, "memory") && len(a) > 2 && strings.EqualFold(a[1], "usage")
	}, sameUsage},
	{"a key that has ended is counted until it is removed, which each server does in its own time", func(a []string) bool { return named(a, "dbsize") && len(a) == 1 }, sameButEnded},
	{"ids of clients, times and versions are each server's own", func(a []string) bool {
		return named(a, "time") || named(a, "hello") || named(a, "lastsave") || named(a, "info") || named(a, "client") && len(a) > 1 && slices.ContainsFunc([]string{"id", "info", "list"}, func(s string) bool { return strings.EqualFold(a[1], s) })
	}, sameKind},
	{"what was slow, each server has for itself", func(a []string) bool { return named(a, "slowlog") && len(a) > 1 && strings.EqualFold(a[1], "get") }, sameKind},
	{"HELP tells of the parts that are here; COMMAND, of the commands", func(a []string) bool { return len(a) == 2 && strings.EqualFold(a[1], "help") || named(a, "command") }, sameKind},
	{"the clocks of two servers are read at two moments", func(a []string) bool {
		return named(a, "ttl") || named(a, "pttl") || named(a, "expiretime") || named(a, "pexpiretime")
	}, near},
}

func named(a []string, name string) bool { return strings.EqualFold(a[0], name) }

func notCompared(string, string) bool { return true }

func same(redis, ours string) bool { return redis == ours }

// sameKind compares errors as they are, and of other replies the kind.
func sameKind(redis, ours string) bool {
	return redis == ours || redis[0] == ours[0] && redis[0] != '-' || isNull(redis) == isNull(ours) && !isNull(redis) && redis[0] != '-' && ours[0] != '-'
}

func sameUsage(redis, ours string) bool {
	return sameKind(redis, ours) || redis[0] == ':' && isNull(ours)
}

// sameButEnded compares numbers of keys, of which few have ended.
func sameButEnded(redis, ours string) bool {
	a, err1 := strconv.Atoi(strings.Trim(redis, ":\r\n"))
	b, err2 := strconv.Atoi(strings.Trim(ours, ":\r\n"))
	return redis == ours || err1 == nil && err2 == nil && max(a, b)-min(a, b) <= 2
}

func isNull(reply string) bool { return reply == "_\r\n" || reply == null || reply == nullArray }

func sameLines(redis, ours string) bool {
	sorted := func(s string) []string { l := strings.Split(s, "\r\n"); slices.Sort(l); return l }
	return slices.Equal(sorted(redis), sorted(ours))
}

// near compares numbers of milliseconds or seconds.
func near(redis, ours string) bool {
	a, err1 := strconv.ParseInt(strings.Trim(redis, ":\r\n"), 10, 64)
	b, err2 := strconv.ParseInt(strings.Trim(ours, ":\r\n"), 10, 64)
	return redis == ours || err1 == nil && err2 == nil && a > 0 && b > 0 && max(a, b)-min(a, b) < 5_000
}

// comparison returns how the replies to a command are compared.
func comparison(args []string) func(redis, ours string) bool {
	for _, d := range accepted {
		if d.fits(args) {
			return d.compare
		}
	}
	return same
}

// babbler makes up commands.
type babbler struct{ *rand.Rand }

func (b babbler) pick(list ...string) string { return list[b.IntN(len(list))] }

func (b babbler) key() string { return b.pick("a", "b", "c", "d", "n", "{x}", "", "\x00\xff\r\n") }

func (b babbler) value() string {
	return b.pick("v", "1", "-1", "10", "007", "3.5", "-0", "abc def", "", "9223372036854775807", "-9223372036854775808", "\r\n\x00", strings.Repeat("x", 50), "1e3", " 1")
}

func (b babbler) integer() string {
	return b.pick("0", "1", "-1", "2", "5", "10", "100", "-100", "x", "", "1.5", "+1", "01", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "99999999999", "4294967296")
}

// future is an amount of time that does not pass during the test, or one that is not valid.
func (b babbler) future() string {
	return b.pick("1000000", "5000000", "10000000", "0", "-1", "x", "", "9223372036854775807", "-9223372036854775808", "9223372036854775")
}

func (b babbler) float() string {
	return b.pick("0", "1", "-1", "0.1", "1e3", "-2.5e-3", "1e17", "inf", "-inf", "nan", "x", "", " 1", "1 ", "0x1p3", "1e400", ".5", "5.", "+1", "1e", "3.141592653589793238")
}

// fill makes an argument of a placeholder: k key, v value, i integer, f float, t time, n name of an option's kind.
func (b babbler) fill(word string) string {
	switch word {
	case "k":
		return b.key()
	case "v":
		return b.value()
	case "i":
		return b.integer()
	case "f":
		return b.float()
	case "t":
		return b.future()
	}
	return word
}

// forms are the commands that are promised, each with what may follow it; | are alternatives of which some are taken, in any order.
var forms = []string{
	"set k v", "set k v", "set k v | nx xx get keepttl ex,t px,t exat,t pxat,t", "setnx k v", "setex k t v", "psetex k t v", "get k", "get k", "getset k v", "getdel k", "getex k | ex,t px,t exat,t pxat,t persist nx",
	"mget k k k", "mset k v k v", "msetnx k v k v", "strlen k", "append k v", "incr k", "decr k", "incrby k i", "decrby k i", "incrbyfloat k f", "getrange k i i", "substr k i i", "setrange k i v",
	"del k k", "unlink k", "exists k k k", "touch k k", "copy k k | replace db,0 bogus", "rename k k", "renamenx k k", "randomkey", "object encoding k", "object refcount k", "object freq k", "object idletime k", "object bogus k",
	"expire k t | nx xx gt lt", "pexpire k t | nx xx gt lt", "expireat k t | nx xx gt lt", "pexpireat k t | nx xx gt lt", "expiretime k", "pexpiretime k", "ttl k", "pttl k", "persist k", "type k", "keys *", "keys a*", "keys [ab]", "keys \\", "scan 0 | count,i match,* type,string",
	"dbsize", "flushall", "flushdb async", "flushall bogus", "ping", "ping v", "echo v", "select 0", "select x", "select 99999999999", "select -1", "select 9223372036854775808", "time", "role", "wait 0 i", "wait -1 i", "wait x i", "lastsave", "memory usage k | samples,i",
	"multi", "multi", "exec", "exec", "exec", "discard", "watch k k", "unwatch", "reset", "subscribe k", "unsubscribe", "psubscribe k*", "punsubscribe", "publish k v", "pubsub numpat", "pubsub numsub k", "pubsub channels",
	"client getname", "client setname v", "client id", "client trackinginfo", "client getredir", "client caching yes", "client no-evict on", "client kill id 999999", "client kill id 0", "client kill id x", "client kill type bogus", "client kill bogus x", "client list id i", "client bogus", "client help", "client reply on",
	"config get maxmemory", "config set maxclients x", "config set maxclients 0", "config set timeout -1", "config set maxclients i maxclients i", "config set nothing i", "config bogus", "config resetstat", "command count", "command getkeys get k", "command info k", "command list | filterby,pattern,a* bogus",
	"slowlog reset", "slowlog get i", "latency latest", "latency reset", "latency history k", "auth v", "auth k v", "hello 4", "hello x", "hello 3", "hello 2", "hello 2 setname v", "info k", "shutdown abort", "shutdown bogus", "nonsense k v", "get", "set k", "mset k v k",
}

// command makes up one, now and then with an argument too many or too few, or in other letters.
func (b babbler) command() []string {
	form, options, _ := strings.Cut(b.pick(forms...), " | ")
	var args []string
	for _, w := range strings.Fields(form) {
		args = append(args, b.fill(w))
	}
	if list := strings.Fields(options); len(list) > 0 {
		for range b.IntN(3) {
			for _, w := range strings.Split(b.pick(list...), ",") {
				args = append(args, b.fill(w))
			}
		}
	}
	switch b.IntN(40) {
	case 0:
		args = append(args, b.value())
	case 1:
		args = args[:max(1, len(args)-1)]
	case 2:
		args[0] = strings.ToUpper(args[0])
	}
	return args
}

// Both servers are told the same random commands, in RESP2 and RESP3, and must reply with the same bytes, but for what accepted lists. A
// sequence that shows a difference is repeated by its seed.
func TestRandomCommandsAreAnsweredAsByRedis(t *testing.T) {
	connect := startRedis(t)
	addr := listen(t, open(t, Options{}))
	theirs := connect()
	rounds := times(t, "KVMARK_DIFFER", 40, 2000)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("KVMARK_DIFFER_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	compared := 0
	for round := range rounds {
		d := differ{t: t, babbler: babbler{rand.New(rand.NewPCG(seed, uint64(round)))}, conns: []*client{theirs, dial(t, addr)}}
		d.run(100)
		compared += d.compared
		d.conns[1].nc.Close()
		if t.Failed() {
			t.Fatalf("KVMARK_DIFFER_SEED=%d, round %d:\n%s", seed, round, strings.Join(d.history, "\n"))
		}
	}
	t.Logf("%d replies compared, %d rounds, seed %d", compared, rounds, seed)
}

// differ is one round: a fresh database, a client of each server.
type differ struct {
	t *testing.T
	babbler
	conns    []*client
	queued   [][]string // since MULTI
	history  []string
	compared int
}

func (d *differ) run(n int) {
	for _, c := range d.conns {
		if err := c.nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			d.t.Fatal(err)
		}
	}
	d.both([]string{"reset"}, same)
	d.both([]string{"flushall"}, same)
	d.both([]string{"hello", d.pick("2", "3")}, sameKind)
	for range n {
		args := d.command()
		if d.mute(args) {
			continue
		}
		compare := comparison(args)
		if named(args, "exec") && d.queued != nil {
			compare = d.compareExec
		}
		redis, ok := d.both(args, compare)
		if !ok || d.t.Failed() {
			return
		}
		d.follow(args, redis)
	}
}

// mute reports whether a command has no single reply of its own: subscriptions confirm each name, and messages come between.
func (d *differ) mute(args []string) bool {
	switch strings.ToLower(args[0]) {
	case "shutdown":
		return len(args) == 1
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe":
		return true // see the tests of Pub/Sub
	case "auth", "hello":
		// A wrong password is answered late here, and soon not at all.
		return len(args) > 2 || named(args, "auth") && len(args) == 2
	}
	return false
}

// follow notes what a transaction has queued.
func (d *differ) follow(args []string, reply string) {
	switch {
	case reply == queuedReply:
		d.queued = append(d.queued, args)
	case named(args, "multi") && reply == ok:
		d.queued = [][]string{}
	case named(args, "exec"), named(args, "discard") && reply == ok, named(args, "reset") && reply == "+RESET\r\n":
		d.queued = nil
	}
}

// both sends a command to both servers, and compares.
func (d *differ) both(args []string, compare func(redis, ours string) bool) (redis string, ok bool) {
	d.history = append(d.history, fmt.Sprintf("%q", args))
	in := resp.AppendCommand(nil, args...)
	var replies [2]string
	for i, c := range d.conns {
		if _, err := c.nc.Write(in); err != nil {
			d.t.Errorf("server %d, %q: %v", i, args, err)
			return "", false
		}
		var err error
		if replies[i], err = c.read(); err != nil {
			d.t.Errorf("server %d, %q: %v", i, args, err)
			return "", false
		}
	}
	d.compared++
	if !compare(replies[0], replies[1]) {
		d.t.Errorf("%q\nredis  %.300q\nours   %.300q", args, replies[0], replies[1])
	}
	return replies[0], true
}

// compareExec compares the replies to the commands of a transaction one by one, each by its rule.
func (d *differ) compareExec(redis, ours string) bool {
	if redis == ours {
		return true
	}
	split := func(reply string) (list []string) {
		var p resp.ReplyParser
		_, rest, found := bytes.Cut([]byte(reply), []byte("\r\n"))
		for found && len(rest) > 0 {
			_, n, err := p.Next(rest)
			if err != nil || n == 0 {
				return nil
			}
			list = append(list, string(rest[:n]))
			rest = rest[n:]
		}
		return list
	}
	a, b := split(redis), split(ours)
	if len(a) != len(b) || len(a) != len(d.queued) {
		return false
	}
	for i := range a {
		if !comparison(d.queued[i])(a[i], b[i]) {
			d.t.Errorf("%d. of EXEC: %q", i, d.queued[i])
			return false
		}
	}
	return true
}
