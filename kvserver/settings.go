package kvserver

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"kvmark/kvserver/resp"
	"kvmark/wal"
)

// settings are the options that CONFIG SET changes while the server runs.
type settings struct {
	maxClients, minFree, checkpointBytes atomic.Int64
	idleTimeout, writeTimeout            atomic.Int64 // nanoseconds
}

func (l *settings) init(o *Options) {
	l.maxClients.Store(int64(o.MaxClients))
	l.minFree.Store(o.MinFree)
	l.checkpointBytes.Store(max(0, o.CheckpointBytes))
	l.idleTimeout.Store(int64(o.IdleTimeout))
	l.writeTimeout.Store(int64(o.WriteTimeout))
}

// parameter is one that CONFIG knows: those of Redis that tools ask for, and this server's own under the names of its flags.
type parameter struct {
	name, value string
	set         *atomic.Int64 // nil = not while the server runs
	unit, least int64         // of what is set
}

func (srv *Server) parameters() []parameter {
	fsync := map[wal.Policy]string{wal.Buffered: "no", wal.OS: "no", wal.Interval: "everysec", wal.Always: "always"}
	o, live := &srv.opts, &srv.settings
	fixed := func(name, value string) parameter { return parameter{name: name, value: value} }
	number := func(name string, set *atomic.Int64, unit, least int64) parameter {
		return parameter{name, strconv.FormatInt(set.Load()/unit, 10), set, unit, least}
	}
	return []parameter{
		fixed("appendfsync", fsync[o.WALPolicy]),
		fixed("appendonly", "yes"),
		number("checkpoint-bytes", &live.checkpointBytes, 1, 0),
		fixed("databases", "1"),
		fixed("dir", o.Dir),
		number("maxclients", &live.maxClients, 1, 1),
		fixed("maxmemory", "0"),
		fixed("maxmemory-policy", "noeviction"),
		number("min-free", &live.minFree, 1, 0),
		fixed("port", strconv.Itoa(srv.port())),
		fixed("proto-max-bulk-len", strconv.Itoa(o.MaxValue)),
		fixed("save", ""),
		number("timeout", &live.idleTimeout, int64(time.Second), 0),
		number("write-timeout", &live.writeTimeout, int64(time.Second), 1),
	}
}

// configCommand is CONFIG GET, SET and RESETSTAT.
func configCommand(s *session, args [][]byte) {
	switch sub := args[1]; {
	case is(sub, "get"):
		if len(args) < 3 {
			s.wrongSubArity("config", "get")
			return
		}
		s.configGet(args[2:])
	case is(sub, "set"):
		if len(args) < 4 || len(args)%2 != 0 {
			s.wrongSubArity("config", "set")
			return
		}
		s.configSet(args[2:])
	case is(sub, "resetstat"):
		if len(args) != 2 {
			s.wrongSubArity("config", "resetstat")
			return
		}
		s.srv.resetStats()
		s.ok()
	default:
		s.unknownSubcommand("config", sub)
	}
}

func (s *session) configGet(patterns [][]byte) {
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

// configSet sets all of the parameters, or none.
func (s *session) configSet(pairs [][]byte) {
	type change struct {
		set   *atomic.Int64
		value int64
	}
	var changes []change
	for i := 0; i < len(pairs); i += 2 {
		var p *parameter
		for _, known := range s.srv.parameters() {
			if is(pairs[i], known.name) {
				p = &known
			}
		}
		if p == nil {
			s.fail(fmt.Sprintf("ERR Unknown option or number of arguments for CONFIG SET - '%s'", pairs[i][:min(len(pairs[i]), 128)]))
			return
		}
		refused := func(why string) {
			s.fail(fmt.Sprintf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", p.name, why))
		}
		if p.set == nil {
			refused("can't set immutable config")
			return
		}
		v, ok := resp.ParseInt(pairs[i+1])
		if !ok || v < p.least || v > (1<<62)/p.unit {
			refused(fmt.Sprintf("argument must be an integer between %d and %d", p.least, int64(1<<62)/p.unit))
			return
		}
		if most, limited := s.srv.mostClients(); p.name == "maxclients" && limited && v > most {
			refused(fmt.Sprintf("the process has file descriptors for %d clients (ulimit -n)", max(0, most)))
			return
		}
		changes = append(changes, change{p.set, v * p.unit})
	}
	for _, c := range changes {
		c.set.Store(c.value)
	}
	_ = s.srv.space.poll()
	s.ok()
}
