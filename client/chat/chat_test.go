package chat

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kvmark/client/load"
	"kvmark/client/load/loadtest"
	"kvmark/client/result"
	"kvmark/kvserver/resp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target starts a server and returns a small chat with it.
func target(t *testing.T, s *loadtest.Rooms) Config {
	t.Helper()
	addr, stop, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c := Default()
	c.Load.Target = load.Target{Addr: addr}
	c.Load.Patience = 10 * time.Second
	c.Rooms, c.Users, c.Messages, c.Runs = 2, 4, 5, 1
	return c
}

func failed(c result.Cell) (names []string) {
	for _, check := range c.Checks {
		if !check.Pass {
			names = append(names, check.Name)
		}
	}
	return names
}

func one(t *testing.T, c Config) result.Cell {
	t.Helper()
	out, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Cells) != 1 {
		t.Fatalf("%d cells, want 1", len(out.Cells))
	}
	return out.Cells[0]
}

func TestCountsAreThoseOfTheLaw(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		rooms, users, messages int
		pace                   Pace
		proto                  int
		window                 int
	}{
		{"the smallest", 1, 2, 1, Turns, 3, 1},
		{"the classic in turns, a fifth of it", 10, 20, 20, Turns, 3, 100},
		{"the classic as a flood", 10, 20, 100, Flood, 3, 100},
		{"turns with RESP2", 2, 5, 20, Turns, 2, 1},
		{"a flood with RESP2", 2, 5, 20, Flood, 2, 3},
		{"a flood in lockstep", 3, 3, 30, Flood, 3, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := target(t, &loadtest.Rooms{})
			c.Rooms, c.Users, c.Messages, c.Pace, c.Proto, c.Window = tt.rooms, tt.users, tt.messages, tt.pace, tt.proto, tt.window
			cell := one(t, c)
			// A machine busy with other tests lets this process wait for a CPU.
			if names := slices.DeleteFunc(failed(cell), func(name string) bool { return name == "client_ran" }); len(names) > 0 {
				t.Fatalf("failed %v: %+v", names, cell.Checks)
			}
			r, u, m := int64(tt.rooms), int64(tt.users), int64(tt.messages)
			if got, want := cell.Chat.Sent, r*u*m; got != want {
				t.Errorf("sent %d, want %d", got, want)
			}
			if got, want := cell.Chat.Received, r*u*m*(u-1); got != want {
				t.Errorf("received %d, want %d", got, want)
			}
			if got, want := cell.OK, r*u*u*m; got != want {
				t.Errorf("total %d, want %d", got, want)
			}
			if got := int64(*cell.QPS*cell.Seconds + 0.5); got != cell.OK {
				t.Errorf("rate x time is %d, want the total %d", got, cell.OK)
			}
			if cell.LatencyUS.P50 == nil || cell.Server.CPUPerOp == nil {
				t.Error("no latency, or no CPU per message")
			}
			if turns := r*u*m > r; turns && cell.Chat.TurnUS.P50 == nil {
				t.Error("no latency of turns")
			}
			var rows int64
			for _, row := range cell.Series {
				rows += row.OK
			}
			if rows != cell.OK {
				t.Errorf("rows add up to %d, want %d", rows, cell.OK)
			}
		})
	}
}

func TestADurationEndsWithAllDelivered(t *testing.T) {
	for _, pace := range []Pace{Turns, Flood} {
		t.Run(string(pace), func(t *testing.T) {
			c := target(t, &loadtest.Rooms{})
			c.Messages, c.Duration, c.Pace = 0, 200*time.Millisecond, pace
			cell := one(t, c)
			if !cell.Valid || cell.Chat.Received != 3*cell.Chat.Sent || cell.Chat.Sent == 0 {
				t.Errorf("valid %t, sent %d, received %d, failed %v", cell.Valid, cell.Chat.Sent, cell.Chat.Received, failed(cell))
			}
		})
	}
}

func TestWhatTheServerDoesWrongIsFound(t *testing.T) {
	for _, tt := range []struct {
		fault loadtest.Fault
		pace  Pace
		want  string // a check that fails
		words string // in its detail
	}{
		{loadtest.Skip, Flood, "received own_copies", ""}, // whoever it was for
		{loadtest.Skip, Flood, "completed", "no message for"},
		{loadtest.Double, Flood, "order", ""},
		{loadtest.Swap, Flood, "order", "is due"},
		{loadtest.Garble, Flood, "order", ""},
		{loadtest.Rude, Turns, "completed", "not today"},
		{loadtest.Short, Turns, "reach", "1 messages"},
		{loadtest.HangUp, Flood, "completed", "closed the connection"},
		{loadtest.Stall, Turns, "completed", "no message for"},
		{loadtest.Undercount, Turns, "books_commands", "server executed 39"},
		{loadtest.Nonsense, Flood, "completed", "what?"},
	} {
		t.Run(string(tt.fault)+", "+tt.want, func(t *testing.T) {
			t.Parallel()
			after := int64(11)
			if tt.fault == loadtest.Swap {
				after = 1 // its sender has more to say
			}
			c := target(t, &loadtest.Rooms{Fault: tt.fault, After: after})
			c.Pace, c.Load.Patience = tt.pace, time.Second
			cell := one(t, c)
			if cell.Valid {
				t.Fatal("the run is valid")
			}
			for _, check := range cell.Checks {
				if strings.Contains(tt.want, check.Name) && !check.Pass && strings.Contains(check.Detail, tt.words) {
					return
				}
			}
			t.Errorf("no %s with %q among %+v", tt.want, tt.words, cell.Checks)
		})
	}
}

func TestWhatCannotBeginIsAnError(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server *loadtest.Rooms
		proto  int
		want   string
	}{
		{"no RESP3", &loadtest.Rooms{NoRESP3: true}, 3, "--protocol 2"},
		{"no CLIENT REPLY", &loadtest.Rooms{NoReply: true}, 2, "CLIENT REPLY"},
		{"too many connections", &loadtest.Rooms{MaxConns: 5}, 3, "max number of clients"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := target(t, tt.server)
			c.Proto = tt.proto
			if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	c := Default()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Load.Target.Addr = ln.Addr().String()
	ln.Close()
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want a refused connection", err)
	}
}

func TestALadderEndsAtTheFirstLevelThatFails(t *testing.T) {
	server := &loadtest.Rooms{MaxConns: 10} // with the control connection, room for 9 users
	c := target(t, server)
	c.Users, c.Levels, c.Rest = 2, []int{1, 2, 4, 5, 6}, 100*time.Millisecond // until the server has seen the last level go
	out, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var levels []string
	for _, cell := range out.Cells {
		levels = append(levels, cell.Config["rooms"]+map[bool]string{true: " good", false: " bad"}[cell.Valid])
	}
	if got, want := strings.Join(levels, ", "), "1 good, 2 good, 4 good, 5 bad"; got != want {
		t.Errorf("levels %q, want %q", got, want)
	}
}

func TestAnInterruptionLeavesARunThatSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := &loadtest.Rooms{OnMessage: func(n int64) {
		if n == 30 {
			cancel()
		}
	}}
	c := target(t, server)
	c.Messages, c.Runs = 1<<20, 3
	out, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if !out.Interrupted || len(out.Cells) != 1 || out.Cells[0].Valid {
		t.Fatalf("interrupted %t, %d cells", out.Interrupted, len(out.Cells))
	}
	cell := out.Cells[0]
	if cell.Chat.Sent < 30 || cell.Chat.Received != cell.Chat.Sent*3 {
		t.Errorf("sent %d, received %d: what was sent should have been delivered", cell.Chat.Sent, cell.Chat.Received)
	}
}

func TestKillingWaitsForNobody(t *testing.T) {
	kill := make(chan struct{})
	server := &loadtest.Rooms{Fault: loadtest.Stall, After: 20}
	server.OnMessage = func(n int64) {
		if n == 20 {
			close(kill)
		}
	}
	c := target(t, server)
	c.Load.Kill, c.Load.Patience = kill, time.Minute
	if cell := one(t, c); cell.Valid {
		t.Error("the run is valid")
	}
}

// The turn rule of VolanoMark: one message is in flight per room, so the order of senders is known.
func TestTurnsGoRound(t *testing.T) {
	c := target(t, &loadtest.Rooms{})
	c.Rooms, c.Users, c.Messages = 1, 3, 4
	out, err := Run(t.Context(), c)
	if err != nil || !out.Cells[0].Valid {
		t.Fatal(err, failed(out.Cells[0]))
	}
	u := user{id: 2, room: &room{users: make([]*user, 3)}}
	r := &run{pace: Turns, limit: 4}
	for _, tt := range []struct {
		sent, received int64
		want           bool
	}{{0, 0, false}, {0, 1, false}, {0, 2, true}, {1, 2, false}, {1, 3, false}, {1, 4, true}, {3, 8, true}, {4, 10, false}} {
		if u.sent, u.received = tt.sent, tt.received; u.mayTalk(r) != tt.want {
			t.Errorf("sent %d, received %d: may talk %t, want %t", tt.sent, tt.received, !tt.want, tt.want)
		}
	}
}

// script is a connection that gives what it is told in pieces.
type script struct {
	net.Conn
	pieces [][]byte
}

func (s *script) Read(b []byte) (int, error) {
	n := copy(b, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

// listener is a user of a room of two who hears what user 0 says.
func listener(size int) (*user, []byte) {
	c := Default()
	c.TextSize = size
	room := newRoom("room", size, resp.RESP3, newClock())
	speaker, u := newUser(0, room, c, 256), newUser(1, room, c, 256)
	room.users = []*user{speaker, u}
	var stream []byte
	for i := range 50 {
		binary.LittleEndian.PutUint32(speaker.payload[4:], uint32(i))
		stream = append(stream, room.head...)
		stream = append(stream, speaker.payload...)
		stream = append(append(stream, room.text...), "\r\n:2\r\n"...)
	}
	return u, stream
}

func TestMessagesAreReadHoweverTheyArrive(t *testing.T) {
	for _, size := range []int{headBytes, 60, 300} {
		for _, piece := range []int{1, 2, 3, 7, 64, 1000, 1 << 20} {
			u, stream := listener(size)
			conn := &script{}
			for b := stream; len(b) > 0; {
				n := min(piece, len(b))
				conn.pieces, b = append(conn.pieces, b[:n]), b[n:]
			}
			u.conn = conn
			r := &run{}
			for len(conn.pieces) > 0 {
				if err := u.read(r); err != nil {
					t.Fatalf("size %d in pieces of %d: %v", size, piece, err)
				}
			}
			if u.received != 50 || u.replied != 50 || u.wrong != 0 || u.short != 0 || u.start != u.end {
				t.Errorf("size %d in pieces of %d: received %d, replied %d, wrong %d, short %d, left %d",
					size, piece, u.received, u.replied, u.wrong, u.short, u.end-u.start)
			}
		}
	}
}

func TestReadingDoesNotAllocate(t *testing.T) {
	u, stream := listener(60)
	conn := &script{}
	u.conn = conn
	r := &run{}
	pieces := make([][]byte, 1)
	round := func() {
		pieces[0] = stream
		conn.pieces = pieces
		u.next[0] = 0
		for len(conn.pieces) > 0 {
			if err := u.read(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	round()
	if got := testing.AllocsPerRun(50, round); got != 0 {
		t.Errorf("%v allocations for 50 messages, want 0", got)
	}
}

func FuzzTake(f *testing.F) {
	_, stream := listener(60)
	f.Add(stream[:300])
	f.Add([]byte(":2\r\n-ERR\r\n"))
	f.Add([]byte(":\n"))
	f.Add([]byte(">3\r\n$7\r\nmessage\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, _ := listener(60)
		conn := &script{pieces: [][]byte{b}}
		u.conn = conn
		for len(b) > 0 && len(conn.pieces) > 0 {
			if u.read(&run{}) != nil {
				return
			}
		}
	})
}

// As a driver, a chat takes the place of Sets and Gets in an arm.
func TestAnArmIsDrivenByAChat(t *testing.T) {
	c := target(t, &loadtest.Rooms{})
	d := Driver{c}
	l := load.Default()
	l.Target, l.Driver, l.Repeat = c.Load.Target, d, 3
	arm, err := load.Start(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(arm.Fill(t.Context()), arm.Begin(t.Context(), d.Op())); err != nil {
		t.Fatal(err)
	}
	slice := arm.Slice(t.Context(), 100*time.Millisecond)
	cell, err := arm.End(t.Context())
	if err != nil || !cell.Valid || cell.Op != "chat-turns" || cell.Repeat != 3 || cell.OK != slice.OK || cell.OK == 0 {
		t.Errorf("%v, %+v, cell %+v", err, slice, cell)
	}
	// Its connections do not outlive a slice, so a second one would be another measurement.
	arm.Slice(t.Context(), time.Millisecond)
	if _, err := arm.End(t.Context()); err == nil {
		t.Error("a second slice is no error")
	}
	if err := arm.Stop(); err != nil {
		t.Error(err)
	}
	for _, word := range []string{"rooms=2", "users=4", "pace=turns"} {
		if !strings.Contains(d.String(), word) {
			t.Errorf("%q lacks %s, by which journals tell experiments apart", d, word)
		}
	}
}

// All stand still, also the connection on which the server is asked.
func TestAServerThatStandsStillEndsARun(t *testing.T) {
	for _, pace := range []Pace{Turns, Flood} {
		c := target(t, &loadtest.Rooms{})
		addr, stop, err := loadtest.Stalling(c.Load.Target.Addr, 20_000)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		c.Load.Target.Addr, c.Load.Patience = addr, time.Second
		c.Pace, c.Messages, c.Duration, c.Runs = pace, 0, time.Hour, 3
		out, err := Run(t.Context(), c)
		if err != nil || len(out.Cells) != 1 || out.Cells[0].Valid || !strings.Contains(out.Cells[0].FirstError, "no message for 1s") {
			t.Errorf("%s: %v, %+v", pace, err, out.Cells)
		}
	}
}
