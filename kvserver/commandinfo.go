package kvserver

import (
	"strings"

	"kvmark/kvserver/resp"
)

// commandCommand is COMMAND without a part: it describes the table.
func commandCommand(s *session, _ [][]byte) { s.describe(s.srv.commands.visible()) }

func commandParts() []command {
	return []command{
		{name: "count", arity: 2, flags: whileLoading, group: "server", summary: "Returns a count of commands.", run: commandCount},
		{name: "list", arity: -2, flags: whileLoading, group: "server", summary: "Returns a list of command names.", run: commandList},
		{name: "info", arity: -2, flags: whileLoading, group: "server", summary: "Returns information about one, several or all commands.", run: commandInfo},
		{name: "docs", arity: -2, flags: whileLoading, group: "server", summary: "Returns documentary information about one, several or all commands.", run: commandDocs},
		{name: "getkeys", arity: -4, flags: whileLoading, group: "server", summary: "Extracts the key names from a command.", run: commandGetkeys},
	}
}

// tellHelp is the part help of a container.
func (c *command) tellHelp(s *session, _ [][]byte) {
	s.out = resp.AppendArray(s.out, len(c.help)+3)
	s.out = resp.AppendSimple(s.out, strings.ToUpper(c.name)+" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for _, line := range append(c.help[:len(c.help):len(c.help)], "HELP", "    Prints this help.") {
		s.out = resp.AppendSimple(s.out, line)
	}
}

// visible returns the rows that clients are told of.
func (c *commands) visible() (list []*command) {
	for i := range c.table {
		if c.table[i].group != "" {
			list = append(list, &c.table[i])
		}
	}
	return list
}

// named returns the row of a name, which may be container|part, or nil.
func (c *commands) named(name []byte) *command {
	container, part, has := strings.Cut(string(name), "|")
	row := c.lookup([]byte(container))
	if row != nil && has {
		row = row.part([]byte(part))
	}
	if row == nil || row.group == "" {
		return nil
	}
	return row
}

func commandCount(s *session, _ [][]byte) { s.integer(int64(len(s.srv.commands.visible()))) }

func commandInfo(s *session, args [][]byte) {
	list := s.srv.commands.visible()
	if len(args) > 2 {
		list = list[:0]
		for _, name := range args[2:] {
			list = append(list, s.srv.commands.named(name))
		}
	}
	s.describe(list)
}

func commandDocs(s *session, args [][]byte) {
	list := s.srv.commands.visible()
	if len(args) > 2 {
		list = list[:0]
		for _, name := range args[2:] {
			if c := s.srv.commands.named(name); c != nil {
				list = append(list, c)
			}
		}
	}
	s.out = resp.AppendMap(s.out, s.proto, len(list))
	for _, c := range list {
		s.out = resp.AppendBulk(s.out, c.name)
		s.out = resp.AppendMap(s.out, s.proto, 2)
		for _, text := range []string{"summary", c.summary, "group", c.group} {
			s.out = resp.AppendBulk(s.out, text)
		}
	}
}

// commandList is COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]. A pattern is looked for in the names of
// parts, too.
func commandList(s *session, args [][]byte) {
	fits := func(c *command) bool { return !strings.Contains(c.name, "|") }
	if len(args) > 2 {
		if len(args) != 5 || !is(args[2], "filterby") {
			s.fail(errSyntax)
			return
		}
		switch by := args[3]; {
		case is(by, "module"):
			fits = func(*command) bool { return false }
		case is(by, "aclcat"):
			category := "@" + strings.ToLower(string(args[4]))
			fits = func(c *command) bool {
				for _, name := range c.categories() {
					if name == category {
						return true
					}
				}
				return false
			}
		case is(by, "pattern"):
			fits = func(c *command) bool { return glob(args[4], []byte(c.name), true) }
		default:
			s.fail(errSyntax)
			return
		}
	}
	var names []string
	for _, c := range s.srv.commands.all {
		if c.group != "" && fits(c) {
			names = append(names, c.name)
		}
	}
	s.out = resp.AppendArray(s.out, len(names))
	for _, name := range names {
		s.out = resp.AppendBulk(s.out, name)
	}
}

// commandGetkeys is COMMAND GETKEYS command [argument ...].
func commandGetkeys(s *session, args [][]byte) {
	args = args[2:]
	c := s.srv.commands.lookup(args[0])
	if c != nil && c.parts != nil && len(args) > 1 {
		c = c.part(args[1])
	}
	switch {
	case c == nil || c.group == "":
		s.fail("ERR Invalid command specified")
	case c.firstKey == 0:
		s.fail("ERR The command has no key arguments")
	case !c.takes(len(args)):
		s.fail("ERR Invalid number of arguments specified for command")
	default:
		var found [][]byte
		for key := range c.keys(args) {
			found = append(found, key)
		}
		s.out = resp.AppendArray(s.out, len(found))
		for _, key := range found {
			s.out = resp.AppendBulk(s.out, key)
		}
	}
}

// words are the names under which clients see the flags.
func (c *command) words() (words []string) {
	for _, f := range []struct {
		flag flags
		word string
	}{{write, "write"}, {readonly, "readonly"}, {admin, "admin"}, {messaging, "pubsub"}, {whileLoading, "loading"}, {fast, "fast"}, {noAuth, "no_auth"}, {noMulti, "no_multi"}} {
		if c.flags&f.flag != 0 {
			words = append(words, f.word)
		}
	}
	return words
}

// categories are what Redis's access lists call the kinds that the command is of.
func (c *command) categories() (names []string) {
	switch c.group {
	case "generic":
		names = append(names, "@keyspace")
	case "string", "connection":
		names = append(names, "@"+c.group)
	case "transactions":
		names = append(names, "@transaction")
	}
	speed := "@slow"
	if c.flags&fast != 0 {
		speed = "@fast"
	}
	for _, f := range []struct {
		flag flags
		name string
	}{{write, "@write"}, {readonly, "@read"}, {admin, "@admin"}, {messaging, "@pubsub"}, {admin | dangerous, "@dangerous"}} {
		if c.flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	return append(names, speed)
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
		s.describeWords(c.words())
		s.integer(int64(c.firstKey))
		s.integer(int64(c.lastKey))
		s.integer(int64(c.keyStep))
		s.describeWords(c.categories())
		s.out = resp.AppendArray(s.out, 0) // tips
		s.out = resp.AppendArray(s.out, 0) // key specifications
		parts := make([]*command, len(c.parts))
		for i := range c.parts {
			parts[i] = &c.parts[i]
		}
		s.describe(parts)
	}
}

func (s *session) describeWords(words []string) {
	s.out = resp.AppendSet(s.out, s.proto, len(words))
	for _, w := range words {
		s.out = resp.AppendSimple(s.out, w)
	}
}
