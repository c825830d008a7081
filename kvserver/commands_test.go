package kvserver

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvmark/kvserver/resp"
)

// step is a command line and its reply on the wire.
type step struct{ line, want string }

const (
	ok      = "+OK\r\n"
	null    = "$-1\r\n"
	syntax  = "-ERR syntax error\r\n"
	integer = "-ERR value is not an integer or out of range\r\n"
)

func TestCommands(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"PING and ECHO", []step{
			{"PING", "+PONG\r\n"},
			{"ping hello", "$5\r\nhello\r\n"},
			{"PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"},
			{"eChO 'a b'", "$3\r\na b\r\n"},
			{"ECHO", "-ERR wrong number of arguments for 'echo' command\r\n"},
		}},
		{"unknown commands", []step{
			{"FOO", "-ERR unknown command 'FOO', with args beginning with: \r\n"},
			{"FOO a 'b c'", "-ERR unknown command 'FOO', with args beginning with: 'a' 'b c' \r\n"},
			{"averyveryverylongcommandname", "-ERR unknown command 'averyveryverylongcommandname', with args beginning with: \r\n"},
			{`FOO "a\r\nb"`, "-ERR unknown command 'FOO', with args beginning with: 'a  b' \r\n"},
		}},
		{"SET and GET", []step{
			{"GET k", null},
			{"SET k v", ok},
			{"GET k", "$1\r\nv\r\n"},
			{"SET k ''", ok},
			{"GET k", "$0\r\n\r\n"},
			{"SET '' empty", ok},
			{"GET ''", "$5\r\nempty\r\n"},
			{`SET "\x00\xff" "\r\n\x00"`, ok},
			{`GET "\x00\xff"`, "$3\r\n\r\n\x00\r\n"},
			{"SET k", "-ERR wrong number of arguments for 'set' command\r\n"},
			{"GET a b", "-ERR wrong number of arguments for 'get' command\r\n"},
		}},
		{"SET with conditions", []step{
			{"SET k 1 XX", null},
			{"SET k 1 NX", ok},
			{"SET k 2 NX", null},
			{"SET k 2 xx", ok},
			{"GET k", "$1\r\n2\r\n"},
			{"SET k 3 NX XX", syntax},
			{"SET k 3 BOGUS", syntax},
			{"SET k 3 GET", "$1\r\n2\r\n"},
			{"SET new 1 GET", null},
			{"SET new 2 NX GET", "$1\r\n1\r\n"},
			{"SET none 2 XX GET", null},
			{"EXISTS none", ":0\r\n"},
			{"SETNX k 9", ":0\r\n"},
			{"SETNX k2 9", ":1\r\n"},
			{"MGET k new k2", "*3\r\n$1\r\n3\r\n$1\r\n1\r\n$1\r\n9\r\n"},
		}},
		{"SET with an end", []step{
			{"SET k v EX 100", ok},
			{"TTL k", ":100\r\n"},
			{"SET k v KEEPTTL", ok},
			{"TTL k", ":100\r\n"},
			{"SET k v", ok},
			{"TTL k", ":-1\r\n"},
			{"PSETEX k 100000 v", ok},
			{"TTL k", ":100\r\n"},
			{"SETEX k 50 v", ok},
			{"TTL k", ":50\r\n"},
			{"PERSIST k", ":1\r\n"},
			{"PERSIST k", ":0\r\n"},
			{"TTL none", ":-2\r\n"},
			{"SET k v EX 0", "-ERR invalid expire time in 'set' command\r\n"},
			{"SET k v PX -1", "-ERR invalid expire time in 'set' command\r\n"},
			{"SET k v EX 9223372036854775807", "-ERR invalid expire time in 'set' command\r\n"},
			{"SET k v EX x", integer},
			{"SET k v EX", syntax},
			{"SET k v EX 1 PX 1", syntax},
			{"SET k v EX 1 KEEPTTL", syntax},
			{"SETEX k 0 v", "-ERR invalid expire time in 'setex' command\r\n"},
			{"SET gone v PXAT 1", ok},
			{"GET gone", null},
			{"EXISTS gone", ":0\r\n"},
			{"STRLEN gone", ":0\r\n"},
			{"DEL gone", ":0\r\n"},
			{"SETNX gone again", ":1\r\n"},
			{"TTL gone", ":-1\r\n"},
			{"SET gone v EXAT 1", ok},
			{"SET gone new KEEPTTL", ok},
			{"GET gone", "$3\r\nnew\r\n"},
		}},
		{"EXPIRE", []step{
			{"EXPIRE k 10", ":0\r\n"},
			{"SET k v", ok},
			{"EXPIRE k 10 XX", ":0\r\n"},
			{"EXPIRE k 10 GT", ":0\r\n"},
			{"EXPIRE k 100 NX", ":1\r\n"},
			{"EXPIRE k 50 GT", ":0\r\n"},
			{"EXPIRE k 50 LT", ":1\r\n"},
			{"PEXPIRE k 70000 XX GT", ":1\r\n"},
			{"TTL k", ":70\r\n"},
			{"EXPIRE k 1 NX GT", "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"},
			{"EXPIRE k 1 LT GT", "-ERR GT and LT options at the same time are not compatible\r\n"},
			{"EXPIRE k 1 WHAT", "-ERR Unsupported option WHAT\r\n"},
			{"EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command\r\n"},
			{"EXPIRE k x", integer},
			{"EXPIRE k -1", ":1\r\n"},
			{"EXISTS k", ":0\r\n"},
			{"DBSIZE", ":0\r\n"},
		}},
		{"several keys", []step{
			{"MSET a 1 b 2 c 3", ok},
			{"MSET a", "-ERR wrong number of arguments for 'mset' command\r\n"},
			{"MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n"},
			{"MGET a none b", "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"},
			{"EXISTS a a none", ":2\r\n"},
			{"STRLEN a", ":1\r\n"},
			{"STRLEN none", ":0\r\n"},
			{"DEL a a none", ":1\r\n"},
			{"UNLINK b none", ":1\r\n"},
			{"MSET d 1 d 2", ok},
			{"GET d", "$1\r\n2\r\n"},
			{"GETDEL d", "$1\r\n2\r\n"},
			{"GETDEL d", null},
			{"DBSIZE", ":1\r\n"},
			{"FLUSHALL", ok},
			{"DBSIZE", ":0\r\n"},
			{"FLUSHDB ASYNC", ok},
			{"FLUSHALL now", syntax},
		}},
		{"numbers", []step{
			{"INCR n", ":1\r\n"},
			{"INCRBY n 41", ":42\r\n"},
			{"DECR n", ":41\r\n"},
			{"DECRBY n 50", ":-9\r\n"},
			{"DECRBY n -9", ":0\r\n"},
			{"GET n", "$1\r\n0\r\n"},
			{"SET n 9223372036854775807", ok},
			{"INCR n", "-ERR increment or decrement would overflow\r\n"},
			{"DECRBY n -1", "-ERR increment or decrement would overflow\r\n"},
			{"SET n -9223372036854775808", ok},
			{"DECR n", "-ERR increment or decrement would overflow\r\n"},
			{"DECRBY n -9223372036854775808", "-ERR decrement would overflow\r\n"},
			{"INCRBY n x", integer},
			{"SET n ' 1'", ok},
			{"INCR n", integer},
			{"SET n 1.5", ok},
			{"INCR n", integer},
			{"SET t 5 EX 100", ok},
			{"INCR t", ":6\r\n"},
			{"TTL t", ":100\r\n"},
			{"SET gone 5 PXAT 1", ok},
			{"INCR gone", ":1\r\n"},
			{"TTL gone", ":-1\r\n"},
		}},
		{"APPEND", []step{
			{"APPEND k ab", ":2\r\n"},
			{"APPEND k ''", ":2\r\n"},
			{"APPEND k cd", ":4\r\n"},
			{"GET k", "$4\r\nabcd\r\n"},
			{"EXPIRE k 100", ":1\r\n"},
			{"APPEND k e", ":5\r\n"},
			{"TTL k", ":100\r\n"},
			{"APPEND k " + strings.Repeat("v", 4092), "-ERR value of 4097 bytes; the limit is 4096\r\n"},
			{"GET k", "$5\r\nabcde\r\n"},
			{"APPEND k " + strings.Repeat("v", 4091), ":4096\r\n"},
		}},
		{"absolute ends", []step{
			{"SET k v", ok},
			{"EXPIRETIME k", ":-1\r\n"},
			{"EXPIRETIME none", ":-2\r\n"},
			{"EXPIREAT k 4000000000", ":1\r\n"},
			{"EXPIRETIME k", ":4000000000\r\n"},
			{"PEXPIREAT k 4000000000123 GT", ":1\r\n"},
			{"PEXPIRETIME k", ":4000000000123\r\n"},
			{"PEXPIREAT k 1", ":1\r\n"},
			{"EXISTS k", ":0\r\n"},
		}},
		{"looking around", []step{
			{"TYPE k", "+none\r\n"},
			{"SET key v", ok},
			{"TYPE key", "+string\r\n"},
			{"KEYS *", "*1\r\n$3\r\nkey\r\n"},
			{"KEYS k?y", "*1\r\n$3\r\nkey\r\n"},
			{"KEYS x*", "*0\r\n"},
			{"SET gone v PXAT 1", ok},
			{"KEYS *", "*1\r\n$3\r\nkey\r\n"},
			{"SCAN 0 COUNT 1000", "*2\r\n$1\r\n0\r\n*1\r\n$3\r\nkey\r\n"},
			{"SCAN 0 MATCH x* COUNT 1000", "*2\r\n$1\r\n0\r\n*0\r\n"},
			{"SCAN 0 TYPE list COUNT 1000", "*2\r\n$1\r\n0\r\n*0\r\n"},
			{"SCAN 0 TYPE string MATCH k* COUNT 1000", "*2\r\n$1\r\n0\r\n*1\r\n$3\r\nkey\r\n"},
			{"SCAN x", "-ERR invalid cursor\r\n"},
			{"SCAN 9007199254740992", "-ERR invalid cursor\r\n"}, // 2^53
			{"SCAN 18446744073709551615", "-ERR invalid cursor\r\n"},
			{"SCAN 0 COUNT 0", syntax},
			{"SCAN 0 COUNT x", integer},
			{"SCAN 0 COUNT", syntax},
			{"SCAN 0 BOGUS 1", syntax},
			{"MEMORY USAGE none", null},
			{"MEMORY USAGE key SAMPLES x", integer},
			{"MEMORY USAGE key BOGUS 1", syntax},
			{"MEMORY USAGE", "-ERR wrong number of arguments for 'memory|usage' command\r\n"},
			{"MEMORY BOGUS", "-ERR unknown subcommand 'BOGUS'. Try MEMORY HELP.\r\n"},
		}},
		{"CLIENT REPLY and KILL", []step{
			{"CLIENT REPLY OFF\r\nPING\r\nFOO\r\nSET k v\r\nCLIENT REPLY SKIP", ""},
			{"CLIENT REPLY ON", ok},
			{"GET k", "$1\r\nv\r\n"},
			{"CLIENT REPLY SKIP\r\nPING\r\nPING a", "$1\r\na\r\n"},
			{"CLIENT REPLY MAYBE", syntax},
			{"CLIENT REPLY", "-ERR wrong number of arguments for 'client|reply' command\r\n"},
			{"CLIENT KILL 1.2.3.4:5", "-ERR No such client\r\n"},
			{"CLIENT KILL ID 99", ":0\r\n"},
			{"CLIENT KILL ID x", "-ERR client-id should be greater than 0\r\n"},
			{"CLIENT KILL USER other", "-ERR No such user 'other'\r\n"},
			{"CLIENT KILL TYPE bogus", "-ERR Unknown client type 'bogus'\r\n"},
			{"CLIENT KILL TYPE pubsub", ":0\r\n"},
			{"CLIENT KILL ID 1 BOGUS x", syntax},
			{"CLIENT KILL ID 1 SKIPME", syntax},
		}},
		{"connection", []step{
			{"SELECT 0", ok},
			{"SELECT 1", "-ERR DB index is out of range\r\n"},
			{"SELECT x", integer},
			{"CLIENT GETNAME", null},
			{"CLIENT SETNAME me", ok},
			{"CLIENT GETNAME", "$2\r\nme\r\n"},
			{"CLIENT SETNAME 'a b'", "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"},
			{"CLIENT SETINFO lib-name x", ok},
			{"CLIENT SETINFO what x", "-ERR Unrecognized option 'what'\r\n"},
			{"CLIENT NO-EVICT on", ok},
			{"CLIENT NO-TOUCH maybe", syntax},
			{"CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command\r\n"},
			{"CLIENT BOGUS", "-ERR unknown subcommand 'BOGUS'. Try CLIENT HELP.\r\n"},
			{"AUTH secret", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n"},
			{"AUTH a b c", syntax},
			{"HELLO 4", "-NOPROTO unsupported protocol version\r\n"},
			{"HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"},
			{"HELLO 3 WHAT", "-ERR Syntax error in HELLO option 'WHAT'\r\n"},
			{"HELLO 3 SETNAME you", "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"},
			{"GET none", "_\r\n"},
			{"CLIENT GETNAME", "$3\r\nyou\r\n"},
			{"RESET", "+RESET\r\n"},
			{"CLIENT GETNAME", null},
		}},
		{"server", []step{
			{"CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"},
			{"CONFIG GET append* nothing", "*4\r\n$11\r\nappendfsync\r\n$2\r\nno\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n"},
			{"CONFIG GET", "-ERR wrong number of arguments for 'config|get' command\r\n"},
			{"CONFIG SET port 1", "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config\r\n"},
			{"CONFIG SET nothing 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nothing'\r\n"},
			{"CONFIG SET maxclients 7 timeout 3", ok},
			{"CONFIG GET maxclients timeout", "*4\r\n$10\r\nmaxclients\r\n$1\r\n7\r\n$7\r\ntimeout\r\n$1\r\n3\r\n"},
			{"CONFIG SET maxclients 8 port 1", "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config\r\n"},
			{"CONFIG SET maxclients 0", "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument must be between 1 and 4294967295 inclusive\r\n"},
			{"CONFIG SET timeout 4611686018427387904", "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument must be between 0 and 2147483647 inclusive\r\n"},
			{"CONFIG SET maxclients", "-ERR wrong number of arguments for 'config|set' command\r\n"},
			{"CONFIG GET maxclients", "*2\r\n$10\r\nmaxclients\r\n$1\r\n7\r\n"},
			{"CONFIG RESETSTAT", ok},
			{"BGSAVE WHAT", syntax},
			{"LASTSAVE now", "-ERR wrong number of arguments for 'lastsave' command\r\n"},
			{"DEBUG SLEEP -1", "-ERR value is not a number of seconds between 0 and 3600\r\n"},
			{"DEBUG SLEEP nan", "-ERR value is not a number of seconds between 0 and 3600\r\n"},
			{"DEBUG SLEEP", "-ERR wrong number of arguments for 'debug|sleep' command\r\n"},
			{"DEBUG SEGFAULT", "-ERR unknown subcommand 'SEGFAULT'. Try DEBUG HELP.\r\n"},
			{"CONFIG BOGUS", "-ERR unknown subcommand 'BOGUS'. Try CONFIG HELP.\r\n"},
			{"COMMAND INFO nothing", "*1\r\n$-1\r\n"},
			{"COMMAND DOCS get", "*2\r\n$3\r\nget\r\n*4\r\n$7\r\nsummary\r\n$27\r\nReturns the value of a key.\r\n$5\r\ngroup\r\n$6\r\nstring\r\n"},
			{"COMMAND BOGUS", "-ERR unknown subcommand 'BOGUS'. Try COMMAND HELP.\r\n"},
			{"SHUTDOWN ABORT", "-ERR No shutdown in progress.\r\n"},
			{"SHUTDOWN maybe", syntax},
		}},
		{"a key beyond the limit", []step{
			{"SET " + strings.Repeat("k", 100) + " v", ok},
			{"SET " + strings.Repeat("k", 101) + " v", "-ERR key of 101 bytes; the limit is 100\r\n"},
			{"MSET a 1 " + strings.Repeat("k", 101) + " v", "-ERR key of 101 bytes; the limit is 100\r\n"},
			{"SET k " + strings.Repeat("v", 200), ok},
			{"DEL a " + strings.Repeat("k", 101), "-ERR key of 101 bytes; the limit is 100\r\n"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := speak(t, open(t, Options{MaxKey: 100, MaxValue: 4096}))
			for _, s := range tc.steps {
				c.want(s.line, s.want)
			}
		})
	}
}

func TestCommandTableIsUsable(t *testing.T) {
	table := newCommands()
	for i, c := range table.all {
		container, _, isPart := strings.Cut(c.name, "|")
		if c.run == nil && c.parts == nil || c.run == nil && c.arity > -2 || c.arity == 0 || c.index != i ||
			len(container) > longestName || c.name != strings.ToLower(c.name) {
			t.Errorf("row %d, %s, is not usable", i, c.name)
		}
		for _, name := range []string{c.name, strings.ToUpper(c.name)} {
			if got := table.named([]byte(name)); got != c && c.group != "" {
				t.Errorf("named(%s) finds %v", name, got)
			}
			if got := table.lookup([]byte(name)); got != c && !isPart {
				t.Errorf("lookup(%s) finds %v", name, got)
			}
		}
	}
	get := []byte("GeT")
	if n := testing.AllocsPerRun(100, func() { table.lookup(get) }); n != 0 {
		t.Errorf("lookup allocates %v times", n)
	}
}

// script is a conversation that touches every command with a reply that does not depend on time or machine.
func script() []byte {
	var b []byte
	for _, line := range []string{
		"PING", "SET k v", "GET k", "SET k w NX", "SET k x GET", "MSET a 1 b 2", "MGET a b c k", "DEL a a", "EXISTS a b", "STRLEN k", "SETNX n 1",
		"SET e v EX 100", "TTL e", "PERSIST e", "GETDEL n", "FOO bar", "GET", "DBSIZE", "ECHO x", "SELECT 0", "FLUSHALL", "DBSIZE",
	} {
		b = append(append(b, line...), '\r', '\n')
		b = resp.AppendCommand(b, strings.Fields(line)...)
	}
	return b
}

func TestAPipelineCutAtAnyByteIsAnsweredTheSame(t *testing.T) {
	in := script()
	want := speak(t, open(t, Options{})).send(in)
	if n := bytes.Count(want, []byte("\r\n")); n < 40 {
		t.Fatalf("only %d lines of replies", n)
	}
	srv := open(t, Options{})
	for cut := range len(in) {
		c := speak(t, srv)
		got := append(c.send(in[:cut]), c.send(in[cut:])...)
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
		}
	}
	c := speak(t, srv)
	var got []byte
	for i := range in {
		got = append(got, c.send(in[i:i+1])...)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Fatalf("byte by byte (-want +got):\n%s", diff)
	}
}

func TestAProtocolErrorEndsTheConversation(t *testing.T) {
	c := speak(t, open(t, Options{}))
	c.want("PING\r\n*1\r\n$-5", "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n")
	if !c.s.closing || !c.s.broken {
		t.Error("the connection goes on")
	}
	c.want("PING", "")
}

func TestQuitEndsTheConversation(t *testing.T) {
	c := speak(t, open(t, Options{}))
	c.want("PING\r\nQUIT\r\nSET k v", "+PONG\r\n+OK\r\n")
	if !c.s.closing || c.s.db.store.Count() != 0 {
		t.Error("the conversation went on after QUIT")
	}
}

func TestHTTPIsNotServed(t *testing.T) {
	for _, line := range []string{"POST / HTTP/1.1", "Host: 127.0.0.1:7379"} {
		c := speak(t, open(t, Options{}))
		c.want(line+"\r\nSET k v", "")
		if !c.s.closing || c.s.db.store.Count() != 0 {
			t.Errorf("%s: the conversation goes on", line)
		}
	}
}

func TestPassword(t *testing.T) {
	srv := open(t, Options{Password: "secret"})
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"nothing without it", []step{
			{"GET k", "-NOAUTH Authentication required.\r\n"},
			{"PING", "-NOAUTH Authentication required.\r\n"},
			{"GET", "-ERR wrong number of arguments for 'get' command\r\n"},
			{"HELLO 3", "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time\r\n"},
			{"QUIT", ok},
		}},
		{"a wrong one", []step{
			{"AUTH secre", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"},
			{"AUTH secret1", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"},
			{"AUTH ''", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"},
			{"AUTH other secret", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"},
			{"HELLO 2 AUTH default x", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"},
			{"GET k", "-NOAUTH Authentication required.\r\n"},
		}},
		{"the right one", []step{{"AUTH secret", ok}, {"GET k", null}, {"RESET", "+RESET\r\n"}, {"GET k", "-NOAUTH Authentication required.\r\n"}}},
		{"the right one with the user", []step{{"AUTH default secret", ok}, {"GET k", null}}},
		{"big arguments only with it", []step{
			{"*2\r\n$4\r\nAUTH\r\n$16385", "-ERR Protocol error: unauthenticated bulk length\r\n"},
		}},
		{"many arguments only with it", []step{{"*11", "-ERR Protocol error: unauthenticated multibulk length\r\n"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := speak(t, srv)
			for _, s := range tc.steps {
				c.want(s.line, s.want)
			}
		})
	}
	c := speak(t, srv)
	if got := c.do("HELLO 3 AUTH default secret"); !strings.HasPrefix(got, "%7\r\n") {
		t.Errorf("HELLO with AUTH: got %q", got)
	}
	c.want("GET k", "_\r\n")
}

// A value's header is written before its length is known, as a guess; every kind of wrong guess must come out right.
func TestValuesOfChangingLengths(t *testing.T) {
	c := speak(t, open(t, Options{}))
	sizes := []int{0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10000, 100000}
	for _, n := range sizes {
		if got := string(c.send(resp.AppendCommand(nil, "SET", fmt.Sprint(n), strings.Repeat("v", n)))); got != ok {
			t.Fatalf("SET of %d bytes: %q", n, got)
		}
	}
	for _, a := range sizes {
		for _, b := range sizes {
			want := fmt.Sprintf("$%d\r\n%s\r\n$-1\r\n$%d\r\n%s\r\n", a, strings.Repeat("v", a), b, strings.Repeat("v", b))
			if got := c.do(fmt.Sprintf("GET %d\r\nGET none\r\nGET %d", a, b)); got != want {
				t.Fatalf("values of %d and %d bytes: got %.50q", a, b, got)
			}
		}
	}
}

func TestInfoNamesEveryField(t *testing.T) {
	srv := open(t, Options{RunID: "this-run", Version: "v1"})
	c := speak(t, srv)
	srv.mu.Lock() // as a connection would be
	srv.conns[c.s.id] = newConn(srv, nopConn{}, c.s.id)
	srv.conns[c.s.id].session = c.s
	srv.mu.Unlock()
	defer func() {
		srv.mu.Lock()
		delete(srv.conns, c.s.id)
		srv.mu.Unlock()
	}()
	c.do("SET k v\r\nGET k\r\nGET none\r\nGET\r\nFOO")
	info := c.do("INFO everything")
	for _, name := range strings.Fields(`redis_version kvmark_version run_id process_id tcp_port uptime_in_seconds mode codec level bucket_entries io
		go_version goos goarch goamd64 goexperiment godebug default_godebug gogc gomemlimit gomaxprocs num_cpu build_settings pgo
		connected_clients maxclients rejected_connections used_memory heap_live_bytes heap_goal_bytes
		gc_cycles gc_cycles_forced gc_cpu_seconds gc_assist_seconds gc_idle_seconds cpu_total_seconds gc_pause_p50_us gc_pause_p99_us gc_pause_max_us
		alloc_bytes alloc_objects sched_latency_p50_us sched_latency_p99_us mutex_wait_seconds gc_limiter_last
		wal_policy wal_records wal_bytes wal_writes wal_syncs wal_sync_seconds wal_sync_p50_us wal_sync_p99_us wal_sync_max_us wal_segments wal_disk_bytes wal_error
		loading replay_records replay_bytes replay_seconds checkpoints checkpoint_seconds checkpoint_bytes checkpoint_in_progress
		total_connections_received total_commands_processed total_net_input_bytes total_net_output_bytes keyspace_hits keyspace_misses errors
		keys key_bytes value_bytes stored_bytes index_bytes disk_bytes dead_bytes buckets compression_ratio`) {
		if !strings.Contains(info, "\r\n"+name+":") {
			t.Errorf("INFO lacks %s", name)
		}
	}
	for _, line := range []string{
		"run_id:this-run", "wal_records:1", "wal_error:ok", "keyspace_hits:1", "keyspace_misses:1", "errors:2", "total_commands_processed:3",
		"errorstat_ERR:count=2", "role:master", "blocked_clients:0", "cluster_enabled:0", "db0:keys=1,expires=0,avg_ttl=0", "keys:1",
		fmt.Sprintf("process_id:%d", os.Getpid()),
	} {
		if !strings.Contains(info, "\r\n"+line+"\r\n") {
			t.Errorf("INFO lacks the line %s", line)
		}
	}
	for _, want := range []string{"cmdstat_set:calls=1,usec=T,usec_per_call=T,rejected_calls=0,failed_calls=0", "cmdstat_get:calls=2,usec=T,usec_per_call=T,rejected_calls=1,failed_calls=0"} {
		if got := untimed(info); !strings.Contains(got, "\r\n"+want+"\r\n") {
			t.Errorf("INFO lacks the line %s", want)
		}
	}
	sections := func(info string) []string { return regexp.MustCompile(`(?m)^# \w+`).FindAllString(info, -1) }
	if d := sections(c.do("INFO")); slices.Contains(d, "# Commandstats") || !slices.Equal(d, sections(c.do("INFO default"))) {
		t.Errorf("INFO without arguments is not INFO default: %q", d)
	}
	c.want("CONFIG RESETSTAT", ok)
	text := "# Commandstats\r\ncmdstat_config|resetstat:calls=1,usec=T,usec_per_call=T,rejected_calls=0,failed_calls=0\r\n\r\n# Errorstats\r\n"
	if got := untimed(c.do("INFO commandstats errorstats")); !strings.HasSuffix(got, "\r\n"+text+"\r\n") {
		t.Errorf("got %q, want %q", got, text)
	}
}

// untimed leaves the times of commands out.
func untimed(info string) string {
	return regexp.MustCompile(`usec=\d+,usec_per_call=\d+\.\d\d`).ReplaceAllString(info, "usec=T,usec_per_call=T")
}
