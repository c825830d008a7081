package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// MaxBytes bounds what Read takes in: with MaxRows rows a cell, 50 cells of the longest windows are below it.
const MaxBytes = 256 << 20

// Encode returns the file's bytes: indented JSON with a line end. It fails where a number is NaN or infinite.
func (f *File) Encode() ([]byte, error) {
	c := *f
	c.Schema = Schema
	if c.Cells == nil { // lists are never null
		c.Cells = []Cell{}
	}
	c.Cells = slices.Clone(c.Cells)
	for i := range c.Cells {
		c.Cells[i].Series = Thin(c.Cells[i].Series)
	}
	if c.Comparisons == nil {
		c.Comparisons = []Comparison{}
	}
	b, err := json.MarshalIndent(&c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return append(b, '\n'), nil
}

// Write stores the result at path, making its directory. After a crash at any moment there is the whole file or none:
// it is written beside, synced, renamed, and its directory synced.
func (f *File) Write(path string) (err error) {
	b, err := f.Encode()
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
			err = fmt.Errorf("result: write %s: %w", path, err)
		}
	}()
	if _, err := tmp.Write(b); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename durable. File systems that cannot sync a directory say so with an error that does not matter.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}

// Read reads the result file at path.
func Read(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	defer file.Close()
	f, err := Decode(file)
	if err != nil {
		return nil, fmt.Errorf("result: read %s: %w", path, err)
	}
	return f, nil
}

// Decode reads one result. It is strict: another schema, an unknown field, a second document or a file cut short are
// errors, since half a result misleads.
func Decode(r io.Reader) (*File, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("larger than %d bytes: not a result file", MaxBytes)
	}
	var head struct {
		Schema *string `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, describe(b, err)
	}
	switch {
	case head.Schema == nil:
		return nil, errors.New("no schema: not a result file of kvmark")
	case *head.Schema != Schema:
		return nil, fmt.Errorf("schema %q: this kvmark reads %q", *head.Schema, Schema)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	f := new(File)
	if err := d.Decode(f); err != nil {
		return nil, describe(b, err)
	}
	return f, f.validate()
}

// describe adds the line to errors of the JSON parser.
func describe(b []byte, err error) error {
	offset := int64(-1)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	}
	if offset < 0 || offset > int64(len(b)) {
		return err
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(b[:offset], []byte("\n")), err)
}

// validate refuses numbers that no measurement can give.
func (f *File) validate() error {
	if len(f.Cells) == 0 && !f.Interrupted && f.Started.IsZero() {
		return errors.New("it holds no measurement: neither when one began nor any cell")
	}
	for i, c := range f.Cells {
		switch {
		case c.Mode == "" || c.Op == "":
			return fmt.Errorf("cell %d has no mode or no op", i+1)
		case c.Seconds < 0 || c.OK < 0 || c.Late < 0 || c.Errors < 0 || c.Misses < 0 || c.Wrong < 0:
			return fmt.Errorf("cell %d (%s %s): negative count or time", i+1, c.Mode, c.Op)
		}
		for _, check := range c.Checks {
			if c.Valid && !check.Pass {
				return fmt.Errorf("cell %d (%s %s) is marked valid, but its check %s failed", i+1, c.Mode, c.Op, check.Name)
			}
		}
	}
	return nil
}
