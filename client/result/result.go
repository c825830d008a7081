// Package result is the file in which a measurement is kept, for everything that reads one: reports, comparisons, and
// people with jq. Its names are a contract: a field may be added, never renamed or given another meaning; a change of
// meaning is a new [Schema].
//
// Numbers are never NaN or infinite. A number that is undefined (the GC's CPU share when no cycle ended, p99.9 of a
// hundred operations) or that the system cannot tell is null, a nil pointer here.
package result

import (
	"encoding/json"
	"math"
	"time"
)

// Schema names the version of the format; part of the format.
const Schema = "kvmark/1"

// File is one result file.
type File struct {
	Schema      string    `json:"schema"`
	Command     string    `json:"command"`                // subcommand that measured: run, compare ...
	Version     string    `json:"version"`                // of kvmark
	CommandLine string    `json:"command_line,omitempty"` // without passwords
	Started     time.Time `json:"started"`
	Finished    time.Time `json:"finished"`
	Interrupted bool      `json:"interrupted"`
	Plan        Plan      `json:"plan"`
	Env         Env       `json:"env"`
	Warnings    []Warning `json:"warnings,omitempty"`
	Cells       []Cell    `json:"cells"`
	Searches    []Search  `json:"searches,omitempty"`
	// Experiment is what a comparison can be analysed again from; package experiment writes and reads it.
	Experiment  json.RawMessage `json:"experiment,omitempty"`
	Comparisons []Comparison    `json:"comparisons"`
}

// Valid reports whether the run was complete and every cell passed every check.
func (f *File) Valid() bool {
	for _, c := range f.Cells {
		if !c.Valid {
			return false
		}
	}
	return !f.Interrupted && len(f.Cells) > 0
}

// Plan is what was asked for, every option with its effective value.
//
// What a comparison varies is [Varied], or 0 or null where that is no text; Extra has its values.
type Plan struct {
	Modes           []string          `json:"modes"`
	Workers         int               `json:"workers"`
	DurationSeconds float64           `json:"duration_seconds"`
	WarmupSeconds   float64           `json:"warmup_seconds"`
	Keys            int               `json:"keys"` // of each worker
	Repeat          int               `json:"repeat"`
	Seed            uint64            `json:"seed"`
	WALSync         string            `json:"wal_sync"`
	Codec           string            `json:"codec"`
	Level           *int              `json:"level"` // null: the codec's own default
	BucketEntries   int               `json:"bucket_entries"`
	ValueSize       string            `json:"value_size"`  // classic, 128, 64-1024 (bytes), lognormal:MEDIAN:SIGMA
	ValueBytes      float64           `json:"value_bytes"` // mean length
	Compressibility float64           `json:"compressibility"`
	Distribution    string            `json:"distribution"`
	Mix             string            `json:"mix,omitempty"` // SET:GET; empty: a phase each
	Pipeline        int               `json:"pipeline"`
	Rate            string            `json:"rate,omitempty"`     // requests a second in open loop, or ramp:FROM:TO; empty: closed loop
	Arrivals        string            `json:"arrivals,omitempty"` // constant or poisson, in open loop
	SLO             string            `json:"slo,omitempty"`      // the highest rate that keeps it was searched for
	Score           string            `json:"score,omitempty"`    // trimmed or last3: shown beside the median
	Cold            bool              `json:"cold,omitempty"`
	SecondOpinion   bool              `json:"second_opinion,omitempty"`
	Target          string            `json:"target,omitempty"`     // a server that was there, without its password; empty: our own
	TargetTLS       *TLS              `json:"target_tls,omitempty"` // of a rediss:// target; null: what the system trusts
	AllowData       bool              `json:"allow_data,omitempty"`
	Server          string            `json:"server"`                // path of the binary
	ServerArgs      []string          `json:"server_args,omitempty"` // flags beyond those that follow from the rest
	ServerEnv       []string          `json:"server_env,omitempty"`
	IO              string            `json:"io,omitempty"`          // loop or goroutine; empty: the server's default, which env.server names
	ServerCPUs      string            `json:"server_cpus,omitempty"` // that servers were kept on, such as 0-3; empty: all
	ClientCPUs      string            `json:"client_cpus,omitempty"`
	Dir             string            `json:"dir"` // where data directories were made
	Extra           map[string]string `json:"extra,omitempty"`
}

// TLS names what an encrypted target was trusted by, and the files of the certificate that it was shown.
type TLS struct {
	CA         string `json:"ca,omitempty"`
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
	SkipVerify bool   `json:"skip_verify,omitempty"`
}

// Varied stands in a plan for what has several values.
const Varied = "varied"

// Cell is one measurement: one operation in one mode on one fresh server.
type Cell struct {
	Mode    string            `json:"mode"`
	Op      string            `json:"op"`     // set, get, mix
	Repeat  int               `json:"repeat"` // 1, 2 ...
	Config  map[string]string `json:"config,omitempty"`
	Started time.Time         `json:"started"`

	Seconds    float64 `json:"seconds"` // measured length of the window
	OK         int64   `json:"ok"`      // right replies that were complete before the window closed
	Sets       int64   `json:"sets"`    // how many of them were Sets
	Gets       int64   `json:"gets"`
	Late       int64   `json:"late"`   // right replies to requests sent within the window that came after it
	Open       int64   `json:"open"`   // requests sent within the window and open when it closed, of whatever end
	Errors     int64   `json:"errors"` // error replies and broken connections
	Misses     int64   `json:"misses"` // Gets that found nothing
	Wrong      int64   `json:"wrong"`  // Gets that found another value
	Reconnects int64   `json:"reconnects"`
	FirstError string  `json:"first_error,omitempty"`

	QPS          *float64 `json:"qps"` // OK / Seconds
	LatencyUS    Latency  `json:"latency_us"`
	LateMaxUS    *float64 `json:"late_max_us"`         // of Open, what the longest waited until it was answered or given up; no percentile has it
	LatencyMeans string   `json:"latency_means"`       // what was timed, in a sentence
	Histogram    string   `json:"histogram,omitempty"` // of latency in ns, HDR V2, base64; merged over workers
	ClosedLoop   bool     `json:"closed_loop"`         // each worker sends its next request when its last reply is there
	Places       *Places  `json:"places,omitempty"`    // with a pipeline
	Pace         *Pace    `json:"pace,omitempty"`      // in open loop

	Valid  bool    `json:"valid"`
	Checks []Check `json:"checks"`

	Chat  *Chat  `json:"chat,omitempty"`
	Conns *Conns `json:"conns,omitempty"`

	Server        Server         `json:"server"`
	Client        Client         `json:"client"`
	Others        Others         `json:"others"`
	SecondOpinion *SecondOpinion `json:"second_opinion,omitempty"`
	WithinRun     *WithinRun     `json:"within_run,omitempty"`
	Series        []Row          `json:"series"`                   // of long windows some seconds only: see [Thin]
	SeriesSeconds int            `json:"series_seconds,omitempty"` // how many rows there were
}

// MaxUS is the longest that any request sent within the window waited, in us: one that was open when it closed counts too.
func (c Cell) MaxUS() *float64 {
	if late := c.LateMaxUS; late != nil && (c.LatencyUS.Max == nil || *late > *c.LatencyUS.Max) {
		return late
	}
	return c.LatencyUS.Max
}

// Places tells the first command of a batch from the last one: how long it took to its own reply.
type Places struct {
	FirstP50US *float64 `json:"first_p50_us"`
	LastP50US  *float64 `json:"last_p50_us"`
}

// Pace is what an open loop asked for and what became of it.
type Pace struct {
	Asked  int64 `json:"asked"`  // requests that were due within the window
	Sent   int64 `json:"sent"`   // of them sent before it closed
	Done   int64 `json:"done"`   // and rightly answered before it closed
	Waited int64 `json:"waited"` // of those sent: their connection was still busy when they were due

	// From the moment a request is due: what a user would have waited. Those never sent count with the time from then to
	// the end of the window, so these are never too good.
	ResponseUS        Latency `json:"response_us"`
	ResponseHistogram string  `json:"response_histogram,omitempty"`
	// How late requests went out that were due on a free connection: the fault of this client and its machine.
	LatenessUS Latency `json:"lateness_us"`
	// How long replies had arrived before this client read them: its own part of the service time. Null where the system does
	// not tell.
	ReadDelayUS Latency `json:"read_delay_us"`
	PingUS      Latency `json:"ping_us"` // service time of PING at the same rate, before and after the window
}

// WithinRun is what one window tells about its own precision, from slices of it. The intervals are of 95 %, by batch means with
// a correction for autocorrelation (package compare, Within). They leave out what differs between processes, runs and days,
// which only repeats show. Null where the window is too short, or nothing is known.
type WithinRun struct {
	SliceSeconds float64   `json:"slice_seconds"`
	OK           []int64   `json:"ok"`                      // right replies, by slice
	ServerCPUUS  []float64 `json:"server_cpu_us,omitempty"` // by slice; left out where the system does not tell

	QPSLow  *float64 `json:"qps_low"`
	QPSHigh *float64 `json:"qps_high"`
	CPULow  *float64 `json:"server_cpu_us_per_op_low"`
	CPUHigh *float64 `json:"server_cpu_us_per_op_high"`

	Course string   `json:"course,omitempty"` // steady, drift, decay, jump, jumps or noisy, with its size
	Change *float64 `json:"change"`           // rate of the last third over that of the first, minus 1
	Note   string   `json:"note,omitempty"`   // why something is not known
}

// Others is what else the machine did during the window. Null where the system does not tell.
type Others struct {
	CPUShare   *float64 `json:"cpu_share"`   // of all its CPUs, used by neither client nor server
	StealShare *float64 `json:"steal_share"` // taken by the hypervisor
	SwapPages  *float64 `json:"swap_pages"`  // moved in and out
}

// SecondOpinion is what another load generator found on the same server, at the end, with a load as alike as it can make.
type SecondOpinion struct {
	Tool     string   `json:"tool"`    // with its version
	Command  string   `json:"command"` // without password
	QPS      *float64 `json:"qps"`
	P50US    *float64 `json:"p50_us"`
	P99US    *float64 `json:"p99_us"`
	CPUPerOp *float64 `json:"cpu_us_per_op"` // its own
	Note     string   `json:"note"`          // why it may differ
}

// Search is the hunt for the highest rate that keeps a promise.
type Search struct {
	Mode   string   `json:"mode"`
	Op     string   `json:"op"`
	SLO    string   `json:"slo"`
	Rate   *float64 `json:"rate"`   // the highest that kept it, requests a second; null: none did
	Broken *float64 `json:"broken"` // the lowest that did not; null: none that was tried
	Closed *float64 `json:"closed"` // QPS of the closed loop, where the search begins
	Trials []Trial  `json:"trials"`
	// Unfinished tells that the search was interrupted or lost its server: rates between Rate and Broken may keep it or not.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Trial is one rate that was tried, for one window.
type Trial struct {
	Rate  float64  `json:"rate"`
	Value *float64 `json:"value_us"` // what the promise is about
	Kept  bool     `json:"kept"`
	Why   string   `json:"why"` // not, when it is not the value
}

// Latency holds microseconds from one histogram of 3 significant digits, that of the replies counted as OK. Quantiles for
// which there are too few of them (p99 of fewer than 100, p99.9 of fewer than 1000) are null.
type Latency struct {
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P99  *float64 `json:"p99"`
	P999 *float64 `json:"p999"`
	Max  *float64 `json:"max"`
	Min  *float64 `json:"min"`
	Mean *float64 `json:"mean"`
}

// Check is one test of a cell's validity.
type Check struct {
	Name   string `json:"name"`
	Pass   bool   `json:"pass"`
	Detail string `json:"detail"` // with the numbers compared
}

// Pauses are stop-the-world pauses of the collector in microseconds, as upper bounds of the runtime's buckets
// (12 to 25 % wide).
type Pauses struct {
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
	Max *float64 `json:"max"`
}

// Server is what the server says about itself, over the measured window unless it says otherwise.
type Server struct {
	Go         string `json:"go"`
	GOGC       string `json:"gogc"`       // a number, or off
	GOMEMLIMIT string `json:"gomemlimit"` // bytes, or off
	GOMAXPROCS string `json:"gomaxprocs"`
	WALSync    string `json:"wal_sync"`
	IO         string `json:"io,omitempty"` // loop or goroutine
	RunID      string `json:"run_id"`
	PID        int    `json:"pid"`

	CPUPerOp     *float64 `json:"cpu_us_per_op"`
	CPUUserPerOp *float64 `json:"cpu_user_us_per_op"`
	CPUSysPerOp  *float64 `json:"cpu_sys_us_per_op"`

	RSSPeakBytes   *float64 `json:"rss_peak_bytes"`  // of a server that does not know its peak: at the end of the window
	HeapLiveBytes  *float64 `json:"heap_live_bytes"` // after the last cycle
	HeapGoalBytes  *float64 `json:"heap_goal_bytes"`
	GCCycles       *float64 `json:"gc_cycles"`
	GCCPUShare     *float64 `json:"gc_cpu_share"` // of GOMAXPROCS x time, idle marking left out; null without a cycle
	GCPauseUS      Pauses   `json:"gc_pause_us"`
	AllocBytesOp   *float64 `json:"alloc_bytes_per_op"`
	AllocObjectsOp *float64 `json:"alloc_objects_per_op"`
	SchedP50US     *float64 `json:"sched_latency_p50_us"`
	SchedP99US     *float64 `json:"sched_latency_p99_us"`

	GCAssistShare     *float64 `json:"gc_assist_share"` // as GCCPUShare: collecting that requests had to do themselves
	GCLimited         *float64 `json:"gc_limited"`      // 1: the runtime held the collector back in the window, which a small GOMEMLIMIT does; else 0
	MutexWaitPerOp    *float64 `json:"mutex_wait_us_per_op"`
	MinorFaultsPerOp  *float64 `json:"minor_faults_per_op"`
	InstructionsPerOp *float64 `json:"instructions_per_op"` // of user code, where the system lets them be counted

	WALRecords   *float64 `json:"wal_records"`
	WALBytes     *float64 `json:"wal_bytes"`
	WALWrites    *float64 `json:"wal_writes"`
	WALSyncs     *float64 `json:"wal_syncs"`
	WALSyncP50US *float64 `json:"wal_sync_p50_us"` // of the server's life
	WALSyncP99US *float64 `json:"wal_sync_p99_us"`
	WALSyncMaxUS *float64 `json:"wal_sync_max_us"`

	Checkpoints       *float64 `json:"checkpoints"`
	CheckpointSeconds *float64 `json:"checkpoint_seconds"`
	DeviceReadBytes   *float64 `json:"device_read_bytes"`
	DeviceWriteBytes  *float64 `json:"device_write_bytes"`
	MajorFaults       *float64 `json:"major_faults"`

	Keys             *float64 `json:"keys"` // at the end
	StoredBytes      *float64 `json:"stored_bytes"`
	IndexBytes       *float64 `json:"index_bytes"`
	DiskBytes        *float64 `json:"disk_bytes"`
	CompressionRatio *float64 `json:"compression_ratio"`
}

// Client is what the load generator cost, and how much more it could have done.
type Client struct {
	CPUPerOp     *float64 `json:"cpu_us_per_op"`
	GCCycles     *float64 `json:"gc_cycles"`
	GCCPUShare   *float64 `json:"gc_cpu_share"`
	GOMAXPROCS   int      `json:"gomaxprocs"`
	CPUShare     *float64 `json:"cpu_share"`            // of GOMAXPROCS x time
	SchedP99US   *float64 `json:"sched_latency_p99_us"` // goroutines that waited for a CPU
	CeilingQPS   *float64 `json:"ceiling_qps"`          // the same workers and connections with PING
	CeilingShare *float64 `json:"ceiling_share"`        // qps / ceiling_qps
	Bound        string   `json:"bound"`                // server, client, or rate (open loop): what limits the cell; empty: not known
}

// Row is one second of the window; the last may be shorter.
type Row struct {
	T       float64  `json:"t"` // seconds since the start of the window at which the row begins
	Seconds float64  `json:"seconds"`
	OK      int64    `json:"ok"`
	QPS     *float64 `json:"qps"`
	P50US   *float64 `json:"p50_us"` // 2 significant digits, as the others of a row; in open loop from when requests were due
	P99US   *float64 `json:"p99_us"`
	MaxUS   *float64 `json:"max_us"`

	Histogram string     `json:"histogram,omitempty"` // of latency in ns, HDR V2, base64
	Server    *ServerRow `json:"server,omitempty"`    // null: not asked, or no answer
	Cause     string     `json:"cause,omitempty"`     // of a second that stands out: what happened in it
}

// ServerRow is what a second cost, from INFO and the system, read once a second. Null where nobody tells.
type ServerRow struct {
	CPUSeconds   *float64 `json:"cpu_seconds"`
	GCCycles     *float64 `json:"gc_cycles"`
	GCPauseMaxUS *float64 `json:"gc_pause_max_us"` // when it is the longest of the window so far
	WALSyncs     *float64 `json:"wal_syncs"`
	WALSyncUS    *float64 `json:"wal_sync_us"` // mean of those that ended
	Checkpoint   bool     `json:"checkpoint"`  // one ran
	MinorFaults  *float64 `json:"minor_faults"`
	MajorFaults  *float64 `json:"major_faults"`
	ReadBytes    *float64 `json:"read_bytes"` // from the device
	WriteBytes   *float64 `json:"write_bytes"`
	RSSBytes     *float64 `json:"rss_bytes"`
	ClientGC     *float64 `json:"client_gc_cycles"`
	OthersShare  *float64 `json:"others_cpu_share"`
	StealShare   *float64 `json:"steal_share"`
	InfoUS       *float64 `json:"info_us,omitempty"` // how long the server took to answer the question for this row
}

// Comparison is a verdict over cells; see package compare.
type Comparison struct {
	Mode    string   `json:"mode"`
	Op      string   `json:"op"`
	Metric  string   `json:"metric"`
	Base    string   `json:"base"`
	Other   string   `json:"other"`
	Ratio   *float64 `json:"ratio"`
	CILow   *float64 `json:"ci_low"`
	CIHigh  *float64 `json:"ci_high"`
	N       int      `json:"n"`
	P       *float64 `json:"p"`
	PHolm   *float64 `json:"p_holm"`
	Verdict string   `json:"verdict"` // higher, lower, same within X, inconclusive
}

// NoCounters begins the detail of a check that passes because a server, or a proxy before it, does not tell what it would need.
const NoCounters = "n/a: the server gives no counters"

// Number is x, or nil where x is not a number that JSON can carry.
func Number(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Ratio is a/b, or nil where either is nil or the quotient is undefined.
func Ratio(a, b *float64) *float64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	return Number(*a / *b)
}
