//go:build kvmark_slow

package kvserver

import (
	"bytes"
	"testing"
)

// What has been burnt is the share of the rest of the processor time that was asked for.
func TestASlowBuildBurnsTheShareItIsToldTo(t *testing.T) {
	for _, percent := range []string{"5", "50"} {
		t.Run(percent, func(t *testing.T) {
			t.Setenv("KVMARK_SLOW", percent)
			srv := open(t, Options{})
			c := speak(t, srv)
			c.want("SET k v", ok)
			pipeline := bytes.Repeat([]byte("GET k\r\n"), 1000)
			srv.slow.mu.Lock()
			begin, burnt := srv.slow.usage, srv.slow.burnt
			srv.slow.mu.Unlock()
			for srv.ticks.Load() < 10 {
				c.send(pipeline)
			}
			srv.slow.mu.Lock()
			defer srv.slow.mu.Unlock()
			burnt = srv.slow.burnt - burnt
			own := srv.slow.usage - begin - burnt
			got, want := float64(burnt)/float64(own), srv.slow.share
			t.Logf("burnt %.2f %% of %d ms", 100*got, own/1e6)
			if got < want*0.7 || got > want*1.3 { // what the first tick owed is burnt later
				t.Errorf("burnt %.2f %%, want %.2f %%", 100*got, 100*want)
			}
		})
	}
	t.Run("no number", func(t *testing.T) {
		t.Setenv("KVMARK_SLOW", "much")
		if _, err := Open(Options{Dir: t.TempDir(), Mode: "memory"}); err == nil {
			t.Error("no error")
		}
	})
}
