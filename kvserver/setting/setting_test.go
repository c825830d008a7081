package setting

import (
	"strings"
	"testing"
)

func TestCheckRefusesWhatAServerWould(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", ""},
		{"--mode serialize --codec zstd --level 4 --bucket-entries=65536", ""},
		{"--mode memory --codec deflate --sync-every 1000ms", ""}, // defaults
		{"--dir x --addr y --unknown z", ""},
		{"--mode disk", `unknown mode "disk"`},
		{"--wal-sync never", `unknown log policy "never"`},
		{"--io magic", `--io: unknown io "magic"`},
		{"--codec rar", `unknown codec "rar"`},
		{"--mode serialize --level 99", "level 99 of deflate is out of range"},
		{"--mode serialize --codec s2 --level 4", "level 4 of s2"},
		{"--mode serialize --codec none --level 1", "no level"},
		{"--mode serialize --bucket-entries 65537", "--bucket-entries is 65537; it must be at most 65536: a bucket is unpacked"},
		{"--mode serialize --bucket-entries 0", "at least 1"},
		{"--mode memory --codec s2", "--codec s2 has no effect beside --mode memory"},
		{"--wal-sync os --sync-every 2s", "no effect beside --wal-sync os"},
		{"--io goroutine --loops 2", "no effect beside --io goroutine"},
		{"--segment-bytes 1", "--segment-bytes is 1; it must be at least 4096"},
		{"--segment-bytes 9223372036854775807GiB", "is no size"},
		{"--min-free -1", "is negative"},
		{"--checkpoint-bytes 0", ""},
		{"--checkpoint-bytes 1", "at least 4096"},
		{"--sync-every 0s", "--sync-every is 0s; it must be at least 1ms"},
		{"--sync-every 1", "want a time"},
		{"--idle-timeout 0s", ""},
		{"--idle-timeout 1ms", "--idle-timeout is 1ms; it must be at least 1s: connections are looked at once a second"},
		{"--write-timeout 0s", "at least 1s"},
		{"--loops 65537", "at most 65536"},
		{"--max-clients 0", "at least 1"},
		{"--max-value 1GiB", "at most 267386880"},
		{"--max-key 65MiB", "as is --max-value"},
		{"--max-args x", `--max-args "x": want a whole number`},
	} {
		err := Check(Given(strings.Fields(tt.args)))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestDefaultsAreWithinTheirBounds(t *testing.T) {
	for _, s := range All() {
		given := map[string]string{s.Name: s.Default}
		if err := Check(given); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if _, err := s.Canonical(s.Default); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}
