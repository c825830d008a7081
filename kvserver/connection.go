package kvserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"kvmark/kvserver/resp"
)

// redisVersion is what clients are told that ask for the version of Redis whose commands this server follows.
const redisVersion = "7.2.0"

func pingCommand(s *session, args [][]byte) {
	switch len(args) {
	case 1:
		s.out = append(s.out, "+PONG\r\n"...)
	case 2:
		s.out = resp.AppendBulk(s.out, args[1])
	default:
		s.fail("ERR wrong number of arguments for 'ping' command")
	}
}

func echoCommand(s *session, args [][]byte) { s.out = resp.AppendBulk(s.out, args[1]) }

func quitCommand(s *session, _ [][]byte) {
	s.ok()
	s.closeAfterReply()
}

func resetCommand(s *session, _ [][]byte) {
	s.reset()
	s.out = resp.AppendSimple(s.out, "RESET")
}

func selectCommand(s *session, args [][]byte) {
	switch v, ok := resp.ParseInt(args[1]); {
	case !ok:
		s.fail(errInteger)
	case v != 0:
		s.fail("ERR DB index is out of range")
	default:
		s.ok()
	}
}

// The one user there is, and what everybody hears who is not it.
const (
	onlyUser     = "default"
	errWrongPass = "WRONGPASS invalid username-password pair or user is disabled."
)

func authCommand(s *session, args [][]byte) {
	if len(args) > 3 {
		s.fail(errSyntax)
		return
	}
	if len(args) == 2 && s.srv.opts.Password == "" {
		s.fail("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
		return
	}
	user := []byte(onlyUser)
	if len(args) == 3 {
		user = args[1]
	}
	if !s.authenticate(user, args[len(args)-1]) {
		s.fail(errWrongPass)
		return
	}
	s.ok()
}

// authenticate takes the same time whether the password is right, nearly right, or of another length.
func (s *session) authenticate(user, password []byte) bool {
	want, got := sha256.Sum256([]byte(s.srv.opts.Password)), sha256.Sum256(password)
	match := subtle.ConstantTimeCompare(want[:], got[:]) == 1
	if string(user) != onlyUser || !match && s.srv.opts.Password != "" {
		return false
	}
	s.setAuthed(true)
	return true
}

// helloCommand is HELLO [protocol [AUTH user password] [SETNAME name]].
func helloCommand(s *session, args [][]byte) {
	proto := s.proto
	if len(args) > 1 {
		switch v, ok := resp.ParseInt(args[1]); {
		case !ok:
			s.fail("ERR Protocol version is not an integer or out of range")
			return
		case v != 2 && v != 3:
			s.fail("NOPROTO unsupported protocol version")
			return
		default:
			proto = resp.Proto(v)
		}
	}
	var user, password, name []byte
	for i := 2; i < len(args); i++ {
		switch left := len(args) - 1 - i; {
		case is(args[i], "auth") && left >= 2:
			user, password = args[i+1], args[i+2]
			i += 2
		case is(args[i], "setname") && left >= 1:
			name = args[i+1]
			i++
			if !validName(name) {
				s.fail(errName)
				return
			}
		default:
			s.fail(fmt.Sprintf("ERR Syntax error in HELLO option '%s'", args[i][:min(len(args[i]), 128)]))
			return
		}
	}
	if password != nil && !s.authenticate(user, password) {
		s.fail(errWrongPass)
		return
	}
	if !s.authed {
		s.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	if name != nil {
		s.setName(name)
	}
	s.proto = proto
	s.resp3.Store(proto == resp.RESP3)
	s.out = resp.AppendMap(s.out, s.proto, 7)
	for _, f := range [][2]string{{"server", "redis"}, {"version", redisVersion}} {
		s.out = resp.AppendBulk(s.out, f[0])
		s.out = resp.AppendBulk(s.out, f[1])
	}
	s.out = resp.AppendBulk(s.out, "proto")
	s.integer(int64(proto))
	s.out = resp.AppendBulk(s.out, "id")
	s.integer(s.id)
	for _, f := range [][2]string{{"mode", "standalone"}, {"role", "master"}} {
		s.out = resp.AppendBulk(s.out, f[0])
		s.out = resp.AppendBulk(s.out, f[1])
	}
	s.out = resp.AppendBulk(s.out, "modules")
	s.out = resp.AppendArray(s.out, 0)
}

const errName = "ERR Client names cannot contain spaces, newlines or special characters."

func validName(name []byte) bool {
	for _, c := range name {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}

func (s *session) setName(name []byte) {
	if len(name) == 0 {
		s.name.Store(nil)
		return
	}
	text := string(name)
	s.name.Store(&text)
}

// clientCommand is CLIENT with what clients use of it.
func clientCommand(s *session, args [][]byte) {
	sub := args[1]
	var arity int // of the part, with both names; -n = at least n
	var name string
	for _, p := range []struct {
		name  string
		arity int
	}{{"id", 2}, {"getname", 2}, {"setname", 3}, {"setinfo", 4}, {"info", 2}, {"list", -2}, {"no-evict", 3}, {"no-touch", 3}} {
		if is(sub, p.name) {
			name, arity = p.name, p.arity
		}
	}
	if name == "" {
		s.unknownSubcommand("client", sub)
		return
	}
	if arity > 0 && len(args) != arity || len(args) < -arity {
		s.wrongSubArity("client", name)
		return
	}
	switch name {
	case "id":
		s.integer(s.id)
	case "getname":
		if n := s.name.Load(); n != nil {
			s.out = resp.AppendBulk(s.out, *n)
		} else {
			s.null()
		}
	case "setname":
		if !validName(args[2]) {
			s.fail(errName)
			return
		}
		s.setName(args[2])
		s.ok()
	case "setinfo":
		s.setInfo(args[2], args[3])
	case "info":
		s.out = resp.AppendVerbatim(s.out, s.proto, s.srv.clientLine(s.id))
	case "list":
		s.listClients(args[2:])
	case "no-evict", "no-touch":
		// Nothing is ever evicted, and nothing remembers when a key was touched: both are as asked for.
		if !is(args[2], "on") && !is(args[2], "off") {
			s.fail(errSyntax)
			return
		}
		s.ok()
	}
}

// setInfo notes the client library's name and version.
func (s *session) setInfo(attribute, value []byte) {
	var i int
	switch {
	case is(attribute, "lib-name"):
		i = 0
	case is(attribute, "lib-ver"):
		i = 1
	default:
		s.fail("ERR Unrecognized option '" + string(attribute[:min(len(attribute), 128)]) + "'")
		return
	}
	if !validName(value) {
		s.fail("ERR " + strings.ToLower(string(attribute)) + " cannot contain spaces, newlines or special characters.")
		return
	}
	var lib [2]string
	if old := s.library.Load(); old != nil {
		lib = *old
	}
	lib[i] = string(value)
	s.library.Store(&lib)
	s.ok()
}

// listClients is CLIENT LIST [TYPE type | ID id ...].
func (s *session) listClients(args [][]byte) {
	wanted := func(int64) bool { return true }
	switch {
	case len(args) == 0:
	case is(args[0], "type") && len(args) == 2:
		switch {
		case is(args[1], "normal"):
		case is(args[1], "master"), is(args[1], "replica"), is(args[1], "slave"), is(args[1], "pubsub"):
			wanted = func(int64) bool { return false }
		default:
			s.fail("ERR Unknown client type '" + string(args[1][:min(len(args[1]), 128)]) + "'")
			return
		}
	case is(args[0], "id") && len(args) > 1:
		ids := map[int64]bool{}
		for _, a := range args[1:] {
			v, ok := resp.ParseInt(a)
			if !ok || v < 1 {
				s.fail("ERR Invalid client ID")
				return
			}
			ids[v] = true
		}
		wanted = func(id int64) bool { return ids[id] }
	default:
		s.fail(errSyntax)
		return
	}
	s.out = resp.AppendVerbatim(s.out, s.proto, s.srv.clientLines(wanted))
}
