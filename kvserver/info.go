package kvserver

import (
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kvmark/kvserver/stats"
	"kvmark/storage"
	"kvmark/wal"
)

// section is one part of INFO. A field that Redis has, too, has its name, its unit and its meaning; [TestInfoHasTheFieldsOfRedis]
// lists what of Redis is left out, and why.
type section struct {
	name     string
	write    func(t *stats.Text)
	onDemand bool // only when it is asked for, or everything is
}

func (srv *Server) sections() []section {
	process := func(name string) section {
		return section{name: name, write: func(t *stats.Text) { srv.stats.Append(t, name) }}
	}
	sum := sync.OnceValue(srv.totals) // adding up every connection's counters takes a while
	return []section{
		{name: "Server", write: srv.infoServer},
		process(stats.SectionGo),
		{name: "Clients", write: srv.infoClients},
		{name: stats.SectionMemory, write: srv.infoMemory},
		process(stats.SectionCPU),
		process(stats.SectionGC),
		{name: "Persistence", write: srv.infoPersistence},
		{name: "Stats", write: func(t *stats.Text) { srv.infoStats(t, sum()) }},
		{name: "Replication", write: srv.infoReplication},
		{name: "Modules", write: func(t *stats.Text) { t.Section("Modules") }},
		{name: "Commandstats", write: func(t *stats.Text) { srv.infoCommands(t, sum()) }, onDemand: true},
		{name: "Errorstats", write: srv.infoErrors},
		{name: "Storage", write: srv.infoStorage},
		process(stats.SectionIO),
		{name: "Cluster", write: func(t *stats.Text) { t.Section("Cluster"); t.Int("cluster_enabled", 0) }},
		{name: "Keyspace", write: srv.infoKeyspace},
	}
}

// info returns the sections asked for; for none, as for "default", all but those that come on demand only.
func (srv *Server) info(wanted [][]byte) []byte {
	var t stats.Text
	for _, s := range srv.sections() {
		ok := len(wanted) == 0 && !s.onDemand
		for _, w := range wanted {
			ok = ok || is(w, strings.ToLower(s.name)) || is(w, "all") || is(w, "everything") || is(w, "default") && !s.onDemand
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
	t.Str("os", runtime.GOOS+" "+runtime.GOARCH)
	t.Int("arch_bits", strconv.IntSize)
	t.Str("kvmark_version", o.Version)
	t.Str("run_id", o.RunID)
	t.Int("process_id", int64(os.Getpid()))
	t.Int("tcp_port", int64(srv.port()))
	t.Int("server_time_usec", time.Now().UnixMicro())
	up := time.Since(srv.started)
	t.Int("uptime_in_seconds", int64(up.Seconds()))
	t.Int("uptime_in_days", int64(up/(24*time.Hour)))
	t.Int("hz", int64(time.Second/tick))
	t.Int("configured_hz", int64(time.Second/tick))
	exe, _ := os.Executable() // empty if the system does not say
	t.Str("executable", exe)
	t.Str("config_file", "")
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
	t.Int("cluster_connections", 0)
	t.Int("blocked_clients", 0) // no command waits for another client
	t.Int("tracking_clients", int64(srv.db.observers.tracking.size().clients))
	t.Int("maxclients", srv.settings.maxClients.Load())
	t.Uint("rejected_connections", srv.rejected-srv.baseRejected)
	t.Int("buffered_bytes", srv.buffered.Load())
	t.Uint("over_budget", srv.overBudget.Load())
	t.Uint("auth_failures", srv.authFailures.Load())
}

func (srv *Server) infoMemory(t *stats.Text) {
	srv.stats.Append(t, stats.SectionMemory)
	t.Int("maxmemory", 0)
	t.Str("maxmemory_human", "0B")
	t.Str("maxmemory_policy", "noeviction")
	t.Int("mem_clients_normal", srv.buffered.Load())
}

func (srv *Server) infoPersistence(t *stats.Text) {
	var w wal.Stats
	var replayed Replayed
	loading := srv.loading.Load()
	if !loading {
		w, replayed = srv.db.log.Stats(), srv.replayed
	}
	t.Section("Persistence")
	t.Str("loading", zeroOne(loading))
	t.Int("async_loading", 0)
	srv.infoSaves(t, w)
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
	t.Int("replay_records", replayed.Log.Records)
	t.Int("replay_bytes", replayed.Log.Bytes)
	t.Seconds("replay_seconds", replayed.Duration.Seconds())
	t.Int("checkpoints", srv.checkpoints.count.Load())
	t.Seconds("checkpoint_seconds", time.Duration(srv.checkpoints.nanos.Load()).Seconds())
	t.Int("checkpoint_bytes", srv.checkpoints.bytes.Load())
	t.Str("checkpoint_in_progress", zeroOne(srv.checkpoints.running.Load()))
	t.Int("checkpoint_last_unix", srv.checkpoints.last.Load())
	status = "ok"
	if err := srv.checkpoints.err.Load(); err != nil {
		status = (*err).Error()
	}
	t.Str("checkpoint_error", status)
	if loading {
		srv.infoLoading(t)
	}
}

// infoLoading says how far a start has read.
func (srv *Server) infoLoading(t *stats.Text) {
	total, done := srv.progress.total.Load(), srv.progress.done.Load()
	left := 1.0 // second, as Redis says while it does not know
	if done > 0 {
		left = time.Since(srv.started).Seconds() * float64(total-done) / float64(done)
	}
	t.Int("loading_start_time", srv.started.Unix())
	t.Int("loading_total_bytes", total)
	t.Int("loading_loaded_bytes", done)
	t.Str("loading_loaded_perc", strconv.FormatFloat(100*float64(done)/float64(max(1, total)), 'f', 2, 64))
	t.Int("loading_eta_seconds", int64(math.Ceil(left)))
}

// infoSaves gives the log and the checkpoints the names that Redis gives its append-only file and its snapshots.
func (srv *Server) infoSaves(t *stats.Text, w wal.Stats) {
	c := &srv.checkpoints
	okay := func(err bool) string {
		if err {
			return "err"
		}
		return "ok"
	}
	lastTook, since := int64(-1), int64(-1)
	if c.count.Load() > 0 {
		lastTook = int64(time.Duration(c.lastNanos.Load()).Seconds())
	}
	if began := c.began.Load(); began > 0 && c.running.Load() {
		since = int64(time.Since(time.Unix(0, began)).Seconds())
	}
	t.Uint("rdb_changes_since_last_save", w.Records-c.records.Load())
	t.Str("rdb_bgsave_in_progress", zeroOne(c.running.Load()))
	t.Int("rdb_last_save_time", c.last.Load())
	t.Str("rdb_last_bgsave_status", okay(c.err.Load() != nil))
	t.Int("rdb_last_bgsave_time_sec", lastTook)
	t.Int("rdb_current_bgsave_time_sec", since)
	t.Int("rdb_saves", c.count.Load())
	t.Int("aof_enabled", 1)
	t.Int("aof_rewrites", 0) // checkpoints are saves
	t.Int("aof_rewrites_consecutive_failures", 0)
	t.Int("aof_rewrite_in_progress", 0)
	t.Int("aof_rewrite_scheduled", 0)
	t.Int("aof_last_rewrite_time_sec", -1)
	t.Int("aof_current_rewrite_time_sec", -1)
	t.Str("aof_last_bgrewrite_status", "ok")
	t.Str("aof_last_write_status", okay(w.Err != nil || srv.db.failed.Load() != nil))
	t.Int("aof_current_size", w.DiskBytes)
}

func zeroOne(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// totals adds up all sessions, ended and live, since the last reset.
func (srv *Server) totals() totals {
	base := newTotals(len(srv.commands.all))
	t, live := srv.snapshot(&base)
	srv.sumLive(&t, live)
	t.merge(&base, minus)
	return t
}

// snapshot returns the counts of the connections that have ended, and the others, whose counts are to be added without the lock:
// it would keep others from connecting, and from leaving. base is set to what a reset takes off.
func (srv *Server) snapshot(base *totals) (ended totals, live []*conn) {
	ended = newTotals(len(srv.commands.all))
	srv.mu.Lock()
	defer srv.mu.Unlock()
	base.merge(&srv.base, plus)
	ended.merge(&srv.ended, plus)
	return ended, slices.Collect(maps.Values(srv.conns))
}

func (srv *Server) sumLive(t *totals, live []*conn) {
	for _, c := range live {
		t.add(&c.session.counters)
	}
	t.output += srv.pubsub.output.Load()
}

// resetStats is CONFIG RESETSTAT. Sessions own their counters, so what is reset is where counting begins.
func (srv *Server) resetStats() {
	before := newTotals(len(srv.commands.all))
	sum, live := srv.snapshot(&before)
	srv.sumLive(&sum, live)
	srv.mu.Lock()
	srv.base = sum
	srv.baseAccepted, srv.baseRejected, srv.baseExpired = srv.accepted, srv.rejected, srv.db.ended.Load()
	srv.baseCutOff = srv.pubsub.cutOff.Load()
	srv.mu.Unlock()
	srv.errorCounts.reset()
	srv.stats.Reset()
}

func (srv *Server) infoStats(t *stats.Text, sum totals) {
	srv.mu.Lock()
	accepted, rejected := srv.accepted-srv.baseAccepted, srv.rejected-srv.baseRejected
	expired, cutOff := srv.db.ended.Load()-srv.baseExpired, srv.pubsub.cutOff.Load()-srv.baseCutOff
	srv.mu.Unlock()
	channels, patterns := srv.pubsub.size()
	t.Section("Stats")
	t.Uint("total_connections_received", accepted)
	t.Uint("total_commands_processed", sum.calls)
	t.Uint("total_net_input_bytes", sum.input)
	t.Uint("total_net_output_bytes", sum.output)
	srv.rates.write(t)
	t.Uint("rejected_connections", rejected)
	t.Uint("expired_keys", expired)
	t.Uint("expired_time_cap_reached_count", srv.db.sweepsCut.Load())
	t.Int("expire_cycle_cpu_milliseconds", time.Duration(srv.db.sweepNanos.Load()).Milliseconds())
	t.Int("evicted_keys", 0)
	t.Uint("keyspace_hits", sum.hits)
	t.Uint("keyspace_misses", sum.misses)
	t.Int("pubsub_channels", int64(channels))
	t.Int("pubsub_patterns", int64(patterns))
	t.Int("pubsubshard_channels", 0)
	t.Int("sync_full", 0)
	t.Int("sync_partial_ok", 0)
	t.Int("sync_partial_err", 0)
	t.Int("latest_fork_usec", 0)
	t.Int("total_forks", 0)
	t.Uint("client_output_buffer_limit_disconnections", cutOff)
	tracked := srv.db.observers.tracking.size()
	t.Int("tracking_total_keys", int64(tracked.keys))
	t.Int("tracking_total_items", int64(tracked.items))
	t.Int("tracking_total_prefixes", int64(tracked.prefixes))
	t.Uint("notes_dropped", srv.opts.NotesDropped())
	t.Uint("errors", sum.errors)
	t.Uint("total_error_replies", sum.errors)
}

// infoReplication says what a server without replicas is.
func (srv *Server) infoReplication(t *stats.Text) {
	t.Section("Replication")
	t.Str("role", "master")
	t.Int("connected_slaves", 0)
	t.Str("master_failover_state", "no-failover")
	t.Str("master_replid", strings.Repeat("0", 40))
	t.Str("master_replid2", strings.Repeat("0", 40))
	t.Int("master_repl_offset", 0)
	t.Int("second_repl_offset", -1)
	t.Int("repl_backlog_active", 0)
	t.Int("repl_backlog_size", 0)
	t.Int("repl_backlog_first_byte_offset", 0)
	t.Int("repl_backlog_histlen", 0)
}

// infoErrors counts error replies by their codes.
func (srv *Server) infoErrors(t *stats.Text) {
	e := &srv.errorCounts
	e.mu.Lock()
	defer e.mu.Unlock()
	t.Section("Errorstats")
	for _, code := range slices.Sorted(maps.Keys(e.byCode)) {
		t.Str("errorstat_"+code, fmt.Sprintf("count=%d", e.byCode[code]))
	}
}

// infoCommands counts commands, and the time that they took: from the end of the one before, or from the moment at which the
// connection's bytes were looked at, to the end of the reply's making. What a reply waits for then does not count.
func (srv *Server) infoCommands(t *stats.Text, sum totals) {
	t.Section("Commandstats")
	for i, c := range sum.commands {
		if c != (commandTotals{}) {
			usec := float64(c.nanos) / 1000
			t.Str("cmdstat_"+srv.commands.all[i].name, fmt.Sprintf("calls=%d,usec=%.0f,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
				c.calls, usec, usec/float64(max(1, c.calls)), c.rejected, c.failed))
		}
	}
}

func (srv *Server) infoStorage(t *stats.Text) {
	var u storage.Stats
	if !srv.loading.Load() {
		u = srv.db.store.Stats()
	}
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
	t.Section("Keyspace")
	if srv.loading.Load() {
		return
	}
	ends, left := srv.db.timed()
	if n := srv.db.store.Count(); n > 0 {
		t.Str("db0", fmt.Sprintf("keys=%d,expires=%d,avg_ttl=%d", n, ends, left))
	}
}
