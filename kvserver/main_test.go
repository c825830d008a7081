package kvserver

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the server that the crash tests kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		serveToBeKilled(dir)
	}
	// Pebble leaves this goroutine behind when an Open of it fails halfway.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/cockroachdb/pebble/v2.(*ConcurrencyLimitScheduler).periodicGranter"),
		// Of the cache of tables that an Open that failed has to leave behind.
		goleak.IgnoreTopFunction("github.com/cockroachdb/pebble/v2/internal/genericcache.(*shard[...]).releaseLoop"))
}
