package kvserver

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"kvmark/kvserver/resp"
)

// Of many half-sent values, as many are taken as the budget has room for, counted to the byte; the others are refused at once, and
// do not take the room of those.
func TestHalfSentValuesAreTakenAsFarAsTheBudgetGoes(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		const valueBytes, fit, clients = 4 << 20, 16, 40
		srv := open(t, Options{IO: path, MaxBuffered: fit * valueBytes})
		addr := listen(t, srv)
		set := resp.AppendCommand(nil, "SET", "k", strings.Repeat("v", valueBytes))
		var all []*client
		replies := make(chan string, clients)
		for range clients {
			c := dial(t, addr)
			all = append(all, c)
			go func() { // ends with the reply or the connection
				got, err := c.read()
				if err != nil {
					got = err.Error()
				}
				replies <- got
			}()
		}
		half := len(set) / 2
		var wg sync.WaitGroup
		for _, c := range all {
			wg.Go(func() { _, _ = c.nc.Write(set[:half]) }) // which fails for those that are refused
		}
		wg.Wait()
		for range clients - fit {
			if got := <-replies; got != "-"+errBudget+"\r\n" {
				t.Fatalf("refused with %q", got)
			}
		}
		until(t, "the others' halves are counted", func() bool { return srv.buffered.Load() == int64(fit*(len(set)-freeBytes)) })
		for _, c := range all {
			wg.Go(func() { _, _ = c.nc.Write(set[half:]) })
		}
		for range fit {
			if got := <-replies; got != ok {
				t.Errorf("got %q", got)
			}
		}
		wg.Wait()
		until(t, "everything is given back", func() bool { return srv.buffered.Load() == 0 })
	})
}

// A client may send all of a long pipeline before it reads, and say that this was all.
func TestAPipelineIsAnsweredThoughNothingIsReadBeforeItsEnd(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		const n = 250_000
		srv := open(t, Options{IO: path})
		c := dial(t, listen(t, srv))
		value := strings.Repeat("v", 100)
		c.want(ok, "SET", "key", value)
		if _, err := c.nc.Write(bytes.Repeat(resp.AppendCommand(nil, "GET", "key"), n)); err != nil {
			t.Fatal(err)
		}
		if err := c.nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c.nc)
		if want := bulk(value); err != nil || len(got) != n*len(want) || strings.Count(string(got), want) != n {
			t.Errorf("%d bytes of %d, %v", len(got), n*len(want), err)
		}
		until(t, "everything is given back", func() bool { return srv.buffered.Load() == 0 })
	})
}

// What such a client sends comes out of the budget. When its share is used up the replies until then arrive, and then why there are
// no more.
func TestAPipelineBeyondTheBudgetIsToldSo(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		const n = 400_000
		srv := open(t, Options{IO: path, MaxBuffered: 1 << 20})
		c := dial(t, listen(t, srv))
		value := strings.Repeat("v", 10_000)
		c.want(ok, "SET", "key", value)
		srv.settings.writeTimeout.Store(int64(5 * tick))
		if _, err := c.nc.Write(bytes.Repeat(resp.AppendCommand(nil, "GET", "key"), n)); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c.nc)
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		rest, whole := bytes.ReplaceAll(got, []byte(bulk(value)), nil), bytes.Count(got, []byte(bulk(value)))
		wait := 0
		if _, err := fmt.Sscanf(string(rest), "-"+errAhead+"\r\n", &wait); err != nil || wait < 64<<10 || wait > 128<<10 || whole == 0 {
			t.Errorf("%d replies, and then %.100q", whole, rest)
		}
		until(t, "everything is given back", func() bool { return srv.buffered.Load() == 0 })
	})
}

// A client that takes replies, however late, is not told so: it is only read from no faster.
func TestAPipelineOfASlowReaderIsHeldBack(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		const n = 4000
		srv := open(t, Options{IO: path, MaxBuffered: 1 << 20})
		c := dial(t, listen(t, srv))
		value := strings.Repeat("v", 10_000)
		c.want(ok, "SET", "key", value)
		ask := resp.AppendCommand(nil, "GET", "key", strings.Repeat("x", 100)) // of which an eighth of the budget does not hold n
		ask = append(resp.AppendCommand(nil, "GET", "key"), ask...)
		written := make(chan error, 1)
		go func() {
			_, err := c.nc.Write(bytes.Repeat(ask, n))
			written <- err
		}()
		until(t, "no more is read", func() bool {
			srv.mu.Lock()
			defer srv.mu.Unlock()
			for _, conn := range srv.conns {
				return conn.full.Load()
			}
			return false
		})
		for i := range n {
			if got, err := c.read(); err != nil || got != bulk(value) {
				t.Fatalf("reply %d: %.60q, %v", i, got, err)
			}
			if got, err := c.read(); err != nil || !strings.HasPrefix(got, "-ERR wrong number of arguments") {
				t.Fatalf("error %d: %.60q, %v", i, got, err)
			}
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

// Buffers that were big once are let go of when the connection has nothing to do, and do not keep the budget from others.
func TestIdleConnectionsKeepNoBigBuffers(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path})
		c := dial(t, listen(t, srv))
		value := strings.Repeat("v", 200_000)
		c.want(ok, "SET", "key", value)
		c.want(bulk(value), "GET", "key")
		if srv.buffered.Load() == 0 {
			t.Error("the buffers of a client that may be about to ask again are not kept")
		}
		until(t, "they are let go of", func() bool { return srv.buffered.Load() == 0 })
		c.want(bulk(value), "GET", "key")
	})
}

// A mailbox takes as much memory as it counts, and leaves none to the collector while it grows.
func TestAMailboxIsNotCopiedWhileItGrows(t *testing.T) {
	srv := open(t, Options{})
	for _, size := range []int{10, 1000, 50_000} {
		b := newMailbox(srv, resp.RESP3)
		message, total := bytes.Repeat([]byte("m"), size), 8<<20/size*size
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for n := 0; n < total; n += size {
			b.put(message)
		}
		runtime.ReadMemStats(&after)
		if got := int(after.TotalAlloc - before.TotalAlloc); got > total+total/4 {
			t.Errorf("messages of %d bytes: %d bytes were allocated for %d", size, got, total)
		}
		sum := 0
		for _, chunk := range b.buf.all {
			sum += cap(chunk)
		}
		if sum != b.buf.size || b.held != int64(sum-freeBytes) || sum < total || sum > total+total/16 {
			t.Errorf("messages of %d bytes, %d in all: %d are counted and %d held, the arrays have %d", size, total, b.buf.size, b.held, sum)
		}
		var got []byte
		for more := true; more; {
			var out []byte
			out, more = b.take(nil, resp.RESP3, false)
			got = append(got, out...)
		}
		if want := bytes.Repeat(append([]byte(">"), message[1:]...), total/size); !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d, or others", len(got), len(want))
		}
		if n := srv.buffered.Load(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
	}
}
