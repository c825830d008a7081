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
	goleak.VerifyTestMain(m)
}
