package kvserver

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"kvmark/kvserver/stats"
	"kvmark/storage"
)

// section is one part of INFO.
type section struct {
	name  string
	write func(t *stats.Text)
}

func (srv *Server) sections() []section {
	process := func(name string) section {
		return section{name, func(t *stats.Text) { srv.stats.Append(t, name) }}
	}
	sum := sync.OnceValue(srv.totals) // adding up every connection's counters takes a while
	return []section{
		{"Server", srv.infoServer},
		process(stats.SectionGo),
		{"Clients", srv.infoClients},
		process(stats.SectionMemory),
		process(stats.SectionCPU),
		process(stats.SectionGC),
		{"Persistence", srv.infoPersistence},
		{"Stats", func(t *stats.Text) { srv.infoStats(t, sum()) }},
		{"Commandstats", func(t *stats.Text) { srv.infoCommands(t, sum()) }},
		{"Storage", srv.infoStorage},
		process(stats.SectionIO),
		{"Keyspace", srv.infoKeyspace},
	}
}

// info returns the sections asked for, all of them for none.
func (srv *Server) info(wanted [][]byte) []byte {
	var t stats.Text
	for _, s := range srv.sections() {
		ok := len(wanted) == 0
		for _, w := range wanted {
			ok = ok || is(w, strings.ToLower(s.name)) || is(w, "all") || is(w, "default") || is(w, "everything")
		}
		if ok {
			s.write(&t)
		}
	}
	return t.Bytes()
}

func (srv *Server) infoServer(t *stats.Text) {
	o := &srv.opts
	t.Section("Server")
	t.Str("redis_version", redisVersion)
	t.Str("redis_mode", "standalone")
	t.Str("kvmark_version", o.Version)
	t.Str("run_id", o.RunID)
	t.Int("process_id", int64(os.Getpid()))
	t.Int("tcp_port", int64(srv.port()))
	t.Int("uptime_in_seconds", int64(time.Since(srv.started).Seconds()))
	t.Str("mode", string(o.Mode))
	codec, level, entries := "none", 0, 0 // what another mode than serialize does
	if o.Mode == storage.Serialize {
		codec, level, entries = o.Codec, o.Level, o.BucketEntries
	}
	t.Str("codec", codec)
	t.Int("level", int64(level))
	t.Int("bucket_entries", int64(entries))
	t.Str("io", string(o.IO))
}

func (srv *Server) infoClients(t *stats.Text) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	t.Section("Clients")
	t.Int("connected_clients", int64(len(srv.conns)))
	t.Int("maxclients", srv.settings.maxClients.Load())
	t.Uint("rejected_connections", srv.rejected-srv.baseRejected)
	t.Int("buffered_bytes", srv.buffered.Load())
	t.Uint("over_budget", srv.overBudget.Load())
	t.Uint("auth_failures", srv.authFailures.Load())
}

func (srv *Server) infoPersistence(t *stats.Text) {
	w := srv.db.log.Stats()
	t.Section("Persistence")
	t.Int("loading", 0)
	t.Str("wal_policy", srv.opts.WALPolicy.String())
	t.Uint("wal_records", w.Records)
	t.Uint("wal_bytes", w.Bytes)
	t.Uint("wal_writes", w.Writes)
	t.Uint("wal_syncs", w.Syncs)
	t.Seconds("wal_sync_seconds", time.Duration(w.SyncNanos).Seconds())
	t.Micros("wal_sync_p50_us", w.SyncP50.Seconds())
	t.Micros("wal_sync_p99_us", w.SyncP99.Seconds())
	t.Micros("wal_sync_max_us", w.SyncMax.Seconds())
	t.Int("wal_segments", int64(w.Segments))
	t.Int("wal_disk_bytes", w.DiskBytes)
	status := "ok"
	if w.Err != nil {
		status = w.Err.Error()
	} else if f := srv.db.failed.Load(); f != nil {
		status = f.err.Error()
	}
	t.Str("wal_error", status)
	status = "ok"
	if err := srv.space.refused(); err != nil {
		status = err.Error()
	}
	t.Str("disk_space", status)
	t.Int("replay_records", srv.replayed.Log.Records)
	t.Int("replay_bytes", srv.replayed.Log.Bytes)
	t.Seconds("replay_seconds", srv.replayed.Duration.Seconds())
	t.Int("checkpoints", srv.checkpoints.count.Load())
	t.Seconds("checkpoint_seconds", time.Duration(srv.checkpoints.nanos.Load()).Seconds())
	t.Int("checkpoint_bytes", srv.checkpoints.bytes.Load())
	t.Str("checkpoint_in_progress", zeroOne(srv.checkpoints.running.Load()))
	t.Int("checkpoint_last_unix", srv.checkpoints.last.Load())
	status = "ok"
	if err := srv.checkpoints.err.Load(); err != nil {
		status = strings.ReplaceAll((*err).Error(), "\n", " ")
	}
	t.Str("checkpoint_error", status)
}

func zeroOne(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// totals adds up all sessions, ended and live, since the last reset.
func (srv *Server) totals() totals {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	t := srv.totalsLocked()
	t.merge(&srv.base, minus)
	return t
}

// REQUIRES: mu held.
func (srv *Server) totalsLocked() totals {
	t := newTotals(len(srv.commands.all))
	t.merge(&srv.ended, plus)
	for _, c := range srv.conns {
		t.add(&c.session.counters)
	}
	t.output += srv.pubsub.output.Load()
	return t
}

// resetStats is CONFIG RESETSTAT. Sessions own their counters, so what is reset is where counting begins.
func (srv *Server) resetStats() {
	srv.mu.Lock()
	srv.base = srv.totalsLocked()
	srv.baseAccepted, srv.baseRejected, srv.baseExpired = srv.accepted, srv.rejected, srv.db.ended.Load()
	srv.baseCutOff = srv.pubsub.cutOff.Load()
	srv.mu.Unlock()
	srv.stats.Reset()
}

func (srv *Server) infoStats(t *stats.Text, sum totals) {
	srv.mu.Lock()
	accepted, rejected := srv.accepted-srv.baseAccepted, srv.rejected-srv.baseRejected
	expired, cutOff := srv.db.ended.Load()-srv.baseExpired, srv.pubsub.cutOff.Load()-srv.baseCutOff
	srv.mu.Unlock()
	calls := uint64(0)
	for _, c := range sum.commands {
		calls += c.calls
	}
	channels, patterns := srv.pubsub.size()
	t.Section("Stats")
	t.Uint("total_connections_received", accepted)
	t.Uint("total_commands_processed", calls)
	t.Uint("total_net_input_bytes", sum.input)
	t.Uint("total_net_output_bytes", sum.output)
	t.Uint("rejected_connections", rejected)
	t.Uint("expired_keys", expired)
	t.Int("evicted_keys", 0)
	t.Uint("keyspace_hits", sum.hits)
	t.Uint("keyspace_misses", sum.misses)
	t.Int("pubsub_channels", int64(channels))
	t.Int("pubsub_patterns", int64(patterns))
	t.Uint("client_output_buffer_limit_disconnections", cutOff)
	t.Uint("notes_dropped", srv.opts.NotesDropped())
	t.Uint("errors", sum.errors)
	t.Uint("total_error_replies", sum.errors)
}

func (srv *Server) infoCommands(t *stats.Text, sum totals) {
	t.Section("Commandstats")
	for i, c := range sum.commands {
		if c != (commandTotals{}) {
			t.Str("cmdstat_"+srv.commands.all[i].name, fmt.Sprintf("calls=%d,failed_calls=%d,rejected_calls=%d", c.calls, c.failed, c.rejected))
		}
	}
}

func (srv *Server) infoStorage(t *stats.Text) {
	u := srv.db.store.Stats()
	t.Section("Storage")
	t.Int("keys", u.Keys)
	t.Int("key_bytes", u.KeyBytes)
	t.Int("value_bytes", u.ValueBytes)
	t.Int("stored_bytes", u.StoredBytes)
	t.Int("index_bytes", u.IndexBytes)
	t.Int("disk_bytes", u.DiskBytes)
	t.Int("dead_bytes", u.DeadBytes)
	t.Int("buckets", u.Buckets)
	ratio := 1.0
	if u.StoredBytes > 0 {
		ratio = float64(u.KeyBytes+u.ValueBytes) / float64(u.StoredBytes)
	}
	t.Str("compression_ratio", strconv.FormatFloat(ratio, 'f', 3, 64))
	for _, f := range u.Extra {
		t.Str(f.Name, f.Value)
	}
}

func (srv *Server) infoKeyspace(t *stats.Text) {
	ends := int64(0)
	for i := range srv.db.stripes {
		ends += srv.db.stripes[i].timed.Load()
	}
	t.Section("Keyspace")
	if n := srv.db.store.Count(); n > 0 {
		t.Str("db0", fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", n, ends))
	}
}
