package kvserver

import (
	"fmt"
	"strings"

	"kvmark/kvserver/resp"
)

// flags say what a command does, for those who decide whether it may run.
type flags uint8

const (
	write     flags = 1 << iota // may change the data
	readonly                    // reads keys
	noAuth                      // allowed before authentication
	fast                        // takes a time that does not depend on the data
	admin                       // for operators
	listening                   // allowed on a RESP2 connection that has subscriptions
)

// command is one row of the table.
type command struct {
	name  string
	arity int // arguments with the name; -n = at least n
	flags flags
	// firstKey, lastKey and keyStep say which arguments are keys; firstKey 0 = none, lastKey -1 = the last argument.
	firstKey, lastKey, keyStep int
	group, summary             string
	run                        func(s *session, args [][]byte)

	index int // in the table
}

// commands is the table of all commands.
type commands struct {
	all    []command
	byName map[string]*command
}

// longestName bounds the names that lookup folds.
const longestName = 16

func newCommands() *commands {
	c := &commands{byName: map[string]*command{}, all: []command{
		{name: "ping", arity: -1, flags: fast | listening, group: "connection", summary: "Returns the server's liveliness response.", run: pingCommand},
		{name: "echo", arity: 2, flags: fast, group: "connection", summary: "Returns the given string.", run: echoCommand},
		{name: "hello", arity: -1, flags: fast | noAuth, group: "connection", summary: "Handshakes with the server.", run: helloCommand},
		{name: "auth", arity: -2, flags: fast | noAuth, group: "connection", summary: "Authenticates the connection.", run: authCommand},
		{name: "quit", arity: -1, flags: fast | noAuth | listening, group: "connection", summary: "Closes the connection.", run: quitCommand},
		{name: "reset", arity: 1, flags: fast | noAuth | listening, group: "connection", summary: "Resets the connection.", run: resetCommand},
		{name: "select", arity: 2, flags: fast, group: "connection", summary: "Changes the selected database. There is only 0.", run: selectCommand},
		{name: "client", arity: -2, group: "connection", summary: "A container for client connection commands.", run: clientCommand},

		{name: "set", arity: -3, flags: write, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Sets the value of a key.", run: setCommand},
		{name: "setnx", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Sets the value of a key that does not exist.", run: setnxCommand},
		{name: "setex", arity: 4, flags: write, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Sets the value of a key and its end in seconds.", run: setexCommand},
		{name: "psetex", arity: 4, flags: write, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Sets the value of a key and its end in milliseconds.", run: psetexCommand},
		{name: "get", arity: 2, flags: readonly | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns the value of a key.", run: getCommand},
		{name: "getdel", arity: 2, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns the value of a key and deletes it.", run: getdelCommand},
		{name: "mget", arity: -2, flags: readonly | fast, firstKey: 1, lastKey: -1, keyStep: 1, group: "string", summary: "Returns the values of several keys.", run: mgetCommand},
		{name: "mset", arity: -3, flags: write, firstKey: 1, lastKey: -1, keyStep: 2, group: "string", summary: "Sets the values of several keys at once.", run: msetCommand},
		{name: "strlen", arity: 2, flags: readonly | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Returns the length of a value.", run: strlenCommand},
		{name: "append", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Appends to the value of a key.", run: appendCommand},
		{name: "incr", arity: 2, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Adds one to the number that a key holds.", run: incrCommand},
		{name: "decr", arity: 2, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Takes one off the number that a key holds.", run: decrCommand},
		{name: "incrby", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Adds to the number that a key holds.", run: incrbyCommand},
		{name: "decrby", arity: 3, flags: write | fast, firstKey: 1, lastKey: 1, keyStep: 1, group: "string", summary: "Takes from the number that a key holds.", run: decrbyCommand},

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
		{name: "keys", arity: 2, flags: readonly, group: "generic", summary: "Returns all keys that match a pattern.", run: keysCommand},
		{name: "scan", arity: -2, flags: readonly, group: "generic", summary: "Walks through the keys, some at a time.", run: scanCommand},

		{name: "subscribe", arity: -2, flags: listening, group: "pubsub", summary: "Listens for messages published to channels.", run: subscribeCommand},
		{name: "unsubscribe", arity: -1, flags: listening, group: "pubsub", summary: "Stops listening to messages posted to channels.", run: unsubscribeCommand},
		{name: "psubscribe", arity: -2, flags: listening, group: "pubsub", summary: "Listens for messages published to channels that match patterns.", run: psubscribeCommand},
		{name: "punsubscribe", arity: -1, flags: listening, group: "pubsub", summary: "Stops listening to messages published to channels that match patterns.", run: punsubscribeCommand},
		{name: "publish", arity: 3, flags: fast, group: "pubsub", summary: "Posts a message to a channel.", run: publishCommand},
		{name: "pubsub", arity: -2, group: "pubsub", summary: "A container for Pub/Sub commands.", run: pubsubCommand},

		{name: "dbsize", arity: 1, flags: readonly | fast, group: "server", summary: "Returns the number of keys.", run: dbsizeCommand},
		{name: "flushall", arity: -1, flags: write, group: "server", summary: "Removes all keys.", run: flushCommand},
		{name: "flushdb", arity: -1, flags: write, group: "server", summary: "Removes all keys.", run: flushCommand},
		{name: "info", arity: -1, group: "server", summary: "Returns information and statistics about the server.", run: infoCommand},
		{name: "config", arity: -2, flags: admin, group: "server", summary: "A container for server configuration commands.", run: configCommand},
		{name: "command", arity: -1, group: "server", summary: "Returns information about the commands.", run: commandCommand},
		{name: "time", arity: 1, flags: fast, group: "server", summary: "Returns the server time.", run: timeCommand},
		{name: "memory", arity: -2, flags: readonly, group: "server", summary: "A container for commands about memory.", run: memoryCommand},
		{name: "bgsave", arity: -1, flags: admin, group: "server", summary: "Makes a checkpoint in the background.", run: bgsaveCommand},
		{name: "lastsave", arity: 1, flags: admin | fast, group: "server", summary: "Returns the time of the last checkpoint.", run: lastsaveCommand},
		{name: "debug", arity: -2, flags: admin, group: "server", summary: "A container for commands for tests.", run: debugCommand},
		{name: "shutdown", arity: -1, flags: admin, group: "server", summary: "Syncs the log and ends the server.", run: shutdownCommand},

		// The first lines of an HTTP request: a web page that makes a browser talk to this port gets no further.
		{name: "post", arity: -1, flags: noAuth, run: httpCommand},
		{name: "host:", arity: -1, flags: noAuth, run: httpCommand},
	}}
	for i := range c.all {
		c.all[i].index = i
		c.byName[c.all[i].name] = &c.all[i]
	}
	return c
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

// unknown replies to a command that is not in the table, with as much of its arguments as Redis would show.
func (s *session) unknown(args [][]byte) {
	const shown = 128
	var b strings.Builder
	for _, a := range args[1:] {
		if b.Len() >= shown {
			break
		}
		fmt.Fprintf(&b, "'%s' ", a[:min(len(a), shown-b.Len())])
	}
	name := args[0][:min(len(args[0]), shown)]
	s.fail(fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", name, b.String()))
	s.errors.add(1)
}

// unknownSubcommand replies to a container's unknown part.
func (s *session) unknownSubcommand(container string, sub []byte) {
	s.fail(fmt.Sprintf("ERR unknown subcommand '%s'. Try %s HELP.", sub[:min(len(sub), 128)], strings.ToUpper(container)))
}

// wrongSubArity replies to a container's part with the wrong number of arguments.
func (s *session) wrongSubArity(container, sub string) {
	s.fail("ERR wrong number of arguments for '" + container + "|" + sub + "' command")
}

func keyTooLong(n, limit int) string {
	return fmt.Sprintf("ERR key of %d bytes; the limit is %d", n, limit)
}

func valueTooLong(n, limit int) string {
	return fmt.Sprintf("ERR value of %d bytes; the limit is %d", n, limit)
}

const (
	errSyntax  = "ERR syntax error"
	errInteger = "ERR value is not an integer or out of range"
)

// httpCommand ends a connection that speaks HTTP.
func httpCommand(s *session, _ [][]byte) { s.closeAfterReply() }

// commandCommand describes the table.
func commandCommand(s *session, args [][]byte) {
	visible := func() (list []*command) {
		for i := range s.srv.commands.all {
			if c := &s.srv.commands.all[i]; c.group != "" {
				list = append(list, c)
			}
		}
		return list
	}
	if len(args) == 1 {
		s.describe(visible())
		return
	}
	named := func() (list []*command) {
		for _, name := range args[2:] {
			c := s.srv.commands.lookup(name)
			if c != nil && c.group == "" {
				c = nil
			}
			list = append(list, c)
		}
		return list
	}
	switch sub := args[1]; {
	case is(sub, "count"):
		if len(args) != 2 {
			s.wrongSubArity("command", "count")
			return
		}
		s.integer(int64(len(visible())))
	case is(sub, "info"):
		if len(args) == 2 {
			s.describe(visible())
			return
		}
		s.describe(named())
	case is(sub, "docs"):
		list := visible()
		if len(args) > 2 {
			list = list[:0]
			for _, c := range named() {
				if c != nil {
					list = append(list, c)
				}
			}
		}
		s.out = resp.AppendMap(s.out, s.proto, len(list))
		for _, c := range list {
			s.out = resp.AppendBulk(s.out, c.name)
			s.out = resp.AppendMap(s.out, s.proto, 2)
			s.out = resp.AppendBulk(s.out, "summary")
			s.out = resp.AppendBulk(s.out, c.summary)
			s.out = resp.AppendBulk(s.out, "group")
			s.out = resp.AppendBulk(s.out, c.group)
		}
	case is(sub, "list"):
		list := visible()
		s.out = resp.AppendArray(s.out, len(list))
		for _, c := range list {
			s.out = resp.AppendBulk(s.out, c.name)
		}
	default:
		s.unknownSubcommand("command", sub)
	}
}

// describe replies with the ten fields that Redis 7 gives of each command.
func (s *session) describe(list []*command) {
	s.out = resp.AppendArray(s.out, len(list))
	for _, c := range list {
		if c == nil {
			s.null()
			continue
		}
		s.out = resp.AppendArray(s.out, 10)
		s.out = resp.AppendBulk(s.out, c.name)
		s.integer(int64(c.arity))
		var words []string
		for _, f := range []struct {
			flag flags
			word string
		}{{write, "write"}, {readonly, "readonly"}, {admin, "admin"}, {fast, "fast"}, {noAuth, "no_auth"}} {
			if c.flags&f.flag != 0 {
				words = append(words, f.word)
			}
		}
		s.out = resp.AppendSet(s.out, s.proto, len(words))
		for _, w := range words {
			s.out = resp.AppendSimple(s.out, w)
		}
		s.integer(int64(c.firstKey))
		s.integer(int64(c.lastKey))
		s.integer(int64(c.keyStep))
		s.out = resp.AppendSet(s.out, s.proto, 0) // ACL categories
		s.out = resp.AppendArray(s.out, 0)        // tips
		s.out = resp.AppendArray(s.out, 0)        // key specifications
		s.out = resp.AppendArray(s.out, 0)        // subcommands
	}
}
