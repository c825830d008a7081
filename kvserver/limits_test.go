package kvserver

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"kvmark/kvserver/resp"
)

// Every limit, at it and one beyond it.
func TestLimits(t *testing.T) {
	const maxKey, maxValue, maxArgs, maxReply = 100, 8 << 10, 64, 100 << 10
	command := func(args ...string) string { return string(resp.AppendCommand(nil, args...)) }
	repeat := strings.Repeat
	keys := func(n int) []string {
		args := []string{"MGET"}
		for range n {
			args = append(args, "v")
		}
		return args
	}
	full := fmt.Sprintf("$%d\r\n%s\r\n", maxValue, repeat("v", maxValue))
	for _, tc := range []struct {
		name, in, want string
		closed         bool
	}{
		{"a key at the limit", command("SET", repeat("k", maxKey), "v"), ok, false},
		{"a key beyond it", command("SET", repeat("k", maxKey+1), "v"), "-ERR key of 101 bytes; the limit is 100\r\n", false},
		{"a key beyond it that is read", command("GET", repeat("k", maxKey+1)), "-ERR key of 101 bytes; the limit is 100\r\n", false},
		{"an empty key", command("SET", "", "v"), ok, false},
		{"an empty value", command("SET", "k", ""), ok, false},
		{"a value at the limit", command("SET", "k", repeat("v", maxValue)), ok, false},
		{"a value beyond it", command("SET", "k", repeat("v", maxValue+1)), "-ERR Protocol error: invalid bulk length: 8193 bytes, at most 8192 are taken\r\n", true},
		{"a value of negative length", "*2\r\n$3\r\nGET\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n", true},
		{"a value that grows to the limit", command("APPEND", "v8191", "v"), ":8192\r\n", false},
		{"a value that grows beyond it", command("APPEND", "v", "v"), "-ERR value of 8193 bytes; the limit is 8192\r\n", false},
		{"arguments at the limit", command(keys(maxArgs - 1)[:12]...), "*11\r\n" + repeat(full, 11), false},
		{"as many arguments as there may be", command(append([]string{"EXISTS"}, keys(maxArgs - 1)[1:]...)...), ":63\r\n", false},
		{"one argument more", command(append([]string{"EXISTS"}, keys(maxArgs)[1:]...)...), "-ERR Protocol error: invalid multibulk length\r\n", true},
		{"an inline command at the limit", "ECHO " + repeat("x", 64<<10-5) + "\n", fmt.Sprintf("$%d\r\n%s\r\n", 64<<10-5, repeat("x", 64<<10-5)), false},
		{"an inline command beyond it", "ECHO " + repeat("x", 64<<10-4) + "\n", "-ERR Protocol error: too big inline request\r\n", true},
		{"an inline command without an end", repeat("x", 64<<10+1), "-ERR Protocol error: too big inline request\r\n", true},
		{"a reply at the limit", command(keys(12)...), "*12\r\n" + repeat(full, 12), false},
		{"a reply beyond it", command(keys(13)...), fmt.Sprintf("-ERR reply of %d bytes; the limit is %d (--max-reply)\r\n", len("*13\r\n")+13*len(full), maxReply), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := speak(t, open(t, Options{MaxKey: maxKey, MaxValue: maxValue, MaxArgs: maxArgs, MaxReply: maxReply}))
			c.send([]byte(command("SET", "v", repeat("v", maxValue))))
			c.send([]byte(command("SET", "v8191", repeat("v", maxValue-1))))
			if got := string(c.send([]byte(tc.in))); got != tc.want {
				t.Errorf("got %.100q (%d bytes), want %.100q (%d bytes)", got, len(got), tc.want, len(tc.want))
			}
			if c.s.closing != tc.closed {
				t.Errorf("closed: %v, want %v", c.s.closing, tc.closed)
			}
			if !tc.closed {
				c.want("PING", "+PONG\r\n")
			}
		})
	}
}

// Many half-sent values do not get more memory together than the budget has, and what they had is given back.
func TestHalfSentValuesShareABudget(t *testing.T) {
	srv := open(t, Options{MaxBuffered: 1 << 20})
	half := []byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$400000\r\n" + strings.Repeat("v", 300_000))
	var all []*speaker
	for range 4 {
		c := speak(t, srv)
		if got := c.send(half); len(got) > 0 {
			t.Fatalf("got %q", got)
		}
		all = append(all, c)
	}
	last := speak(t, srv)
	if got := string(last.send(half)); got != "-"+errBudget+"\r\n" || !last.s.closing {
		t.Errorf("got %q, closing %v", got, last.s.closing)
	}
	small := speak(t, srv)
	small.want("SET small v", ok) // what is small needs no budget
	if got := string(all[0].send([]byte(strings.Repeat("v", 100_000) + "\r\n"))); got != ok {
		t.Errorf("the rest of a value: got %q", got)
	}
	if n := srv.buffered.Load(); n < 3*(300_000-freeBytes) || n > 3*(301_000-freeBytes) {
		t.Errorf("%d bytes are counted for three half-sent values", n)
	}
	small.want("GET k", fmt.Sprintf("$400000\r\n%s\r\n", strings.Repeat("v", 400_000)))
	for _, c := range append(all, last, small) {
		c.s.release()
	}
	if n := srv.buffered.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	if got := small.do("INFO clients"); !strings.Contains(got, "over_budget:1\r\n") {
		t.Errorf("got %q", got)
	}
}

// Replies that nobody takes come out of the budget, too. A command that only reads fails without it; one that wrote must not say
// that it failed, so its connection ends.
func TestRepliesThatWaitShareABudget(t *testing.T) {
	srv := open(t, Options{MaxBuffered: 1 << 20})
	c := speak(t, srv)
	value := strings.Repeat("v", 600_000)
	c.send(resp.AppendCommand(nil, "SET", "k", value))
	slow := newSession(srv, 1)
	slow.run([]byte("GET k\r\n"))
	slow.commit() // and nobody sends it
	c.want("GET k\r\nPING", "-"+errBudget+"\r\n+PONG\r\n")
	c.want("GETDEL k", "")
	if !c.s.closing {
		t.Error("the connection goes on")
	}
	slow.sent()
	again := speak(t, srv)
	again.want("GET k", null) // GETDEL took place
	if n := srv.buffered.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// Wrong passwords cost time, are counted, and end the connection after a few.
func TestGuessingPasswordsIsSlow(t *testing.T) {
	srv := open(t, Options{Password: "secret"})
	s := newSession(srv, 1)
	in := []byte(strings.Repeat("AUTH guess\r\n", authAttempts+1))
	for i := 1; len(in) > 0; i++ {
		n, more := s.run(in)
		in = in[n:]
		if d := s.rest(); d != authDelay {
			t.Fatalf("attempt %d: a delay of %v", i, d)
		}
		if got := string(s.out); got != "-"+errWrongPass+"\r\n" {
			t.Fatalf("attempt %d: %q", i, got)
		}
		s.sent()
		if s.closing {
			if i != authAttempts {
				t.Errorf("the connection ends after %d attempts, want %d", i, authAttempts)
			}
			break
		}
		if !more {
			t.Fatalf("attempt %d: the pipeline goes on without a delay", i)
		}
	}
	if n := srv.authFailures.Load(); n != authAttempts {
		t.Errorf("%d failures are counted", n)
	}
}

func TestConnectionsThatDoNotSayWhoTheyAreAreClosed(t *testing.T) {
	srv := open(t, Options{Password: "secret"})
	c := dial(t, listen(t, srv))
	c.want("-NOAUTH Authentication required.\r\n", "PING")
	srv.mu.Lock()
	for _, conn := range srv.conns {
		conn.since = conn.since.Add(-authTimeout)
	}
	srv.mu.Unlock()
	if _, err := c.read(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}
