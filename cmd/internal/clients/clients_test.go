// Package clients has the server used by client libraries as programs use them: with their defaults. It holds tests only, so
// nothing of the libraries is in a product.
package clients

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"kvmark/kvserver"
	"kvmark/storage"
)

// start serves a new data directory and returns the address.
func start(t *testing.T, o kvserver.Options) string {
	t.Helper()
	o.Dir = t.TempDir()
	if o.Mode == "" {
		o.Mode = storage.Memory
	}
	srv, err := kvserver.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(context.Background(), ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-done; err != kvserver.ErrServerClosed {
			t.Errorf("Serve returned %v", err)
		}
	})
	return ln.Addr().String()
}

// everywhere runs a test for both ways in which bytes are moved, and with the faster one in all modes.
func everywhere(t *testing.T, test func(t *testing.T, addr string)) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) { test(t, start(t, kvserver.Options{Mode: mode})) })
	}
	if runtime.GOOS == "linux" { // elsewhere it was so above
		t.Run("io=goroutine", func(t *testing.T) { test(t, start(t, kvserver.Options{IO: kvserver.Goroutine})) })
	}
}

// limited is a context that ends.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}
