// Package policy names when a write counts as done. It is apart from package wal, which obeys it, for programs that only name it: a
// client that starts servers.
package policy

import "fmt"

// Policy says when Commit returns: the level that a record has reached by then.
type Policy uint8

const (
	Buffered Policy = iota // in the process's buffer, written at least every 200 ms; lost by kill -9
	OS                     // write(2) has returned; survives kill -9
	Interval               // as OS, with fdatasync every Options.SyncEvery in the background
	Always                 // fdatasync has returned, shared by all who wait; survives power loss
)

var names = [...]string{Buffered: "buffered", OS: "os", Interval: "interval", Always: "always"}

// Names returns the names of all policies, from the weakest to the strongest.
func Names() []string { return append([]string(nil), names[:]...) }

func (p Policy) String() string {
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Parse is the inverse of Policy.String.
func Parse(s string) (Policy, error) {
	for p, name := range names {
		if s == name {
			return Policy(p), nil
		}
	}
	return 0, fmt.Errorf("unknown log policy %q: want buffered, os, interval or always", s)
}
