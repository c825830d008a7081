package kvserver

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvmark/kvserver/resp"
)

// redis starts a real redis-server and returns a connection to it.
func redis(t *testing.T) *client {
	t.Helper()
	return startRedis(t)()
}

// startRedis starts a real redis-server, with options of its own, and returns what connects to it.
func startRedis(t *testing.T, options ...string) (connect func() *client) {
	t.Helper()
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("NOT COMPARED WITH REDIS: there is no redis-server on this machine")
	}
	// On a socket in a directory of ours there is no port that somebody else could take.
	socket := filepath.Join(t.TempDir(), "s")
	own := []string{"--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", t.TempDir(), "--logfile", "/dev/null"}
	cmd := exec.Command(exe, append(own, options...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return func() *client {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			nc, err := net.Dial("unix", socket)
			if err == nil {
				t.Cleanup(func() { nc.Close() })
				if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
					t.Fatal(err)
				}
				return &client{t: t, nc: nc}
			}
			if time.Now().After(deadline) {
				t.Fatalf("redis-server does not listen: %v", err)
			}
		}
	}
}

// Every line is sent to both servers, as it stands and as an array of bulk strings; the replies must be the same bytes.
func TestRepliesAreThoseOfRedis(t *testing.T) {
	long := strings.Repeat("x", 300)
	theirs := redis(t)
	ours := dial(t, listen(t, open(t, Options{})))
	for _, proto := range []string{"2", "3"} {
		// The reply to HELLO differs in version and id.
		for _, c := range []*client{theirs, ours} {
			if got, err := c.do("HELLO", proto); err != nil || strings.HasPrefix(got, "-") {
				t.Fatalf("HELLO %s: %q, %v", proto, got, err)
			}
		}
		for _, line := range []string{
			"FLUSHALL", "PING", "PING x", "PING x y", "ECHO x", "ECHO", "ECHO a b", "ping",
			"FOO", "FOO a b", "foo " + long, long + " a", "FOO a " + long + " b c",
			"GET k", "SET k v", "GET k", "set K v2", "GET K", "SET k v NX", "SET k v XX", "SET none v XX", "SET k w GET", "SET none w XX GET", "SET k w NX GET",
			"SET k v NX XX", "SET k v nx nx", "SET k v EX", "SET k v EX 0", "SET k v EX -1", "SET k v EX abc", "SET k v PX 10 EX 10", "SET k v EX 10 KEEPTTL", "SET k v KEEPTTL EX 10",
			"SET k v EX 9223372036854775807", "SET k v EX 9223372036854775", "SET k v PX 9223372036854775807", "SET k v EXAT 9223372036854775807", "SET k v PXAT 9223372036854775807",
			"SET k v EX 100", "TTL k", "SET k v KEEPTTL", "TTL k", "SET k v", "TTL k", "PTTL k", "TTL none", "PTTL none", "SET k", "SET k v bogus", "SET",
			"SET k v PXAT 1", "GET k", "EXISTS k", "TTL k", "DEL k", "SET k v EXAT 1 GET", "EXISTS k",
			"INCR i", "INCRBY i 5", "DECR i", "DECRBY i 3", "INCRBY i x", "DECRBY i -9223372036854775808", "INCRBY i 9223372036854775807", "APPEND i x", "INCR i", "APPEND i", "TYPE i", "TYPE none", "DEL i",
			"SCAN x", "SCAN 0 COUNT 0", "SCAN 0 COUNT x", "SCAN 0 BOGUS", "KEYS nothing*", "KEYS", "EXPIREAT none 1", "EXPIRETIME none", "PEXPIRETIME none", "MEMORY USAGE none",
			"CLIENT KILL ID 999999", "CLIENT KILL ID x", "CLIENT KILL 1.2.3.4:5", "CLIENT REPLY BOGUS", "BGSAVE x", "LASTSAVE x",
			"SETNX n 1", "SETNX n 2", "SETEX e 10 v", "TTL e", "SETEX e 0 v", "SETEX e x v", "PSETEX e -1 v", "PSETEX e 10000 v", "SETEX e 10", "SETEX e 9223372036854775807 v",
			"EXPIRE none 10", "EXPIRE n 100", "TTL n", "EXPIRE n 50 GT", "EXPIRE n 50 LT", "EXPIRE n 50 NX", "EXPIRE n 70 XX", "TTL n", "EXPIRE n 10 NX XX", "EXPIRE n 10 GT LT", "EXPIRE n 10 WHAT",
			"EXPIRE n x", "EXPIRE n 9223372036854775807", "PEXPIRE n 9223372036854775807", "EXPIRE n -9223372036854775808", "PERSIST n", "PERSIST n", "PERSIST none", "TTL n", "PEXPIRE n 100000", "EXPIRE n -1", "EXISTS n",
			"MSET a 1 b 2 c 3", "MSET a", "MSET a 1 b", "MSET", "MGET a b none c", "MGET", "DEL a a none", "UNLINK b none", "DEL", "EXISTS c c none", "EXISTS", "STRLEN c", "STRLEN none", "STRLEN",
			"GETDEL c", "GETDEL c", "GETDEL", "SET '' empty", "GET ''", "STRLEN ''", "SET e ''", "GET e", `SET bin "\x00\xff\r\n"`, `GET bin`, "DBSIZE", "DBSIZE x",
			"SELECT 0", "SELECT 16", "SELECT x", "SELECT", "SELECT -1",
			"CLIENT GETNAME", "CLIENT SETNAME me", "CLIENT GETNAME", "CLIENT SETNAME 'a b'", "CLIENT SETNAME ''", "CLIENT GETNAME", "CLIENT NO-EVICT on", "CLIENT NO-EVICT maybe", "CLIENT NO-EVICT",
			"CLIENT", "CLIENT BOGUS", "CLIENT ID x", "CLIENT LIST TYPE bogus", "CLIENT LIST ID x", "CLIENT LIST BOGUS", "CLIENT LIST TYPE replica", "CLIENT LIST ID 999999", "CLIENT SETNAME",
			"CONFIG GET save", "CONFIG GET appendfsyncX", "CONFIG GET SAVE", "CONFIG GET save sav[e]", "CONFIG GET", "CONFIG", "CONFIG BOGUS x", "CONFIG RESETSTAT", "CONFIG RESETSTAT x",
			"CONFIG SET nothing 1", "CONFIG SET port", "CONFIG SET databases 1",
			"COMMAND COUNT x", "COMMAND INFO nothing", "COMMAND BOGUS", "COMMAND DOCS nothing",
			"AUTH x", "AUTH", "AUTH a b c", "AUTH other x", "AUTH default anything", "HELLO 1", "HELLO 4", "HELLO x", "HELLO " + proto + " WHAT", "HELLO " + proto + " AUTH a", "HELLO " + proto + " SETNAME 'a b'", "HELLO " + proto + " AUTH other x",
			// Repeated options, precedence of errors, numbers at their limits.
			"SET k v PX 60000 PX 70000", "SET k v EX 10 EX 20", "SET k v EXAT 99999999999 PXAT 1", "SET k v KEEPTTL KEEPTTL", "SET k v EX x NX XX", "SET k v NX EX 0", "SET none v XX EX 0", "SET none v XX EX x",
			"SET k v PXAT 9223372036854775308", "EXPIRETIME k", "PEXPIRETIME k", "SET k v PXAT 9223372036854775807", "EXPIRETIME k",
			"CONFIG SET maxclients 101 maxclients 102", "CONFIG SET maxclients 0 maxclients 102", "CONFIG SET nothing 1 maxclients 102", "CONFIG SET maxclients x nothing 1", "CONFIG SET databases 1 maxclients 1 maxclients 2",
			"CONFIG SET maxclients 1 maxclients 2 databases 1", "CONFIG SET maxclients x", "CONFIG SET MaxClients 0", "CONFIG SET timeout -1", "CONFIG SET maxclients", "CONFIG SET maxclients 1 timeout",
			"CONFIG SET slowlog-log-slower-than x", "CONFIG SET slowlog-log-slower-than -2", "CONFIG SET slowlog-max-len -1", "CONFIG SET latency-monitor-threshold -1", "CONFIG GET slowlog-max-len", "CONFIG GET tracking-table-max-keys",
			"COMMAND LIST FILTERBY", "COMMAND LIST FILTERBY MODULE x", "COMMAND LIST FILTERBY ACLCAT nothing", "COMMAND LIST FILTERBY PATTERN multi", "COMMAND LIST FILTERBY PATTERN config|get", "COMMAND LIST FILTERBY BOGUS x", "COMMAND LIST x",
			"COMMAND INFO config|bogus get|x bogus", "COMMAND GETKEYS ping a", "COMMAND GETKEYS get", "COMMAND GETKEYS bogus a", "COMMAND GETKEYS mset a 1 b 2", "COMMAND GETKEYS object encoding k", "COMMAND GETKEYS set k", "COMMAND GETKEYS object bogus k",
			"CLIENT LIST ID 0", "CLIENT LIST ID -1", "CLIENT LIST ID 1 x", "CLIENT LIST ID", "CLIENT LIST TYPE", "CLIENT LIST TYPE normal x", "CLIENT KILL ID 0 BOGUS x", "CLIENT KILL ID 0", "CLIENT KILL BOGUS x", "CLIENT KILL ID", "CLIENT KILL ID 1 TYPE",
			"CLIENT KILL TYPE bogus", "CLIENT KILL USER bogus", "CLIENT KILL SKIPME maybe", "CLIENT KILL ADDR 1.2.3.4:5 SKIPME no", "CLIENT REPLY SKIP x", "CLIENT HELP x", "SELECT 99999999999", "SELECT 9223372036854775808", "SELECT -99999999999", "SELECT 2147483648", "SELECT 2147483647",
			"SHUTDOWN NOSAVE SAVE", "SHUTDOWN ABORT NOW", "SHUTDOWN NOW NOW X", "MEMORY USAGE k SAMPLES -1", "MEMORY USAGE k SAMPLES x", "MEMORY USAGE k SAMPLES", "MEMORY USAGE k BOGUS 1", "MEMORY USAGE", "MEMORY BOGUS",
			"HELLO " + proto + " BOGUS AUTH a b", "HELLO 4 AUTH a b", "HELLO x AUTH", "HELLO " + proto + " AUTH a", "HELLO 9999999999999999999",
			"OBJECT HELP", "SLOWLOG HELP", "OBJECT HELP x", "OBJECT BOGUS a", "OBJECT ENCODING",
			// Families.
			"FLUSHALL", "MULTI", "MULTI", "WATCH a", "SET k", "SET k v", "EXEC", "MULTI", "EXEC x", "EXEC", "MULTI", "FOO", "DISCARD x", "EXEC", "DISCARD", "UNWATCH", "WATCH", "MULTI", "SHUTDOWN", "EXEC", "MULTI", "CONFIG BOGUS", "EXEC",
			"MULTI", "INCR k", "SET k 5", "INCR k", "EXPIRE k 100", "TTL k", "APPEND k x", "GET k", "DEL k", "EXISTS k", "KEYS *", "DBSIZE", "SET k2 v", "KEYS *", "FLUSHALL", "DBSIZE", "SET z 1", "PING", "SELECT 0", "EXEC", "KEYS *",
			"WATCH k", "SET k 2", "MULTI", "GET k", "EXEC", "WATCH k", "UNWATCH", "SET k 3", "MULTI", "UNWATCH", "GET k", "EXEC", "MULTI", "EXEC",
			"SETRANGE s 5 x", "SETRANGE s -1 x", "SETRANGE s x x", "SETRANGE s 9223372036854775807 x", "SETRANGE s 536870912 ''", "SETRANGE none x ''", "SETRANGE none 3 ''", "EXISTS none", "GETRANGE s 0 -1", "GETRANGE s x -1", "GETRANGE s 0 x", "GETRANGE s -3 -1",
			"GETRANGE none 0 -1", "GETRANGE s -9223372036854775808 9223372036854775807", "GETRANGE s 9223372036854775808 1", "SUBSTR s -100 2", "SUBSTR s 5 2", "SUBSTR s -1 -100",
			"INCRBYFLOAT f 1.5", "INCRBYFLOAT f x", "INCRBYFLOAT f inf", "INCRBYFLOAT f -INF", "INCRBYFLOAT f nan", "INCRBYFLOAT f 0.1", "INCRBYFLOAT f 1e18", "INCRBYFLOAT f -1e18", "INCRBYFLOAT f 1e400", "INCRBYFLOAT f 5.0e3", "INCRBYFLOAT f 1e99999",
			"SET f 0", "INCRBYFLOAT f 0x10", "INCRBYFLOAT f 0b1", "INCRBYFLOAT f 1_0", "INCRBYFLOAT f 1p3", "INCRBYFLOAT f ' 1'", "INCRBYFLOAT f '1 '", "INCRBYFLOAT f ''", "INCRBYFLOAT f 1e-30", "INCRBYFLOAT f 3.141592653589793238462643383279", "INCRBYFLOAT f -0",
			"INCRBYFLOAT f .5", "INCRBYFLOAT f 5.", "INCRBYFLOAT f +1", "INCRBYFLOAT f ++1", "INCRBYFLOAT f 0x", "INCRBYFLOAT f 0x.8p1", "INCRBYFLOAT f infinity", "INCRBYFLOAT f 1e", "SET f 1e4931", "INCRBYFLOAT f 1e4932", "INCRBYFLOAT f 1e4932", "SET f -0.0", "INCRBYFLOAT f 0", "INCRBYFLOAT s 1",
			"SET k v", "GETEX k", "GETEX k EX 10", "TTL k", "GETEX k EX 0 PERSIST", "GETEX none EX x", "GETEX none BOGUS", "GETEX k PX 0", "GETEX k EX x", "GETEX k PERSIST EX 10", "GETEX k EX 10 EX 20", "GETEX k EX 10 PX 10", "GETEX k EX", "GETEX k NX", "GETEX k KEEPTTL",
			"GETEX k PERSIST PERSIST", "TTL k", "GETEX k EXAT 1", "EXISTS k", "GETSET k v", "GETSET k w", "EXPIRE k 100", "GETSET k x", "TTL k",
			"COPY k k2", "COPY k k2", "COPY k k2 REPLACE", "COPY k k", "COPY k k3 DB 0", "COPY k k3 DB x", "COPY k k3 DB 16", "COPY k k3 DB -1", "COPY k k4 BOGUS", "COPY none k4", "COPY none none", "EXPIRE k 100", "COPY k k5", "TTL k5",
			"RENAME none x", "RENAME none none", "RENAME k k", "RENAMENX k k", "RENAMENX k k2", "RENAMENX k k9", "RENAMENX none k", "TTL k9", "RENAME k9 k2", "TTL k2", "RENAME k", "MSETNX a 1 b", "MSETNX x1 1 x2 2", "MSETNX x1 1 x3 2", "EXISTS x3", "MSETNX x5 1 x5 2", "GET x5",
			"TOUCH k2 none k2", "TOUCH", "RANDOMKEY x", "ROLE", "ROLE x", "WAIT 0 0", "WAIT 1 10", "WAIT x 0", "WAIT 0 x", "WAIT 0 -1", "LATENCY LATEST", "LATENCY HISTORY x", "LATENCY HISTORY", "LATENCY RESET", "LATENCY RESET a b", "LATENCY BOGUS",
			"SLOWLOG GET x", "SLOWLOG GET -2", "SLOWLOG GET 1 2", "SLOWLOG RESET", "SLOWLOG LEN", "SLOWLOG GET", "SLOWLOG LEN x", "SLOWLOG BOGUS",
			"SET i 12345", "OBJECT ENCODING i", "SET i 012345", "OBJECT ENCODING i", "SET l " + long, "OBJECT ENCODING l", "OBJECT ENCODING none", "OBJECT REFCOUNT l", "OBJECT REFCOUNT none", "OBJECT FREQ l", "OBJECT FREQ none", "OBJECT IDLETIME none", "OBJECT IDLETIME l",
			"CLIENT TRACKING", "CLIENT TRACKING maybe", "CLIENT TRACKING ON BOGUS", "CLIENT TRACKING ON PREFIX a", "CLIENT TRACKING ON BCAST OPTIN", "CLIENT TRACKING ON OPTIN OPTOUT", "CLIENT TRACKING ON REDIRECT 99999", "CLIENT TRACKING ON REDIRECT x", "CLIENT TRACKING ON REDIRECT",
			"CLIENT TRACKING ON BCAST PREFIX a PREFIX ab", "CLIENT TRACKING ON BCAST PREFIX a PREFIX a", "CLIENT TRACKING ON BCAST PREFIX a PREFIX b", "CLIENT TRACKING ON BCAST PREFIX ac", "CLIENT TRACKINGINFO", "CLIENT GETREDIR", "CLIENT TRACKING ON", "CLIENT TRACKING OFF",
			"CLIENT TRACKINGINFO", "CLIENT GETREDIR", "CLIENT CACHING YES", "CLIENT TRACKING ON OPTIN", "CLIENT CACHING NO", "CLIENT CACHING maybe", "CLIENT CACHING YES", "CLIENT TRACKINGINFO", "CLIENT TRACKING ON OPTOUT", "CLIENT TRACKING ON", "CLIENT TRACKINGINFO", "CLIENT TRACKING OFF",
			"CLIENT TRACKING ON OPTOUT NOLOOP", "CLIENT CACHING NO", "CLIENT TRACKINGINFO", "CLIENT CACHING YES", "CLIENT TRACKING OFF", "FLUSHALL", "RANDOMKEY",
			"FLUSHALL x", "FLUSHALL SYNC", "FLUSHDB ASYNC", "FLUSHALL SYNC x", "DBSIZE", "TIME x", "SHUTDOWN ABORT", "SHUTDOWN bogus", "RESET x", "INFO nothing",
		} {
			var p resp.Parser
			args, _, err := p.Next([]byte(line + "\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			for form, in := range map[string][]byte{"typed": []byte(line + "\r\n"), "sent": resp.AppendCommand(nil, args...)} {
				var replies [2]string
				for i, c := range []*client{theirs, ours} {
					if _, err := c.nc.Write(in); err != nil {
						t.Fatal(err)
					}
					if replies[i], err = c.read(); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
				}
				if replies[0] != replies[1] {
					t.Errorf("RESP%s, %s: %s\nredis  %q\nours   %q", proto, form, line, replies[0], replies[1])
				}
			}
		}
	}
}

func TestProtocolErrorsAreThoseOfRedis(t *testing.T) {
	onEachPath(t, testProtocolErrorsAreThoseOfRedis)
}

func testProtocolErrorsAreThoseOfRedis(t *testing.T, path IO) {
	addr := listen(t, open(t, Options{IO: path, MaxValue: 1 << 20}))
	for i, in := range []string{
		"*1\r\n$-5\r\n", "*1\r\n$x\r\n", "*x\r\n", "*99999999999\r\n", "*1\r\n:1\r\n", "*1\r\n$999999999999\r\n", "ECHO \"a\r\n", "ECHO 'a'b\r\n",
		strings.Repeat("a", 70_000), "*" + strings.Repeat("1", 70_000), "*1\r\n$" + strings.Repeat("1", 70_000),
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			var replies [2]string
			for i, c := range []*client{redis(t), dial(t, addr)} {
				go func() { _, _ = c.nc.Write([]byte(in)) }() // ends with the connection
				replies[i], _ = c.read()
			}
			if replies[0] != replies[1] {
				t.Errorf("%.40q\nredis  %q\nours   %q", in, replies[0], replies[1])
			}
		})
	}
}

// Replies that are taken back are taken back as by Redis.
func TestMutedRepliesAreThoseOfRedis(t *testing.T) {
	theirs := redis(t)
	ours := dial(t, listen(t, open(t, Options{})))
	for _, lines := range []string{
		"CLIENT REPLY SKIP|CLIENT REPLY SKIP|PING|PING", "CLIENT REPLY OFF|CLIENT REPLY SKIP|PING|CLIENT REPLY ON", "CLIENT REPLY SKIP|RESET|PING", "CLIENT REPLY OFF|RESET", "CLIENT REPLY SKIP|NONSENSE|PING",
		"CLIENT REPLY SKIP|GET|PING", "CLIENT REPLY SKIP|MULTI|PING|EXEC",
	} {
		var replies [2]string
		for i, c := range []*client{theirs, ours} {
			if _, err := c.nc.Write([]byte(strings.ReplaceAll(lines, "|", "\r\n") + "\r\nECHO over\r\n")); err != nil {
				t.Fatal(err)
			}
			for !strings.HasSuffix(replies[i], "over\r\n") {
				reply, err := c.read()
				if err != nil {
					t.Fatal(err)
				}
				replies[i] += reply
			}
		}
		if replies[0] != replies[1] {
			t.Errorf("%s\nredis  %q\nours   %q", lines, replies[0], replies[1])
		}
	}
}

// A client that has not authenticated hears why it may not ask for much.
func TestLimitsBeforeAuthenticationAreThoseOfRedis(t *testing.T) {
	connect := startRedis(t)
	theirs := connect()
	theirs.want(ok, "CONFIG", "SET", "requirepass", "secret")
	addr := listen(t, open(t, Options{Password: "secret"}))
	for _, in := range []string{"*11\r\n", "*2147483647\r\n", "*2147483648\r\n", "*x\r\n", "*1\r\n$16385\r\n", "*1\r\n$536870913\r\n", "GET k\r\n", "NONSENSE\r\n", "MULTI\r\n", "EXEC\r\n", "GET\r\n", "CONFIG BOGUS\r\n"} {
		var replies [2]string
		for i, c := range []*client{connect(), dial(t, addr)} {
			if _, err := c.nc.Write([]byte(in)); err != nil {
				t.Fatal(err)
			}
			var err error
			if replies[i], err = c.read(); err != nil {
				t.Fatalf("%q: %v", in, err)
			}
		}
		if replies[0] != replies[1] {
			t.Errorf("%q\nredis  %q\nours   %q", in, replies[0], replies[1])
		}
	}
}
