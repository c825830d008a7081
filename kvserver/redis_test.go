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

// startRedis starts a real redis-server and returns what connects to it.
func startRedis(t *testing.T) (connect func() *client) {
	t.Helper()
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("NOT COMPARED WITH REDIS: there is no redis-server on this machine")
	}
	// On a socket in a directory of ours there is no port that somebody else could take.
	socket := filepath.Join(t.TempDir(), "s")
	cmd := exec.Command(exe, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", t.TempDir(), "--logfile", "/dev/null")
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
