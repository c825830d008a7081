package kvserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvmark/kvserver/resp"
)

// troupe is the connections of a script to one server.
type troupe struct {
	t       *testing.T
	connect func() *client
	players map[string]*client
	round   int
}

func (r *troupe) player(name string) *client {
	if r.players[name] == nil {
		r.players[name] = r.connect()
	}
	return r.players[name]
}

// play has one player send a line, and returns what each then gets until it hears itself.
func (r *troupe) play(name string, command []byte) string {
	r.t.Helper()
	if _, err := r.player(name).nc.Write(command); err != nil {
		r.t.Fatal(err)
	}
	// The one that acts hears itself first: by then what it did to others is done.
	var all []string
	for _, p := range append([]string{name}, "a", "b", "c", "d") {
		r.round++
		mark := fmt.Sprintf("mark-%d", r.round)
		c := r.player(p)
		if _, err := c.nc.Write(resp.AppendCommand(nil, "PING", mark)); err != nil {
			r.t.Fatal(err)
		}
		for {
			got, err := c.read()
			if err != nil {
				r.t.Fatalf("%s, after %q: %v", p, command, err)
			}
			if strings.Contains(got, mark) {
				break
			}
			if strings.Contains(got, "server\r\n") {
				got = "(the reply to HELLO, which differs in version and id)"
			}
			line := fmt.Sprintf("%s: %q\n", p, got)
			// Redis goes through patterns in no order.
			at := len(all)
			for at > 0 && strings.Contains(line, "pmessage") && strings.Contains(all[at-1], "pmessage") && line < all[at-1] && line[0] == all[at-1][0] {
				at--
			}
			all = slices.Insert(all, at, line)
		}
	}
	return strings.Join(all, "")
}

// rehearse plays a script on both servers, line by line.
func rehearse(t *testing.T, theirs, ours *troupe, script []string) {
	t.Helper()
	muted := map[string]bool{}
	pending := map[string][]byte{}
	for _, line := range script {
		name, text, _ := strings.Cut(line, ": ")
		var p resp.Parser
		args, _, err := p.Next([]byte(text + "\r\n"))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		command := resp.AppendCommand(nil, args...)
		// A player whose replies are off hears no mark: its lines go out together with the one that turns them on.
		switch {
		case strings.HasPrefix(text, "CLIENT REPLY OFF"), strings.HasPrefix(text, "CLIENT REPLY SKIP"):
			muted[name] = true
		case strings.HasPrefix(text, "CLIENT REPLY ON"), muted[name] && strings.HasPrefix(text, "PUBLISH d heard"):
			muted[name] = false
		}
		pending[name] = append(pending[name], command...)
		if muted[name] {
			continue
		}
		command, pending[name] = pending[name], nil
		want, got := theirs.play(name, command), ours.play(name, command)
		if got != want {
			t.Errorf("%s\nredis:\n%sours:\n%s", line, want, got)
		}
	}
}

func TestPubsubIsThatOfRedis(t *testing.T) {
	text, err := os.ReadFile("testdata/pubsub.script")
	if err != nil {
		t.Fatal(err)
	}
	onEachPath(t, func(t *testing.T, path IO) {
		for _, proto := range []string{"2", "3"} {
			t.Run("RESP"+proto, func(t *testing.T) {
				var script []string
				for line := range strings.Lines(strings.ReplaceAll(string(text), "{3}", proto)) {
					if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
						script = append(script, line)
					}
				}
				addr := listen(t, open(t, Options{IO: path}))
				theirs := &troupe{t: t, connect: startRedis(t), players: map[string]*client{}}
				ours := &troupe{t: t, connect: func() *client { return dial(t, addr) }, players: map[string]*client{}}
				rehearse(t, theirs, ours, script)
			})
		}
	})
}

// Whatever four connections do in whatever order, Redis and this server answer the same.
func TestPubsubAtRandomIsThatOfRedis(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path}))
		redis := startRedis(t)
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, 1))
			pick := func(words ...string) string { return words[rng.IntN(len(words))] }
			script := []string{"a: HELLO 3", "d: HELLO 3"}
			for range 60 {
				channel := pick("news", "newt", "new", "x")
				pattern := pick("new*", "n?w", "*", "[nx]*")
				line := pick("SUBSCRIBE "+channel, "PSUBSCRIBE "+pattern, "UNSUBSCRIBE "+channel, "PUNSUBSCRIBE "+pattern,
					"PUBLISH "+channel+" hello", "PUBLISH "+channel+" hello", "PUBLISH "+channel+" hello", "PUBSUB NUMSUB news newt new x", "PUBSUB NUMPAT", "PING", "GET none")
				script = append(script, pick("a", "b", "c", "d")+": "+line)
			}
			theirs := &troupe{t: t, connect: redis, players: map[string]*client{}}
			ours := &troupe{t: t, connect: func() *client { return dial(t, addr) }, players: map[string]*client{}}
			rehearse(t, theirs, ours, script)
			if t.Failed() {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(script, "\n"))
			}
			// The next seed begins without anybody listening.
			for _, r := range []*troupe{theirs, ours} {
				for _, c := range r.players {
					c.want("+RESET\r\n", "RESET")
				}
			}
		}
	})
}

// listener subscribes and counts what it hears.
type listener struct {
	c     *client
	heard map[string]int // by publisher, the number that is due next
}

func newListener(t *testing.T, addr, channel string) *listener {
	c := dial(t, addr)
	c.want(string(resp.AppendInt(resp.AppendBulk(resp.AppendBulk(resp.AppendArray(nil, 3), "subscribe"), channel), 1)), "SUBSCRIBE", channel)
	return &listener{c: c, heard: map[string]int{}}
}

// hear reads n messages "publisher number ..." and sees that each publisher's come in order. It returns them.
func (l *listener) hear(n int) (all []string, err error) {
	chunk := make([]byte, 64<<10)
	for len(all) < n {
		r, k, err := l.c.parser.Next(l.c.buf)
		if err != nil {
			return all, err
		}
		if k == 0 {
			m, err := l.c.nc.Read(chunk)
			l.c.buf = append(l.c.buf, chunk[:m]...)
			if err != nil {
				return all, fmt.Errorf("after %d of %d messages: %w", len(all), n, err)
			}
			continue
		}
		text := string(r.Elems[2].Bytes)
		var who string
		var number int
		if _, err := fmt.Sscan(text, &who, &number); err != nil || l.heard[who] != number {
			return all, fmt.Errorf("%.40q where number %d of it is due (%v)", text, l.heard[who], err)
		}
		l.heard[who]++
		all = append(all, text)
		l.c.buf = l.c.buf[k:]
	}
	return all, nil
}

// publish sends n messages of so many bytes in pipelines, and returns to how many each went.
func publish(t *testing.T, addr, channel, who string, n, size int) (reached []int64) {
	c := dial(t, addr)
	const depth = 16
	for i := 0; i < n; i += depth {
		var out []byte
		for j := i; j < min(i+depth, n); j++ {
			text := fmt.Sprintf("%s %d ", who, j)
			out = resp.AppendCommand(out, "PUBLISH", channel, text+strings.Repeat("x", max(0, size-len(text))))
		}
		if _, err := c.nc.Write(out); err != nil {
			t.Error(err)
			return reached
		}
		for range min(depth, n-i) {
			reply, err := c.read()
			if err != nil {
				t.Error(err)
				return reached
			}
			v, _ := resp.ParseInt([]byte(strings.TrimSpace(reply[1:])))
			reached = append(reached, v)
		}
	}
	return reached
}

// All listeners get all messages of a channel, in the same order.
func TestAllHearTheSame(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path, Loops: 2}))
		const publishers, messages = 4, 300
		var listeners []*listener
		for range 8 {
			listeners = append(listeners, newListener(t, addr, "c"))
		}
		heard := make([][]string, len(listeners))
		var running sync.WaitGroup
		for i, l := range listeners {
			running.Go(func() {
				var err error
				if heard[i], err = l.hear(publishers * messages); err != nil {
					t.Errorf("listener %d: %v", i, err)
				}
			})
		}
		for i := range publishers {
			running.Go(func() {
				for _, n := range publish(t, addr, "c", fmt.Sprint("p", i), messages, 60) {
					if n != int64(len(listeners)) {
						t.Errorf("a message reached %d of %d", n, len(listeners))
					}
				}
			})
		}
		running.Wait()
		for i := range heard {
			if got, want := strings.Join(heard[i], "\n"), strings.Join(heard[0], "\n"); got != want {
				t.Errorf("listener %d heard another order than the first", i)
			}
		}
	})
}

// One that reads nothing is cut off; the others get everything, and what was held for it is given back.
func TestASlowSubscriberIsCutOff(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path, MaxMailbox: 1 << 20})
		addr := listen(t, srv)
		slow := newListener(t, addr, "c")
		const messages, size = 3000, 8 << 10 // 24 MB: more than the sockets take
		var others []*listener
		for range 4 {
			others = append(others, newListener(t, addr, "c"))
		}
		// In step with those who listen, who could be too slow otherwise.
		for i := 0; i < messages; i += 50 {
			c := dial(t, addr)
			var out []byte
			for j := i; j < i+50; j++ {
				out = resp.AppendCommand(out, "PUBLISH", "c", fmt.Sprintf("p %d %s", j, strings.Repeat("x", size)))
			}
			if _, err := c.nc.Write(out); err != nil {
				t.Fatal(err)
			}
			for _, l := range others {
				if _, err := l.hear(50); err != nil {
					t.Fatal(err)
				}
			}
			c.nc.Close()
		}
		if n := srv.pubsub.cutOff.Load(); n != 1 {
			t.Errorf("%d subscribers were cut off, want 1", n)
		}
		if info := string(srv.info(nil)); !strings.Contains(info, "client_output_buffer_limit_disconnections:1\r\n") {
			t.Error("INFO does not tell of it")
		}
		if held := srv.buffered.Load(); held > 1<<20+2*freeBytes {
			t.Errorf("%d bytes are still held", held)
		}
		// The connection is closed: reading ends.
		if _, err := io.Copy(io.Discard, slow.c.nc); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the slow one is still connected")
		}
		until(t, "nobody listens to c but those that kept up", func() bool {
			srv.pubsub.mu.RLock()
			defer srv.pubsub.mu.RUnlock()
			return len(srv.pubsub.channels["c"].members) == 4
		})
	})
}

// until waits for something that is to happen.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("this does not come to be: %s", what)
		}
	}
}

// Subscribers that come, go and die amid a flood take nothing from the others, and leave nothing behind.
func TestSubscribersComeAndGo(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		srv := open(t, Options{IO: path, Loops: 2})
		addr := listen(t, srv)
		const messages = 4000
		stay := []*listener{newListener(t, addr, "c"), newListener(t, addr, "c")}
		var running, flooding sync.WaitGroup
		for _, l := range stay {
			running.Go(func() {
				if _, err := l.hear(2 * messages); err != nil {
					t.Error(err)
				}
			})
		}
		var over atomic.Bool
		for i := range 2 {
			flooding.Go(func() { publish(t, addr, "c", fmt.Sprint("p", i), messages, 60) })
		}
		for i := range 200 {
			running.Go(func() {
				nc, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer nc.Close()
				_, _ = nc.Write(resp.AppendCommand(nil, "SUBSCRIBE", "c", fmt.Sprint("own", i)))
				buf := make([]byte, 1000)
				_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err := io.ReadFull(nc, buf[:100]); err != nil && !over.Load() {
					t.Errorf("visitor %d: %v", i, err)
				}
				switch i % 4 {
				case 0: // dies
					_ = nc.(*net.TCPConn).SetLinger(0)
				case 1:
					_, _ = nc.Write([]byte("UNSUBSCRIBE\r\n"))
				case 2:
					_, _ = nc.Write([]byte("RESET\r\n"))
				case 3: // in the middle of a command
					_, _ = nc.Write([]byte("*2\r\n$9\r\nSUBSC"))
				}
			})
		}
		flooding.Wait()
		over.Store(true)
		running.Wait()
		for _, l := range stay {
			l.c.nc.Close()
		}
		until(t, "nobody listens", func() bool {
			channels, patterns := srv.pubsub.size()
			return channels == 0 && patterns == 0
		})
		until(t, "nothing is held", func() bool { return srv.buffered.Load() == 0 })
		if n := srv.pubsub.cutOff.Load(); n != 0 {
			t.Errorf("%d subscribers were cut off, want none", n)
		}
	})
}

func TestClientListTellsOfSubscriptions(t *testing.T) {
	addr := listen(t, open(t, Options{}))
	newListener(t, addr, "c")
	c := dial(t, addr)
	for command, want := range map[string]string{"CLIENT LIST": "sub=1 psub=0", "CLIENT LIST TYPE pubsub": "flags=P db=0 sub=1", "CLIENT LIST TYPE normal": "flags=N db=0 sub=0"} {
		if got, err := c.do(strings.Fields(command)...); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v; want %q in it", command, got, err, want)
		}
	}
	c.want(":1\r\n", "CLIENT", "KILL", "TYPE", "pubsub")
	until(t, "nobody listens", func() bool {
		got, err := c.do("PUBSUB", "NUMSUB", "c")
		return err != nil || strings.HasSuffix(got, ":0\r\n")
	})
}

// Listening is not idling.
func TestTheIdleTimeoutSparesSubscribers(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path, IdleTimeout: time.Second}))
		l, idle := newListener(t, addr, "c"), dial(t, addr)
		if got, err := idle.read(); err == nil {
			t.Fatalf("read %q", got)
		}
		publish(t, addr, "c", "p", 1, 20)
		if _, err := l.hear(1); err != nil {
			t.Error(err)
		}
	})
}

// What a subscription had before its end is sent before the word of the end, whoever sends it.
func TestNothingComesAfterTheEndOfASubscription(t *testing.T) {
	onEachPath(t, func(t *testing.T, path IO) {
		addr := listen(t, open(t, Options{IO: path, Loops: 2}))
		stop := make(chan struct{})
		var flooding sync.WaitGroup
		flooding.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					publish(t, addr, "c", "p", 50, 20)
				}
			}
		})
		c := dial(t, addr)
		for range 200 {
			if _, err := c.nc.Write([]byte("SUBSCRIBE c\r\nPING\r\nUNSUBSCRIBE c\r\n*1\r\n$4\r\nPING\r\n")); err != nil {
				t.Fatal(err)
			}
			var got []string
			for len(got) == 0 || got[len(got)-1] != "+PONG\r\n" {
				reply, err := c.read()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, reply)
			}
			if !strings.Contains(got[0], "subscribe") || !strings.Contains(got[len(got)-2], "unsubscribe") {
				t.Fatalf("%d replies, first %q, last but one %q", len(got), got[0], got[len(got)-2])
			}
		}
		close(stop)
		flooding.Wait()
	})
}

// Publishing costs no memory, however many listen.
func TestPublishingDoesNotAllocate(t *testing.T) {
	srv := open(t, Options{})
	publisher := speak(t, srv)
	var listeners []*speaker
	for range 20 {
		l := speak(t, srv)
		l.do("SUBSCRIBE c")
		l.do("PSUBSCRIBE c*")
		listeners = append(listeners, l)
	}
	command := resp.AppendCommand(nil, "PUBLISH", "c", strings.Repeat("x", 60))
	round := func() {
		if _, more := publisher.s.run(command); more {
			t.Fatal("not all of it ran")
		}
		publisher.s.spread(nil)
		publisher.s.sent()
		for _, l := range listeners {
			l.s.collect()
			l.s.sent()
		}
	}
	for range 10 {
		round()
	}
	if got := testing.AllocsPerRun(100, round); got != 0 {
		t.Errorf("%v allocations for a message to 20 listeners, want 0", got)
	}
	if got := publisher.do("PUBLISH c last"); got != ":40\r\n" {
		t.Errorf("reached %q, want 40", got)
	}
	listeners[3].s.collect()
	if got := string(listeners[3].s.out); strings.Count(got, "last") != 2 || !bytes.Contains([]byte(got), []byte("pmessage")) {
		t.Errorf("a listener has %q", got)
	}
}

// A write of many messages fails, before or after the session has ended.
func TestWhatCouldNotBeDeliveredIsNotHeld(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(b *mailbox)
	}{
		{"written", func(b *mailbox) {
			for b.next(nil) != nil {
			}
		}},
		{"lost", (*mailbox).lose},
		{"closed and written", func(b *mailbox) { b.close(); b.next(nil) }},
		{"closed and lost", func(b *mailbox) { b.close(); b.lose() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := open(t, Options{})
			b := newMailbox(srv, resp.RESP3)
			for range 10 {
				b.put(bytes.Repeat([]byte(">"), freeBytes/2))
			}
			if chunk := b.next(nil); len(chunk) != freeBytes/2 || srv.buffered.Load() != 4*freeBytes {
				t.Fatalf("%d bytes are taken, %d are held", len(chunk), srv.buffered.Load())
			}
			b.put([]byte(">"))
			tc.end(b)
			if n := srv.buffered.Load(); n != 0 {
				t.Errorf("%d bytes are held", n)
			}
		})
	}
}
