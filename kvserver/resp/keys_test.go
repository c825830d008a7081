package resp

import (
	"bytes"
	"strings"
	"testing"
)

func TestKeysOfWhatIsComing(t *testing.T) {
	get, set, ping := "*2\r\n$3\r\nGET\r\n$2\r\nab\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nc\r\n$5\r\nv\r\nv*\r\n", "*1\r\n$4\r\nPING\r\n"
	for _, tc := range []struct {
		name     string
		in       string
		most     int
		keys     string // with a blank behind each
		commands int
	}{
		{"nothing", "", 9, "", 0},
		{"one", get, 9, "ab ", 1},
		{"several, some without a key", set + ping + get, 9, "c ab ", 3},
		{"no more than wanted", get + set + get, 2, "ab c ", 2},
		{"an empty key", "*2\r\n$3\r\nGET\r\n$0\r\n\r\n", 9, " ", 1},
		{"an inline command ends it", get + "GET x\r\n" + get, 9, "ab ", 1},
		{"so does one of many arguments", get + "*9\r\n" + get, 9, "ab ", 1},
		{"and an empty one", get + "*0\r\n" + get, 9, "ab ", 1},
		{"and a length below 0", "*2\r\n$3\r\nGET\r\n$-1\r\n", 9, "", 0},
		{"and a length beyond all", "*2\r\n$3\r\nGET\r\n$999999999\r\n", 9, "", 0},
		{"and one of more digits than that", "*2\r\n$3\r\nGET\r\n$0000000002\r\nab\r\n", 9, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keys, commands := Keys(nil, []byte(tc.in), tc.most)
			var got []byte
			for _, k := range keys {
				got = append(append(got, k...), ' ')
			}
			if string(got) != tc.keys || commands != tc.commands {
				t.Errorf("%q of %d commands, want %q of %d", got, commands, tc.keys, tc.commands)
			}
		})
	}
	set = "*3\r\n$3\r\nSET\r\n$10\r\n0123456789\r\n$100\r\n" + strings.Repeat("v", 100) + "\r\n"
	whole := set + get
	for n := range whole {
		if _, commands := Keys(nil, []byte(whole[:n]), 9); (commands == 1) != (n >= len(set)) {
			t.Errorf("%d commands in the first %d bytes of %q", commands, n, whole)
		}
	}
}

// FuzzKeys compares Keys with Parser, which is to read the same commands.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$2\r\nab\r\n*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nc\r\n$1\r\nd\r\n"))
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$02\r\nab\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		keys, commands := Keys(nil, in, 16)
		if len(keys) > commands || commands > 16 {
			t.Fatalf("%d keys of %d commands", len(keys), commands)
		}
		var p Parser
		for range commands {
			args, n, err := p.Next(in)
			if err != nil {
				return // Keys checks nothing
			}
			in = in[n:]
			if len(args) > 1 {
				if !bytes.Equal(args[1], keys[0]) {
					t.Fatalf("%q, want %q", keys[0], args[1])
				}
				keys = keys[1:]
			}
		}
	})
}
