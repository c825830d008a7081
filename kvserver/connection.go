package kvserver

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
	"time"

	"kvmark/kvserver/resp"
)

// redisVersion is what clients are told that ask for the version of Redis whose commands this server follows.
const redisVersion = "7.2.0"

func pingCommand(s *session, args [][]byte) {
	if len(args) <= 2 && s.listens() {
		s.out = resp.AppendArray(s.out, 2)
		s.out = resp.AppendBulk(s.out, "pong")
		s.out = resp.AppendBulk(s.out, bytes.Join(args[1:], nil))
		return
	}
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
	if s.authenticate(user, args[len(args)-1]) {
		s.ok()
	}
}

// A client that does not know the password hears so after a while, and is not listened to any more after a few times.
const (
	authDelay    = 500 * time.Millisecond
	authAttempts = 10
	// authTimeout is how long a connection may take to authenticate, or to agree on TLS.
	authTimeout = 30 * time.Second
)

// authenticate takes the same time whether the password is right, nearly right, or of another length. It replies if it is wrong.
func (s *session) authenticate(user, password []byte) bool {
	want, got := sha256.Sum256([]byte(s.srv.opts.Password)), sha256.Sum256(password)
	match := subtle.ConstantTimeCompare(want[:], got[:]) == 1
	if string(user) != onlyUser || !match && s.srv.opts.Password != "" {
		s.fail(errWrongPass)
		s.srv.authFailures.Add(1)
		s.delay = authDelay
		if s.failures++; s.failures == authAttempts {
			s.closeAfterReply()
		}
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
	s.collect() // what was published until now is in the old protocol
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
	}{{"id", 2}, {"getname", 2}, {"setname", 3}, {"setinfo", 4}, {"info", 2}, {"list", -2}, {"kill", -3}, {"reply", 3}, {"no-evict", 3}, {"no-touch", 3}} {
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
	case "kill":
		s.killClients(args[2:])
	case "reply":
		s.setReply(args[2])
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
	wanted := func(*session) bool { return true }
	switch {
	case len(args) == 0:
	case is(args[0], "type") && len(args) == 2:
		var ok bool
		if wanted, ok = clientType(args[1]); !ok {
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
		wanted = func(s *session) bool { return ids[s.id] }
	default:
		s.fail(errSyntax)
		return
	}
	s.out = resp.AppendVerbatim(s.out, s.proto, s.srv.clientLines(wanted))
}

// setReply is CLIENT REPLY ON | OFF | SKIP.
func (s *session) setReply(arg []byte) {
	switch {
	case is(arg, "on"):
		s.mute = replyOn
		s.ok()
	case is(arg, "off"):
		s.mute = replyOff
	case is(arg, "skip"):
		if s.mute == replyOn {
			s.mute = replyNext
		}
	default:
		s.fail(errSyntax)
	}
}

// killClients is CLIENT KILL address, or CLIENT KILL with filters (ID, ADDR, LADDR, TYPE, USER, SKIPME, MAXAGE), of which
// all have to fit.
func (s *session) killClients(args [][]byte) {
	var filters []func(*conn) bool
	skipMe := true
	old := len(args) == 1
	if old {
		addr := string(args[0])
		filters = append(filters, func(c *conn) bool { return c.remote.String() == addr })
		skipMe = false
	} else if len(args)%2 != 0 {
		s.fail(errSyntax)
		return
	}
	for i := 0; !old && i < len(args); i += 2 {
		value := string(args[i+1])
		switch name := args[i]; {
		case is(name, "id"):
			id, ok := resp.ParseInt(args[i+1])
			if !ok || id < 1 {
				s.fail("ERR client-id should be greater than 0")
				return
			}
			filters = append(filters, func(c *conn) bool { return c.session.id == id })
		case is(name, "addr"):
			filters = append(filters, func(c *conn) bool { return c.remote.String() == value })
		case is(name, "laddr"):
			filters = append(filters, func(c *conn) bool { return c.local.String() == value })
		case is(name, "type"):
			fits, ok := clientType(args[i+1])
			if !ok {
				s.fail("ERR Unknown client type '" + value[:min(len(value), 128)] + "'")
				return
			}
			filters = append(filters, func(c *conn) bool { return fits(c.session) })
		case is(name, "user"):
			if value != onlyUser {
				s.fail("ERR No such user '" + value[:min(len(value), 128)] + "'")
				return
			}
		case is(name, "maxage"):
			age, ok := resp.ParseInt(args[i+1])
			if !ok || age < 1 {
				s.fail(errInteger)
				return
			}
			filters = append(filters, func(c *conn) bool { return time.Since(c.since).Seconds() >= float64(age) })
		case is(name, "skipme") && is(args[i+1], "yes"):
			skipMe = true
		case is(name, "skipme") && is(args[i+1], "no"):
			skipMe = false
		default:
			s.fail(errSyntax)
			return
		}
	}
	killed := s.srv.kill(func(c *conn) bool {
		for _, fits := range filters {
			if !fits(c) {
				return false
			}
		}
		if c.session == s {
			if !skipMe {
				s.closeAfterReply() // it is to hear of it
			}
			return false
		}
		return true
	})
	if s.closing {
		killed++
	}
	switch {
	case !old:
		s.integer(int64(killed))
	case killed == 0:
		s.fail("ERR No such client")
	default:
		s.ok()
	}
}

// clientType returns what tells the clients of a type that Redis knows; some types have none here.
func clientType(name []byte) (fits func(*session) bool, ok bool) {
	switch {
	case is(name, "normal"):
		return func(s *session) bool { return !s.subscribes() }, true
	case is(name, "pubsub"):
		return (*session).subscribes, true
	case is(name, "master"), is(name, "replica"), is(name, "slave"):
		return func(*session) bool { return false }, true
	}
	return nil, false
}

// subscribes reports whether the session has subscriptions, to anybody.
func (s *session) subscribes() bool { return s.subscribed.Load()+s.psubscribed.Load() > 0 }
