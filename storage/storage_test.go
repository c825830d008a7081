package storage_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
)

func TestOpenOpensEveryMode(t *testing.T) {
	for _, m := range storage.Modes() {
		t.Run(string(m), func(t *testing.T) {
			parsed, err := storage.ParseMode(string(m))
			if err != nil || parsed != m {
				t.Fatalf("parse: got %q, %v", parsed, err)
			}
			s, err := storage.Open(m, storage.Options{FS: vfs.NewMem(), Dir: "data"})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Recovered(); err != nil {
				t.Fatal(err)
			}
			if err := s.Set([]byte("key"), []byte("value")); err != nil {
				t.Fatal(err)
			}
			if v, ok, err := s.Get(nil, []byte("key")); err != nil || !ok || string(v) != "value" {
				t.Errorf("got %q, %v, %v", v, ok, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOpenRefusesBadOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode storage.Mode
		o    storage.Options
		want string
	}{
		{"an unknown mode", "disk", storage.Options{}, "memory, map, serialize, file, lsm"},
		{"no mode", "", storage.Options{}, "memory, map, serialize, file, lsm"},
		{"an unknown codec", storage.Serialize, storage.Options{Codec: "rar"}, "deflate"},
		{"file without a directory", storage.File, storage.Options{}, "no directory"},
		{"lsm without a directory", storage.LSM, storage.Options{}, "no directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := storage.Open(tt.mode, tt.o)
			if s != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, error %v; want an error with %q", s, err, tt.want)
			}
		})
	}
}
