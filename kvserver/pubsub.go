package kvserver

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"kvmark/kvserver/resp"
)

// pubsub is who listens to what. A message goes through it in three steps:
//
//	publish   the publisher's goroutine encodes the message once and appends it to the mailbox of every receiver
//	spread    when it has run what its client sent, it lets the link of each such receiver know, once however many messages came
//	collect   the receiver's link sends all that its mailbox holds with one write(2)
//
// Appending copies the message, which writev(2) on shared bytes would not; but the kernel copies it anyway, and the two took
// the same time up to 4 KiB, batches of 1 and 16, and within the noise of a fifth at 64 KiB (go1.26.8, 2 cores, loopback).
//
// so fan-out costs a system call per receiver and batch, not per message, and nobody waits for a slow receiver: one whose
// mailbox overflows is cut off. All receivers of a channel get its messages in the same order.
//
// Locks are taken in the order pubsub.mu, audience.mu, mailbox.mu.
type pubsub struct {
	mu       sync.RWMutex
	channels map[string]*audience
	patterns map[string]*audience
	ordered  []*audience   // of patterns, the oldest first
	cutOff   atomic.Uint64 // receivers that did not keep up, and clients that took none of their replies
	output   atomic.Uint64 // bytes that publishers wrote to receivers themselves
}

// audience is the sessions that listen to a channel, or a pattern.
type audience struct {
	name    []byte
	mu      sync.Mutex // held while a message is handed out, so that all get messages in one order
	members []*session // changes with pubsub.mu held for writing
}

func newPubsub() *pubsub {
	return &pubsub{channels: map[string]*audience{}, patterns: map[string]*audience{}}
}

// join makes a session one of an audience.
func (p *pubsub) join(k kindOf, name string, s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := k.all(p)
	a := all[name]
	if a == nil {
		a = &audience{name: []byte(name)}
		all[name] = a
		if k.patterns {
			p.ordered = append(p.ordered, a)
		}
	}
	a.members = append(a.members, s)
}

// part is the inverse of join. An empty audience is forgotten.
func (p *pubsub) part(k kindOf, name string, s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := k.all(p)
	a := all[name]
	i := slices.Index(a.members, s)
	a.members = slices.Delete(a.members, i, i+1)
	if len(a.members) > 0 {
		return
	}
	delete(all, name)
	if k.patterns {
		i := slices.Index(p.ordered, a)
		p.ordered = slices.Delete(p.ordered, i, i+1)
	}
}

// size is how many channels and patterns somebody listens to.
func (p *pubsub) size() (channels, patterns int) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.channels), len(p.patterns)
}

// subscriptions are what one session listens to.
type subscriptions struct {
	channels, patterns map[string]struct{}
	receivers          []*session
	message            []byte // being published
}

func (s *subscriptions) count() int { return len(s.channels) + len(s.patterns) }

// listens reports whether the session is in the state in which RESP2 has no ordinary replies.
func (s *session) listens() bool { return s.proto == resp.RESP2 && s.subs.count() > 0 }

// errListens is what a command is answered that a RESP2 connection may not send while it listens.
func errListens(c *command) string {
	return "ERR Can't execute '" + c.name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
}

// kindOf is what subscribing to channels and to patterns does not share.
type kindOf struct {
	patterns               bool
	subscribe, unsubscribe string
	mine                   func(*subscriptions) *map[string]struct{}
	all                    func(*pubsub) map[string]*audience
}

func channelKind() kindOf {
	return kindOf{
		false, "subscribe", "unsubscribe",
		func(s *subscriptions) *map[string]struct{} { return &s.channels },
		func(p *pubsub) map[string]*audience { return p.channels },
	}
}

func patternKind() kindOf {
	return kindOf{
		true, "psubscribe", "punsubscribe",
		func(s *subscriptions) *map[string]struct{} { return &s.patterns },
		func(p *pubsub) map[string]*audience { return p.patterns },
	}
}

func subscribeCommand(s *session, args [][]byte)    { s.subscribe(channelKind(), args[1:]) }
func psubscribeCommand(s *session, args [][]byte)   { s.subscribe(patternKind(), args[1:]) }
func unsubscribeCommand(s *session, args [][]byte)  { s.unsubscribe(channelKind(), args[1:]) }
func punsubscribeCommand(s *session, args [][]byte) { s.unsubscribe(patternKind(), args[1:]) }

func (s *session) subscribe(k kindOf, names [][]byte) {
	s.openMailbox()
	mine := k.mine(&s.subs)
	if *mine == nil {
		*mine = map[string]struct{}{}
	}
	for _, name := range names {
		if _, ok := (*mine)[string(name)]; !ok {
			name := string(name)
			(*mine)[name] = struct{}{}
			s.srv.pubsub.join(k, name, s)
		}
		s.confirm(k.subscribe, name)
	}
	s.noteSubscriptions()
}

// openMailbox lets others send the session messages.
func (s *session) openMailbox() {
	if s.mailbox.Load() == nil {
		s.mailbox.Store(newMailbox(s.srv, s.proto))
	}
}

func (s *session) unsubscribe(k kindOf, names [][]byte) {
	mine := *k.mine(&s.subs)
	if len(names) == 0 {
		for _, name := range slices.Sorted(maps.Keys(mine)) {
			names = append(names, []byte(name))
		}
	}
	for _, name := range names {
		if _, ok := mine[string(name)]; ok {
			s.leave(k, string(name))
			s.collect() // what was published before the end is sent before the word of it
		}
		s.confirm(k.unsubscribe, name)
	}
	if len(names) == 0 {
		s.confirm(k.unsubscribe, nil)
	}
	s.noteSubscriptions()
}

func (s *session) leave(k kindOf, name string) {
	delete(*k.mine(&s.subs), name)
	s.srv.pubsub.part(k, name, s)
}

// noteSubscriptions lets others see how many there are.
func (s *session) noteSubscriptions() {
	s.subscribed.Store(int32(len(s.subs.channels)))
	s.psubscribed.Store(int32(len(s.subs.patterns)))
}

// leaveAll ends all subscriptions without a word.
func (s *session) leaveAll() {
	for _, k := range []kindOf{channelKind(), patternKind()} {
		for name := range *k.mine(&s.subs) {
			s.leave(k, name)
		}
	}
	s.noteSubscriptions()
}

// quitPubsub ends what a session that is over has to do with others.
func (s *session) quitPubsub() {
	s.leaveAll()
	if b := s.mailbox.Load(); b != nil {
		b.close()
	}
}

// confirm tells of a subscription made or ended; name nil: there was none to end.
func (s *session) confirm(what string, name []byte) {
	s.out = resp.AppendPush(s.out, s.proto, 3)
	s.out = resp.AppendBulk(s.out, what)
	if name == nil {
		s.null()
	} else {
		s.out = resp.AppendBulk(s.out, name)
	}
	s.integer(int64(s.subs.count()))
	s.start = len(s.out) // it goes out whatever CLIENT REPLY says
}

// publishCommand is PUBLISH channel message.
func publishCommand(s *session, args [][]byte) {
	channel, text := args[1], args[2]
	// What no mailbox can hold would only cut the receivers off.
	if len(channel)+len(text) > freeBytes {
		if size := messageBytes(channel, text); size > s.srv.opts.MaxMailbox && s.heard(channel) {
			s.fail(fmt.Sprintf("ERR message of %d bytes; at most %d may wait for a subscriber (--max-mailbox)", size, s.srv.opts.MaxMailbox))
			return
		}
	}
	p := s.srv.pubsub
	n := 0
	p.mu.RLock()
	if a := p.channels[string(channel)]; a != nil {
		s.subs.message = appendMessage(s.subs.message[:0], "message", nil, channel, text)
		n += s.hand(a)
	}
	for _, a := range p.ordered {
		// To Redis, the channel without a name matches no pattern, not even *.
		if (len(channel) > 0 || len(a.name) == 0) && glob(a.name, channel, false) {
			s.subs.message = appendMessage(s.subs.message[:0], "pmessage", a.name, channel, text)
			n += s.hand(a)
		}
	}
	p.mu.RUnlock()
	if cap(s.subs.message) > freeBytes {
		s.subs.message = nil
	}
	s.integer(int64(n))
}

// messageBytes is how long a message is, with its frame and without a pattern.
func messageBytes(channel, text []byte) int {
	return len(appendMessage(nil, "message", nil, channel, nil)) + len(text) + len(strconv.Itoa(len(text))) - 1
}

// heard reports whether anybody else listens to a channel.
func (s *session) heard(channel []byte) bool {
	p := s.srv.pubsub
	p.mu.RLock()
	defer p.mu.RUnlock()
	others := func(a *audience) bool { return len(a.members) > 1 || a.members[0] != s }
	if a := p.channels[string(channel)]; a != nil && others(a) {
		return true
	}
	return slices.ContainsFunc(p.ordered, func(a *audience) bool {
		return (len(channel) > 0 || len(a.name) == 0) && glob(a.name, channel, false) && others(a)
	})
}

// appendMessage appends a message as RESP3 has it. RESP2 differs in the first byte only.
func appendMessage(dst []byte, kind string, pattern, channel, text []byte) []byte {
	n := 3
	if pattern != nil {
		n = 4
	}
	dst = resp.AppendPush(dst, resp.RESP3, n)
	dst = resp.AppendBulk(dst, kind)
	if pattern != nil {
		dst = resp.AppendBulk(dst, pattern)
	}
	dst = resp.AppendBulk(dst, channel)
	return resp.AppendBulk(dst, text)
}

// hand gives the message to an audience and returns its number. REQUIRES: pubsub.mu is held.
func (s *session) hand(a *audience) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, to := range a.members {
		if to == s {
			if s.staged != nil {
				s.tell(s, s.subs.message)
				continue
			}
			// It hears itself before it hears to how many it spoke.
			s.collect()
			s.out = append(s.out, firstByte(s.proto))
			s.out = append(s.out, s.subs.message[1:]...)
			s.start = len(s.out)
			continue
		}
		if to.mailbox.Load().put(s.subs.message) {
			s.subs.receivers = append(s.subs.receivers, to)
		}
	}
	return len(a.members)
}

func firstByte(v resp.Proto) byte {
	if v == resp.RESP3 {
		return resp.Push
	}
	return resp.Array
}

// spread lets the links of those know for whom something was published since the last call. Whoever moves the bytes calls
// it after run. near, if not nil, is asked first, and reports whether it has seen to it.
func (s *session) spread(near func(link) bool) {
	if len(s.subs.receivers) == 0 {
		return
	}
	for _, to := range s.subs.receivers {
		c := to.conn
		switch {
		case c == nil: // a session without a connection
		case to.mailbox.Load().slow.Load():
			c.link.abort()
		case near == nil || !near(c.link):
			c.link.deliver()
		}
	}
	clear(s.subs.receivers)
	s.subs.receivers = s.subs.receivers[:0]
}

// collect moves what the mailbox holds behind the replies. It reports whether there was something.
func (s *session) collect() bool { return s.collectMessages(true) }

// collectNext is collect for the oldest messages only: as many as can be sent without copying them.
func (s *session) collectNext() bool { return s.collectMessages(false) }

func (s *session) collectMessages(everything bool) bool {
	b := s.mailbox.Load()
	if b == nil || s.staged != nil { // the reply to EXEC comes first
		return false
	}
	atStart := len(s.out) == s.start
	var got bool
	s.out, got = b.take(s.out, s.proto, everything)
	if atStart {
		s.start = len(s.out) // no reply of the command that runs
	}
	if got && len(s.out) > freeBytes {
		s.holdAll() // what the budget has no room for is bounded by the mailbox
	}
	return got
}

func pubsubParts() []command {
	return []command{
		{name: "channels", arity: -2, flags: messaging | whileLoading, group: "pubsub", summary: "Returns the active channels.", run: pubsubChannels},
		{name: "numsub", arity: -2, flags: messaging | whileLoading, group: "pubsub", summary: "Returns a count of subscribers to channels.", run: pubsubNumsub},
		{name: "numpat", arity: 2, flags: messaging | whileLoading, group: "pubsub", summary: "Returns a count of unique pattern subscriptions.", run: pubsubNumpat},
	}
}

// pubsubChannels is PUBSUB CHANNELS [pattern].
func pubsubChannels(s *session, args [][]byte) {
	if len(args) > 3 {
		s.fail(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%s'. Try PUBSUB HELP.", args[1]))
		return
	}
	p := s.srv.pubsub
	var found []string
	p.mu.RLock()
	for name := range p.channels {
		if len(args) == 2 || glob(args[2], []byte(name), false) {
			found = append(found, name)
		}
	}
	p.mu.RUnlock()
	slices.Sort(found)
	s.out = resp.AppendArray(s.out, len(found))
	for _, name := range found {
		s.out = resp.AppendBulk(s.out, name)
	}
}

// pubsubNumsub is PUBSUB NUMSUB [channel ...].
func pubsubNumsub(s *session, args [][]byte) {
	p := s.srv.pubsub
	s.out = resp.AppendArray(s.out, 2*(len(args)-2))
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, name := range args[2:] {
		n := 0
		if a := p.channels[string(name)]; a != nil {
			n = len(a.members)
		}
		s.out = resp.AppendBulk(s.out, name)
		s.integer(int64(n))
	}
}

func pubsubNumpat(s *session, _ [][]byte) {
	_, patterns := s.srv.pubsub.size()
	s.integer(int64(patterns))
}
