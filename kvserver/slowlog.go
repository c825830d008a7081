package kvserver

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kvmark/kvserver/resp"
)

// slowCommands are the commands that took long: each in the slow log (SLOWLOG), and the longest one of every second in the latency
// monitor (LATENCY). The time is that of running the command, without what the reply then waits for: the log, the socket.
type slowCommands struct {
	from durationVar // what took less is in neither; the only thing that a command looks at that was fast

	mu      sync.Mutex
	log     []slowCommand // the newest first
	lastID  int64
	latency map[string]*latencyEvent
}

// durationVar is a duration that changes while others read it.
type durationVar struct{ v atomic.Int64 }

func (d *durationVar) Load() time.Duration   { return time.Duration(d.v.Load()) }
func (d *durationVar) Store(v time.Duration) { d.v.Store(int64(v)) }

// slowCommand is an entry of the slow log.
type slowCommand struct {
	id, unix   int64
	took       time.Duration
	args       []string
	addr, name string
}

// latencyEvent is what the latency monitor knows of one kind of commands.
type latencyEvent struct {
	samples []latencySample // the oldest first
	most    int64
}

type latencySample struct{ unix, ms int64 }

const (
	// slowArgs and slowBytes bound what is kept of a command.
	slowArgs, slowBytes = 32, 128
	// latencySamples are kept of an event.
	latencySamples = 160
)

// secretSettings are those of Redis whose values are not kept, though this server cannot set them: clients try.
var secretSettings = []string{"masterauth", "masteruser", "requirepass", "tls-client-key-file-pass", "tls-key-file-pass"}

// configure takes over the settings.
func (l *slowCommands) configure(o *settings) {
	slow, late := o.slowlogSlowerThan.Load(), o.latencyThreshold.Load()
	from := int64(math.MaxInt64)
	if slow >= 0 && slow <= math.MaxInt64/int64(time.Microsecond) {
		from = slow * int64(time.Microsecond)
	}
	if late > 0 && late <= math.MaxInt64/int64(time.Millisecond) {
		from = min(from, late*int64(time.Millisecond))
	}
	l.from.Store(time.Duration(from))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim(o.slowlogMaxLen.Load())
}

func (l *slowCommands) trim(most int64) {
	if int64(len(l.log)) > most {
		l.log = slices.Delete(l.log, int(most), len(l.log))
	}
}

// noteSlow keeps a command that took long.
func (s *session) noteSlow(c *command, args [][]byte, took time.Duration) {
	l, o, now := &s.srv.slowCommands, &s.srv.settings, time.Now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	if late := o.latencyThreshold.Load(); late > 0 && took.Milliseconds() >= late {
		event := "command"
		if c.flags&fast != 0 {
			event = "fast-command"
		}
		l.addLatency(event, latencySample{now, took.Milliseconds()})
	}
	slow := o.slowlogSlowerThan.Load()
	if slow < 0 || took.Microseconds() < slow || c.name == "exec" { // whose commands are noted themselves
		return
	}
	e := slowCommand{id: l.lastID, unix: now, took: took, args: kept32(c, args)}
	l.lastID++
	if n := s.name.Load(); n != nil {
		e.name = *n
	}
	if s.conn != nil {
		e.addr = s.conn.remote.String()
	}
	l.log = slices.Insert(l.log, 0, e)
	l.trim(o.slowlogMaxLen.Load())
}

// kept32 returns the arguments as the slow log keeps them, without passwords.
func kept32(c *command, args [][]byte) []string {
	secret := func(i int) bool {
		if c.name == "auth" {
			return i > 0
		}
		if c.name == "config|set" {
			return i > 2 && i%2 == 1 && slices.ContainsFunc(secretSettings, func(name string) bool { return is(args[i-1], name) })
		}
		return c.name == "hello" && (i > 1 && is(args[i-1], "auth") || i > 2 && is(args[i-2], "auth"))
	}
	var text []string
	for i, a := range args {
		switch {
		case i == slowArgs-1 && len(args) > slowArgs:
			return append(text, fmt.Sprintf("... (%d more arguments)", len(args)-i))
		case secret(i):
			text = append(text, "(redacted)")
		case len(a) > slowBytes:
			text = append(text, string(a[:slowBytes])+fmt.Sprintf("... (%d more bytes)", len(a)-slowBytes))
		default:
			text = append(text, string(a))
		}
	}
	return text
}

// addLatency keeps a sample. Those of one second are one, the longest.
func (l *slowCommands) addLatency(event string, v latencySample) {
	if l.latency == nil {
		l.latency = map[string]*latencyEvent{}
	}
	e := l.latency[event]
	if e == nil {
		e = &latencyEvent{}
		l.latency[event] = e
	}
	e.most = max(e.most, v.ms)
	if n := len(e.samples); n > 0 && e.samples[n-1].unix == v.unix {
		e.samples[n-1].ms = max(e.samples[n-1].ms, v.ms)
		return
	}
	if e.samples = append(e.samples, v); len(e.samples) > latencySamples {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
}

func slowlogParts() []command {
	return []command{
		{name: "get", arity: -2, flags: admin | whileLoading, group: "server", summary: "Returns the slow log's entries.", run: slowlogGet},
		{name: "len", arity: 2, flags: admin | whileLoading, group: "server", summary: "Returns the number of entries in the slow log.", run: slowlogLen},
		{name: "reset", arity: 2, flags: admin | whileLoading, group: "server", summary: "Clears all entries from the slow log.", run: slowlogReset},
	}
}

// slowlogGet is SLOWLOG GET [count].
func slowlogGet(s *session, args [][]byte) {
	count := int64(10)
	if len(args) > 3 {
		s.fail(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%s'. Try SLOWLOG HELP.", args[1]))
		return
	}
	if len(args) == 3 {
		v, ok := resp.ParseInt(args[2])
		if !ok || v < -1 {
			s.fail("ERR count should be greater than or equal to -1")
			return
		}
		count = v
	}
	l := &s.srv.slowCommands
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.log
	if count >= 0 {
		list = list[:min(count, int64(len(list)))]
	}
	s.out = resp.AppendArray(s.out, len(list))
	for _, e := range list {
		s.out = resp.AppendArray(s.out, 6)
		s.integer(e.id)
		s.integer(e.unix)
		s.integer(e.took.Microseconds())
		s.out = resp.AppendArray(s.out, len(e.args))
		for _, a := range e.args {
			s.out = resp.AppendBulk(s.out, a)
		}
		s.out = resp.AppendBulk(s.out, e.addr)
		s.out = resp.AppendBulk(s.out, e.name)
	}
}

func slowlogLen(s *session, _ [][]byte) {
	l := &s.srv.slowCommands
	l.mu.Lock()
	defer l.mu.Unlock()
	s.integer(int64(len(l.log)))
}

func slowlogReset(s *session, _ [][]byte) {
	l := &s.srv.slowCommands
	l.mu.Lock()
	l.log = nil
	l.mu.Unlock()
	s.ok()
}

func latencyParts() []command {
	return []command{
		{name: "latest", arity: 2, flags: admin | whileLoading, group: "server", summary: "Returns the latest latency samples for all events.", run: latencyLatest},
		{name: "history", arity: 3, flags: admin | whileLoading, group: "server", summary: "Returns timestamp-latency samples for an event.", run: latencyHistory},
		{name: "reset", arity: -2, flags: admin | whileLoading, group: "server", summary: "Resets the latency data of one or more events.", run: latencyReset},
	}
}

func latencyLatest(s *session, _ [][]byte) {
	l := &s.srv.slowCommands
	l.mu.Lock()
	defer l.mu.Unlock()
	s.out = resp.AppendArray(s.out, len(l.latency))
	for _, name := range slices.Sorted(maps.Keys(l.latency)) {
		e := l.latency[name]
		last := e.samples[len(e.samples)-1]
		s.out = resp.AppendArray(s.out, 4)
		s.out = resp.AppendBulk(s.out, name)
		s.integer(last.unix)
		s.integer(last.ms)
		s.integer(e.most)
	}
}

func latencyHistory(s *session, args [][]byte) {
	l := &s.srv.slowCommands
	l.mu.Lock()
	defer l.mu.Unlock()
	var samples []latencySample
	if e := l.latency[string(args[2])]; e != nil {
		samples = e.samples
	}
	s.out = resp.AppendArray(s.out, len(samples))
	for _, v := range samples {
		s.out = resp.AppendArray(s.out, 2)
		s.integer(v.unix)
		s.integer(v.ms)
	}
}

// latencyReset is LATENCY RESET [event ...].
func latencyReset(s *session, args [][]byte) {
	l := &s.srv.slowCommands
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.latency)
	if len(args) == 2 {
		clear(l.latency)
	}
	for _, name := range args[2:] {
		delete(l.latency, string(name))
	}
	s.integer(int64(n - len(l.latency)))
}
