package wal_test

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/wal"
)

// A record that was committed under Always is there after a start.
func Example() {
	o := wal.Options{FS: vfs.NewMem(), Policy: wal.Always}
	ignore := func([]byte) error { return nil }
	log, _, err := wal.Open("wal", o, ignore)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"first", "second"} {
		pos, err := log.Append([]byte(text))
		if err == nil {
			err = log.Commit(pos)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	if err := log.Close(); err != nil {
		fmt.Println(err)
	}
	log, _, err = wal.Open("wal", o, func(payload []byte) error {
		fmt.Printf("%s\n", payload)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(log.Close())
	// Output:
	// first
	// second
	// <nil>
}
