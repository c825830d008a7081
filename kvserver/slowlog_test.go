package kvserver

import (
	"fmt"
	"strings"
	"testing"

	"kvmark/kvserver/resp"
)

// slowEntries are the arguments of the slow log's entries, the newest first.
func slowEntries(t *testing.T, c *client) (entries []string) {
	t.Helper()
	reply, err := c.do("SLOWLOG", "GET", "-1")
	if err != nil {
		t.Fatal(err)
	}
	var p resp.ReplyParser
	r, _, err := p.Next([]byte(reply))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range r.Elems {
		if len(e.Elems) != 6 || e.Elems[0].Int != r.Elems[0].Elems[0].Int-int64(i) || e.Elems[1].Int < 1_600_000_000 || e.Elems[2].Int < 0 {
			t.Errorf("entry %d: %v", i, e)
			continue
		}
		var words []string
		for _, a := range e.Elems[3].Elems {
			words = append(words, string(a.Bytes))
		}
		entries = append(entries, strings.Join(words, " ")+" by "+string(e.Elems[5].Bytes))
	}
	return entries
}

// slowLines are run by a client of the name me. want is what the slow log keeps of the line; "" = nothing.
func slowLines() (lines, want []string) {
	long, many := strings.Repeat("x", 200), strings.Repeat(" k", 40)
	for _, l := range [][2]string{
		{"SET k v", "SET k v"},
		{"SET " + long + " " + long[:128], "SET " + long[:128] + "... (72 more bytes) " + long[:128]},
		{"MGET" + many, "MGET" + strings.Repeat(" k", 30) + " ... (10 more arguments)"},
		{"MGET" + strings.Repeat(" k", 31), "MGET" + strings.Repeat(" k", 31)},
		{"GET", ""}, // not run
		{"BOGUS secret", ""},
		{"AUTH secret", "AUTH (redacted)"},
		{"AUTH default secret", "AUTH (redacted) (redacted)"},
		{"HELLO 2 AUTH default secret SETNAME me", "HELLO 2 AUTH (redacted) (redacted) SETNAME me"},
		{"HELLO 2 SETNAME me AUTH default secret", "HELLO 2 SETNAME me AUTH (redacted) (redacted)"},
		{"CONFIG SET requirepass ''", "CONFIG SET requirepass (redacted)"},
		{"CONFIG SET timeout 0 masterauth ''", "CONFIG SET timeout 0 masterauth (redacted)"},
		{"MULTI", "MULTI"},
		{"INCR n", ""}, // queued
		{"EXEC", "INCR n"},
		{"SLOWLOG LEN", "SLOWLOG LEN"},
	} {
		lines = append(lines, l[0])
		if l[1] != "" {
			want = append([]string{l[1] + " by me"}, want...)
		}
	}
	return lines, want
}

func runSlowLines(t *testing.T, c *client) {
	t.Helper()
	lines, want := slowLines()
	for _, line := range append([]string{"CLIENT SETNAME me", "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 1000", "SLOWLOG RESET"}, lines...) {
		var p resp.Parser
		args, _, err := p.Next([]byte(line + "\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, a := range args {
			words = append(words, string(a))
		}
		if _, err := c.do(words...); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	want = append(want, "SLOWLOG RESET by me")
	got := slowEntries(t, c)
	if len(got) != len(want) {
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("entry %d:\n got %q\nwant %q", i, got[i], want[i])
		}
	}
	c.want(fmt.Sprintf(":%d\r\n", len(want)+1), "SLOWLOG", "LEN") // with SLOWLOG GET
	c.want(ok, "CONFIG", "SET", "slowlog-max-len", "3")
	c.want(":3\r\n", "SLOWLOG", "LEN")
	c.want(ok, "CONFIG", "SET", "slowlog-log-slower-than", "-1")
	c.want(ok, "SLOWLOG", "RESET")
	c.want(":0\r\n", "SLOWLOG", "LEN")
}

func TestSlowLogKeepsWhatWasSlow(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		c := dial(t, listen(t, open(t, Options{IO: path})))
		runSlowLines(t, c)
		c.want(ok, "SET", "k", "v")
		c.want(ok, "CONFIG", "SET", "slowlog-log-slower-than", "3600000000")
		c.want(":0\r\n", "SLOWLOG", "LEN")
	})
}

// The table is right for Redis, too.
func TestSlowLogKeepsWhatRedisKeeps(t *testing.T) { runSlowLines(t, redis(t)) }

// What takes long is a sample of the latency monitor, by the kind of its command.
func TestLatencyMonitorHasSamples(t *testing.T) {
	c := speak(t, open(t, Options{}))
	in := resp.AppendCommand(nil, "SET", "big", strings.Repeat("v", 16<<20))
	for i := range 50_000 {
		in = fmt.Appendf(in, "SET key:%d v\r\n", i)
	}
	c.send(in)
	events := map[string]string{"command": "KEYS *:*5*7*", "fast-command": "GET big"}
	for _, line := range events {
		c.do(line) // the monitor is off
	}
	c.want("LATENCY LATEST", "*0\r\n")
	c.want("CONFIG SET latency-monitor-threshold 1", ok)
	for event, line := range events {
		var history resp.Reply
		for range 200 { // one of them takes a millisecond
			c.do(line)
			var p resp.ReplyParser
			var err error
			if history, _, err = p.Next([]byte(c.do("LATENCY HISTORY " + event))); err != nil || len(history.Elems) > 0 {
				break
			}
		}
		if len(history.Elems) == 0 || history.Elems[0].Elems[0].Int < 1_600_000_000 || history.Elems[0].Elems[1].Int < 1 {
			t.Fatalf("%s: history %v", event, history)
		}
		latest := c.do("LATENCY LATEST")
		if !strings.Contains(latest, fmt.Sprintf("$%d\r\n%s\r\n:%d\r\n", len(event), event, history.Elems[0].Elems[0].Int)) {
			t.Errorf("%s: latest %q, history %v", event, latest, history)
		}
		c.want("LATENCY RESET none "+event, ":1\r\n")
		c.want("LATENCY HISTORY "+event, "*0\r\n")
	}
	c.want("CONFIG SET latency-monitor-threshold 0", ok)
	c.want("LATENCY RESET", ":0\r\n")
	c.do(events["command"])
	c.want("LATENCY LATEST", "*0\r\n")
}
