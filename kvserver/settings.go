package kvserver

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"kvmark/kvserver/resp"
	"kvmark/wal"
)

// settings are the options that CONFIG SET changes while the server runs.
type settings struct {
	maxClients, minFree, checkpointBytes atomic.Int64
	idleTimeout, writeTimeout            atomic.Int64 // nanoseconds

	slowlogSlowerThan, slowlogMaxLen atomic.Int64 // microseconds, -1 = off; entries
	latencyThreshold                 atomic.Int64 // milliseconds, 0 = off
}

func (l *settings) init(o *Options) {
	l.maxClients.Store(int64(o.MaxClients))
	l.minFree.Store(o.MinFree)
	l.checkpointBytes.Store(max(0, o.CheckpointBytes))
	l.idleTimeout.Store(int64(o.IdleTimeout))
	l.writeTimeout.Store(int64(o.WriteTimeout))
	l.slowlogSlowerThan.Store(10_000)
	l.slowlogMaxLen.Store(128)
}

// parameter is one that CONFIG knows: those of Redis that tools ask for, and this server's own under the names of its flags.
type parameter struct {
	name, value string
	set         *atomic.Int64 // nil = not while the server runs
	unit        int64         // of what is set
	least, most int64         // most 0 = as much as fits
}

func (srv *Server) parameters() []parameter {
	fsync := map[wal.Policy]string{wal.Buffered: "no", wal.OS: "no", wal.Interval: "everysec", wal.Always: "always"}
	o, live := &srv.opts, &srv.settings
	fixed := func(name, value string) parameter { return parameter{name: name, value: value} }
	number := func(name string, set *atomic.Int64, unit, least, most int64) parameter {
		return parameter{name, strconv.FormatInt(set.Load()/unit, 10), set, unit, least, most}
	}
	return []parameter{
		fixed("appendfsync", fsync[o.WALPolicy]),
		fixed("appendonly", "yes"),
		number("checkpoint-bytes", &live.checkpointBytes, 1, 0, 0),
		fixed("databases", "1"),
		fixed("dir", o.Dir),
		number("maxclients", &live.maxClients, 1, 1, math.MaxUint32),
		number("latency-monitor-threshold", &live.latencyThreshold, 1, 0, math.MaxInt64),
		fixed("maxmemory", "0"),
		fixed("maxmemory-policy", "noeviction"),
		number("min-free", &live.minFree, 1, 0, 0),
		fixed("port", strconv.Itoa(srv.port())),
		fixed("proto-max-bulk-len", strconv.Itoa(o.MaxValue)),
		fixed("save", ""),
		number("slowlog-log-slower-than", &live.slowlogSlowerThan, 1, -1, math.MaxInt64),
		number("slowlog-max-len", &live.slowlogMaxLen, 1, 0, math.MaxInt64),
		number("timeout", &live.idleTimeout, int64(time.Second), 0, math.MaxInt32),
		number("tracking-table-max-keys", &srv.db.observers.tracking.max, 1, 0, math.MaxInt64),
		number("write-timeout", &live.writeTimeout, int64(time.Second), 1, 0),
	}
}

func configParts() []command {
	return []command{
		{name: "get", arity: -3, flags: admin | whileLoading, group: "server", summary: "Returns the effective values of configuration parameters.", run: configGet},
		{name: "set", arity: -4, flags: admin | whileLoading, group: "server", summary: "Sets configuration parameters in-flight.", run: configSet},
		{name: "resetstat", arity: 2, flags: admin | whileLoading, group: "server", summary: "Resets the server's statistics.", run: configResetstat},
	}
}

func configResetstat(s *session, _ [][]byte) {
	s.srv.resetStats()
	s.ok()
}

// configGet is CONFIG GET pattern [pattern ...].
func configGet(s *session, args [][]byte) {
	patterns := args[2:]
	var found [][2]string
	for _, p := range s.srv.parameters() {
		for _, pattern := range patterns {
			if glob(pattern, []byte(p.name), true) {
				name := p.name
				if is(pattern, name) {
					name = string(pattern) // a name comes back as it was asked for
				}
				found = append(found, [2]string{name, p.value})
				break
			}
		}
	}
	s.out = resp.AppendMap(s.out, s.proto, len(found))
	for _, p := range found {
		s.out = resp.AppendBulk(s.out, p[0])
		s.out = resp.AppendBulk(s.out, p[1])
	}
}

// configSet is CONFIG SET name value [name value ...]. It sets all of the parameters, or none.
func configSet(s *session, args [][]byte) {
	if len(args)%2 != 0 {
		s.fail(errSyntax)
		return
	}
	pairs := args[2:]
	found := s.settable(pairs)
	if found == nil {
		return
	}
	values := make([]int64, len(found))
	for i, p := range found {
		var why string
		if values[i], why = s.srv.allowed(p, pairs[2*i+1]); why != "" {
			s.refuseSetting(p.name, why)
			return
		}
	}
	for i, p := range found {
		p.set.Store(values[i] * p.unit)
	}
	s.srv.slowCommands.configure(&s.srv.settings)
	if !s.loading { // otherwise the end of loading does
		_ = s.srv.space.poll()
	}
	s.ok()
}

func (s *session) refuseSetting(name, why string) {
	s.fail(fmt.Sprintf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", name, why))
}

// settable returns the parameters that the pairs name, or replies that one of them cannot be set. An unknown one comes first;
// of the others the first one is named.
func (s *session) settable(pairs [][]byte) (found []parameter) {
	known := map[string]parameter{}
	for _, p := range s.srv.parameters() {
		known[p.name] = p
	}
	seen := map[string]bool{}
	var name, why string
	for i := 0; i < len(pairs); i += 2 {
		p, ok := known[strings.ToLower(string(pairs[i]))]
		if !ok {
			s.fail(fmt.Sprintf("ERR Unknown option or number of arguments for CONFIG SET - '%s'", shown(pairs[i], 128)))
			return nil
		}
		switch {
		case why != "":
		case p.set == nil:
			name, why = p.name, "can't set immutable config"
		case seen[p.name]:
			name, why = p.name, "duplicate parameter"
		}
		seen[p.name] = true
		found = append(found, p)
	}
	if why != "" {
		s.refuseSetting(name, why)
		return nil
	}
	return found
}

// allowed returns the value of a parameter, or why it cannot be that.
func (srv *Server) allowed(p parameter, text []byte) (v int64, why string) {
	v, ok := resp.ParseInt(text)
	if !ok {
		return 0, "argument couldn't be parsed into an integer"
	}
	greatest := p.most
	if greatest == 0 {
		greatest = (1 << 62) / p.unit
	}
	if v < p.least || v > greatest {
		return 0, fmt.Sprintf("argument must be between %d and %d inclusive", p.least, greatest)
	}
	if most, limited := srv.mostClients(); p.name == "maxclients" && limited && v > most {
		return 0, fmt.Sprintf("the process has file descriptors for %d clients (ulimit -n)", max(0, most))
	}
	return v, ""
}
