package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// text writes a reply as a nested list, to compare with.
func text(r Reply) string {
	switch r.Kind {
	case Array, Map, Set, Push:
		var parts []string
		for _, e := range r.Elems {
			parts = append(parts, text(e))
		}
		return fmt.Sprintf("%c[%s]", r.Kind, strings.Join(parts, " "))
	case Int, Bool:
		return fmt.Sprintf("%c%d", r.Kind, r.Int)
	case Null:
		return "_"
	}
	return fmt.Sprintf("%c%q", r.Kind, r.Bytes)
}

type replies struct {
	Replies []string
	Err     string
	Rest    int
}

func readAll(l ReplyLimits, stream []byte, chunk int) replies {
	p := ReplyParser{Limits: l}
	var o replies
	var buf []byte
	for {
		for {
			r, n, err := p.Next(buf)
			if err != nil {
				o.Err = err.Error()
				return o
			}
			if n == 0 {
				break
			}
			o.Replies = append(o.Replies, text(r))
			buf = buf[n:]
		}
		if len(stream) == 0 {
			o.Rest = len(buf)
			return o
		}
		k := min(chunk, len(stream))
		buf = slices.Concat(buf, stream[:k])
		stream = stream[k:]
	}
}

func TestReplyParser(t *testing.T) {
	small := ReplyLimits{MaxBulk: 5, MaxLine: 12, MaxElems: 4, MaxDepth: 2}
	for _, tc := range []struct {
		name   string
		limits ReplyLimits
		in     string
		want   replies
	}{
		{name: "simple strings", in: "+OK\r\n+\r\n", want: replies{Replies: []string{`+"OK"`, `+""`}}},
		{name: "an error", in: "-ERR no\r\n", want: replies{Replies: []string{`-"ERR no"`}}},
		{name: "integers", in: ":0\r\n:-12\r\n:9223372036854775807\r\n", want: replies{Replies: []string{":0", ":-12", ":9223372036854775807"}}},
		{name: "bulk strings", in: "$3\r\na\r\n\r\n$0\r\n\r\n", want: replies{Replies: []string{`$"a\r\n"`, `$""`}}},
		{name: "the nulls", in: "$-1\r\n*-1\r\n_\r\n", want: replies{Replies: []string{"_", "_", "_"}}},
		{name: "RESP3 scalars", in: "#t\r\n#f\r\n,3.5\r\n(123\r\n!3\r\nERR\r\n=7\r\ntxt:abc\r\n", want: replies{Replies: []string{"#1", "#0", `,"3.5"`, `("123"`, `!"ERR"`, `="abc"`}}},
		{name: "arrays within arrays", in: "*3\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n*1\r\n_\r\n+x\r\n", want: replies{Replies: []string{`*[:1 *[$"a" *[]] *[_]]`, `+"x"`}}},
		{name: "a map, a set and a push", in: "%1\r\n+k\r\n:1\r\n~1\r\n+a\r\n>2\r\n+b\r\n+c\r\n", want: replies{Replies: []string{`%[+"k" :1]`, `~[+"a"]`, `>[+"b" +"c"]`}}},
		{name: "a half reply waits", in: "*2\r\n:1\r\n$5\r\nab", want: replies{Rest: 14}},

		{name: "an unknown kind", in: "x\r\n", want: replies{Err: `Protocol error: not a reply: "x"`}},
		{name: "a bare line feed", in: "+OK\n", want: replies{Err: `Protocol error: reply line "+OK" does not end with CRLF`}},
		{name: "an empty line", in: "\r\n", want: replies{Err: `Protocol error: reply line "\r" does not end with CRLF`}},
		{name: "an integer that is none", in: ":1x\r\n", want: replies{Err: `Protocol error: not a reply: ":1x"`}},
		{name: "a length below -1", in: "$-2\r\n", want: replies{Err: `Protocol error: not a reply: "$-2"`}},
		{name: "a null map", in: "%-1\r\n", want: replies{Err: `Protocol error: not a reply: "%-1"`}},
		{name: "a string longer than it said", in: "$1\r\nabc\r\n", want: replies{Err: "Protocol error: expected CRLF after bulk"}},
		{name: "a boolean that is none", in: "#x\r\n", want: replies{Err: `Protocol error: not a reply: "#x"`}},

		{name: "a string at the limit", limits: small, in: "$5\r\nabcde\r\n", want: replies{Replies: []string{`$"abcde"`}}},
		{name: "a string beyond the limit", limits: small, in: "$6\r\n", want: replies{Err: "Protocol error: string of 6 bytes in a reply; the limit is 5"}},
		{name: "a line at the limit", limits: small, in: "+0123456789\r\n", want: replies{Replies: []string{`+"0123456789"`}}},
		{name: "a line beyond the limit", limits: small, in: "+01234567890\r\n", want: replies{Err: "Protocol error: line of more than 12 bytes in a reply"}},
		{name: "elements at the limit", limits: small, in: "*2\r\n*2\r\n:1\r\n:2\r\n:3\r\n", want: replies{Replies: []string{"*[*[:1 :2] :3]"}}},
		{name: "elements beyond the limit", limits: small, in: "*3\r\n*2\r\n", want: replies{Err: "Protocol error: more than 4 elements in a reply"}},
		{name: "a map's pairs count twice", limits: small, in: "%3\r\n", want: replies{Err: "Protocol error: more than 4 elements in a reply"}},
		{name: "depth beyond the limit", limits: small, in: "*1\r\n*1\r\n*1\r\n", want: replies{Err: "Protocol error: reply nested deeper than 2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for chunk := 1; chunk <= len(tc.in); chunk++ {
				if diff := cmp.Diff(tc.want, readAll(tc.limits, []byte(tc.in), chunk)); diff != "" {
					t.Fatalf("in pieces of %d bytes (-want +got):\n%s", chunk, diff)
				}
			}
		})
	}
}

func TestAppendersSpeakBothVersions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		write func(Proto) []byte
		want2 string
		want3 string
	}{
		{"null", func(v Proto) []byte { return AppendNull(nil, v) }, "$-1\r\n", "_\r\n"},
		{"map", func(v Proto) []byte { return AppendMap(nil, v, 2) }, "*4\r\n", "%2\r\n"},
		{"set", func(v Proto) []byte { return AppendSet(nil, v, 2) }, "*2\r\n", "~2\r\n"},
		{"push", func(v Proto) []byte { return AppendPush(nil, v, 2) }, "*2\r\n", ">2\r\n"},
		{"verbatim text", func(v Proto) []byte { return AppendVerbatim(nil, v, "ab") }, "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n"},
		{"simple string", func(Proto) []byte { return AppendSimple(nil, "a\r\nb") }, "+a  b\r\n", "+a  b\r\n"},
		{"error", func(Proto) []byte { return AppendError(nil, "ERR a\nb") }, "-ERR a b\r\n", "-ERR a b\r\n"},
		{"integer", func(Proto) []byte { return AppendInt(nil, -5) }, ":-5\r\n", ":-5\r\n"},
		{"bulk string behind a prefix", func(Proto) []byte { return AppendBulk([]byte("x"), []byte("a\r\n")) }, "x$3\r\na\r\n\r\n", "x$3\r\na\r\n\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(tc.write(RESP2)); got != tc.want2 {
				t.Errorf("RESP2: got %q, want %q", got, tc.want2)
			}
			if got := string(tc.write(RESP3)); got != tc.want3 {
				t.Errorf("RESP3: got %q, want %q", got, tc.want3)
			}
		})
	}
}

func TestReplyErr(t *testing.T) {
	if err := (Reply{Kind: Error, Bytes: []byte("ERR x")}).Err(); err == nil || err.Error() != "ERR x" {
		t.Errorf("got %v, want ERR x", err)
	}
	if err := (Reply{Kind: Simple}).Err(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestReplyParserAllocatesNothingInSteadyState(t *testing.T) {
	for _, in := range []string{"+OK\r\n", "$5\r\nvalue\r\n", ":1\r\n", "*3\r\n:1\r\n$1\r\na\r\n*1\r\n_\r\n"} {
		var p ReplyParser
		buf := []byte(in)
		if n := testing.AllocsPerRun(100, func() {
			if _, n, err := p.Next(buf); n != len(buf) || err != nil {
				t.Fatalf("got %d, %v", n, err)
			}
		}); n != 0 {
			t.Errorf("%q: %v allocations, want 0", in, n)
		}
	}
}

func TestReplyParserHoldsNothingForADeclaredLength(t *testing.T) {
	buf := []byte("*1048575\r\n$536870912\r\n")
	if n := testing.AllocsPerRun(10, func() {
		var p ReplyParser
		if _, n, err := p.Next(buf); n != 0 || err != nil {
			t.Fatalf("got %d, %v", n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func FuzzReplyParser(f *testing.F) {
	for _, s := range []string{
		"+OK\r\n-ERR x\r\n:1\r\n", "$3\r\nabc\r\n$-1\r\n", "*2\r\n*1\r\n:1\r\n%1\r\n+k\r\n$1\r\nv\r\n", "~0\r\n>1\r\n_\r\n#t\r\n,1\r\n(1\r\n=5\r\ntxt:a\r\n",
		"*99999999\r\n", "$-2\r\n", "*-1\r\n*0\r\n",
	} {
		f.Add([]byte(s), uint8(1))
	}
	limits := ReplyLimits{MaxBulk: 64, MaxLine: 64, MaxElems: 32, MaxDepth: 4}
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8) {
		whole := readAll(limits, stream, len(stream)+1)
		if diff := cmp.Diff(whole, readAll(limits, stream, max(1, int(chunk)))); diff != "" {
			t.Fatalf("pieces of %d bytes differ from the whole (-whole +pieces):\n%s", chunk, diff)
		}
	})
}
