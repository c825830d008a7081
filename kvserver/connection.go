package kvserver

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"math"
	"strings"
	"time"

	"kvmark/kvserver/resp"
)

// redisVersion is what clients are told that ask for the version of Redis whose commands this server follows.
//
// Replies are those of this version, byte by byte; README names the commands of it that are not here.
const redisVersion = "7.0.15"

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

// There is database 0 and no other, and numbers of databases have 32 bits.
const (
	errNoDB   = "ERR DB index is out of range"
	errSelect = "ERR value is out of range, value must between -2147483648 and 2147483647"
)

func selectCommand(s *session, args [][]byte) {
	switch v, ok := resp.ParseInt(args[1]); {
	case !ok:
		s.fail(errInteger)
	case v < math.MinInt32 || v > math.MaxInt32:
		s.fail(errSelect)
	case v != 0:
		s.fail(errNoDB)
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
	for i := 2; i < len(args); i++ {
		switch left := len(args) - 1 - i; {
		case is(args[i], "auth") && left >= 2:
			if !s.authenticate(args[i+1], args[i+2]) {
				return
			}
			i += 2
		case is(args[i], "setname") && left >= 1:
			if i++; !validName(args[i]) {
				s.fail(errName)
				return
			}
			s.setName(args[i])
		default:
			s.fail(fmt.Sprintf("ERR Syntax error in HELLO option '%s'", shown(args[i], 128)))
			return
		}
	}
	if !s.authed {
		s.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	s.proto = proto
	s.resp3.Store(proto == resp.RESP3)
	if proto == resp.RESP3 {
		s.openMailbox() // others may redirect their messages to it
	}
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

func clientParts() []command {
	part := func(name string, arity int, f flags, summary string, run func(*session, [][]byte)) command {
		return command{name: name, arity: arity, flags: f | whileLoading, group: "connection", summary: summary, run: run}
	}
	return []command{
		part("id", 2, 0, "Returns the unique client ID of the connection.", clientID),
		part("getname", 2, 0, "Returns the name of the connection.", clientGetname),
		part("setname", 3, 0, "Sets the connection name.", clientSetname),
		part("setinfo", 4, 0, "Sets information specific to the client's library.", clientSetinfo),
		part("info", 2, 0, "Returns information about the connection.", clientInfo),
		part("list", -2, admin, "Lists open connections.", clientList),
		part("kill", -3, admin, "Terminates open connections.", clientKill),
		part("reply", 3, 0, "Instructs the server whether to reply to commands.", clientReply),
		part("no-evict", 3, admin, "Nothing is ever evicted: the mode is taken as asked for.", clientNothing),
		part("no-touch", 3, 0, "Nothing remembers accesses: the mode is taken as asked for.", clientNothing),
		part("tracking", -3, 0, "Controls server-assisted client-side caching for the connection.", clientTracking),
		part("trackinginfo", 2, 0, "Returns information about server-assisted client-side caching for the connection.", clientTrackinginfo),
		part("caching", 3, 0, "Instructs the server whether to track the keys in the next request.", clientCaching),
		part("getredir", 2, 0, "Returns the client ID to which the connection's tracking notifications are redirected.", clientGetredir),
	}
}

func clientID(s *session, _ [][]byte) { s.integer(s.id) }

func clientGetname(s *session, _ [][]byte) {
	if n := s.name.Load(); n != nil {
		s.out = resp.AppendBulk(s.out, *n)
	} else {
		s.null()
	}
}

func clientSetname(s *session, args [][]byte) {
	if !validName(args[2]) {
		s.fail(errName)
		return
	}
	s.setName(args[2])
	s.ok()
}

func clientInfo(s *session, _ [][]byte) {
	s.out = resp.AppendVerbatim(s.out, s.proto, s.srv.clientLine(s))
}

// clientNothing is CLIENT NO-EVICT and NO-TOUCH: nothing is ever evicted, and nothing remembers when a key was touched, so both
// are as asked for.
func clientNothing(s *session, args [][]byte) {
	if !is(args[2], "on") && !is(args[2], "off") {
		s.fail(errSyntax)
		return
	}
	s.ok()
}

// clientSetinfo notes the client library's name and version.
func clientSetinfo(s *session, args [][]byte) {
	attribute, value := args[2], args[3]
	var i int
	switch {
	case is(attribute, "lib-name"):
		i = 0
	case is(attribute, "lib-ver"):
		i = 1
	default:
		s.fail("ERR Unrecognized option '" + shown(attribute, 128) + "'")
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

// clientList is CLIENT LIST [TYPE type | ID id ...].
func clientList(s *session, args [][]byte) {
	args = args[2:]
	wanted := func(*session) bool { return true }
	switch {
	case len(args) == 0:
	case is(args[0], "type") && len(args) == 2:
		var ok bool
		if wanted, ok = clientType(args[1]); !ok {
			s.fail("ERR Unknown client type '" + shown(args[1], 128) + "'")
			return
		}
	case is(args[0], "id") && len(args) > 1:
		ids := map[int64]bool{}
		for _, a := range args[1:] {
			v, ok := resp.ParseInt(a)
			if !ok {
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
	s.out = resp.AppendVerbatim(s.out, s.proto, s.srv.clientLines(s, wanted))
}

// clientReply is CLIENT REPLY ON | OFF | SKIP.
func clientReply(s *session, args [][]byte) {
	switch arg := args[2]; {
	case is(arg, "on"):
		s.mute = replyOn
		s.ok()
	case is(arg, "off"):
		s.mute = replyOff
	case is(arg, "skip"):
		if s.mute != replyOff {
			s.mute = replyNext
		}
	default:
		s.fail(errSyntax)
	}
}

// clientKill is CLIENT KILL address, or CLIENT KILL with filters (ID, ADDR, LADDR, TYPE, USER, SKIPME, MAXAGE), of which
// all have to fit.
func clientKill(s *session, args [][]byte) {
	f := killFilter{skipMe: true}
	old := len(args) == 3
	if old {
		addr := string(args[2])
		f.add(func(c *conn) bool { return c.remote.String() == addr })
		f.skipMe = false
	} else if text := f.parse(args[2:]); text != "" {
		s.fail(text)
		return
	}
	killed := s.srv.kill(func(c *conn) bool {
		if !f.fits(c) {
			return false
		}
		if c.session == s {
			if !f.skipMe {
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

// killFilter says which connections CLIENT KILL is about.
type killFilter struct {
	all    []func(*conn) bool
	skipMe bool
}

func (f *killFilter) add(fits func(*conn) bool) { f.all = append(f.all, fits) }

func (f *killFilter) fits(c *conn) bool {
	for _, fits := range f.all {
		if !fits(c) {
			return false
		}
	}
	return true
}

// parse reads filters and their values, and returns the first error.
func (f *killFilter) parse(args [][]byte) (text string) {
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			return errSyntax
		}
		value := string(args[i+1])
		text := shown(value, 128)
		switch name := args[i]; {
		case is(name, "id"):
			id, ok := resp.ParseInt(args[i+1])
			if !ok || id < 1 {
				return "ERR client-id should be greater than 0"
			}
			f.add(func(c *conn) bool { return c.session.id == id })
		case is(name, "addr"):
			f.add(func(c *conn) bool { return c.remote.String() == value })
		case is(name, "laddr"):
			f.add(func(c *conn) bool { return c.local.String() == value })
		case is(name, "type"):
			fits, ok := clientType(args[i+1])
			if !ok {
				return "ERR Unknown client type '" + text + "'"
			}
			f.add(func(c *conn) bool { return fits(c.session) })
		case is(name, "user"):
			if value != onlyUser {
				return "ERR No such user '" + text + "'"
			}
		case is(name, "maxage"):
			age, ok := resp.ParseInt(args[i+1])
			if !ok {
				return "ERR maxage is not an integer or out of range"
			}
			if age < 1 {
				return "ERR maxage should be greater than 0"
			}
			f.add(func(c *conn) bool { return time.Since(c.since).Seconds() >= float64(age) })
		case is(name, "skipme") && is(args[i+1], "yes"):
			f.skipMe = true
		case is(name, "skipme") && is(args[i+1], "no"):
			f.skipMe = false
		default:
			return errSyntax
		}
	}
	return ""
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
