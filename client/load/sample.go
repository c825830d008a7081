package load

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"kvmark/client/result"
)

// sample asks the server for INFO once a second while a window is open, over the control connection, and returns a function
// that ends that and gives the rows, one for each second; nil where the server did not answer in time. INFO is no Set and
// no Get, so the books know nothing of it; it costs the server about 0.3 ms of CPU time a second.
func (s *session) sample(ctx context.Context, op string, before edge) (join func() []*result.ServerRow) {
	var rows []*result.ServerRow
	stop, gone := make(chan struct{}), make(chan struct{})
	go func() { // ends with join
		defer close(gone)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last, begin, end := before, time.Now(), time.Duration(0)
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			_ = s.cool(op) // it worked a moment ago; at worst the data are warm, which the device's bytes show
			now, err := s.edge(ctx)
			if err != nil {
				return // the end of the window finds out why
			}
			at := time.Since(begin)
			if second := int(at.Round(time.Second)/time.Second) - 1; second >= len(rows) {
				rows = append(rows, make([]*result.ServerRow, second-len(rows)+1)...)
				if at-end < 3*time.Second/2 { // or it tells of several seconds
					row := serverRow(last, now)
					rows[second] = &row
				}
			}
			last, end = now, at
		}
	}()
	return func() []*result.ServerRow {
		close(stop)
		<-gone
		return rows
	}
}

// serverRow is what happened between two readings.
func serverRow(before, after edge) result.ServerRow {
	a, b := before.server, after.server
	delta := func(name string) *float64 {
		x, y := a.number(name), b.number(name)
		if x == nil || y == nil {
			return nil
		}
		return result.Number(*y - *x)
	}
	r := result.ServerRow{
		GCCycles: delta("gc_cycles"), WALSyncs: delta("wal_syncs"),
		Checkpoint:  b["checkpoint_in_progress"] == "1" || deref(delta("checkpoints")) > 0,
		MinorFaults: delta("minor_faults"), MajorFaults: delta("major_faults"),
		ReadBytes: delta("read_bytes"), WriteBytes: delta("write_bytes"), RSSBytes: b.number("used_memory_rss"),
		ClientGC: result.Number(after.own.cycles - before.own.cycles), InfoUS: result.Number(float64(after.took.Nanoseconds()) / 1e3),
	}
	if user, sys := delta("used_cpu_user"), delta("used_cpu_sys"); user != nil && sys != nil {
		r.CPUSeconds = result.Number(*user + *sys)
	}
	if sync := result.Ratio(delta("wal_sync_seconds"), r.WALSyncs); sync != nil {
		r.WALSyncUS = result.Number(*sync * 1e6)
	}
	if deref(delta("gc_pause_max_us")) > 0 {
		r.GCPauseMaxUS = b.number("gc_pause_max_us")
	}
	others := after.load.Since(before.load, (after.own.cpu-before.own.cpu).Seconds()+deref(r.CPUSeconds))
	r.OthersShare, r.StealShare = others.CPUShare, others.StealShare
	return r
}

func deref(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// join puts the server's rows beside ours, and names the likely cause of every second that stands out, of a long window hour
// by hour: what is usual may change in days, and is sought in all rows again for each that is not.
func join(rows []result.Row, samples []*result.ServerRow) {
	total := int64(0)
	for _, r := range rows {
		total += r.OK
	}
	for i := range rows {
		if i < len(samples) {
			rows[i].Server = samples[i]
		}
		if rows[i].OK == 0 && rows[i].Seconds >= stallSeconds && total >= stallReplies*int64(len(rows)) { // in a window of any length
			rows[i].Cause = noReply
			if rows[i].Server == nil {
				rows[i].Cause += ", and none to INFO: the server stood still"
			}
		}
	}
	for hour := range slices.Chunk(rows, result.MaxRows) {
		findCauses(hour)
	}
}

// findCauses names the likely cause of every row that stands out of the others.
func findCauses(rows []result.Row) {
	var whole []result.Row
	for _, r := range rows {
		if r.Seconds >= 0.99 && r.QPS != nil {
			whole = append(whole, r)
		}
	}
	if len(whole) < minRows {
		return
	}
	usual := func(number func(result.Row) *float64) float64 {
		var xs []float64
		for _, r := range whole {
			xs = append(xs, deref(number(r)))
		}
		slices.Sort(xs)
		return xs[len(xs)/2]
	}
	qps := usual(func(r result.Row) *float64 { return r.QPS })
	p99 := usual(func(r result.Row) *float64 { return r.P99US })
	for i, r := range rows {
		if r.Cause != "" || r.Seconds < 0.99 || deref(r.QPS) >= slowShare*qps && deref(r.P99US) <= slowTimes*p99 {
			continue
		}
		need := deref(r.P99US) / 1e6
		if deref(r.QPS) < slowShare*qps {
			need = (1 - deref(r.QPS)/qps) * r.Seconds
		}
		rows[i].Cause = cause(r, explainShare*need, usual)
	}
}

// A second stands out if its rate is below this part of the median, or its p99 above these times the median.
const (
	minRows   = 5 // fewer have no usual second
	slowShare = 0.75
	slowTimes = 3
	// What is named as the cause must have taken this part of the time that was lost, or of the p99 where the rate was as usual.
	explainShare = 0.5

	fsyncCause = "fsync: "

	stallSeconds = 0.5 // a row that long without a single reply stands out by itself,
	stallReplies = 10  // where so many a second are usual
	noReply      = "no reply at all"
)

// cause says what was unusual in a second and took at least so many seconds of it, where its length is known, the most telling
// first. A cause is a guess: two things in one second.
func cause(r result.Row, need float64, usual func(func(result.Row) *float64) float64) string {
	s := r.Server
	if s == nil {
		return "the server gave no account of this second"
	}
	most := func(number func(*result.ServerRow) *float64, times float64) (float64, bool) {
		x := deref(number(s))
		u := usual(func(r result.Row) *float64 {
			if r.Server == nil {
				return nil
			}
			return number(r.Server)
		})
		return x, x > times*u
	}
	cpus := float64(runtime.NumCPU())
	if us, more := most(func(s *result.ServerRow) *float64 { return s.WALSyncUS }, 3); more && us > 5_000 && deref(s.WALSyncs)*us/1e6 >= need {
		return fmt.Sprintf(fsyncCause+"%.0f took %.0f ms on average", deref(s.WALSyncs), us/1e3)
	}
	if share, more := most(func(s *result.ServerRow) *float64 { return s.StealShare }, 2); more && share > 0.02 && share*cpus*r.Seconds >= need {
		return fmt.Sprintf("steal: the hypervisor took %.0f %% of the CPU time", 100*share)
	}
	if share, more := most(func(s *result.ServerRow) *float64 { return s.OthersShare }, 1.5); more && share > 0.1 && share*cpus*r.Seconds >= need {
		return fmt.Sprintf("other load: other processes used %.0f %% of the CPUs", 100*share)
	}
	if s.Checkpoint {
		return "a checkpoint ran"
	}
	if pause := deref(s.GCPauseMaxUS); pause > 1_000 && pause/1e6 >= need {
		return fmt.Sprintf("GC: a pause of up to %.1f ms", pause/1e3)
	}
	if n, more := most(func(s *result.ServerRow) *float64 { return s.GCCycles }, 1.5); more && n > 0 {
		return fmt.Sprintf("GC: %.0f cycles", n)
	}
	if n, more := most(func(s *result.ServerRow) *float64 { return s.MajorFaults }, 2); more && n > 10 {
		return fmt.Sprintf("paging: %.0f major faults", n)
	}
	if n, more := most(func(s *result.ServerRow) *float64 { return s.ReadBytes }, 2); more && n > 1<<20 {
		return fmt.Sprintf("device: %.1f MB read", n/1e6)
	}
	// What is steady tells no second from another, but it is what stands out of the machine.
	steady := func(number func(*result.ServerRow) *float64) float64 {
		return usual(func(r result.Row) *float64 {
			if r.Server == nil {
				return nil
			}
			return number(r.Server)
		})
	}
	if share := deref(s.StealShare); share > 0.02 {
		return fmt.Sprintf("steady steal: the hypervisor took %.0f %% of the CPU time here, %.0f %% in the median second",
			100*share, 100*steady(func(s *result.ServerRow) *float64 { return s.StealShare }))
	}
	if share := deref(s.OthersShare); share > 0.1 {
		return fmt.Sprintf("steady other load: other processes used %.0f %% of the CPUs here, %.0f %% in the median second",
			100*share, 100*steady(func(s *result.ServerRow) *float64 { return s.OthersShare }))
	}
	return "no cause seen"
}
