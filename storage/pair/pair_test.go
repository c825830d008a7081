package pair_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kvmark/storage/pair"
)

func TestPairsComeBack(t *testing.T) {
	pairs := [][2]string{{"", ""}, {"k", ""}, {"", "v"}, {"key", "value"}, {string(make([]byte, 127)), string(make([]byte, 128))}}
	var b []byte
	for _, p := range pairs {
		before := len(b)
		b = pair.Append(b, []byte(p[0]), []byte(p[1]))
		if got, want := len(b)-before, pair.Size(len(p[0]), len(p[1])); got != want {
			t.Errorf("Append of %d and %d bytes added %d bytes, Size says %d", len(p[0]), len(p[1]), got, want)
		}
	}
	for i, p := range pairs {
		k, v, rest, err := pair.Next(b)
		if err != nil || string(k) != p[0] || string(v) != p[1] {
			t.Fatalf("pair %d: got %q, %q, %v; want %q, %q", i, k, v, err, p[0], p[1])
		}
		b = rest
	}
	if len(b) > 0 {
		t.Errorf("%d bytes are left", len(b))
	}
}

func FuzzNext(f *testing.F) {
	f.Add(pair.Append(nil, []byte("key"), []byte("value")))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, v, rest, err := pair.Next(b)
		if err != nil {
			if !errors.Is(err, pair.ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if !bytes.HasSuffix(b, rest) || len(k)+len(v)+len(rest) >= len(b) {
			t.Errorf("%d and %d bytes of key and value with %d left, of %d", len(k), len(v), len(rest), len(b))
		}
		// Lengths may be longer than they have to be, never shorter.
		if again := pair.Append(nil, k, v); len(again) > len(b)-len(rest) {
			t.Errorf("%d bytes become %d", len(b)-len(rest), len(again))
		}
	})
}

func TestRecordsHoldWhatWasEmitted(t *testing.T) {
	big := bytes.Repeat([]byte("v"), 50_000)
	scan := func(shard int, fn func(key, value []byte) error) error {
		for i := range 3 {
			if err := fn(fmt.Append(nil, shard, "/", i), big); err != nil {
				return err
			}
		}
		return nil
	}
	var keys []string
	records := 0
	err := pair.Emit("head", 2, scan, func(rec []byte) error {
		records++
		rest, ok := bytes.CutPrefix(rec, []byte("head"))
		if !ok {
			t.Errorf("a record begins with %.10q", rec)
		}
		return pair.Read(rest, func(key, value []byte) error {
			if !bytes.Equal(value, big) {
				t.Errorf("%q has a value of %d bytes", key, len(value))
			}
			keys = append(keys, string(key))
			return nil
		})
	})
	if want := []string{"0/0", "0/1", "0/2", "1/0", "1/1", "1/2"}; err != nil || records != 3 || !slices.Equal(keys, want) {
		t.Errorf("%d records with %q, %v", records, keys, err)
	}
	failure := errors.New("full")
	if err := pair.Emit("", 1, scan, func([]byte) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	rec := pair.Append(pair.Append(nil, []byte("k"), nil), []byte("l"), nil)
	if err := pair.Read(rec[:len(rec)-1], func(_, _ []byte) error { return nil }); !errors.Is(err, pair.ErrCorrupt) || !strings.Contains(err.Error(), "byte 3") {
		t.Errorf("a cut record: %v", err)
	}
}
