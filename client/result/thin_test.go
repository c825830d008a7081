package result

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A week a phase, at the default cells: the file can be read again, and shows the seconds that matter.
func TestAWeekOfSecondsIsKeptInOneFile(t *testing.T) {
	const week = 7 * 24 * 3600
	rows, histogram := make([]Row, week), strings.Repeat("x", 400)
	usual, most, server := Number(100_000), Number(900), &ServerRow{CPUSeconds: Number(1), RSSBytes: Number(1e9)}
	for i := range rows {
		rows[i] = Row{
			T: float64(i), Seconds: 1, OK: 100_000, QPS: usual, P50US: most, P99US: most, MaxUS: most,
			Histogram: histogram, Server: server,
		}
	}
	rows[123_456].QPS, rows[123_456].OK, rows[123_456].Cause = Number(0), 0, "no reply"
	rows[234_567].QPS = Number(200_000)
	rows[345_678].MaxUS, rows[345_678].Cause = Number(5e6), "fsync"
	f := example()
	f.Cells = nil
	for i := range 6 {
		f.Cells = append(f.Cells, Cell{Mode: "memory", Op: fmt.Sprint("op", i), Repeat: 1, Started: time.Unix(0, 0).UTC(), Seconds: week, Series: rows, SeriesSeconds: week, Valid: true, Checks: []Check{}})
	}
	b, err := f.Encode()
	if err != nil || len(b) > MaxBytes/4 {
		t.Fatalf("%v, %d bytes", err, len(b))
	}
	back, err := Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c := back.Cells[5]
	if len(c.Series) > MaxRows || len(c.Series) < MaxRows/4 || c.SeriesSeconds != week || len(f.Cells[0].Series) != week {
		t.Errorf("%d rows of %d", len(c.Series), c.SeriesSeconds)
	}
	found := map[float64]bool{}
	for i, r := range c.Series {
		found[r.T] = true
		if i > 0 && r.T <= c.Series[i-1].T {
			t.Fatalf("rows %v and %v are out of order", c.Series[i-1].T, r.T)
		}
	}
	for _, want := range []float64{0, 123_456, 234_567, 345_678, week - 1} {
		if !found[want] {
			t.Errorf("second %v is not there", want)
		}
	}
}

func TestShortSeriesAreKeptWhole(t *testing.T) {
	rows := make([]Row, MaxRows)
	if got := Thin(rows); len(got) != MaxRows {
		t.Errorf("%d rows", len(got))
	}
	many := make([]Row, 100_000)
	for i := range many {
		many[i].Cause, many[i].MaxUS = "gc", Number(float64(i))
	}
	if got := Thin(many); len(got) > MaxRows {
		t.Errorf("%d rows, want at most %d", len(got), MaxRows)
	}
}
