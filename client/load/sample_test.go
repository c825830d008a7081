package load

import (
	"strings"
	"testing"

	"kvmark/client/result"
)

func TestASecondThatStandsOutIsToldWithItsCause(t *testing.T) {
	n := result.Number
	tests := []struct {
		name   string
		change func(*result.Row)
		want   string // "": nothing stands out
	}{
		{"as the others", func(*result.Row) {}, ""},
		{"a little slower", func(r *result.Row) { r.QPS = n(900) }, ""},
		{"slow, for no reason that shows", func(r *result.Row) { r.QPS = n(500) }, "no cause seen"},
		{"a long tail at the usual rate", func(r *result.Row) { r.P99US = n(5000) }, "no cause seen"},
		{"without an account", func(r *result.Row) { r.QPS, r.Server = n(500), nil }, "no account"},
		{"a slow device", func(r *result.Row) { r.QPS, r.Server.WALSyncUS = n(500), n(400_000) }, "fsync: 1 took 400 ms"},
		{"a device that is slow, but not that slow", func(r *result.Row) { r.QPS, r.Server.WALSyncUS = n(500), n(90_000) }, "no cause seen"},
		{"a tail of one fsync", func(r *result.Row) { r.P99US, r.Server.WALSyncUS = n(50_000), n(90_000) }, "fsync: 1 took 90 ms"},
		{"a pause that is too short for it", func(r *result.Row) { r.QPS, r.Server.GCPauseMaxUS = n(100), n(4000) }, "no cause seen"},
		{"steal", func(r *result.Row) { r.QPS, r.Server.StealShare = n(500), n(0.3) }, "steal: the hypervisor took 30 %"},
		{"others", func(r *result.Row) { r.QPS, r.Server.OthersShare = n(500), n(0.5) }, "other processes used 50 %"},
		{"a checkpoint", func(r *result.Row) { r.QPS, r.Server.Checkpoint = n(500), true }, "checkpoint"},
		{"a pause", func(r *result.Row) { r.P99US, r.Server.GCPauseMaxUS = n(5000), n(4000) }, "a pause of up to 4.0 ms"},
		{"many collections", func(r *result.Row) { r.QPS, r.Server.GCCycles = n(500), n(9) }, "GC: 9 cycles"},
		{"paging", func(r *result.Row) { r.QPS, r.Server.MajorFaults = n(500), n(300) }, "300 major faults"},
		{"reads", func(r *result.Row) { r.QPS, r.Server.ReadBytes = n(500), n(5e7) }, "50.0 MB read"},
		{"a part of a second", func(r *result.Row) { r.Seconds, r.QPS = 0.3, n(1) }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rows := make([]result.Row, 9)
			samples := make([]*result.ServerRow, 9)
			for i := range rows {
				rows[i] = result.Row{T: float64(i), Seconds: 1, OK: 1000, QPS: n(1000), P99US: n(500)}
				samples[i] = &result.ServerRow{
					WALSyncs: n(1), WALSyncUS: n(2000), GCCycles: n(3), StealShare: n(0.01), OthersShare: n(0.05), MajorFaults: n(0), ReadBytes: n(0),
				}
			}
			rows[4].Server = samples[4]
			tt.change(&rows[4])
			if rows[4].Server == nil {
				samples[4] = nil
			}
			join(rows, samples)
			for i, r := range rows {
				switch {
				case i != 4 && r.Cause != "":
					t.Errorf("row %d stands out: %s", i, r.Cause)
				case i == 4 && (tt.want == "") != (r.Cause == "") || i == 4 && !strings.Contains(r.Cause, tt.want):
					t.Errorf("cause %q, want %q", r.Cause, tt.want)
				}
			}
		})
	}
	t.Run("steady load is named with both figures", func(t *testing.T) {
		for _, tt := range []struct {
			row  result.ServerRow
			want string
		}{
			{result.ServerRow{OthersShare: n(0.85)}, "other processes used 85 % of the CPUs here, 85 % in the median second"},
			{result.ServerRow{StealShare: n(0.3)}, "the hypervisor took 30 % of the CPU time here, 30 % in the median second"},
		} {
			rows, samples := make([]result.Row, 9), make([]*result.ServerRow, 9)
			for i := range rows {
				rows[i] = result.Row{T: float64(i), Seconds: 1, OK: 1000, QPS: n(1000), P99US: n(500)}
				samples[i] = &tt.row
			}
			rows[4].QPS = n(500)
			join(rows, samples)
			if !strings.Contains(rows[4].Cause, tt.want) {
				t.Errorf("cause %q, want %q", rows[4].Cause, tt.want)
			}
		}
	})
	t.Run("too few seconds to know what is usual", func(t *testing.T) {
		rows := []result.Row{{Seconds: 1, OK: 1000, QPS: n(1000)}, {T: 1, Seconds: 1, OK: 1, QPS: n(1)}}
		join(rows, nil)
		if rows[1].Cause != "" {
			t.Error(rows[1].Cause)
		}
	})
	t.Run("a second without a reply is known among few", func(t *testing.T) {
		rows := []result.Row{{Seconds: 1, OK: 1000, QPS: n(1000)}, {T: 1, Seconds: 1, QPS: n(0)}, {T: 2, Seconds: 1, QPS: n(0)}}
		join(rows, []*result.ServerRow{{}, {}})
		if rows[0].Cause != "" || rows[1].Cause != "no reply at all" || !strings.Contains(rows[2].Cause, "stood still") {
			t.Errorf("causes %q, %q, %q", rows[0].Cause, rows[1].Cause, rows[2].Cause)
		}
	})
	t.Run("a second without a reply is nothing odd where few are asked for", func(t *testing.T) {
		rows := []result.Row{{Seconds: 1, OK: 1, QPS: n(1)}, {T: 1, Seconds: 1, QPS: n(0)}}
		join(rows, nil)
		if rows[1].Cause != "" {
			t.Error(rows[1].Cause)
		}
	})
}

func TestARowIsTheDifferenceOfTwoReadings(t *testing.T) {
	before := edge{server: info{
		"gc_cycles": "3", "wal_syncs": "10", "wal_sync_seconds": "1.0", "used_cpu_user": "2", "used_cpu_sys": "1", "gc_pause_max_us": "50",
		"read_bytes": "100", "checkpoints": "1", "checkpoint_in_progress": "0",
	}}
	after := edge{server: info{
		"gc_cycles": "5", "wal_syncs": "14", "wal_sync_seconds": "1.2", "used_cpu_user": "2.5", "used_cpu_sys": "1.25", "gc_pause_max_us": "70",
		"read_bytes": "300", "checkpoints": "2", "checkpoint_in_progress": "0", "used_memory_rss": "9",
	}}
	r := serverRow(before, after)
	for name, tt := range map[string]struct {
		got  *float64
		want float64
	}{
		"cycles": {r.GCCycles, 2}, "syncs": {r.WALSyncs, 4}, "sync": {r.WALSyncUS, 50_000}, "cpu": {r.CPUSeconds, 0.75},
		"pause": {r.GCPauseMaxUS, 70}, "read": {r.ReadBytes, 200}, "rss": {r.RSSBytes, 9},
	} {
		if tt.got == nil || *tt.got < tt.want*0.999 || *tt.got > tt.want*1.001 {
			t.Errorf("%s is %v, want %v", name, tt.got, tt.want)
		}
	}
	if !r.Checkpoint {
		t.Error("the checkpoint is not seen")
	}
	if r := serverRow(edge{}, edge{}); r.GCCycles != nil || r.WALSyncUS != nil || r.Checkpoint {
		t.Errorf("%+v of nothing", r)
	}
}
