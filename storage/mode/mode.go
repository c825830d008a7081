// Package mode names the ways in which values are kept. It is apart from package storage, which holds them all, for programs that
// only name them: a client that starts servers.
package mode

import (
	"fmt"
	"strings"
)

// Mode names how values are kept.
type Mode string

// The modes.
const (
	Memory    Mode = "memory"    // in the heap, one object an entry, in maps by hash
	Map       Mode = "map"       // in the heap, in plain Go maps
	Serialize Mode = "serialize" // in the heap, serialized and compressed
	File      Mode = "file"      // in files read at random; keys in the heap
	LSM       Mode = "lsm"       // in Pebble
)

// All returns all modes in the order in which tables show them.
func All() []Mode { return []Mode{Memory, Map, Serialize, File, LSM} }

// Parse returns the mode of that name.
func Parse(name string) (Mode, error) {
	var names []string
	for _, m := range All() {
		if string(m) == name {
			return m, nil
		}
		names = append(names, string(m))
	}
	return "", fmt.Errorf("storage: unknown mode %q (use one of %s)", name, strings.Join(names, ", "))
}
