package kvserver

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"kvmark/kvserver/resp"
	"kvmark/wal/entry"
)

// tracking is who keeps copies of which values (CLIENT TRACKING), so that those are told when one changes.
//
//	read     a key is noted with the client that is about to read it, so that no change comes between
//	write    once it is applied, who is noted for the key is told, and noted no more
//
// Clients with BCAST are told of every change of a key with one of their prefixes instead. Messages go through the mailbox, as those of Pub/Sub do.
// The table holds at most max keys: one that is too many is thrown out as if it had changed.
type tracking struct {
	max atomic.Int64 // keys; 0 = any number

	mu       sync.Mutex
	clients  map[int64]*tracked
	keys     map[string][]int64 // ids in ascending order
	items    int                // ids in keys
	prefixes map[string][]*tracked
}

// tracked is a client with tracking on. All but caching changes with tracking.mu held.
type tracked struct {
	*session
	to                           *session // told instead of it; nil = none
	bcast, optin, optout, noloop bool
	broken                       bool // to is gone
	prefixes                     []string
	caching                      bool // CLIENT CACHING was said of the next command
}

// defaultTrackedKeys is how many keys the table holds, as in Redis.
const defaultTrackedKeys = 1_000_000

func newTracking() *tracking {
	t := &tracking{clients: map[int64]*tracked{}, keys: map[string][]int64{}, prefixes: map[string][]*tracked{}}
	t.max.Store(defaultTrackedKeys)
	return t
}

// trackingSize is how much there is to track.
type trackingSize struct{ clients, keys, items, prefixes int }

func (t *tracking) size() trackingSize {
	t.mu.Lock()
	defer t.mu.Unlock()
	return trackingSize{len(t.clients), len(t.keys), t.items, len(t.prefixes)}
}

// clientTracking is CLIENT TRACKING ON | OFF [REDIRECT id] [BCAST] [PREFIX prefix ...] [OPTIN] [OPTOUT] [NOLOOP].
func clientTracking(s *session, args [][]byte) {
	var t tracked
	for i := 3; i < len(args); i++ {
		switch next := i+1 < len(args); {
		case is(args[i], "redirect") && next:
			i++
			if t.to != nil {
				s.fail("ERR A client can only redirect to a single other client")
				return
			}
			id, ok := resp.ParseInt(args[i])
			if !ok {
				s.fail(errInteger)
				return
			}
			if t.to = s.srv.sessionOf(id); t.to == nil {
				s.fail("ERR The client ID you want redirect to does not exist")
				return
			}
		case is(args[i], "bcast"):
			t.bcast = true
		case is(args[i], "optin"):
			t.optin = true
		case is(args[i], "optout"):
			t.optout = true
		case is(args[i], "noloop"):
			t.noloop = true
		case is(args[i], "prefix") && next:
			i++
			t.prefixes = append(t.prefixes, string(args[i]))
		default:
			s.fail(errSyntax)
			return
		}
	}
	switch {
	case is(args[2], "on"):
		if text := t.conflict(s.track); text != "" {
			s.fail(text)
			return
		}
		s.trackOn(&t)
	case is(args[2], "off"):
		s.trackOff()
	default:
		s.fail(errSyntax)
		return
	}
	s.ok()
}

// sessionOf returns a connected client's session, nil if there is none.
func (srv *Server) sessionOf(id int64) *session {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if c := srv.conns[id]; c != nil {
		return c.session
	}
	return nil
}

// conflict returns why tracking cannot be turned on as asked for, old being how it is on already.
func (t *tracked) conflict(old *tracked) string {
	switch {
	case !t.bcast && len(t.prefixes) > 0:
		return "ERR PREFIX option requires BCAST mode to be enabled"
	case old != nil && old.bcast != t.bcast:
		return "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode."
	case t.bcast && (t.optin || t.optout):
		return "ERR OPTIN and OPTOUT are not compatible with BCAST"
	case t.optin && t.optout:
		return "ERR You can't specify both OPTIN mode and OPTOUT mode"
	case old != nil && (t.optin && old.optout || t.optout && old.optin):
		return "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode."
	}
	overlap := func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }
	for i, p := range t.prefixes {
		if old != nil {
			for _, q := range old.prefixes {
				if overlap(p, q) {
					return "ERR Prefix '" + p + "' overlaps with an existing prefix '" + q + "'. Prefixes for a single client must not overlap."
				}
			}
		}
		for _, q := range t.prefixes[i+1:] {
			if overlap(p, q) {
				return "ERR Prefix '" + p + "' overlaps with another provided prefix '" + q + "'. Prefixes for a single client must not overlap."
			}
		}
	}
	return ""
}

// trackOn turns tracking on, or changes how it is. Prefixes come on top of those that there are.
func (s *session) trackOn(t *tracked) {
	s.openMailbox()
	reg := s.db.observers.tracking
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if s.track == nil {
		s.track = &tracked{session: s}
		reg.clients[s.id] = s.track
		s.db.observers.count.Add(1)
	}
	now := s.track
	now.to, now.bcast, now.optin, now.optout, now.noloop, now.broken = t.to, t.bcast, t.optin, t.optout, t.noloop, false
	now.caching = false
	if t.bcast && len(t.prefixes) == 0 && len(now.prefixes) == 0 {
		t.prefixes = []string{""} // all keys
	}
	for _, p := range t.prefixes {
		reg.prefixes[p] = append(reg.prefixes[p], now)
	}
	now.prefixes = append(now.prefixes, t.prefixes...)
	slices.Sort(now.prefixes)
	s.redirect.Store(redirection(now))
}

// redirection is what CLIENT LIST shows: -1 without tracking, 0 without a redirection.
func redirection(t *tracked) int64 {
	switch {
	case t == nil:
		return -1
	case t.to == nil:
		return 0
	}
	return t.to.id
}

// trackOff turns tracking off. Keys that the client is noted for are left to time.
func (s *session) trackOff() {
	if s.track == nil {
		return
	}
	reg := s.db.observers.tracking
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, p := range s.track.prefixes {
		list := slices.DeleteFunc(reg.prefixes[p], func(t *tracked) bool { return t == s.track })
		if reg.prefixes[p] = list; len(list) == 0 {
			delete(reg.prefixes, p)
		}
	}
	delete(reg.clients, s.id)
	if len(reg.clients) == 0 {
		clear(reg.keys)
		reg.items = 0
	}
	s.track = nil
	s.redirect.Store(-1)
	s.db.observers.count.Add(-1)
}

// trackReads notes the keys that a command is about to read. REQUIRES: s.track is not nil.
func (s *session) trackReads(c *command, args [][]byte) {
	t := s.track
	if c.flags&readonly == 0 || t.bcast || t.optin && !t.caching || t.optout && t.caching {
		return
	}
	reg := s.db.observers.tracking
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for key := range c.keys(args) {
		ids := reg.keys[string(key)]
		at, found := slices.BinarySearch(ids, s.id)
		if found {
			continue
		}
		reg.keys[string(key)] = slices.Insert(ids, at, s.id)
		reg.items++
	}
	for most := reg.max.Load(); most > 0 && int64(len(reg.keys)) > most; {
		for key := range reg.keys { // any
			reg.invalidate(s, []byte(key), true)
			break
		}
	}
}

// endCaching forgets CLIENT CACHING after the command that it was said of. A transaction is one.
func (s *session) endCaching(c *command) {
	if s.tx == nil && (c == nil || !strings.HasPrefix(c.name, "client|")) {
		s.track.caching = false
	}
}

// changed tells of the changes of a record.
func (t *tracking) changed(by *session, payload []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.clients) == 0 {
		return
	}
	broadcast := map[string][][]byte{} // by prefix
	_ = entry.Decode(payload, func(e entry.Entry) error {
		if e.Op == entry.Clear {
			clear(t.keys)
			t.items = 0
			for _, id := range slices.Sorted(maps.Keys(t.clients)) {
				t.send(by, t.clients[id], nil)
			}
			return nil
		}
		t.invalidate(by, e.Key, false)
		for p := range t.prefixes {
			if strings.HasPrefix(string(e.Key), p) && !slices.ContainsFunc(broadcast[p], func(k []byte) bool { return string(k) == string(e.Key) }) {
				broadcast[p] = append(broadcast[p], e.Key)
			}
		}
		return nil
	})
	for p, keys := range broadcast {
		for _, c := range t.prefixes[p] {
			if !c.noloop || c.session != by {
				t.send(by, c, keys)
			}
		}
	}
}

// invalidate tells those who are noted for a key, and notes them no more. evicted: the key has not changed, so there is no
// client that need not be told because it has changed it.
func (t *tracking) invalidate(by *session, key []byte, evicted bool) {
	ids := t.keys[string(key)]
	if len(ids) == 0 {
		return
	}
	delete(t.keys, string(key))
	t.items -= len(ids)
	for _, id := range ids {
		c := t.clients[id]
		if c == nil || c.bcast || c.noloop && c.session == by && !evicted {
			continue
		}
		t.send(by, c, [][]byte{key})
	}
}

// send tells a client that keys have changed; none = all.
func (t *tracking) send(by *session, c *tracked, keys [][]byte) {
	to := c.session
	if c.to != nil {
		if c.to.over.Load() {
			if c.broken = true; c.resp3.Load() {
				text := resp.AppendBulk(resp.AppendPush(nil, resp.RESP3, 2), "tracking-redir-broken")
				by.tell(to, resp.AppendInt(text, c.to.id))
			}
			return
		}
		to = c.to
	}
	var text []byte
	proto := resp.RESP3
	switch {
	case to.resp3.Load():
		text = resp.AppendBulk(resp.AppendPush(nil, proto, 2), "invalidate")
	case to != c.session && to.subscribes():
		proto = resp.RESP2
		text = resp.AppendBulk(resp.AppendPush(nil, resp.RESP3, 3), "message") // its first byte becomes that of an array
		text = resp.AppendBulk(text, "__redis__:invalidate")
	default:
		return // RESP2 knows no messages beside replies
	}
	if keys == nil {
		text = resp.AppendNull(text, proto)
	} else {
		text = resp.AppendArray(text, len(keys))
		for _, k := range keys {
			text = resp.AppendBulk(text, k)
		}
	}
	by.tell(to, text)
}

// tell sends a message, given as RESP3 has it, to a session: behind the reply of the command that runs if it is s itself.
// s nil: the server sends it.
func (s *session) tell(to *session, message []byte) {
	if to == s {
		s.pushes = append(s.pushes, firstByte(s.proto))
		s.pushes = append(s.pushes, message[1:]...)
		return
	}
	b := to.mailbox.Load()
	if b == nil || !b.put(message) {
		return
	}
	switch {
	case s != nil:
		s.subs.receivers = append(s.subs.receivers, to)
	case to.conn == nil:
	case b.slow.Load():
		to.conn.link.abort()
	default:
		to.conn.link.deliver()
	}
}

// sendPushes appends the messages that the running command caused for its own client.
func (s *session) sendPushes() {
	s.out = append(s.out, s.pushes...)
	s.pushes = kept(s.pushes)
}

// clientTrackinginfo is CLIENT TRACKINGINFO.
func clientTrackinginfo(s *session, _ [][]byte) {
	flags, prefixes := []string{"off"}, []string(nil)
	if t := s.track; t != nil {
		reg := s.db.observers.tracking
		reg.mu.Lock()
		flags, prefixes = []string{"on"}, slices.Clone(t.prefixes)
		for _, f := range []struct {
			set  bool
			name string
		}{
			{t.bcast, "bcast"},
			{t.optin, "optin"},
			{t.optin && t.caching, "caching-yes"},
			{t.optout, "optout"},
			{t.optout && t.caching, "caching-no"},
			{t.noloop, "noloop"},
			{t.broken, "broken_redirect"},
		} {
			if f.set {
				flags = append(flags, f.name)
			}
		}
		reg.mu.Unlock()
	}
	s.out = resp.AppendMap(s.out, s.proto, 3)
	s.out = resp.AppendBulk(s.out, "flags")
	s.out = resp.AppendSet(s.out, s.proto, len(flags))
	for _, f := range flags {
		s.out = resp.AppendBulk(s.out, f)
	}
	s.out = resp.AppendBulk(s.out, "redirect")
	s.integer(redirection(s.track))
	s.out = resp.AppendBulk(s.out, "prefixes")
	s.out = resp.AppendArray(s.out, len(prefixes))
	for _, p := range prefixes {
		s.out = resp.AppendBulk(s.out, p)
	}
}

// clientCaching is CLIENT CACHING YES | NO.
func clientCaching(s *session, args [][]byte) {
	t := s.track
	switch yes, no := is(args[2], "yes"), is(args[2], "no"); {
	case t == nil:
		s.fail("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
	case yes && !t.optin:
		s.fail("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
	case no && !t.optout:
		s.fail("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
	case !yes && !no:
		s.fail(errSyntax)
	default:
		t.caching = true
		s.ok()
	}
}

func clientGetredir(s *session, _ [][]byte) { s.integer(redirection(s.track)) }
