package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestAServerWithoutALogIsRefusedBeforeAnythingStarts(t *testing.T) {
	for _, name := range []string{"memcached", "memcached:threads=4"} {
		var out bytes.Buffer
		err := run(t.Context(), []string{"-kvserver", "/nowhere", "-servers", "memory," + name}, &out)
		if err == nil || !strings.Contains(err.Error(), name+" keeps no log") || out.Len() > 0 {
			t.Errorf("%s: error %v and %q printed, want that it keeps no log", name, err, out.String())
		}
	}
}
