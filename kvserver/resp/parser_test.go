package resp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outcome is everything that a parser makes of a stream: the commands, and the error that ends it.
type outcome struct {
	Commands [][]string
	Err      string
	Rest     int // bytes of an incomplete command
}

// parseAll feeds the stream in chunks of the given size and collects the outcome.
func parseAll(l Limits, stream []byte, chunk int) outcome {
	var p Parser
	p.SetLimits(l)
	var o outcome
	var buf []byte
	for {
		for {
			args, n, err := p.Next(buf)
			if err != nil {
				o.Err = err.Error()
				return o
			}
			if n == 0 {
				break
			}
			var cmd []string
			for _, a := range args {
				cmd = append(cmd, string(a))
			}
			o.Commands = append(o.Commands, cmd)
			buf = buf[n:]
		}
		if len(stream) == 0 {
			o.Rest = len(buf)
			return o
		}
		k := min(chunk, len(stream))
		// A fresh array each time: a parser that kept pointers instead of offsets would read stale bytes.
		buf = slices.Concat(buf, stream[:k])
		stream = stream[k:]
	}
}

func TestParserReadsWhatRedisReads(t *testing.T) {
	small := Limits{MaxArgs: 3, MaxBulk: 5, MaxInline: 12, MaxCommand: 40}
	for _, tc := range []struct {
		name   string
		limits Limits
		in     string
		want   outcome
	}{
		{name: "an array of bulk strings", in: "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", want: outcome{Commands: [][]string{{"GET", "k"}}}},
		{name: "two commands in one piece", in: "*1\r\n$4\r\nPING\r\nPING x\r\n", want: outcome{Commands: [][]string{{"PING"}, {"PING", "x"}}}},
		{name: "an empty argument", in: "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", want: outcome{Commands: [][]string{{"ECHO", ""}}}},
		{name: "an argument of any bytes", in: "*1\r\n$6\r\n\r\n\x00*$\xff\r\n", want: outcome{Commands: [][]string{{"\r\n\x00*$\xff"}}}},
		{name: "an empty array is skipped", in: "*0\r\nPING\r\n", want: outcome{Commands: [][]string{nil, {"PING"}}}},
		{name: "a null array is skipped", in: "*-1\r\n*-7\r\nPING\r\n", want: outcome{Commands: [][]string{nil, nil, {"PING"}}}},
		{name: "a half command waits", in: "*2\r\n$3\r\nGET\r\n$1\r\nk", want: outcome{Rest: 18}},
		{name: "an empty line is skipped", in: "\r\n\nPING\n", want: outcome{Commands: [][]string{nil, nil, {"PING"}}}},
		{name: "blanks around words of a line", in: " \tSET  k\tv \r\n", want: outcome{Commands: [][]string{{"SET", "k", "v"}}}},
		{name: "double quotes", in: `SET "a b" "\x41\n\r\t\b\a\q\"\xzz"` + "\r\n", want: outcome{Commands: [][]string{{"SET", "a b", "A\n\r\t\b\aq\"xzz"}}}},
		{name: "single quotes", in: `SET 'a b' 'it\'s \n'` + "\r\n", want: outcome{Commands: [][]string{{"SET", "a b", `it's \n`}}}},
		{name: "an empty quoted word", in: "ECHO ''\r\n", want: outcome{Commands: [][]string{{"ECHO", ""}}}},
		{name: "a quote within a word", in: "ECHO a\"b c\"\r\n", want: outcome{Commands: [][]string{{"ECHO", "ab c"}}}},
		{name: "a NUL ends a line's text", in: "ECHO a\x00b\r\n", want: outcome{Commands: [][]string{{"ECHO", "a"}}}},
		{name: "a quote that does not end", in: "ECHO \"a\r\n", want: outcome{Err: "Protocol error: unbalanced quotes in request"}},
		{name: "a quote that does not end at a blank", in: "ECHO 'a'b\r\n", want: outcome{Err: "Protocol error: unbalanced quotes in request"}},

		{name: "a count that is no number", in: "*x\r\n", want: outcome{Err: "Protocol error: invalid multibulk length"}},
		{name: "a count with a leading zero", in: "*01\r\n", want: outcome{Err: "Protocol error: invalid multibulk length"}},
		{name: "a count beyond 64 bits", in: "*18446744073709551617\r\n", want: outcome{Err: "Protocol error: invalid multibulk length"}},
		{name: "a count without CR", in: "*1\n", want: outcome{Err: "Protocol error: invalid multibulk length"}},
		{name: "a length of -1", in: "*1\r\n$-1\r\n", want: outcome{Err: "Protocol error: invalid bulk length"}},
		{name: "a length of -0", in: "*1\r\n$-0\r\n", want: outcome{Err: "Protocol error: invalid bulk length"}},
		{name: "no length at all", in: "*1\r\n$\r\n", want: outcome{Err: "Protocol error: invalid bulk length"}},
		{name: "a length beyond 64 bits", in: "*1\r\n$9223372036854775808\r\n", want: outcome{Err: "Protocol error: invalid bulk length"}},
		{name: "something else than a bulk string", in: "*1\r\n:1\r\n", want: outcome{Err: "Protocol error: expected '$', got ':'"}},
		{name: "a control character instead of a bulk string", in: "*1\r\n\x01", want: outcome{Err: "Protocol error: expected '$', got '?'"}},
		{name: "an argument longer than it said", in: "*1\r\n$1\r\nabc\r\n", want: outcome{Err: "Protocol error: expected CRLF after bulk"}},

		{name: "arguments at the limit", limits: small, in: "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", want: outcome{Commands: [][]string{{"a", "b", "c"}}}},
		{name: "arguments beyond the limit", limits: small, in: "*4\r\n", want: outcome{Err: "Protocol error: invalid multibulk length"}},
		{name: "an argument at the limit", limits: small, in: "*1\r\n$5\r\nabcde\r\n", want: outcome{Commands: [][]string{{"abcde"}}}},
		{name: "an argument beyond the limit", limits: small, in: "*1\r\n$6\r\n", want: outcome{Err: "Protocol error: invalid bulk length: 6 bytes, at most 5 are taken"}},
		{name: "a command at the limit", limits: Limits{MaxCommand: 15}, in: "*1\r\n$5\r\nabcde\r\n", want: outcome{Commands: [][]string{{"abcde"}}}},
		{name: "a command beyond the limit", limits: Limits{MaxCommand: 14}, in: "*1\r\n$5\r\n", want: outcome{Err: "Protocol error: too big command"}},
		{name: "a line at the limit", limits: small, in: "PING abcdef\r\n", want: outcome{Commands: [][]string{{"PING", "abcdef"}}}},
		{name: "a line beyond the limit", limits: small, in: "PING abcdefg\r\n", want: outcome{Err: "Protocol error: too big inline request"}},
		{name: "a line beyond the limit without an end", limits: small, in: "PING abcdefgh", want: outcome{Err: "Protocol error: too big inline request"}},
		{name: "a count line beyond the limit", limits: small, in: "*" + strings.Repeat("1", 12), want: outcome{Err: "Protocol error: too big mbulk count string"}},
		{name: "a length line beyond the limit", limits: small, in: "*1\r\n$" + strings.Repeat("1", 12), want: outcome{Err: "Protocol error: too big bulk count string"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for chunk := 1; chunk <= max(1, len(tc.in)); chunk++ {
				if diff := cmp.Diff(tc.want, parseAll(tc.limits, []byte(tc.in), chunk)); diff != "" {
					t.Fatalf("in pieces of %d bytes (-want +got):\n%s", chunk, diff)
				}
			}
		})
	}
}

func TestProtocolErrorsAreTyped(t *testing.T) {
	var p Parser
	_, _, err := p.Next([]byte("*x\r\n"))
	var pe ProtocolError
	if !errors.As(err, &pe) {
		t.Fatalf("got %T (%v), want a ProtocolError", err, err)
	}
}

func TestParserReadsWhatAppendCommandWrites(t *testing.T) {
	want := []string{"SET", "", "a\r\nb", strings.Repeat("x", 1000)}
	got := parseAll(Limits{}, AppendCommand(nil, want...), 7)
	if diff := cmp.Diff(outcome{Commands: [][]string{want}}, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestParserAllocatesNothingInSteadyState(t *testing.T) {
	for _, in := range []string{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n", "SET k \"v w\"\r\n"} {
		var p Parser
		buf := []byte(in)
		if n := testing.AllocsPerRun(100, func() {
			if args, n, err := p.Next(buf); len(args) != 3 || n != len(buf) || err != nil {
				t.Fatalf("got %q, %d, %v", args, n, err)
			}
		}); n != 0 {
			t.Errorf("%q: %v allocations, want 0", in, n)
		}
	}
}

func TestParserHoldsNothingForADeclaredLength(t *testing.T) {
	for _, in := range []string{"*1048576\r\n", "*1048576\r\n$67108864\r\n"} {
		buf := []byte(in)
		if n := testing.AllocsPerRun(10, func() {
			var p Parser
			if _, n, err := p.Next(buf); n != 0 || err != nil {
				t.Fatalf("got %d, %v", n, err)
			}
		}); n != 0 {
			t.Errorf("%q: %v allocations, want 0", in, n)
		}
	}
}

// A parser that starts over with every piece would look at 1 MiB / 2 bytes half a million times.
func TestParserLooksAtEveryByteOnce(t *testing.T) {
	var p Parser
	p.SetLimits(Limits{MaxInline: 1 << 20})
	buf := bytes.Repeat([]byte("a"), 1<<20)
	for n := 1; n < len(buf); n++ {
		if _, k, err := p.Next(buf[:n]); k != 0 || err != nil {
			t.Fatalf("got %d, %v at %d", k, err, n)
		}
		if p.scanned != n {
			t.Fatalf("%d of %d bytes count as seen", p.scanned, n)
		}
	}
}

func TestParserLetsGoOfABigCommandsSlots(t *testing.T) {
	var p Parser
	big := AppendCommand(nil, strings.Fields(strings.Repeat("x ", 5*keepArgs))...)
	if args, _, err := p.Next(big); len(args) != 5*keepArgs || err != nil {
		t.Fatalf("got %d arguments, %v", len(args), err)
	}
	if _, _, err := p.Next([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if cap(p.args) > keepArgs || cap(p.spans) > keepArgs {
		t.Fatalf("still holds %d and %d slots", cap(p.args), cap(p.spans))
	}
}

func FuzzParser(f *testing.F) {
	for _, s := range []string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "SET 'a' \"\\x41\"\r\n", "*1\r\n$-1\r\n", "*0\r\n\r\nPING\r\n", "*3\r\n$1\r\na\r\n$3\r\nab",
		"*1\r\n$99999999999999999999\r\n", "*-1\r\n*1\r\n$0\r\n\r\n", "\"", "*2\r\n$1\r\na\r\n+x",
	} {
		f.Add([]byte(s), uint8(1))
	}
	limits := Limits{MaxArgs: 8, MaxBulk: 64, MaxInline: 64, MaxCommand: 256}
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8) {
		whole := parseAll(limits, stream, len(stream)+1)
		if diff := cmp.Diff(whole, parseAll(limits, stream, max(1, int(chunk)))); diff != "" {
			t.Fatalf("pieces of %d bytes differ from the whole (-whole +pieces):\n%s", chunk, diff)
		}
		for _, cmd := range whole.Commands {
			if cmd == nil {
				continue
			}
			if diff := cmp.Diff(outcome{Commands: [][]string{cmd}}, parseAll(limits, AppendCommand(nil, cmd...), 3)); diff != "" && len(AppendCommand(nil, cmd...)) <= limits.MaxCommand && len(cmd) <= limits.MaxArgs {
				t.Fatalf("not read back (-want +got):\n%s", diff)
			}
		}
	})
}

func BenchmarkParser(b *testing.B) {
	for _, size := range []int{16, 1024} {
		b.Run(fmt.Sprintf("value=%d", size), func(b *testing.B) {
			buf := AppendCommand(nil, "SET", "DataSaveKey123456789ABC_0_0_1", strings.Repeat("v", size))
			var p Parser
			b.ReportAllocs()
			for b.Loop() {
				if _, n, err := p.Next(buf); n != len(buf) || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
