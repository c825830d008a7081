package secret

import (
	"os"
	"strings"
	"testing"
)

func TestTextHoldsNoUserinfo(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"plain words: and a colon", "plain words: and a colon"},
		{`mode "redis://:s3cr3t@h" is unknown`, `mode "redis://xxxxx@h" is unknown`},
		{`mode "redis://:57#s3/cr@3t@h:7" is unknown`, `mode "redis://xxxxx@h:7" is unknown`},
		{`GOGC="redis://:my s3cr3t@h": want a number`, `GOGC="redis://xxxxx@h": want a number`},
		{`out redis://user:s3cr3t: no such file`, `out redis://xxxxx no such file`},
		{`mode ":s3cr3t@h" is unknown`, `mode "xxxxx@h" is unknown`},
		{`mode "redis:s3cr3t@h" is unknown`, `mode "xxxxx@h" is unknown`},
		{"give redis://:PASSWORD@h, or redis://[[USER]:PASSWORD@]HOST[:PORT], a password alone is written :PASSWORD@", "give redis://:PASSWORD@h, or redis://[[USER]:PASSWORD@]HOST[:PORT], a password alone is written :PASSWORD@"},
		{"stat redis://h:6379: not found", "stat redis://h:6379: not found"},
		{"redis://127.0.0.1:7379 answers", "redis://127.0.0.1:7379 answers"},
		{"open /opt/go@1.26/bin/go: no such file", "open /opt/go@1.26/bin/go: no such file"},
		{"go.mod:5: example.com/x@v1.2.3: not found", "go.mod:5: example.com/x@v1.2.3: not found"},
	} {
		if got := Text(tt.text); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}

func TestWhatMayHoldAPassword(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("a@b", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]bool{
		"redis://:s3cr3t@h": true, "redis://h": true, ":s3cr3t@h": true, "s3cr3t@h": true, "redis:s3cr3t@h": true, ":/s3cr3t@h": true,
		"memory,redis://:s@h": true, "GOGC=redis://:s@h,1": true,
		"memory": false, "./c@d": false, "/opt/go@1.26/bin/go": false, "a@b": false, "go=/opt/go@1.26/bin/go": false, "unix:/tmp/a@b": false, "rate=ramp:1:2": false,
	} {
		if got := May(word); got != want {
			t.Errorf("%s: %v, want %v", word, got, want)
		}
	}
}

func TestTheCommandLineIsRecordedWithoutPasswords(t *testing.T) {
	args := []string{"/opt/bin/kvmark", "run", "--target", "redis://:s3cr3t@h", "--other=redis://:s3cr3t@h", "--password", "-s3cr3t", "--pass=s3cr3t", "--passwords3cr3t", "--out", "a b", "--slo", "p99<2ms"}
	got := CommandLine(args, func(url string) string { return map[string]string{args[3]: "redis://h:6379"}[url] })
	want := "kvmark run --target redis://h:6379 --other=redis://h:6379 --password xxxxx --pass=xxxxx --password... --out 'a b' --slo 'p99<2ms'"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestCheckNamesTheOptionAndNotItsValue(t *testing.T) {
	flags := []Flag{{"target", true, true}, {"dir", true, false}, {"cold", false, false}}
	for _, tt := range []struct{ args, want string }{
		{"--target redis://:s3cr3t@h --dir x", ""},
		{"--target=redis://:s3cr3t@h", ""},
		{"--dir redis://:s3cr3t@h", "--dir: its value looks like a URL"},
		{"-dir=redis://:s3cr3t@h", "--dir: its value looks like a URL"},
		{"--cold redis://:s3cr3t@h", "an argument looks like a URL"},
		{"--cold=redis://:s3cr3t@h", "--cold: its value"},
		{"-- redis://:s3cr3t@h", "an argument looks like a URL"},
		{"--trget redis://:s3cr3t@h", ""}, // refused by its name
	} {
		err := Check(flags, strings.Fields(tt.args))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cr3t")) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
	if got := Argument("word", true); strings.Contains(got, "word\"") {
		t.Errorf("beside a password: %s", got)
	}
	if got := Argument("word", false); got != `"word"` {
		t.Errorf("alone: %s", got)
	}
}
