package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"kvmark/client/load"
	"kvmark/cmd/internal/secret"
)

// display shows progress and notes: on a terminal as one line that is redrawn, within its width; elsewhere, and on a terminal
// that knows no control codes (TERM=dumb), as a plain line every five seconds.
type display struct {
	w     io.Writer
	width func() int // of the terminal; nil: none

	mu    sync.Mutex
	drawn bool
	last  time.Time // of the last plain line
}

// runes knows how many columns characters take; those of East Asia two.
var runes = &runewidth.Condition{}

const plainEvery = 5 * time.Second

func newDisplay(w io.Writer) *display {
	d := &display{w: w, last: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		d.width = func() int {
			if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
				return width
			}
			return 80
		}
	}
	return d
}

// note prints a line of its own.
func (d *display) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clearLocked()
	fmt.Fprint(d.w, prefixed(fmt.Sprintf(format, args...)))
}

// prefixed is text whose every line says who speaks, and none a password.
func prefixed(text string) string {
	const who = "kvmark: "
	return who + strings.ReplaceAll(strings.TrimRight(secret.Text(text), "\n"), "\n", "\n"+who) + "\n"
}

// clear takes the progress line away.
func (d *display) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clearLocked()
}

func (d *display) clearLocked() {
	if d.drawn {
		fmt.Fprint(d.w, "\r\x1b[K")
		d.drawn = false
	}
}

func (d *display) progress(p load.Progress) { d.line(progressLine(p)) }

// line shows how far something is.
func (d *display) line(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.width != nil {
		text = runes.Truncate(secret.Text(text), max(d.width()-1, 0), "") // the last column makes some terminals wrap
		fmt.Fprint(d.w, "\r\x1b[K"+text)
		d.drawn = true
		return
	}
	if now := time.Now(); now.Sub(d.last) >= plainEvery {
		fmt.Fprint(d.w, prefixed(text))
		d.last = now
	}
}

func progressLine(p load.Progress) string {
	var b strings.Builder
	if p.Rounds > 1 {
		fmt.Fprintf(&b, "%d/%d ", p.Repeat, p.Rounds)
	}
	b.WriteString(strings.TrimSpace(p.Mode + " " + p.Op))
	fmt.Fprintf(&b, ": %s", p.Stage)
	if p.Elapsed > 0 {
		fmt.Fprintf(&b, " %.0f", p.Elapsed.Seconds())
		if p.Total > 0 {
			fmt.Fprintf(&b, "/%.0f", p.Total.Seconds())
		}
		b.WriteString(" s")
	}
	if p.Keys > 0 {
		fmt.Fprintf(&b, ", %d of %d keys", p.OK, p.Keys)
	} else if p.OK > 0 {
		fmt.Fprintf(&b, ", %d replies", p.OK)
	}
	if p.QPS > 0 {
		fmt.Fprintf(&b, ", %.0f QPS, p99 %d us", p.QPS, p.P99.Microseconds())
	}
	return b.String()
}
