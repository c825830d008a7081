package kvserver

import (
	"fmt"
	"iter"
	"strings"
	"time"
)

// flags say what a command does, for those who decide whether it may run.
type flags uint16

const (
	write        flags = 1 << iota // may change the data
	readonly                       // reads keys
	noAuth                         // allowed before authentication
	fast                           // takes a time that does not depend on the data
	admin                          // for operators
	listening                      // allowed on a RESP2 connection that has subscriptions
	messaging                      // part of Pub/Sub
	immediate                      // runs at once between MULTI and EXEC
	noMulti                        // refused between MULTI and EXEC
	allKeys                        // may read or change any key; a transaction with it holds all locks
	repeatable                     // can be begun again where it reads a value, for it has done nothing before
	dangerous                      // not for everyday use, though not for operators alone
	whileLoading                   // does not need the data, so it runs while they are being loaded
)

// command is one row of the table. One of its parts, which Redis calls a subcommand, is a row of its own, which is named
// container|part.
type command struct {
	name  string
	arity int // arguments with the name; -n = at least n
	flags flags
	// firstKey, lastKey and keyStep say which arguments are keys; firstKey 0 = none, lastKey -1 = the last argument.
	firstKey, lastKey, keyStep int
	group, summary             string
	run                        func(s *session, args [][]byte)
	parts                      []command                            // of a container, whose run is for a call without any
	help                       []string                             // of a container
	long                       func(s *session, args [][]byte) bool // takes so long that it must leave an event loop; nil = never

	index int // among all rows
}

// takes reports whether the command may have so many arguments, its name included.
func (c *command) takes(n int) bool {
	if c.arity > 0 {
		return n == c.arity
	}
	return n >= -c.arity
}

// keys are the arguments that are keys.
func (c *command) keys(args [][]byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if c.firstKey == 0 {
			return
		}
		last := c.lastKey
		if last < 0 {
			last += len(args)
		}
		for i := c.firstKey; i <= last && i < len(args); i += c.keyStep {
			if !yield(args[i]) {
				return
			}
		}
	}
}

// part returns the part of a container by its name in any case, nil if there is none.
func (c *command) part(name []byte) *command {
	for i := range c.parts {
		if is(name, c.parts[i].name[len(c.name)+1:]) {
			return &c.parts[i]
		}
	}
	return nil
}

// commands is the table of all commands.
type commands struct {
	table  []command
	all    []*command // rows and the rows of their parts
	byName map[string]*command
}

// longestName bounds the names that lookup folds.
const longestName = 16

func newCommands() *commands {
	c := &commands{byName: map[string]*command{}, table: []command{
		{name: "ping", arity: -1, flags: fast | listening, group: "connection", summary: "Returns the server's liveliness response.", run: pingCommand},
		{name: "echo", arity: 2, flags: fast | whileLoading, group: "connection", summary: "Returns the given string.", run: echoCommand},
		{name: "hello", arity: -1, flags: fast | noAuth | whileLoading, group: "connection", summary: "Handshakes with the server.", run: helloCommand},
		{name: "auth", arity: -2, flags: fast | noAuth | whileLoading, group: "connection", summary: "Authenticates the connection.", run: authCommand},
		{name: "quit", arity: -1, flags: fast | noAuth | listening | immediate | whileLoading, group: "connection", summary: "Closes the connection.", run: quitCommand},
		{name: "reset", arity: 1, flags: fast | noAuth | listening | immediate | whileLoading, group: "connection", summary: "Resets the connection.", run: resetCommand},
		{name: "select", arity: 2, flags: fast | whileLoading, group: "connection", summary: "Changes the selected database. There is only 0.", run: selectCommand},
		{name: "client", arity: -2, group: "connection", summary: "A container for client connection commands.", parts: clientParts(), help: clientHelp()},

		{name: "set", arity: -3, flags: write, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Sets the value of a key.", run: setCommand},
		{name: "setnx", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Sets the value of a key that does not exist.", run: setnxCommand},
		{name: "setex", arity: 4, flags: write, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Sets the value of a key and its end in seconds.", run: setexCommand},
		{name: "psetex", arity: 4, flags: write, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Sets the value of a key and its end in milliseconds.", run: psetexCommand},
		{name: "get", arity: 2, flags: readonly | fast | repeatable, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns the value of a key.", run: getCommand},
		{name: "getdel", arity: 2, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns the value of a key and deletes it.", run: getdelCommand},
		{name: "mget", arity: -2, flags: readonly | fast, firstKey: 1, lastKey: -1, keyStep: 1, group: "string", summary: "Returns the values of several keys.", run: mgetCommand},
		{name: "mset", arity: -3, flags: write, firstKey: 1, lastKey: -1, keyStep: 2, group: "string", summary: "Sets the values of several keys at once.", run: msetCommand},
		{name: "strlen", arity: 2, flags: readonly | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns the length of a value.", run: strlenCommand},
		{name: "append", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Appends to the value of a key.", run: appendCommand},
		{name: "incr", arity: 2, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Adds one to the number that a key holds.", run: incrCommand},
		{name: "decr", arity: 2, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Takes one off the number that a key holds.", run: decrCommand},
		{name: "incrby", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Adds to the number that a key holds.", run: incrbyCommand},
		{name: "decrby", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Takes from the number that a key holds.", run: decrbyCommand},
		{name: "getset", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns the value of a key and sets another one.", run: getsetCommand},
		{name: "getex", arity: -2, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns the value of a key and sets its end.", run: getexCommand},
		{name: "msetnx", arity: -3, flags: write, firstKey: 1, lastKey: -1, keyStep: 2, group: "string", summary: "Sets the values of several keys at once, if none of them exists.", run: msetnxCommand},
		{name: "incrbyfloat", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Adds to the number with a fraction that a key holds.", run: incrbyfloatCommand},
		{name: "getrange", arity: 4, flags: readonly, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns a part of a value.", run: getrangeCommand},
		{name: "substr", arity: 4, flags: readonly, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns a part of a value.", run: getrangeCommand},
		{name: "setrange", arity: 4, flags: write, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Overwrites a part of a value.", run: setrangeCommand},

		{name: "del", arity: -2, flags: write, firstKey: 1, lastKey: -1, keyStep: 1, group: "generic", summary: "Deletes keys.", run: delCommand},
		{name: "unlink", arity: -2, flags: write | fast, firstKey: 1, lastKey: -1, keyStep: 1, group: "generic", summary: "Deletes keys.", run: delCommand},
		{name: "exists", arity: -2, flags: readonly | fast, firstKey: 1, lastKey: -1, keyStep: 1, group: "generic", summary: "Counts how many of the keys exist.", run: existsCommand},
		{name: "expire", arity: -3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Sets the end of a key in seconds.", run: expireCommand},
		{name: "pexpire", arity: -3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Sets the end of a key in milliseconds.", run: pexpireCommand},
		{name: "expireat", arity: -3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Sets the end of a key to a Unix time in seconds.", run: expireatCommand},
		{name: "pexpireat", arity: -3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Sets the end of a key to a Unix time in milliseconds.", run: pexpireatCommand},
		{name: "expiretime", arity: 2, flags: readonly | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Returns the Unix time in seconds at which a key ends.", run: expiretimeCommand},
		{name: "pexpiretime", arity: 2, flags: readonly | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Returns the Unix time in milliseconds at which a key ends.", run: pexpiretimeCommand},
		{name: "ttl", arity: 2, flags: readonly | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Returns the time a key has left in seconds.", run: ttlCommand},
		{name: "pttl", arity: 2, flags: readonly | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Returns the time a key has left in milliseconds.", run: pttlCommand},
		{name: "persist", arity: 2, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Removes the end of a key.", run: persistCommand},
		{name: "type", arity: 2, flags: readonly | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "generic", summary: "Returns the type of a key's value, which is string.", run: typeCommand},
		{name: "keys", arity: 2, flags: readonly | allKeys | dangerous, group: "generic", summary: "Returns all keys that match a pattern.", run: keysCommand},
		{name: "scan", arity: -2, flags: readonly | allKeys, group: "generic", summary: "Walks through the keys, some at a time.", run: scanCommand},
		{name: "touch", arity: -2, flags: readonly | fast, firstKey: 1, lastKey: -1, keyStep: 1, group: "generic", summary: "Counts how many of the keys exist. Nothing remembers accesses.", run: touchCommand},
		{name: "copy", arity: -3, flags: write, firstKey: 1, lastKey: 2, keyStep: 1, group: "generic", summary: "Copies the value and the end of a key to another key.", run: copyCommand},
		{name: "rename", arity: 3, flags: write, firstKey: 1, lastKey: 2, keyStep: 1, group: "generic", summary: "Renames a key.", run: renameCommand},
		{name: "renamenx", arity: 3, flags: write | fast, firstKey: 1, lastKey: 2, keyStep: 1, group: "generic", summary: "Renames a key if the new name does not exist.", run: renamenxCommand},
		{name: "randomkey", arity: 1, flags: readonly | allKeys, group: "generic", summary: "Returns some key.", run: randomkeyCommand},
		{name: "wait", arity: 3, group: "generic", summary: "Waits for replicas, of which there are none.", run: waitCommand},
		{name: "object", arity: -2, group: "generic", summary: "A container for object introspection commands.", parts: objectParts(), help: objectHelp()},

		{name: "subscribe", arity: -2, flags: listening | messaging | whileLoading, group: "pubsub", summary: "Listens for messages published to channels.", run: subscribeCommand},
		{name: "unsubscribe", arity: -1, flags: listening | messaging | whileLoading, group: "pubsub", summary: "Stops listening to messages posted to channels.", run: unsubscribeCommand},
		{name: "psubscribe", arity: -2, flags: listening | messaging | whileLoading, group: "pubsub", summary: "Listens for messages published to channels that match patterns.", run: psubscribeCommand},
		{name: "punsubscribe", arity: -1, flags: listening | messaging | whileLoading, group: "pubsub", summary: "Stops listening to messages published to channels that match patterns.", run: punsubscribeCommand},
		{name: "publish", arity: 3, flags: fast | messaging | whileLoading, group: "pubsub", summary: "Posts a message to a channel.", run: publishCommand},
		{name: "pubsub", arity: -2, group: "pubsub", summary: "A container for Pub/Sub commands.", parts: pubsubParts(), help: pubsubHelp()},

		{name: "multi", arity: 1, flags: fast | immediate | whileLoading, group: "transactions", summary: "Starts a transaction.", run: multiCommand},
		{name: "exec", arity: 1, flags: immediate | whileLoading, group: "transactions", summary: "Executes all commands in a transaction.", run: execCommand},
		{name: "discard", arity: 1, flags: fast | immediate | whileLoading, group: "transactions", summary: "Discards a transaction.", run: discardCommand},
		{name: "watch", arity: -2, flags: fast | immediate | whileLoading, firstKey: 1, lastKey: -1, keyStep: 1, group: "transactions", summary: "Monitors changes to keys to determine the execution of a transaction.", run: watchCommand},
		{name: "unwatch", arity: 1, flags: fast | whileLoading, group: "transactions", summary: "Forgets about watched keys of a transaction.", run: unwatchCommand},

		{name: "dbsize", arity: 1, flags: readonly | fast | allKeys, group: "server", summary: "Returns the number of keys.", run: dbsizeCommand},
		{name: "flushall", arity: -1, flags: write | allKeys | dangerous, group: "server", summary: "Removes all keys.", run: flushCommand},
		{name: "flushdb", arity: -1, flags: write | allKeys | dangerous, group: "server", summary: "Removes all keys.", run: flushCommand},
		{name: "info", arity: -1, flags: dangerous | whileLoading, group: "server", summary: "Returns information and statistics about the server.", run: infoCommand},
		{name: "config", arity: -2, group: "server", summary: "A container for server configuration commands.", parts: configParts(), help: configHelp()},
		{name: "command", arity: -1, flags: whileLoading, group: "server", summary: "Returns information about the commands.", run: commandCommand, parts: commandParts(), help: commandHelp()},
		{name: "time", arity: 1, flags: fast | whileLoading, group: "server", summary: "Returns the server time.", run: timeCommand},
		{name: "memory", arity: -2, group: "server", summary: "A container for commands about memory.", parts: memoryParts(), help: memoryHelp()},
		{name: "bgsave", arity: -1, flags: admin, group: "server", summary: "Makes a checkpoint in the background.", run: bgsaveCommand},
		{name: "lastsave", arity: 1, flags: admin | fast | whileLoading, group: "server", summary: "Returns the time of the last checkpoint.", run: lastsaveCommand},
		{name: "debug", arity: -2, group: "server", summary: "A container for commands for tests.", parts: debugParts(), help: debugHelp()},
		{name: "shutdown", arity: -1, flags: admin | noMulti | whileLoading, group: "server", summary: "Syncs the log and ends the server.", run: shutdownCommand},
		{name: "role", arity: 1, flags: fast | dangerous | whileLoading, group: "server", summary: "Returns the replication role.", run: roleCommand},
		{name: "slowlog", arity: -2, group: "server", summary: "A container for slow log commands.", parts: slowlogParts(), help: slowlogHelp()},
		{name: "latency", arity: -2, group: "server", summary: "A container for latency diagnostics commands.", parts: latencyParts(), help: latencyHelp()},

		// There are no scripts, and a client that tries hears so.
		{name: "eval", arity: -1, run: scriptCommand},
		{name: "evalsha", arity: -1, run: scriptCommand},
		{name: "eval_ro", arity: -1, run: scriptCommand},
		{name: "evalsha_ro", arity: -1, run: scriptCommand},
		{name: "script", arity: -1, run: scriptCommand},
		{name: "function", arity: -1, run: scriptCommand},
		{name: "fcall", arity: -1, run: scriptCommand},
		{name: "fcall_ro", arity: -1, run: scriptCommand},
	}}
	for i := range c.table {
		row := &c.table[i]
		c.byName[row.name] = row
		c.add(row)
		if row.parts != nil {
			row.parts = append(row.parts, command{name: "help", arity: 2, flags: whileLoading, group: row.group, summary: "Returns helpful text about the parts.", run: row.tellHelp})
		}
		for i := range row.parts {
			row.parts[i].name = row.name + "|" + row.parts[i].name
			c.add(&row.parts[i])
		}
	}
	long := longCommands()
	for _, row := range c.all {
		row.long = long[row.name]
	}
	return c
}

func (c *commands) add(row *command) {
	row.index = len(c.all)
	c.all = append(c.all, row)
}

// lookup finds a command by its name in any case. It allocates nothing.
func (c *commands) lookup(name []byte) *command {
	if len(name) > longestName {
		return nil
	}
	var low [longestName]byte
	for i, c := range name {
		low[i] = lower(c)
	}
	return c.byName[string(low[:len(name)])]
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// is reports whether an argument is the given word of lower-case letters, in any case.
func is(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, c := range arg {
		if lower(c) != word[i] {
			return false
		}
	}
	return true
}

// shown is what an error says of an argument: as much as n bytes of it, and as Redis does no more than what stands in front of a zero.
func shown[T ~string | ~[]byte](arg T, n int) string {
	text := string(arg[:min(len(arg), n)])
	if zero := strings.IndexByte(text, 0); zero >= 0 {
		text = text[:zero]
	}
	return text
}

// unknown replies to a command that is not in the table, with as much of its arguments as Redis would show.
func (s *session) unknown(args [][]byte) {
	const most = 128
	var b strings.Builder
	for _, a := range args[1:] {
		if b.Len() >= most {
			break
		}
		fmt.Fprintf(&b, "'%s' ", shown(a, most-b.Len()))
	}
	name := shown(args[0], most)
	if s.tx != nil {
		s.tx.failed = true
	}
	s.fail(fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", name, b.String()))
	s.countError(s.start)
}

// unknownPart replies to a container's unknown part.
func (s *session) unknownPart(container *command, part []byte) {
	s.reject(container, fmt.Sprintf("ERR unknown subcommand '%s'. Try %s HELP.", shown(part, 128), strings.ToUpper(container.name)))
}

func keyTooLong(n, limit int) string {
	return fmt.Sprintf("ERR key of %d bytes; the limit is %d", n, limit)
}

func valueTooLong(n, limit int) string {
	return fmt.Sprintf("ERR value of %d bytes; the limit is %d", n, limit)
}

func replyTooLong(n, limit int) string {
	return fmt.Sprintf("ERR reply of %d bytes; the limit is %d (--max-reply)", n, limit)
}

const (
	errSyntax  = "ERR syntax error"
	errInteger = "ERR value is not an integer or out of range"
)

// scriptCommand is what is left of EVAL and its kind.
func scriptCommand(s *session, args [][]byte) {
	s.fail("ERR " + strings.ToUpper(string(args[0])) + " is not supported: this server runs no scripts and no functions; MULTI, EXEC and WATCH are here")
}

// speaksHTTP ends a connection whose client sends what is a line of an HTTP request: a web page that makes a browser talk to
// this port gets no further. It reports whether it is one. As in Redis there is no reply, and a note once a minute.
func (s *session) speaksHTTP(name []byte) bool {
	if !is(name, "post") && !is(name, "host:") {
		return false
	}
	s.closeAfterReply()
	now, last := s.srv.ticks.Load()+1, s.srv.lastHTTP.Load()
	if (last == 0 || now-last > int64(time.Minute/tick)) && s.srv.lastHTTP.CompareAndSwap(last, now) {
		from := "a client"
		if s.conn != nil {
			from = s.conn.remote.String()
		}
		s.srv.opts.Logf("kvserver: %s sent a line of an HTTP request, perhaps for a web page that attacks this port; the connection is closed", from)
	}
	return true
}
