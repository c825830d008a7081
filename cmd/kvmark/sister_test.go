package main

import (
	"strings"
	"testing"

	"kvmark/client/load/loadtest"
)

func TestSisterCommandLinesThatCannotWorkAreUsageErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct{ args, want string }{
		{"chat now", `"now"`},
		{"chat --rooms 0", "rooms 0"},
		{"chat --rooms 6000", "rooms 6000"},
		{"chat --users 1", "users 1"},
		{"chat --messages 0", "messages 0"},
		{"chat --messages -1", "messages -1"},
		{"chat --messages 5 --duration 1s", "exclude"},
		{"chat --duration -1s", "duration -1s"},
		{"chat --duration 0s", "duration 0s"},
		{"chat --pace slow", `pace "slow"`},
		{"chat --window 5", "--window is about"},
		{"chat --pace flood --window 0", "window 0"},
		{"chat --text-size 3", "text size 3"},
		{"chat --protocol 1", "protocol 1"},
		{"chat --protocol 258", "protocol 258"},
		{"chat --runs 0", "runs 0"},
		{"chat --score best", `score "best"`},
		{"chat --scale 5", `scale "5"`},
		{"chat --scale 9..5", `scale "9..5"`},
		{"chat --scale 1..5:0", `scale "1..5:0"`},
		{"chat --scale 1..2 --runs 3", "--scale gives"},
		{"chat --rest -1s", "rest -1s"},
		{"chat --mode disk", `mode "disk"`},
		{"chat --wal-sync never", `wal-sync "never"`},
		{"chat --target nowhere", "target"},
		{"chat --target redis://h --mode file", "--mode is about a server of our own"},
		{"chat --format xml", `format "xml"`},
		{"chat --dir nowhere", "--dir nowhere"},
		{"conns now", `"now"`},
		{"conns --connections x", `connections "x"`},
		{"conns --connections 0", "connections 0"},
		{"conns --connections ,", "an entry is empty"},
		{"conns --rate fast", `rate "fast"`},
		{"conns --rate 0", `rate "0"`},
		{"conns --rate ,", "an entry is empty"},
		{"conns --rate 5 --interval 1s", "exclude"},
		{"conns --interval 0s", "interval 0s"},
		{"conns --message-size 10", "message size 10"},
		{"conns --message-size 30", "29 and 31"},
		{"conns --duration 100ms", "duration 100ms"},
		{"conns --connect-rate 0", "connect rate 0"},
		{"conns --clients 0", "clients 0"},
		{"conns --clients 100", "clients 100"},
		{"conns --target redis://h --keep", "--keep is about a server of our own"},
	} {
		code, stdout, stderr := kvmark(t, strings.Fields(tt.args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("kvmark %s: exit %d, stdout %q, stderr %q; want exit 2 and %q", tt.args, code, stdout, stderr, tt.want)
		}
	}
}

// Against a target that breaks the law, the command prints and saves what there is, and fails.
func TestAChatThatBreaksTheLawIsInvalid(t *testing.T) {
	t.Chdir(t.TempDir())
	server := &loadtest.Rooms{Fault: loadtest.Short, After: 7}
	addr, stop, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	code, stdout, stderr := kvmark(t, "chat", "--target", "redis://"+addr, "--rooms", "1", "--users", "3", "--messages", "5", "--runs", "1", "--out", "here")
	if code != exitInvalid || !strings.Contains(stdout, "INVALID") || !strings.Contains(stdout, "failed in run 1 of 1 rooms: reach: 1 messages") || !strings.Contains(stderr, "result in here") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, _ := kvmark(t, "report", "here/result.json"); code != exitGood || !strings.Contains(stdout, "Total messages     = 45") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
	server.Fault = loadtest.None
	if code, stdout, stderr := kvmark(t, "conns", "--target", "redis://"+addr, "--connections", "5", "--rate", "100", "--duration", "1s", "--warmup", "0"); !strings.Contains(stdout, "best: ") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}
