package load

import (
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"kvmark/client/result"
)

// secondOpinion has redis-benchmark load the server with Sets, then Gets, as much like our own load as it can, and enters
// what it finds in the last cell of each operation. That is the last thing done with a server: it leaves other keys behind.
// Without the program, or with an operation it has not, nothing is entered.
func (s *session) secondOpinion(ctx context.Context) {
	if s.server.password != "" {
		s.Logf("second opinion: redis-benchmark takes a password only on its command line, where everybody can read it: not run")
		return
	}
	if s.server.tls.On {
		s.Logf("second opinion: redis-benchmark is not run over TLS, which not every build of it has")
		return
	}
	tool, err := exec.LookPath("redis-benchmark")
	if err != nil {
		s.Logf("second opinion: no redis-benchmark in PATH")
		return
	}
	version, err := exec.CommandContext(ctx, tool, "--version").Output()
	if err != nil {
		s.Logf("second opinion: %s --version: %v", tool, err)
		return
	}
	for _, op := range []string{"set", "get"} {
		cell := s.lastCell(op)
		if cell == nil || deref(cell.QPS) == 0 || ctx.Err() != nil {
			continue
		}
		o, err := s.redisBenchmark(ctx, tool, op, deref(cell.QPS))
		if err != nil {
			s.Logf("second opinion: %v", err)
			continue
		}
		o.Tool = strings.TrimSpace(string(version))
		o.Note = s.explain(*cell, o)
		cell.SecondOpinion = &o
	}
}

func (s *session) lastCell(op string) *result.Cell {
	for i := len(s.out.Cells) - 1; i >= 0; i-- {
		if c := &s.out.Cells[i]; c.Op == op && c.Mode == s.mode {
			return c
		}
	}
	return nil
}

// opinionLength is about how long redis-benchmark runs for each operation, if it is as fast as we are.
func (s *session) opinionLength() time.Duration { return min(s.Duration, 10*time.Second) }

func (s *session) redisBenchmark(ctx context.Context, tool, op string, qps float64) (o result.SecondOpinion, err error) {
	where := []string{"-s", strings.TrimPrefix(s.server.addr, "unix:")}
	if host, port, err := net.SplitHostPort(s.server.addr); err == nil && where[1] == s.server.addr {
		where = []string{"-h", host, "-p", port}
	}
	n := max(1000, int(qps*s.opinionLength().Seconds()))
	args := append(where,
		"-t", op, "-c", strconv.Itoa(s.Workload.Workers), "-P", strconv.Itoa(s.Pipeline),
		"-n", strconv.Itoa(n), "-r", strconv.Itoa(s.Workload.Workers*s.Workload.Keys), "-d", strconv.Itoa(int(s.Workload.MeanValueBytes()+0.5)), "--csv",
	)
	ctx, cancel := context.WithTimeout(ctx, 10*s.opinionLength()+s.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return o, fmt.Errorf("%s %s: %w", tool, strings.Join(args, " "), err)
	}
	o.Command = "redis-benchmark " + strings.Join(args, " ")
	if err := parseOpinion(&o, string(out)); err != nil {
		return o, fmt.Errorf("%s: %w", o.Command, err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	o.CPUPerOp = result.Number(used.Seconds() * 1e6 / float64(n))
	return o, nil
}

// parseOpinion reads redis-benchmark's --csv, milliseconds:
//
//	"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
//	"SET","20202.02","0.391","0.048","0.367","0.823","1.367","3.663"
func parseOpinion(o *result.SecondOpinion, text string) error {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != 2 || len(rows[0]) != len(rows[1]) {
		return fmt.Errorf("its CSV is not a heading and a row: %.200q", text)
	}
	number := func(name string, scale float64) *float64 {
		for i, h := range rows[0] {
			if h == name {
				if x, err := strconv.ParseFloat(rows[1][i], 64); err == nil {
					return result.Number(x * scale)
				}
			}
		}
		return nil
	}
	o.QPS, o.P50US, o.P99US = number("rps", 1), number("p50_latency_ms", 1e3), number("p99_latency_ms", 1e3)
	if o.QPS == nil {
		return fmt.Errorf("its CSV has no rps: %.200q", text)
	}
	return nil
}

// explain says what makes the two loads differ, and which way that goes.
func (s *session) explain(c result.Cell, o result.SecondOpinion) string {
	why := []string{"its keys are 16 bytes, ours about " + strconv.Itoa(len(s.workers[0].gen.AppendKey(nil, s.Workload.Keys-1)))}
	if c.Op == "get" {
		why = append(why, "it takes a missing key for an answer and looks at no value, we compare each")
	} else if s.mode == "serialize" {
		why = append(why, "its values are all the same and compress to almost nothing")
	}
	if s.Rate.Open() {
		why = append(why, "it knows no rate: it sends as fast as it is answered")
	}
	if s.Workload.Distribution.String() != "uniform" {
		why = append(why, "its keys are uniform")
	}
	if s.Pipeline > 1 {
		why = append(why, "it gives every command of a batch the time of the last one")
	}
	if a, b := c.Client.CPUPerOp, o.CPUPerOp; a != nil && b != nil {
		why = append(why, fmt.Sprintf("on one machine a client's CPU is taken from the server: ours %.1f us per operation, its %.1f", *a, *b))
	}
	return strings.Join(why, "; ")
}
