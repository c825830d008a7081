package experiment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"kvmark/client/load"
	"kvmark/client/result"
)

// The journal is what makes an experiment resumable: one JSON line for the plan, then one for each sample, synced before
// the next sample begins.
//
//	{"journal":1,"plan":{...}}
//	{"block":0,"variant":1,"mode":"memory","seconds":11.2,"cells":[{set ...},{get ...}]}
//
// A crash can leave the last line torn; that sample is measured again. Damage anywhere before is an error.
const (
	journalName    = "journal.jsonl"
	journalVersion = 2        // part of the format
	maxLine        = 64 << 20 // of the journal
)

type journalHead struct {
	Journal int  `json:"journal"`
	Plan    Plan `json:"plan"`
}

// Sample is one process of one cell, with everything that was measured on it.
type Sample struct {
	Block   int    `json:"block"`
	Variant int    `json:"variant"`
	Mode    string `json:"mode"`

	Seconds float64        `json:"seconds"` // that it took in all, start and fill included
	Order   int            `json:"order"`   // its place within the block
	Layout  uint64         `json:"layout,omitempty"`
	Process result.Process `json:"process"` // the server as it saw itself
	Client  string         `json:"client"`  // runtime.Version of the load generator
	Cells   []result.Cell  `json:"cells"`   // one for each operation
	Slices  [][]load.Slice `json:"slices,omitempty"`
	Failed  string         `json:"failed,omitempty"` // why there are no cells
}

// Cell names the sample's cell.
func (s Sample) Cell() Cell { return Cell{s.Variant, s.Mode} }

type sampleKey struct {
	block int
	cell  Cell
}

func (s Sample) key() sampleKey { return sampleKey{s.Block, s.Cell()} }

// journal is the open file.
type journal struct {
	f    *os.File
	path string
	done map[sampleKey]bool
}

// openJournal opens the journal of a plan in dir, or makes one, and returns the samples that are already there. The plan
// in the file must be the same; adopt may take over from it what the user left open.
func openJournal(dir string, plan *Plan, adopt func(old Plan, now *Plan)) (_ *journal, old []Sample, err error) {
	path := filepath.Join(dir, journalName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
			err = fmt.Errorf("journal %s: %w", path, err)
		}
	}()
	if err := LockFile(f); err != nil {
		return nil, nil, fmt.Errorf("in use by another kvmark: %w", err)
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, nil, err
	}
	head, samples, good, err := decodeJournal(content)
	if err != nil {
		return nil, nil, err
	}
	if head != nil && head.Plan.Slice > 0 {
		samples, good = head.Plan.wholeGroups(samples, content, good)
	}
	j := &journal{f: f, path: path, done: map[sampleKey]bool{}}
	if err := f.Truncate(good); err != nil {
		return nil, nil, err
	}
	if _, err := f.Seek(good, io.SeekStart); err != nil {
		return nil, nil, err
	}
	if head == nil {
		return j, nil, j.write(journalHead{journalVersion, *plan})
	}
	adopt(head.Plan, plan)
	if diff := differences(head.Plan, *plan); diff != "" {
		return nil, nil, fmt.Errorf("it holds another experiment (%s): name another directory with --out", diff)
	}
	for _, s := range samples {
		j.done[s.key()] = true
	}
	return j, samples, nil
}

// decodeJournal returns what a journal holds, and the length of its good part. No head: the file is as good as empty.
func decodeJournal(content []byte) (head *journalHead, samples []Sample, good int64, err error) {
	seen := map[sampleKey]bool{}
	for n := 1; len(content) > 0; n++ {
		line, rest, whole := bytes.Cut(content, []byte("\n"))
		if !whole {
			return head, samples, good, nil // torn
		}
		err := func() error {
			if len(line) > maxLine {
				return fmt.Errorf("%d bytes long", len(line))
			}
			d := json.NewDecoder(bytes.NewReader(line))
			d.DisallowUnknownFields()
			if n == 1 {
				head = new(journalHead)
				if err := d.Decode(head); err != nil {
					return err
				}
				if head.Journal != journalVersion {
					return fmt.Errorf("a journal of version %d, this kvmark writes %d", head.Journal, journalVersion)
				}
				return nil
			}
			var s Sample
			if err := d.Decode(&s); err != nil {
				return err
			}
			if err := head.Plan.admits(s); err != nil {
				return err
			}
			if seen[s.key()] {
				return fmt.Errorf("block %d, variant %d, mode %q is there twice", s.Block, s.Variant, s.Mode)
			}
			seen[s.key()] = true
			samples = append(samples, s)
			return nil
		}()
		if err != nil && len(rest) == 0 && n > 1 {
			return head, samples, good, nil // the file system kept the length of the last line, but not its bytes
		}
		if err != nil {
			return nil, nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
		good += int64(len(line)) + 1
		content = rest
	}
	return head, samples, good, nil
}

// wholeGroups cuts a group at the end that a crash has torn: servers that lived side by side are measured again together.
func (p Plan) wholeGroups(samples []Sample, content []byte, good int64) ([]Sample, int64) {
	size := 0
	for _, v := range p.Variants {
		if v.NA == "" {
			size++
		}
	}
	n := 0 // of the last group
	for n < len(samples) {
		s, last := samples[len(samples)-1-n], samples[len(samples)-1]
		if s.Block != last.Block || s.Mode != last.Mode {
			break
		}
		n++
	}
	if n >= size {
		return samples, good
	}
	for range n {
		good = int64(bytes.LastIndexByte(content[:good-1], '\n') + 1)
	}
	return samples[:len(samples)-n], good
}

// admits refuses a sample that no run of the plan can have made.
func (p Plan) admits(s Sample) error {
	known := false
	for _, m := range p.Modes {
		known = known || m == s.Mode
	}
	switch {
	case s.Block < 0 || s.Variant < 0 || s.Variant >= len(p.Variants) || !known:
		return fmt.Errorf("block %d, variant %d, mode %q is not of this plan", s.Block, s.Variant, s.Mode)
	case s.Failed == "" && len(s.Cells) != len(p.Ops):
		return fmt.Errorf("%d operations, want %d", len(s.Cells), len(p.Ops))
	case !(s.Seconds >= 0):
		return errors.New("negative time")
	}
	return nil
}

// add records samples that belong together: all of them or, after a crash, the first few.
func (j *journal) add(samples ...Sample) error {
	lines := make([]any, len(samples))
	for i, s := range samples {
		if j.done[s.key()] {
			return fmt.Errorf("journal %s: block %d, variant %d, mode %q is already there", j.path, s.Block, s.Variant, s.Mode)
		}
		j.done[s.key()] = true
		lines[i] = s
	}
	return j.write(lines...)
}

func (j *journal) write(values ...any) error {
	var b []byte
	for _, v := range values {
		line, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("journal %s: %w", j.path, err)
		}
		b = append(append(b, line...), '\n')
	}
	if _, err := j.f.Write(b); err != nil {
		return fmt.Errorf("journal: %w", err) // names the file
	}
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

func (j *journal) close() error { return j.f.Close() }

// differences names the parts of two plans that differ, with both values where they are short.
func differences(old, now Plan) string {
	var diff []string
	a, b := reflect.ValueOf(old), reflect.ValueOf(now)
	for i := range a.NumField() {
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		xs, errX := json.Marshal(x)
		ys, errY := json.Marshal(y)
		if errX == nil && errY == nil && bytes.Equal(xs, ys) {
			continue
		}
		name := strings.ToLower(a.Type().Field(i).Name)
		if words := fmt.Sprintf("%s %v, now %v", name, x, y); len(words) < 120 {
			name = words
		}
		diff = append(diff, name)
	}
	return strings.Join(diff, "; ")
}
