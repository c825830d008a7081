package result

// Explanation is the page behind a code: of a check that can fail, or of a warning.
type Explanation struct {
	Code string
	Says string // what the code means
	Why  string // why it matters
	Do   string // what helps
}

// Explanations lists all codes, the checks in the order of a result, then the warnings.
func Explanations() []Explanation {
	return []Explanation{
		{
			"completed", "the window was as long as asked and the server answered to its end",
			"Half a window may hold only the fast half: before the first checkpoint, before the first large collection.",
			"If it was interrupted, run it again. If the server died, its last words stand in the detail.",
		},
		{
			"client_ran", "this process, and its machine, ran within the window: never stopped for 0.25 s at once, nor for 5 % of it in pauses of 0.1 s and more",
			"A client that is stopped (Ctrl-Z, a suspended laptop, a paused virtual machine, no CPU) sends and reads nothing; its clock goes on, and the server gets the blame. " +
				"It is seen by a tick every 10 ms that comes 20 ms late while the process used no CPU time: less is what a machine at rest does too, and less than 0.1 s what a busy one does.",
			"Run it again, on a machine that stays awake and has a CPU for the client. The other failed checks of this window mean nothing.",
		},
		{
			"client_tail", "no percentile that is printed of the tail (p99, p99.9) is this client's own doing",
			"A moment in which the client does not run delays all requests that were due in it and those that pile up behind. In open loop each " +
				"request is also timed as if this client had never been late: the printed response time may not be more than twice that, if more than 10 ms are " +
				"between the two. In closed loop fewer replies may have taken 20 ms or longer for it than the highest percentile leaves out. The largest time (max) may be the client's.",
			"Give the client a CPU of its own, stop what else runs, or use a longer --duration, in which one moment weighs less.",
		},
		{
			"errors", "no error reply and no broken connection, in window or warm-up",
			"An error is often the fastest answer a server has. It never counts as QPS, but it also took the place of a request that would have.",
			"Read the first error's text in the detail.",
		},
		{
			"protocol", "each reply came behind its request, and nothing else came",
			"A server that answers twice is read before it has done anything: its latency is that of nothing, and each answer is that of another request.",
			"The detail shows address and first bytes. It is a fault of the server, or of a proxy before it; its other figures mean nothing.",
		},
		{
			"hit_ratio", "every Get found its key",
			"A miss costs a server less than a hit: no value is read, unpacked or sent. Other tools count misses as good.",
			"All keys were proved to exist before, so the server lost some, or somebody else deletes them.",
		},
		{
			"wrong_values", "every value was that of the last Set of its key",
			"A server that gives wrong bytes fast is not fast, nor one that loses overwrites. Each key belongs to one connection, and each value carries its generation: of classic data one digit, so that a value exactly 10, 20 ... Sets old passes, of others one of 250. Of a key whose last Set failed any generation passes.",
			"Look at the value in the first error. On a target: does somebody else write the same keys?",
		},
		{
			"books_commands", "replies counted here = commands counted by the server, to the unit, between the same two moments",
			"Requests of the warm-up, of another client, or counted twice would show here and nowhere else.",
			"On a target: is somebody else using it? On our own server it is a bug of one side; the detail says which counted more.",
		},
		{
			"books_wal", "Sets acknowledged = records that the write-ahead log grew by",
			"A Set that is acknowledged but not logged would be lost, and would be too cheap.",
			"The same as for books_commands.",
		},
		{
			"keys_proven", "different keys acknowledged = DBSIZE",
			"It proves that Sets went to different keys and stayed there. On a target that held keys before, only that there are no fewer.",
			"Does the server evict or expire keys (maxmemory)?",
		},
		{
			"littles_law", "requests in flight = rate x time in flight",
			"In closed loop every worker always has one batch in flight, so workers x pipeline must come out. If not, the time or the count is wrong, or workers stood still.",
			"Very short windows have the largest error; use a longer --duration. A stopped process (Ctrl-Z, a debugger) shows here too.",
		},
		{
			"stalled", "in closed loop the server answered until the window closed",
			"A request that is open when the window closes is in no percentile. If all stood still for long, the server looks better than it was.",
			"The line on open requests says how long they waited. Look for what stopped the server (a checkpoint, the device, a stopped process), use a longer --duration.",
		},
		{
			"asked_rate", "in open loop at least 99 % of the requests that were due were sent",
			"A rate that was not sent says nothing about a server at that rate.",
			"Ask for less (--find-rate finds the most), or give more --workers: each has one batch in flight, so workers x pipeline / latency is the limit.",
		},
		{
			"send_lateness", "in open loop requests went out within 10 ms at p99 of when they were due on a free connection",
			"What is sent late looks like a slow server in the response time, but is the fault of the client or of its machine.",
			"Give the client a CPU of its own, or run it on another machine; stop what else runs.",
		},
		{
			"client_delay", "in open loop replies did not lie unread for most of the service time, as the system's time stamps of their arrival tell",
			"A client that is late to read makes a fast server look slow, most of all at low rates.",
			"Give the client a CPU of its own, or run it on another machine; stop what else runs; use fewer --workers. Over TLS and Unix sockets there are no time stamps, and the check says n/a: compare with PING at this rate.",
		},
		{
			"clock_step", "the clock moves in steps of at most 10 us",
			"Coarse clocks (0.5 to 15 ms on some systems) turn most latencies into 0.",
			"Use another system or clock source.",
		},
		{
			"gomaxprocs_same", "GOMAXPROCS of client and server did not change, and all servers had the same",
			"Go follows a container's CPU limit while it runs; throughput changes with it.",
			"Fix the limit, or set GOMAXPROCS in the environment.",
		},
		{
			"throttled", "our cgroup never used up its CPU quota during the window",
			"A throttled process stands still until the next period, usually 100 ms: tails are the quota's, not the server's.",
			"Raise the quota, or lower GOMAXPROCS to it.",
		},
		{
			"window_long_enough", "at least 100 right replies in at least 50 ms, half of which at least did not pass in single long waits",
			"Less is not a measurement. A long wait is a request of more than 10 times the median and 10 ms; where there are ten of them for each request in flight, they are what the server does, and count.",
			"Use a longer --duration.",
		},
		{
			"server_exit", "the server ended as it was asked to",
			"A server that cannot end well may not have written what it acknowledged.",
			"Its last words stand in the detail.",
		},
		{
			"connected", "conns: as many connections as asked were opened, and the server answered on each",
			"The system accepts connections that a server has not taken up, so only a reply tells. With fewer, it is another point.",
			"The detail says what stood in the way: file descriptors (ulimit -n), ports, or the server's own limit (--max-clients).",
		},
		{
			"window", "conns: the server counted messages, in a window of about the length asked for",
			"The window lasts from one answer of the server about its count to another. If they come far too late, the rates are those of another window.",
			"Use a longer --duration or a lower --rate; give the server and the client CPUs of their own.",
		},
		{
			"sent", "chat: every user sent as many messages as it was to",
			"The messages of rooms x users x messages are law: with fewer, the score is that of a smaller test.",
			"It follows from whatever ended the run early; see the other failed checks.",
		},
		{
			"received", "chat: every message reached all other users of its room",
			"A server that drops messages for slow readers is fast at what matters least.",
			"Did the server close connections that fell behind (output buffer limits)? --pace turns, or a smaller --window, asks less of it.",
		},
		{
			"own_copies", "chat: every message also came back to its sender",
			"A sender has subscribed to its room like all others; a copy that is missing is a message lost.",
			"The same as for received.",
		},
		{
			"order", "chat: messages came in the order in which each sender sent them, and unchanged",
			"A server that reorders or damages messages breaks what a chat is.",
			"Look at the first one in the detail. On a target: does somebody else publish to the same channels?",
		},
		{
			"reach", "chat: the server's reply to each message counted all users of the room",
			"PUBLISH answers with how many got the message; fewer means that a user was no longer subscribed.",
			"Was a connection closed, or is the target a cluster, where PUBLISH counts those of one node only?",
		},
		{
			"other-load", "other processes used more than 10 % of the CPUs during a window",
			"They take time from the server at moments of their own choice; two runs will not agree.",
			"Stop them, or use --repeat and trust CPU per operation more than QPS.",
		},
		{
			"steal", "the hypervisor took more than 2 % of the CPU time",
			"Other guests of the same host slow this one down, in bursts.",
			"Use --repeat, compare only interleaved runs (kvmark compare), or use a machine of your own.",
		},
		{
			"swap", "pages moved to or from swap",
			"A page read from swap costs as much as thousands of requests.",
			"Use fewer or smaller values, or more memory.",
		},
		{
			"few-cores", "client and server share fewer than four CPUs",
			"Each stands in the other's way: QPS is what both together cost, and p99 holds waits for a CPU.",
			"Take server CPU per operation for the server's cost; use a larger machine, or two, for QPS.",
		},
		{
			"governor", "the CPU frequency governor is not performance",
			"The clock follows the load, late: low rates look slower than high ones.",
			"cpupower frequency-set -g performance",
		},
		{
			"build-differs", "the server's file and the running server disagree about how they were built",
			"You may be measuring another binary than you think: a wrapper, or a file replaced since.",
			"Build again, give --server the binary itself.",
		},
		{
			"build-slow", "the server was built with the race detector, another sanitizer, coverage, or without optimisation",
			"Such a server takes several times as long for the same work: what is measured is the instrument.",
			"Build it with make build. GOFLAGS, and the file of go env -w, may ask for -race in every build.",
		},
		{
			"replay-differs", "a replay could not restore everything that the first measurement had",
			"Toolchain, binary, kvmark and machine are not part of a plan. A difference between the two results may be theirs.",
			"Check out the same commit and build it with the toolchain that is named, on the same machine.",
		},
		{
			"fsync-free", "making 4 KiB durable takes next to no time",
			"This is memory (tmpfs) or a device that lies: --wal-sync always costs nothing here and protects nothing.",
			"Name a directory on a real disk with --dir.",
		},
		{
			"fsync-slow", "making 4 KiB durable takes more than 20 ms",
			"With --wal-sync always every group of Sets waits that long; with interval the background sync may stall writers.",
			"Use a faster device, or mind that the figure is the device's.",
		},
		{
			"client-bound", "a cell ran at 80 % or more of what the same client does with PING, and the client was on a CPU for 60 % of the time it may use",
			"Then the client sets the pace: a faster server would show the same figure, so equal figures prove nothing.",
			"Use more CPUs for the client, a deeper --pipeline, or take server CPU per operation.",
		},
	}
}
