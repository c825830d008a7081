package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"kvmark/client/load/loadtest"
	"kvmark/client/result"
)

// The process is killed at random moments and started again with the same command line, until one life ends by itself.
// KVMARK_LONG=1: 100 kills instead of 2.
func TestCompareThatIsKilledAtRandomMomentsGoesOn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs servers that die with the process that started them")
	}
	kills := 2
	if os.Getenv("KVMARK_LONG") != "" {
		kills = 100
	}
	for _, tt := range []struct {
		name string
		more []string
	}{
		{"one at a time", nil},
		{"side by side", []string{"--slices", "26ms"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, data := t.TempDir(), t.TempDir()
			wanted := 1 + kills/2 // rounds
			args := append(comparison(t, loadtest.Behaviour{}), "--rounds", fmt.Sprint(wanted), "--out", out, "--dir", data)
			args = append(args, tt.more...)
			start := func() (*exec.Cmd, *bytes.Buffer) {
				cmd := exec.CommandContext(t.Context(), args[2], args...)
				cmd.Env = append(os.Environ(), asKvmark+"=1")
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return cmd, &stderr
			}
			var head string
			before := 0
			for range kills {
				cmd, _ := start()
				time.Sleep(rand.N(900 * time.Millisecond)) // any moment will do
				_ = cmd.Process.Kill()                     // it may have ended
				_ = cmd.Wait()
				h, samples := readJournal(t, out)
				if head != "" && h != head {
					t.Fatalf("the plan was\n%s\nand is now\n%s", head, h)
				}
				if len(samples) < before && tt.more == nil {
					t.Fatalf("%d samples were in the journal, now there are %d", before, len(samples))
				}
				head, before = h, len(samples)
			}
			cmd, stderr := start()
			if err := cmd.Wait(); err != nil && !sound(t, cmd.ProcessState.ExitCode(), out) {
				t.Fatalf("%v: %s", err, stderr)
			}
			if before > 0 && !strings.Contains(stderr.String(), "going on with") {
				t.Errorf("it does not say that it goes on: %s", stderr)
			}
			const arms = 3 // GOGC=50, GOGC=100, A/A
			if _, samples := readJournal(t, out); len(samples) != wanted*arms {
				t.Errorf("%d samples, want %d rounds of %d", len(samples), wanted, arms)
			}
			f, err := result.Read(filepath.Join(out, resultName))
			if err != nil {
				t.Fatal(err)
			}
			counts := map[string]int{}
			for _, c := range f.Cells {
				counts[fmt.Sprint(c.Mode, c.Op, c.Repeat, c.Config)]++
			}
			for cell, n := range counts {
				if n != 1 {
					t.Errorf("%s is counted %d times", cell, n)
				}
			}
			if len(counts) != wanted*arms*2 || f.Plan.Repeat != wanted || f.Plan.Seed != 7 {
				t.Errorf("%d cells, %d rounds, seed %d", len(counts), f.Plan.Repeat, f.Plan.Seed)
			}
			for deadline := time.Now().Add(10 * time.Second); running(t, data); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("a server is left")
				}
			}
		})
	}
}

// readJournal returns the line of the plan, and which samples follow. A torn last line is as good as none.
func readJournal(t *testing.T, dir string) (head string, samples map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "journal.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	samples = map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		if head == "" {
			head = line
			continue
		}
		var s struct {
			Block, Variant int
			Mode           string
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v in %.200s", err, line)
		}
		key := fmt.Sprint(s)
		if samples[key] {
			t.Errorf("%s is in the journal twice", key)
		}
		samples[key] = true
	}
	return head, samples
}
