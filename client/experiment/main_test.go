package experiment

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"kvmark/client/load/loadtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(fakeGo) != "" {
		os.Exit(beGo(os.Args[1:]))
	}
	loadtest.Main()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if productDir != "" {
			os.RemoveAll(productDir)
		}
		os.Exit(code)
	}))
}
