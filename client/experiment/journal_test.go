package experiment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvmark/client/load"
	"kvmark/client/result"
)

// aPlan has two variants and one that is n/a, in two modes.
func aPlan() *Plan {
	return &Plan{
		Variants: []Variant{{Name: "a"}, {Name: "b"}, {Name: "c", NA: "unknown"}}, Modes: []string{"memory", "file"}, Ops: []string{"set", "get"}, Seconds: 1, Seed: 7,
	}
}

func aSample(block, variant int, mode string) Sample {
	qps := 1000.5
	cell := result.Cell{Mode: mode, Op: "set", Repeat: block + 1, Valid: true, QPS: &qps}
	return Sample{
		Block: block, Variant: variant, Mode: mode, Seconds: 2, Cells: []result.Cell{cell, cell},
		Slices: [][]load.Slice{{{OK: 5, Seconds: 0.5}}, {{OK: 6, Seconds: 0.5}}},
	}
}

func keepSeed(Plan, *Plan) {}

// written makes a journal of the samples and returns its bytes.
func written(t testing.TB, dir string, p *Plan, samples ...Sample) []byte {
	t.Helper()
	j, old, err := openJournal(dir, p, keepSeed)
	if err != nil || len(old) != 0 {
		t.Fatal(err, old)
	}
	for _, s := range samples {
		if err := j.add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, journalName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAJournalGivesBackWhatWasAdded(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, aPlan(), aSample(0, 1, "file"), aSample(0, 0, "file"))
	j, old, err := openJournal(dir, aPlan(), keepSeed)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	if len(old) != 2 || old[0].Cell() != (Cell{1, "file"}) || *old[1].Cells[1].QPS != 1000.5 || old[0].Slices[1][0] != (load.Slice{OK: 6, Seconds: 0.5}) {
		t.Errorf("%+v", old)
	}
	if err := j.add(aSample(0, 1, "file")); err == nil || !strings.Contains(err.Error(), "already there") {
		t.Errorf("a sample twice: %v", err)
	}
	if err := j.add(aSample(1, 1, "file")); err != nil {
		t.Error(err)
	}
	if _, _, err := openJournal(dir, aPlan(), keepSeed); err == nil || !strings.Contains(err.Error(), "another kvmark") {
		t.Errorf("opened twice: %v", err)
	}
}

func TestATornJournalLosesItsLastSampleAtMost(t *testing.T) {
	whole := written(t, t.TempDir(), aPlan(), aSample(0, 0, "file"), aSample(0, 1, "file"))
	head := strings.Index(string(whole), "\n") + 1
	first := head + strings.Index(string(whole[head:]), "\n") + 1
	for cut := range len(whole) + 1 {
		_, samples, _, err := decodeJournal(whole[:cut])
		if want := strings.Count(string(whole[:cut]), "\n") - 1; err != nil || len(samples) != max(0, want) {
			t.Fatalf("cut at %d: %d samples, %v", cut, len(samples), err)
		}
	}
	for _, cut := range []int{0, 1, head - 1, head, head + 1, first - 1, first, first + 1, len(whole) - 1, len(whole)} {
		dir := t.TempDir()
		path := filepath.Join(dir, journalName)
		if err := os.WriteFile(path, whole[:cut], 0o666); err != nil {
			t.Fatal(err)
		}
		want := 0
		if cut >= first {
			want = 1
		}
		if cut == len(whole) {
			want = 2
		}
		j, old, err := openJournal(dir, aPlan(), keepSeed)
		if err != nil || len(old) != want {
			t.Fatalf("cut at %d of %d: %d samples, %v; want %d", cut, len(whole), len(old), err, want)
		}
		for _, s := range []Sample{aSample(0, 0, "file"), aSample(0, 1, "file")}[want:] {
			if err := j.add(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(whole) {
			t.Fatalf("cut at %d and gone on: %v, the file differs", cut, err)
		}
	}
}

func TestServersSideBySideAreMeasuredAgainTogether(t *testing.T) {
	p := aPlan()
	p.Slice = 0.5
	dir := t.TempDir()
	written(t, dir, p, aSample(0, 0, "file"), aSample(0, 1, "file"), aSample(0, 1, "memory"))
	j, old, err := openJournal(dir, p, keepSeed)
	if err != nil || len(old) != 2 || old[1].Mode != "file" {
		t.Fatalf("%v, %+v", err, old)
	}
	if err := j.add(aSample(0, 0, "memory"), aSample(0, 1, "memory")); err != nil {
		t.Fatal(err)
	}
	j.close()
	j, old, err = openJournal(dir, p, keepSeed)
	if err != nil || len(old) != 4 {
		t.Fatalf("%v, %d samples", err, len(old))
	}
	j.close()
}

func TestAnotherExperimentIsRefused(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, aPlan(), aSample(0, 0, "file"))
	other := aPlan()
	other.Seconds = 2
	if _, _, err := openJournal(dir, other, keepSeed); err == nil || !strings.Contains(err.Error(), "seconds 1, now 2") {
		t.Errorf("%v", err)
	}
	other = aPlan()
	other.Binaries = []Binary{{"a", "go1.27.3", "abc"}}
	if _, _, err := openJournal(dir, other, keepSeed); err == nil || !strings.Contains(err.Error(), "binaries") {
		t.Errorf("%v", err)
	}
	other = aPlan()
	other.Seed = 8
	if _, _, err := openJournal(dir, other, keepSeed); err == nil || !strings.Contains(err.Error(), "seed 7, now 8") {
		t.Errorf("%v", err)
	}
	j, old, err := openJournal(dir, other, (&experiment{}).adopt)
	if err != nil || len(old) != 1 || other.Seed != 7 {
		t.Fatalf("without a seed of its own: %v, seed %d", err, other.Seed)
	}
	j.close()
}

func TestADamagedJournalNamesTheLine(t *testing.T) {
	good := string(written(t, t.TempDir(), aPlan(), aSample(0, 0, "file"), aSample(0, 1, "file")))
	lines := strings.SplitAfter(good, "\n")
	tests := []struct{ name, content, want string }{
		{"no journal", "hello\n", "line 1"},
		{"of the future", strings.Replace(good, `"journal":2`, `"journal":3`, 1), "version 3"},
		{"a broken line in the middle", lines[0] + "{\n" + lines[1], "line 2"},
		{"a sample twice", lines[0] + lines[1] + lines[1] + lines[2], "there twice"},
		{"an unknown field", lines[0] + `{"speed":1}` + "\n" + lines[1], "speed"},
		{"a variant that is not there", lines[0] + strings.Replace(lines[1], `"variant":0`, `"variant":9`, 1) + lines[2], "not of this plan"},
		{"an operation is missing", lines[0] + `{"block":0,"variant":0,"mode":"file"}` + "\n" + lines[2], "0 operations"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, journalName)
			if err := os.WriteFile(path, []byte(tt.content), 0o666); err != nil {
				t.Fatal(err)
			}
			_, _, err := openJournal(dir, aPlan(), keepSeed)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %q and the path", err, tt.want)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != tt.content {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

func FuzzJournal(f *testing.F) {
	good := written(f, f.TempDir(), aPlan(), aSample(0, 0, "file"), aSample(0, 1, "memory"))
	f.Add(good)
	f.Add(good[:len(good)-10])
	f.Add([]byte("{\"journal\":1,\"plan\":{}}\n{}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		head, samples, n, err := decodeJournal(content)
		if err != nil {
			return
		}
		if n < 0 || n > int64(len(content)) || n > 0 && content[n-1] != '\n' {
			t.Fatalf("good part of %d bytes of %d", n, len(content))
		}
		if head == nil && (n != 0 || len(samples) != 0) {
			t.Fatal("samples without a plan")
		}
		seen := map[sampleKey]bool{}
		for _, s := range samples {
			if seen[s.key()] {
				t.Fatalf("%v is counted twice", s.key())
			}
			seen[s.key()] = true
		}
		// The good part is all there is to it.
		head2, again, m, err := decodeJournal(content[:n])
		if err != nil || m != n || len(again) != len(samples) || (head == nil) != (head2 == nil) {
			t.Fatalf("its good part gives %d samples, %d bytes, %v", len(again), m, err)
		}
		if head != nil && head.Plan.Slice > 0 {
			if _, k := head.Plan.wholeGroups(samples, content, n); k < 0 || k > n {
				t.Fatalf("groups end at %d of %d", k, n)
			}
		}
	})
}
