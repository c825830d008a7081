package loadtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvmark/kvserver/resp"
)

// Rooms is a server in the test's own process for tests of loads with channels and many connections: it publishes, counts, and
// does one thing wrong on demand, after so many messages.
type Rooms struct {
	Fault     Fault
	After     int64
	NoInfo    bool          // INFO is unknown
	NoReply   bool          // CLIENT REPLY is unknown
	NoRESP3   bool          // HELLO is unknown
	MaxConns  int64         // more get an error; 0: no limit
	Delay     time.Duration // before each PUBLISH
	OnMessage func(n int64) // called with the number of each PUBLISH and PING; may be nil

	ln       net.Listener
	running  sync.WaitGroup
	conns    atomic.Int64
	messages atomic.Int64

	mu       sync.Mutex
	open     map[*room]bool
	channels map[string][]*room
	calls    map[string]int64
}

// Fault is what goes wrong.
type Fault string

// The faults.
const (
	None       Fault = ""
	Skip       Fault = "one receiver does not get a message"
	Double     Fault = "one receiver gets a message twice"
	Swap       Fault = "one receiver gets two messages of a sender in the wrong order"
	Garble     Fault = "one receiver gets a message changed"
	Rude       Fault = "one PUBLISH is answered with an error"
	Short      Fault = "one PUBLISH is answered with too small a number"
	HangUp     Fault = "a connection is closed"
	Stall      Fault = "nothing is delivered or executed any more"
	Undercount Fault = "INFO counts one too few"
	Nonsense   Fault = "something that is no reply is sent"
)

// room is a connection.
type room struct {
	nc    net.Conn
	mu    sync.Mutex // writes
	resp3 bool
	off   bool
	held  []byte // of Swap
	from  []byte // how the messages of its sender begin
}

// Start listens on a free port of the loopback. stop closes all and waits.
func (s *Rooms) Start() (addr string, stop func(), err error) {
	s.open, s.channels, s.calls = map[*room]bool{}, map[string][]*room{}, map[string]int64{}
	if s.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return "", nil, err
	}
	s.running.Go(func() {
		for {
			nc, err := s.ln.Accept()
			if err != nil {
				return
			}
			r := &room{nc: nc}
			s.mu.Lock()
			s.open[r] = true
			s.mu.Unlock()
			s.running.Go(func() { s.talk(r) })
		}
	})
	return s.ln.Addr().String(), func() {
		s.ln.Close()
		s.mu.Lock()
		for r := range s.open {
			r.nc.Close()
		}
		s.mu.Unlock()
		s.running.Wait()
	}, nil
}

// Conns is how many connections are open.
func (s *Rooms) Conns() int64 { return s.conns.Load() }

func (s *Rooms) talk(r *room) {
	n := s.conns.Add(1)
	defer func() {
		s.conns.Add(-1)
		r.nc.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, r)
		for name, members := range s.channels {
			for i, m := range members {
				if m == r {
					s.channels[name] = append(append([]*room(nil), members[:i]...), members[i+1:]...)
				}
			}
		}
	}()
	if s.MaxConns > 0 && n > s.MaxConns {
		r.send(resp.AppendError(nil, "ERR max number of clients reached"))
		return
	}
	var parser resp.Parser
	var in []byte
	chunk := make([]byte, 16<<10)
	for {
		args, k, err := parser.Next(in)
		if err != nil {
			return
		}
		if k == 0 {
			m, err := r.nc.Read(chunk)
			if err != nil {
				return
			}
			in = append(in, chunk[:m]...)
			continue
		}
		reply, closed := s.answer(r, args)
		if closed {
			return
		}
		if !r.off {
			r.send(reply)
		}
		in = in[k:]
	}
}

func (r *room) send(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.nc.Write(b) // a client that is gone is none of ours
}

func (s *Rooms) answer(r *room, args [][]byte) (reply []byte, closed bool) {
	name := strings.ToLower(string(args[0]))
	fault := None
	if name == "publish" || name == "ping" {
		n := s.messages.Add(1)
		if s.OnMessage != nil {
			s.OnMessage(n)
		}
		if n == s.After || s.Fault == Stall && n > s.After {
			fault = s.Fault
		}
		time.Sleep(s.Delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[name]++
	if fault == Undercount {
		s.calls[name]--
	}
	switch name {
	case "hello":
		if s.NoRESP3 {
			return resp.AppendError(nil, "ERR unknown command 'HELLO'"), false
		}
		r.resp3 = true
		return resp.AppendMap(nil, resp.RESP3, 0), false
	case "client":
		switch sub := strings.ToLower(string(args[1])); {
		case sub != "reply":
		case s.NoReply:
			return resp.AppendError(nil, "ERR unknown subcommand 'reply'"), false
		default:
			r.off = strings.EqualFold(string(args[2]), "off")
		}
		return resp.AppendSimple(nil, "OK"), false
	case "subscribe":
		channel := string(args[1])
		s.channels[channel] = append(s.channels[channel], r)
		reply = resp.AppendPush(nil, r.proto(), 3)
		reply = resp.AppendBulk(reply, "subscribe")
		reply = resp.AppendBulk(reply, channel)
		return resp.AppendInt(reply, 1), false
	case "publish":
		return s.publish(args[1], args[2], fault)
	case "ping":
		switch fault {
		case HangUp:
			return nil, true
		case Stall:
			s.calls[name]--
		}
		return resp.AppendSimple(nil, "PONG"), false
	case "info":
		if s.NoInfo {
			break
		}
		return resp.AppendBulk(nil, s.info()), false
	}
	return resp.AppendError(nil, "ERR unknown command '"+name+"'"), false
}

func (r *room) proto() resp.Proto {
	if r.resp3 {
		return resp.RESP3
	}
	return resp.RESP2
}

func (s *Rooms) publish(channel, text []byte, fault Fault) (reply []byte, closed bool) {
	switch fault {
	case HangUp:
		return nil, true
	case Rude:
		return resp.AppendError(nil, "ERR not today"), false
	case Stall:
		return nil, false
	}
	members := s.channels[string(channel)]
	for i, m := range members {
		b := resp.AppendPush(nil, m.proto(), 3)
		b = resp.AppendBulk(b, "message")
		b = resp.AppendBulk(b, channel)
		if i == 0 && fault == Garble {
			text = append([]byte(nil), text...)
			text[len(text)-1]++
		}
		b = resp.AppendBulk(b, text)
		if i == 0 {
			switch fault {
			case Skip:
				continue
			case Double:
				b = append(b, b...)
			case Swap:
				m.held, m.from = b, append([]byte(nil), text[:4]...)
				continue
			case Nonsense:
				b = []byte("what?\r\n")
			}
			if m.held != nil && bytes.HasPrefix(text, m.from) {
				b, m.held = append(b, m.held...), nil
			}
		}
		m.send(b)
	}
	n := int64(len(members))
	if fault == Short {
		n--
	}
	return resp.AppendInt(nil, n), false
}

func (s *Rooms) info() string {
	var b strings.Builder
	fmt.Fprintf(&b, "run_id:rooms\r\nprocess_id:%d\r\nused_cpu_user:%f\r\nused_cpu_sys:0.5\r\nused_memory_rss:%d\r\n",
		os.Getpid(), float64(s.messages.Load())*2e-6, 1_000_000+5000*s.conns.Load())
	for name, n := range s.calls {
		fmt.Fprintf(&b, "cmdstat_%s:calls=%d,usec=1\r\n", name, n)
	}
	return b.String()
}
