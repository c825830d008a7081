package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"kvmark/client/result"
)

// kneeShare is the part of the offered messages below which a server is said not to keep up.
const kneeShare = 0.95

// writeConns writes a row for each point, and names the best one, and of each sweep with an offered rate the knee.
func writeConns(out io.Writer, f *result.File) error {
	w := bufio.NewWriter(out)
	s, h, p := f.Env.Server, f.Env.Host, f.Plan.Extra
	fmt.Fprintf(w, "%s, %s %s, %d cores; %s\n", plain(cmp.Or(f.Plan.Target, "kvserver")), plain(cmp.Or(s.Version, "version unknown")), plain(s.Go), h.CPUs, h.CPU)
	fmt.Fprintf(w, "messages of %s bytes on each connection in turn, no replies; %s s after %s s of warm-up; %s client process(es); at most %s connections a second\n",
		p["message_size"], trim(f.Plan.DurationSeconds), trim(f.Plan.WarmupSeconds), p["clients"], p["connect_rate"])
	interval := p["interval"]
	if interval != "" {
		fmt.Fprintf(w, "a round over all connections, then a pause of %s, as in the original test: more connections are also more messages,\n"+
			"so that this sweep cannot tell what connections cost; use --rate for that\n", interval)
	}
	if f.Interrupted {
		fmt.Fprintln(w, "INTERRUPTED: what follows is what there is")
	}
	all := groups(f)
	rows := [][]string{{"connections", "rate", "offered/s", "sent/s", "received/s", "min..max", "received/offered", "server CPUs", "CPU us/message",
		"KB/connection", "connect p50 us", "p99 us", "connects/s"}}
	for _, g := range all {
		rows = append(rows, g.connsRow())
	}
	fmt.Fprintln(w)
	writeGrid(w, rows)
	for _, g := range all {
		for _, c := range g.cells {
			for _, check := range c.Checks {
				if !check.Pass {
					fmt.Fprintf(w, "  INVALID %s, repeat %d: %s: %s\n", g.config, c.Repeat, check.Name, plain(check.Detail))
				}
			}
		}
	}
	fmt.Fprintln(w)
	for _, line := range findings(all, interval != "") {
		fmt.Fprintln(w, line)
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "nothing was measured")
	}
	return w.Flush()
}

func connsOf(c result.Cell) result.Conns {
	if c.Conns == nil {
		return result.Conns{}
	}
	return *c.Conns
}

func (g group) conns(number func(result.Conns) *float64) *float64 {
	return g.median(func(c result.Cell) *float64 { return number(connsOf(c)) })
}

func (g group) received() *float64 {
	return g.conns(func(c result.Conns) *float64 { return c.Received })
}
func (g group) offered() *float64 { return g.conns(func(c result.Conns) *float64 { return c.Offered }) }
func (g group) share() *float64 {
	return g.conns(func(c result.Conns) *float64 { return c.ReceivedShare })
}

func (g group) connsRow() []string {
	first := g.cells[0]
	share := "" // of an offer there was none
	if g.offered() != nil {
		share = given(g.share(), func(x *float64) string { return shape(x, "%.3f", 1) })
	}
	return []string{
		fmt.Sprint(connsOf(first).Connections), first.Config["rate"], given(g.offered(), count),
		given(g.conns(func(c result.Conns) *float64 { return c.Sent }), count), count(g.received()), g.spread(), share,
		given(g.conns(func(c result.Conns) *float64 { return c.ServerCPU }), micros2),
		given(g.median(func(c result.Cell) *float64 { return c.Server.CPUPerOp }), micros2),
		given(g.conns(func(c result.Conns) *float64 { return c.RSSPerConnB }), func(x *float64) string { return shape(x, "%.1f", 1e-3) }),
		given(g.median(func(c result.Cell) *float64 { return c.LatencyUS.P50 }), micros),
		given(g.median(func(c result.Cell) *float64 { return c.LatencyUS.P99 }), micros),
		given(g.conns(func(c result.Conns) *float64 { return c.ConnectPerSec }), count),
	}
}

// findings names the best point, and the knees: the first point of a sweep at which the server received less than it was
// offered. Sweeps are along connections for each rate, and along rates for each number of connections.
func findings(all []group, interval bool) []string {
	var lines []string
	var best *group
	for i, g := range all {
		if g.received() != nil && (best == nil || *g.received() > *best.received()) {
			best = &all[i]
		}
	}
	if best != nil {
		lines = append(lines, fmt.Sprintf("best: %s messages/s received, with %s", count(best.received()), point(*best)))
	}
	rates, numbers := map[string][]group{}, map[int][]group{}
	for _, g := range all {
		if g.offered() == nil || g.share() == nil {
			continue
		}
		c := g.cells[0]
		rates[c.Config["rate"]] = append(rates[c.Config["rate"]], g)
		numbers[connsOf(c).Connections] = append(numbers[connsOf(c).Connections], g)
	}
	knee := func(words string, sweep []group, along func(group) float64) {
		slices.SortStableFunc(sweep, func(a, b group) int { return cmp.Compare(along(a), along(b)) })
		for _, g := range sweep {
			if *g.share() < kneeShare {
				lines = append(lines, fmt.Sprintf("knee %s: %s, received/offered %.3f < %.2f", words, point(g), *g.share(), kneeShare))
				return
			}
		}
		lines = append(lines, fmt.Sprintf("knee %s: none up to %s", words, point(sweep[len(sweep)-1])))
	}
	connections := func(g group) float64 { return float64(connsOf(g.cells[0]).Connections) }
	for _, rate := range slices.Sorted(maps.Keys(rates)) {
		if len(rates[rate]) > 1 || len(numbers) == 1 && len(rates) == 1 {
			words := "of connections at " + rate + " messages/s"
			if interval {
				words = "of connections, a message on each " + rate
			}
			knee(words, rates[rate], connections)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		if len(numbers[n]) > 1 {
			knee(fmt.Sprintf("of the rate with %d connections", n), numbers[n], func(g group) float64 { return *g.offered() })
		}
	}
	return lines
}

func point(g group) string {
	return fmt.Sprintf("%d connections at %s", connsOf(g.cells[0]).Connections, g.cells[0].Config["rate"])
}
