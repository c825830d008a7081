package kvserver

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"kvmark/kvserver/resp"
)

// Clients that ask for a lot and take nothing are cut off, biggest first, when their replies use up the budget. Others are served
// all the while, with big replies as soon as there is room, and what was held is given back.
func TestClientsThatReadNothingAreCutOff(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		const budget, valueBytes, clients = 8 << 20, 1 << 20, 24
		srv := open(t, Options{IO: path, MaxBuffered: budget})
		addr := listen(t, srv)
		good := dial(t, addr)
		good.want(ok, "SET", "big", strings.Repeat("v", valueBytes))
		good.want(ok, "SET", "small", "v")
		ask := []byte(strings.Repeat("GET big\r\n", 100))
		for range clients {
			c := dial(t, addr)
			if err := c.nc.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
				t.Fatal(err)
			}
			if _, err := c.nc.Write(ask); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "some are cut off", func() bool {
			good.want("$1\r\nv\r\n", "GET", "small")
			if n := srv.buffered.Load(); n > budget {
				t.Fatalf("%d bytes are held, the budget is %d", n, budget)
			}
			got, err := good.do("GET", "big")
			if err != nil || got != "-"+errBudget+"\r\n" && len(got) < valueBytes {
				t.Fatalf("got %.100q, %v", got, err)
			}
			return srv.pubsub.cutOff.Load() > 0
		})
		until(t, "others get big replies", func() bool {
			got, err := good.do("GET", "big")
			return err == nil && len(got) > valueBytes
		})
		if n := infoNumber(t, good, "client_output_buffer_limit_disconnections"); n < 1 {
			t.Errorf("INFO counts %d", n)
		}
		srv.kill(func(c *conn) bool { return c.remote.String() != good.nc.LocalAddr().String() })
		until(t, "everything is given back", func() bool { return srv.buffered.Load() == 0 })
	})
}

// One that takes its time is not cut off while there is room for all.
func TestASlowReaderIsNotCutOffWithoutNeed(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path})
		addr := listen(t, srv)
		c := dial(t, addr)
		c.want(ok, "SET", "big", strings.Repeat("v", 1<<20))
		if _, err := c.nc.Write([]byte(strings.Repeat("GET big\r\n", 20))); err != nil {
			t.Fatal(err)
		}
		until(t, "it has taken nothing for a while", func() bool { return srv.ticks.Load() > int64(stalled/tick)+3 })
		srv.cutOffSlow(1)
		for i := range 20 {
			if got, err := c.read(); err != nil || len(got) < 1<<20 {
				t.Fatalf("reply %d: %d bytes, %v", i, len(got), err)
			}
		}
	})
}

// A client to which the very first byte cannot be sent is noticed like one that stops in the middle.
func TestAClientThatTakesNotEvenTheFirstByteIsClosed(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path})
		addr := listen(t, srv)
		c := dial(t, addr)
		c.want(ok, "SET", "k", strings.Repeat("v", 10_000))
		// Replies of every size, so that some end just where the socket is full.
		go func() { // ends with the connection
			for i := 0; ; i++ {
				if _, err := c.nc.Write(resp.AppendCommand(nil, "ECHO", strings.Repeat("x", i%5000))); err != nil {
					return
				}
			}
		}()
		var at *conn
		until(t, "it is stuck", func() bool {
			srv.mu.Lock()
			defer srv.mu.Unlock()
			for _, conn := range srv.conns {
				at = conn
			}
			return at != nil && at.writing.Load() > 0
		})
		srv.settings.writeTimeout.Store(int64(tick))
		until(t, "it is closed", func() bool {
			srv.mu.Lock()
			defer srv.mu.Unlock()
			return len(srv.conns) == 0
		})
	})
}

// Two parts of INFO that are about the same agree, however busy the server is: they are of one moment.
func TestTheCountsOfINFOAreOfOneMoment(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path})
		addr := listen(t, srv)
		for range 4 {
			c := dial(t, addr)
			go func() { // ends with the connection
				for {
					if _, err := c.do("ECHO", "x"); err != nil {
						return
					}
				}
			}()
		}
		c := dial(t, addr)
		if _, err := c.do("PING"); err != nil { // so that there is something to count
			t.Fatal(err)
		}
		for range 200 {
			text, err := c.do("INFO", "stats", "commandstats")
			if err != nil {
				t.Fatal(err)
			}
			var all, sum int64
			for line := range strings.Lines(text) {
				var n int64
				if _, err := fmt.Sscanf(line, "total_commands_processed:%d", &n); err == nil {
					all = n
				}
				if _, rest, ok := strings.Cut(line, ":calls="); ok {
					if _, err := fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n); err != nil {
						t.Fatal(err)
					}
					sum += n
				}
			}
			if all == 0 || sum != all {
				t.Fatalf("%d commands, the sum of the commands is %d", all, sum)
			}
		}
	})
}
