package result

import (
	"cmp"
	"slices"
)

// MaxRows bounds the rows of a cell that a file keeps: every second of the first hour, of longer windows the seconds that matter.
const MaxRows = 3600

// stretches are the parts of a long window of which the extremes are kept: three rows each; the rest of MaxRows is for causes.
const stretches = MaxRows * 3 / 4 / 3

// Stretch is the number of the stretch of a window that the row t lies in, of as many rows as given.
func Stretch(t, rows int) int { return ((t+1)*stretches - 1) / rows }

// Thin returns rows, or of more than MaxRows those that show the most: of every stretch of equal length the seconds
// with the least and the most QPS and with the longest wait, and over all the slowest of those that have a cause. Each is as it was measured.
func Thin(rows []Row) []Row {
	if len(rows) <= MaxRows {
		return rows
	}
	keep := map[int]bool{0: true, len(rows) - 1: true}
	for i := range stretches {
		from, to := i*len(rows)/stretches, (i+1)*len(rows)/stretches
		least, most, worst := from, from, from
		for at := from; at < to; at++ {
			r := rows[at]
			if deref(r.QPS) < deref(rows[least].QPS) {
				least = at
			}
			if deref(r.QPS) > deref(rows[most].QPS) {
				most = at
			}
			if deref(r.MaxUS) > deref(rows[worst].MaxUS) {
				worst = at
			}
		}
		keep[least], keep[most], keep[worst] = true, true, true
	}
	var causes []int
	for at, r := range rows {
		if r.Cause != "" && !keep[at] {
			causes = append(causes, at)
		}
	}
	slices.SortStableFunc(causes, func(a, b int) int { return cmp.Compare(deref(rows[b].MaxUS), deref(rows[a].MaxUS)) })
	for _, at := range causes {
		if len(keep) == MaxRows {
			break
		}
		keep[at] = true
	}
	thin := make([]Row, 0, len(keep))
	for at, r := range rows {
		if keep[at] {
			thin = append(thin, r)
		}
	}
	return thin
}
