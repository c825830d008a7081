package kvserver

import (
	"fmt"
	"strconv"
	"time"

	"kvmark/kvserver/resp"
	"kvmark/wal"
)

func timeCommand(s *session, _ [][]byte) {
	now := time.Now()
	s.out = resp.AppendArray(s.out, 2)
	s.out = resp.AppendBulk(s.out, strconv.FormatInt(now.Unix(), 10))
	s.out = resp.AppendBulk(s.out, strconv.Itoa(now.Nanosecond()/1000))
}

// shutdownCommand ends the server. As in Redis the only reply is the end of the connection.
func shutdownCommand(s *session, args [][]byte) {
	for _, a := range args[1:] {
		switch {
		case is(a, "nosave"), is(a, "save"), is(a, "now"), is(a, "force"):
		case is(a, "abort"):
			s.fail("ERR No shutdown in progress.")
			return
		default:
			s.fail(errSyntax)
			return
		}
	}
	s.closeAfterReply()
	s.srv.stop()
}

func infoCommand(s *session, args [][]byte) {
	s.out = resp.AppendVerbatim(s.out, s.proto, s.srv.info(args[1:]))
}

func configCommand(s *session, args [][]byte) {
	switch sub := args[1]; {
	case is(sub, "get"):
		if len(args) < 3 {
			s.wrongSubArity("config", "get")
			return
		}
		var found [][2]string
		for _, p := range s.srv.config() {
			for _, pattern := range args[2:] {
				if glob(pattern, []byte(p[0]), true) {
					if is(pattern, p[0]) {
						p[0] = string(pattern) // a name comes back as it was asked for
					}
					found = append(found, p)
					break
				}
			}
		}
		s.out = resp.AppendMap(s.out, s.proto, len(found))
		for _, p := range found {
			s.out = resp.AppendBulk(s.out, p[0])
			s.out = resp.AppendBulk(s.out, p[1])
		}
	case is(sub, "resetstat"):
		if len(args) != 2 {
			s.wrongSubArity("config", "resetstat")
			return
		}
		s.srv.resetStats()
		s.ok()
	case is(sub, "set"):
		if len(args) < 4 || len(args)%2 != 0 {
			s.wrongSubArity("config", "set")
			return
		}
		for _, p := range s.srv.config() {
			if is(args[2], p[0]) {
				s.fail(fmt.Sprintf("ERR CONFIG SET failed (possibly related to argument '%s') - can't set immutable config", p[0]))
				return
			}
		}
		s.fail(fmt.Sprintf("ERR Unknown option or number of arguments for CONFIG SET - '%s'", args[2][:min(len(args[2]), 128)]))
	default:
		s.unknownSubcommand("config", sub)
	}
}

// config returns the parameters of Redis that tools ask for, as this server has them. All of them are set at the start.
func (srv *Server) config() [][2]string {
	fsync := map[wal.Policy]string{wal.Buffered: "no", wal.OS: "no", wal.Interval: "everysec", wal.Always: "always"}
	o := &srv.opts
	return [][2]string{
		{"appendfsync", fsync[o.WALPolicy]},
		{"appendonly", "yes"},
		{"databases", "1"},
		{"dir", o.Dir},
		{"maxclients", strconv.Itoa(o.MaxClients)},
		{"maxmemory", "0"},
		{"maxmemory-policy", "noeviction"},
		{"port", strconv.Itoa(srv.port())},
		{"proto-max-bulk-len", strconv.Itoa(o.MaxValue)},
		{"save", ""},
		{"timeout", strconv.Itoa(int(o.IdleTimeout.Seconds()))},
	}
}
