package main

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/term"
)

func TestATerminalWithoutControlCodesGetsNone(t *testing.T) {
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil || !term.IsTerminal(int(pty.Fd())) {
		t.Skipf("no terminal here: %v", err)
	}
	defer pty.Close()
	for name, codes := range map[string]bool{"dumb": false, "xterm": true, "": true} {
		t.Setenv("TERM", name)
		if got := newDisplay(pty).width != nil; got != codes {
			t.Errorf("TERM=%s: redraws its line: %v", name, got)
		}
	}
}

func TestALineIsCutBetweenCharactersByTheColumnsThatTheyTake(t *testing.T) {
	var out bytes.Buffer
	d := newDisplay(&out)
	d.width = func() int { return 8 }
	d.line("a測定中です") // 1 and 2 each: seven columns hold four characters
	if got, want := out.String(), "\r\x1b[Ka測定中"; got != want {
		t.Errorf("shown %q, want %q", got, want)
	}
}
