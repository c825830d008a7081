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

// kneeShare is the part of the offered messages below which a server is said not to keep up, and the client not to have
// offered them.
const kneeShare = 0.95

// writeConns writes a row for each point, and names the best one, and of each sweep with an offered rate the knee.
func writeConns(out io.Writer, f *result.File) error {
	w := bufio.NewWriter(out)
	for _, line := range introduction(f, connsIntro(f)) {
		fmt.Fprintln(w, line)
	}
	if f.Interrupted {
		fmt.Fprintln(w, "INTERRUPTED: what follows is what there is")
	}
	all := groups(f)
	rows := [][]string{connsColumns()}
	for _, g := range all {
		rows = append(rows, g.connsRow())
	}
	fmt.Fprintln(w)
	writeGrid(w, rows)
	if len(all) > 0 {
		fmt.Fprintf(w, "  %s\n", connsVerdict(f))
	}
	for _, g := range all {
		for _, line := range g.connsFailures() {
			fmt.Fprintf(w, "  %s\n", line)
		}
		if words := g.drained(); words != "" {
			fmt.Fprintf(w, "  %s\n", words)
		}
	}
	fmt.Fprintln(w)
	for _, line := range findings(all, f.Plan.Extra["interval"] != "") {
		fmt.Fprintln(w, line)
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "nothing was measured")
	}
	return w.Flush()
}

// connsIntro says what ran.
func connsIntro(f *result.File) []string {
	s, h, p := f.Env.Server, f.Env.Host, f.Plan.Extra
	lines := []string{
		fmt.Sprintf("%s, %s, %s; %s; %s", plain(cmp.Or(f.Plan.Target, "kvserver")), plain(cmp.Or(s.Words(), "version unknown")), Plural(h.CPUs, "core"), h.CPU, moved(f)),
		fmt.Sprintf("messages of %s bytes on each connection in turn, no replies; %s s after %s s of warm-up; %s; at most %s connections a second",
			p["message_size"], trim(f.Plan.DurationSeconds), trim(f.Plan.WarmupSeconds), clientsWord(p["clients"]), p["connect_rate"]),
	}
	if interval := p["interval"]; interval != "" {
		lines = append(lines, fmt.Sprintf("a round over all connections, then a pause of %s, as in the original test: more connections are also more messages,", interval),
			"so that this sweep cannot tell what connections cost; use --rate for that")
	}
	return lines
}

func clientsWord(n string) string {
	if n == "1" {
		return "1 client process"
	}
	return n + " client processes"
}

// connsVerdict says whether the numbers may be used.
func connsVerdict(f *result.File) string {
	valid := 0
	for _, c := range f.Cells {
		if c.Valid {
			valid++
		}
	}
	if valid == len(f.Cells) {
		return fmt.Sprintf("VALID (%s)", Plural(valid, "point"))
	}
	return fmt.Sprintf("INVALID (%d of %s)", len(f.Cells)-valid, Plural(len(f.Cells), "point"))
}

func connsColumns() []string {
	return []string{
		"connections", "rate", "offered/s", "sent/s", "received/s", "min..max", "received/offered", "server CPUs", "CPU us/message",
		"KB/connection", "connect p50 us", "p99 us", "connects/s",
	}
}

func (g group) connsFailures() (lines []string) {
	for _, c := range g.cells {
		for _, check := range c.Checks {
			if !check.Pass {
				lines = append(lines, fmt.Sprintf("INVALID %s, repeat %d: %s: %s", g.config, c.Repeat, check.Name, plain(check.Detail)))
			}
		}
	}
	return lines
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

// sentShare is the part of what was to be offered that the client sent.
func (g group) sentShare() float64 {
	share := result.Ratio(g.conns(func(c result.Conns) *float64 { return c.Sent }), g.offered())
	return number0(share)
}

// wasOffered reports whether the client sent enough to find out what the server bears.
func (g group) wasOffered() bool { return g.sentShare() >= kneeShare }

// perConnection is the memory of a connection in KB.
func (g group) perConnection() string {
	bytes := g.conns(func(c result.Conns) *float64 { return c.RSSPerConnB })
	if bytes == nil && g.conns(func(c result.Conns) *float64 { return c.ConnectPerSec }) != nil {
		return "n/a"
	}
	return given(bytes, func(x *float64) string { return shape(x, "%.1f", 1e-3) })
}

// behindBy is the time that a server has to fall behind what was sent to be the one that keeps the client from sending more.
const behindBy = 0.1 // seconds

// heldBack reports whether it was the server that kept the client from sending: more waited for it than it takes in a moment.
func (g group) heldBack() bool {
	waiting := g.conns(func(c result.Conns) *float64 { return c.WaitingAfter })
	return waiting != nil && *waiting > behindBy*number0(g.received())
}

// drained says why more was received than sent; "" where it was not.
func (g group) drained() string {
	sent, received := g.conns(func(c result.Conns) *float64 { return c.Sent }), g.received()
	before, after := g.conns(func(c result.Conns) *float64 { return c.WaitingBefore }), g.conns(func(c result.Conns) *float64 { return c.WaitingAfter })
	if sent == nil || received == nil || before == nil || after == nil || *received <= *sent || *before-*after < 1 {
		return ""
	}
	return fmt.Sprintf("%s: more was received than sent: %s messages sent before the window were still on their way when it began, %s when it ended",
		point(g), count(before), count(after))
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
		g.perConnection(),
		given(g.median(func(c result.Cell) *float64 { return c.LatencyUS.P50 }), micros),
		given(g.median(func(c result.Cell) *float64 { return c.LatencyUS.P99 }), micros),
		given(g.conns(func(c result.Conns) *float64 { return c.ConnectPerSec }), count),
	}
}

// findings names the best point, and the knee of each sweep.
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
	for _, s := range sweeps(all, interval) {
		if s.offered {
			lines = append(lines, s.finding())
			for _, g := range s.points {
				if !g.wasOffered() && !g.heldBack() {
					lines = append(lines, fmt.Sprintf("  %s: the client sent only %.0f %% of what was to be offered: not counted for the knee", point(g), 100*g.sentShare()))
				}
			}
		}
	}
	return lines
}

// sweep is points that differ in one thing: connections for each rate, or rates for each number of connections.
type sweep struct {
	words, axis string // such as "of connections at 500 messages/s", along "connections"
	points      []group
	along       func(group) float64
	offered     bool // or as much as can be
}

func (g group) connections() float64 { return float64(connsOf(g.cells[0]).Connections) }

// sweeps are those with an offer first, in order.
func sweeps(all []group, interval bool) (list []sweep) {
	rates, numbers, most := map[string][]group{}, map[int][]group{}, map[string][]group{}
	for _, g := range all {
		rate := g.cells[0].Config["rate"]
		switch {
		case g.share() == nil:
		case g.offered() == nil:
			most[rate] = append(most[rate], g)
		default:
			rates[rate] = append(rates[rate], g)
			numbers[int(g.connections())] = append(numbers[int(g.connections())], g)
		}
	}
	add := func(words, axis string, points []group, along func(group) float64, offered bool) {
		slices.SortStableFunc(points, func(a, b group) int { return cmp.Compare(along(a), along(b)) })
		list = append(list, sweep{words, axis, points, along, offered})
	}
	for _, rate := range slices.Sorted(maps.Keys(rates)) {
		if len(rates[rate]) > 1 || len(numbers) == 1 && len(rates) == 1 {
			words := "of connections at " + rate + " messages/s"
			if interval {
				words = "of connections, a message on each " + rate
			}
			add(words, "connections", rates[rate], group.connections, true)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		if len(numbers[n]) > 1 {
			add(fmt.Sprintf("of the rate with %d connections", n), "offered/s", numbers[n], func(g group) float64 { return *g.offered() }, true)
		}
	}
	for _, rate := range slices.Sorted(maps.Keys(most)) {
		add("of connections at saturation", "connections", most[rate], group.connections, false)
	}
	return list
}

// knee is the first point at which the server received less than it was offered, where the client did send that, or
// was kept from it by the server; nil: none.
func (s sweep) knee() *group {
	for i, g := range s.points {
		if s.offered && (g.wasOffered() || g.heldBack()) && *g.share() < kneeShare {
			return &s.points[i]
		}
	}
	return nil
}

func (s sweep) finding() string {
	if g := s.knee(); g != nil {
		words := fmt.Sprintf("knee %s: %s, received/offered %.3f < %.2f", s.words, point(*g), *g.share(), kneeShare)
		if !g.wasOffered() {
			words += fmt.Sprintf(" (the client sent %.0f %%: the server took no more)", 100*g.sentShare())
		}
		return words
	}
	unsent := ""
	if last := s.points[len(s.points)-1]; !last.wasOffered() {
		unsent = ", which is as much as this client could offer: give it CPUs of its own, or another machine"
	}
	for _, g := range slices.Backward(s.points) {
		if g.wasOffered() {
			return fmt.Sprintf("knee %s: none up to %s%s", s.words, point(g), unsent)
		}
	}
	return fmt.Sprintf("knee %s: not known: this client could not offer the messages: give it CPUs of its own, or another machine", s.words)
}

func point(g group) string {
	return Plural(connsOf(g.cells[0]).Connections, "connection") + " at " + g.cells[0].Config["rate"]
}
