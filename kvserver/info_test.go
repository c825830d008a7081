package kvserver

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// leftOut are the fields of INFO that Redis 7.0.15 has and this server has not, by the reason. A name may end with *.
var leftOut = map[string]string{
	"how Redis was built and is run; see the section Go": "redis_git_sha1 redis_git_dirty redis_build_id gcc_version atomicvar_api monotonic_clock multiplexing_api process_supervised",
	"nothing is evicted": "lru_clock evicted_clients *_eviction_exceeded_time mem_not_counted_for_evict",
	"of Redis's allocator; see heap_* and the section GC":                "allocator_* mem_allocator rss_overhead_* mem_fragmentation_* active_defrag_* *_active_defrag_time",
	"the heap is not counted by what it is for; see the section Storage": "used_memory_overhead used_memory_startup used_memory_dataset* mem_aof_buffer",
	"there are no scripts and no functions":                              "used_memory_lua* used_memory_vm_* used_memory_scripts* used_memory_functions number_of_* ",
	"checkpoints are made without a fork":                                "current_cow_* current_fork_perc current_save_keys_* *_cow_size module_fork_* used_cpu_*_children",
	"a start counts records; see replay_*":                               "rdb_last_load_keys_*",
	"there are no replicas, and no other nodes":                          "mem_replication_backlog mem_total_replication_buffers mem_clients_slaves mem_cluster_links total_net_repl_* *_repl_kbps slave_expires_tracked_keys migrate_cached_sockets unexpected_error_replies",
	"there is no such thing: threads beside a main one, blocking commands, deletes that go on behind their reply, DUMP": "io_thread* used_cpu_*_main_thread clients_in_timeout_table lazyfree* dump_payload_sanitizations",
	"not counted": "client_recent_max_* total_reads_processed total_writes_processed reply_buffer_* expired_stale_perc",
}

// infoFields returns the names of INFO's fields and their values.
func infoFields(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.SplitSeq(info, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// typeOf says of which type a field is, as who reads it takes it.
func typeOf(value string) string {
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		return "number"
	}
	if regexp.MustCompile(`^[\d.]+%$`).MatchString(value) {
		return "percentage"
	}
	if regexp.MustCompile(`^[\d.]+[BKMGT]$`).MatchString(value) {
		return "size for people"
	}
	return "text"
}

func TestInfoHasTheFieldsOfRedis(t *testing.T) {
	theirs, ours := redis(t), dial(t, listen(t, open(t, Options{})))
	get := func(c *client) map[string]string {
		t.Helper()
		for _, args := range [][]string{{"SET", "k", "v"}, {"GET", "bogus", "call"}, {"INCR", "k"}} {
			if _, err := c.do(args...); err != nil {
				t.Fatal(err)
			}
		}
		info, err := c.do("INFO")
		if err != nil {
			t.Fatal(err)
		}
		return infoFields(info)
	}
	redis, here := get(theirs), get(ours)
	if len(redis) < 150 {
		t.Fatalf("Redis has %d fields only", len(redis))
	}
	used := map[string]bool{}
	reason := func(name string) bool {
		for why, names := range leftOut {
			for _, pattern := range strings.Fields(names) {
				if glob([]byte(pattern), []byte(name), false) {
					used[why] = true
					return true
				}
			}
		}
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(redis)) {
		value, there := here[name]
		switch left := reason(name); {
		case there && left:
			t.Errorf("%s is there, and in the table of what is left out", name)
		case !there && !left:
			t.Errorf("%s:%s is not there", name, redis[name])
		case there && typeOf(value) != typeOf(redis[name]) && name != "master_replid": // whose digits may be those of a number
			t.Errorf("%s is %s in Redis (%s), and %s here (%s)", name, typeOf(redis[name]), redis[name], typeOf(value), value)
		}
	}
	for why := range leftOut {
		if !used[why] {
			t.Errorf("no field is left out because %q", why)
		}
	}
}

func TestInfoCountsTracking(t *testing.T) {
	srv := open(t, Options{})
	addr := listen(t, srv)
	admin, reader, broadcast := dial(t, addr), dial(t, addr), dial(t, addr)
	want := func(clients, keys, items, prefixes string) {
		t.Helper()
		info, err := admin.do("INFO")
		if err != nil {
			t.Fatal(err)
		}
		f := infoFields(info)
		if got := [4]string{f["tracking_clients"], f["tracking_total_keys"], f["tracking_total_items"], f["tracking_total_prefixes"]}; got != [4]string{clients, keys, items, prefixes} {
			t.Errorf("got clients, keys, items, prefixes %v, want %s %s %s %s", got, clients, keys, items, prefixes)
		}
	}
	want("0", "0", "0", "0")
	for _, c := range []*client{admin, reader, broadcast} {
		if _, err := c.do("HELLO", "3"); err != nil {
			t.Fatal(err)
		}
	}
	reader.want(ok, "CLIENT", "TRACKING", "ON")
	admin.want(ok, "CLIENT", "TRACKING", "ON", "NOLOOP")
	broadcast.want(ok, "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "x", "PREFIX", "y")
	reader.want("_\r\n", "GET", "a")
	reader.want("_\r\n", "GET", "b")
	admin.want("_\r\n", "GET", "a")
	want("3", "2", "3", "2")
	broadcast.want(ok, "CLIENT", "TRACKING", "OFF")
	admin.want(ok, "SET", "a", "v")
	want("2", "1", "1", "0")
}

// A second brings what was done in it, whatever CONFIG RESETSTAT took off.
func TestRates(t *testing.T) {
	var r rates
	r.measure(time.Second, 100, 2048, 512)
	r.measure(3*time.Second, 300, 2048+4096, 512)
	for got, want := range map[uint64]uint64{r.perSecond.calls.Load(): 100, r.perSecond.input.Load(): 2048, r.perSecond.output.Load(): 0} {
		if got != want {
			t.Errorf("got %d a second, want %d", got, want)
		}
	}
	srv := open(t, Options{})
	c := dial(t, listen(t, srv))
	c.want(ok, "SET", "k", "v")
	c.want(ok, "CONFIG", "RESETSTAT")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for range 20 {
			c.want("$1\r\nv\r\n", "GET", "k")
		}
		info, err := c.do("INFO", "stats")
		if f := infoFields(info); f["instantaneous_ops_per_sec"] != "0" && f["instantaneous_input_kbps"] != "0.00" && f["instantaneous_output_kbps"] != "0.00" {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("nothing was done, says INFO: %v, %s", err, info)
		}
	}
}

// What README names as missing is missing, and what is missing among the commands for strings, keys and connections is named.
func TestReadmeNamesWhatIsMissing(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(readme), "\nnames all. Not here: ")
	list, _, found := strings.Cut(list, "Driven by tests")
	if !found {
		t.Fatal("README has no list")
	}
	missing := regexp.MustCompile(`\b[A-Z]{3,}(?: [A-Z]{3,})?\b`).FindAllString(list, -1)
	if len(missing) < 25 {
		t.Errorf("only %q", missing)
	}
	commands := newCommands()
	lookup := func(name string) bool {
		first, second, isPart := strings.Cut(name, " ")
		c := commands.lookup([]byte(first))
		return c != nil && (!isPart || c.part([]byte(second)) != nil)
	}
	for _, name := range missing {
		if noScripts := name == "EVAL" || name == "SCRIPT" || name == "FCALL"; noScripts { // their reply says so
			if reply := speak(t, open(t, Options{})).do(name); !strings.HasPrefix(reply, "-ERR ") {
				t.Errorf("%s: %q", name, reply)
			}
		} else if lookup(name) {
			t.Errorf("README says that there is no %s", name)
		}
	}
	theirs := redis(t)
	for _, category := range []string{"string", "keyspace", "transaction", "connection", "pubsub", "dangerous"} {
		reply, err := theirs.do("COMMAND", "LIST", "FILTERBY", "ACLCAT", category)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(reply) {
			name = strings.ToUpper(strings.ReplaceAll(name, "|", " "))
			if name[0] != '$' && name[0] != '*' && !lookup(name) && !slices.Contains(missing, name) && !slices.Contains(missing, strings.Fields(name)[0]) && !unnamed[name] {
				t.Errorf("README does not say that there is no %s", name)
			}
		}
	}
}

// unnamed are commands that README names by their family, or that clients do not send.
var unnamed = map[string]bool{
	"ASKING": true, "READONLY": true, "READWRITE": true, // cluster
	"SLAVEOF": true, "FAILOVER": true, "PSYNC": true, "SYNC": true, "REPLCONF": true, // replication
	"SSUBSCRIBE": true, "SUNSUBSCRIBE": true, "PUBSUB SHARDCHANNELS": true, "PUBSUB SHARDNUMSUB": true, // shard channels
	"RESTORE-ASKING": true, "SORT_RO": true, "PFDEBUG": true, "PFSELFTEST": true,
	"CLIENT UNPAUSE": true, "COMMAND GETKEYSANDFLAGS": true,
}
