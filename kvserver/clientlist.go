package kvserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// clientLine describes the connection of a session, as it asks for it.
func (srv *Server) clientLine(me *session) string {
	return srv.clientLines(me, func(s *session) bool { return s == me })
}

// clientLines describes connections, a line each, in the order of their ids. me is the session that asks.
//
// Buffers that Redis has and this server has not (qbuf-free, argv-mem, rbs, rbp, obl, oll) are 0; omem is what counts of the
// connection in the budget of all, and tot-mem that with what it has sent.
func (srv *Server) clientLines(me *session, wanted func(*session) bool) string {
	srv.mu.Lock()
	conns := maps.Clone(srv.conns)
	srv.mu.Unlock() // writing them down takes long
	var b strings.Builder
	now := srv.ticks.Load()
	for _, id := range slices.Sorted(maps.Keys(conns)) {
		c := conns[id]
		s := c.session
		if !wanted(s) {
			continue
		}
		name, command, proto := "", "NULL", 2
		if n := s.name.Load(); n != nil {
			name = *n
		}
		if i := s.last.Load(); i > 0 {
			command = srv.commands.all[i-1].name
		}
		if s.resp3.Load() {
			proto = 3
		}
		var lib [2]string
		if l := s.library.Load(); l != nil {
			lib = *l
		}
		query := s.pending.Load()
		if s == me {
			query = int64(s.unrun)
		}
		held := max(0, s.held.Load())
		fmt.Fprintf(&b, "id=%d addr=%s laddr=%s fd=-1 name=%s age=%d idle=%d flags=%s db=0 sub=%d psub=%d ssub=0 multi=%d",
			id, c.remote, c.local, name, int(time.Since(c.since).Seconds()), (now-c.active.Load())*int64(tick)/int64(time.Second),
			s.flags(), s.subscribed.Load(), s.psubscribed.Load(), s.multi.Load()-1)
		fmt.Fprintf(&b, " qbuf=%d qbuf-free=0 argv-mem=0 multi-mem=%d rbs=0 rbp=0 obl=0 oll=0 omem=%d tot-mem=%d events=r cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s\n",
			query, s.queuedMemory.Load(), held, held+query, command, onlyUser, s.redirect.Load(), proto, lib[0], lib[1])
	}
	return b.String()
}

// flags are those of a line of CLIENT LIST: P subscribed, x in a transaction, d a watched key has changed, t tracking, N nothing of it.
func (s *session) flags() string {
	var b strings.Builder
	for _, f := range []struct {
		set    bool
		letter byte
	}{
		{s.subscribes(), 'P'},
		{s.multi.Load() > 0, 'x'},
		{s.dirty.Load(), 'd'},
		{s.redirect.Load() >= 0, 't'},
	} {
		if f.set {
			b.WriteByte(f.letter)
		}
	}
	if b.Len() == 0 {
		return "N"
	}
	return b.String()
}
