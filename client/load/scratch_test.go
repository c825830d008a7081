package load

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestWhatADeadProcessLeftIsRemovedAndNothingElse(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere nothing is removed")
	}
	var notes []string
	c := Config{Dir: t.TempDir(), Logf: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }}
	makeOne := func(keep bool) scratch {
		c := c
		c.Keep = keep
		s, err := newScratch(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, "data"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		return s
	}
	living, kept, dead := makeOne(false), makeOne(true), makeOne(false)
	other := filepath.Join(c.Dir, "kvmark-build-1")
	if err := os.Mkdir(other, 0o777); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the system does when a process ends
	last := makeOne(false)
	for dir, want := range map[string]bool{living.dir: true, kept.dir: true, dead.dir: false, other: true, last.dir: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v, want it to be there: %t", dir, err, want)
		}
	}
	if want := fmt.Sprintf("[removed %s, which a kvmark that was killed had left]", dead.dir); fmt.Sprint(notes) != want {
		t.Errorf("notes %q, want %q", notes, want)
	}
	for _, s := range []scratch{living, last} {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); err == nil {
			t.Errorf("%s is still there", s.dir)
		}
	}
	if _, err := newScratch(Config{Dir: filepath.Join(c.Dir, "none"), Logf: c.Logf}); err == nil {
		t.Error("no error without a parent")
	}
}
