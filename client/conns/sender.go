package conns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"kvmark/client"
)

// An agent opens its part of the connections and sends on them: a [sender] in this process, or a [remote] in another.
type agent interface {
	connect(ctx context.Context, o connectOrder) (connected, error)
	send(ctx context.Context, o sendOrder) (sent, error)
	close()
}

// connectOrder says which connections an agent is to open.
type connectOrder struct {
	Addr           string     `json:"addr"`
	TLS            client.TLS `json:"tls"`
	User           string     `json:"user"`
	Password       string     `json:"password"`
	Connections    int        `json:"connections"`
	First          int        `json:"first"` // the number of the first among those of all agents
	Rate           float64    `json:"rate"`  // connections a second
	TimeoutSeconds float64    `json:"timeout_seconds"`
}

// connected is what became of it.
type connected struct {
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	Histogram   string  `json:"histogram"` // of the time from dialling to the first reply in ns, HDR V2, base64
	Failure     string  `json:"failure,omitempty"`
}

// sendOrder says what an agent is to send.
type sendOrder struct {
	StartUnixNano int64         `json:"start_unix_nano"` // one moment for all agents
	EndUnixNano   int64         `json:"end_unix_nano"`
	Rate          float64       `json:"rate"` // messages a second; 0: by Interval
	Interval      time.Duration `json:"interval"`
	MessageSize   int           `json:"message_size"`
}

// sent is what was sent: how much so far at many moments, so that it is known for those at which the server counts.
type sent struct {
	UnixNano []int64 `json:"unix_nano"` // ascending
	Messages []int64 `json:"messages"`  // until each of them
	Total    int64   `json:"total"`
	Failure  string  `json:"failure,omitempty"`
}

// until is how many messages had been sent at a moment, evenly between the two that are known.
func (s sent) until(at time.Time) float64 {
	t := at.UnixNano()
	i, found := slices.BinarySearch(s.UnixNano, t)
	switch {
	case i == len(s.UnixNano):
		return float64(s.Total)
	case found || i == 0:
		return float64(s.Messages[i])
	}
	before, gap := s.UnixNano[i-1], s.UnixNano[i]-s.UnixNano[i-1]
	return float64(s.Messages[i-1]) + float64(s.Messages[i]-s.Messages[i-1])*float64(t-before)/float64(gap)
}

// sender is the agent that does the work.
type sender struct {
	conns   []net.Conn
	stopped atomic.Bool
}

// maxDialing is how many connections are being opened at a time.
const maxDialing = 64

// maxConnect bounds the histogram of connect times.
const maxConnect = time.Minute

// connect opens connections at the rate. It ends with the first failure, which is part of what it returns, not an error.
func (s *sender) connect(ctx context.Context, o connectOrder) (connected, error) {
	if err := client.EnsureDescriptors(len(s.conns)+o.Connections, "share the connections among more processes (--clients)"); err != nil {
		return connected{Failure: err.Error()}, nil
	}
	dialer, err := client.NewDialer(o.Addr, o.TLS)
	if err != nil {
		return connected{}, err
	}
	timeout := time.Duration(o.TimeoutSeconds * float64(time.Second))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	before := len(s.conns)
	var mu sync.Mutex
	times := hdr.New(1, int64(maxConnect), 3)
	next := 0
	start := time.Now()
	var running sync.WaitGroup
	for range min(maxDialing, o.Connections) {
		running.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= o.Connections {
					return
				}
				sleepUntil(ctx, start.Add(time.Duration(float64(i)/o.Rate*float64(time.Second))))
				begin := time.Now()
				conn, took, err := introduce(ctx, dialer, i, o, begin.Add(timeout))
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				s.conns = append(s.conns, conn)
				_ = times.RecordValue(min(max(int64(took), 1), int64(maxConnect))) // within its bounds
				mu.Unlock()
			}
		})
	}
	running.Wait()
	c := connected{Connections: len(s.conns) - before, Seconds: time.Since(start).Seconds()}
	if b, err := times.EncodeV2(); err == nil && c.Connections > 0 {
		c.Histogram = string(b)
	}
	if err := context.Cause(ctx); err != nil {
		c.Failure = fmt.Sprintf("%d of %d connections, then: %v", c.Connections, o.Connections, err)
	}
	return c, nil
}

// introduce opens one connection, hears that it is served, and turns replies off. The system accepts connections that a
// server has not yet taken up, so only a reply tells.
func introduce(ctx context.Context, dialer *client.Dialer, i int, o connectOrder, deadline time.Time) (_ net.Conn, took time.Duration, err error) {
	begin := time.Now()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	nc, err := dialer.Dial(ctx, o.First+i)
	if err != nil {
		return nil, 0, err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	conn := client.New(nc, o.Addr, 0)
	if err = conn.SignIn(o.User, o.Password); err == nil {
		// Its reply tells that OFF will be understood, too.
		_, err = conn.Do("CLIENT", "REPLY", "ON")
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = fmt.Errorf("the system has accepted it, but the server has not: it is overloaded, or out of file descriptors (%w)", err)
		case err != nil:
			err = fmt.Errorf("CLIENT REPLY: %w", err)
		}
	}
	took = time.Since(begin)
	if err == nil {
		conn.Queue("CLIENT", "REPLY", "OFF")
		err = conn.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, 0, fmt.Errorf("connection %d: %w", i+1, err)
	}
	return nc, took, nil
}

func sleepUntil(ctx context.Context, t time.Time) {
	if d := time.Until(t); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// lane is a goroutine with its part of the connections.
type lane struct {
	conns []net.Conn
	sent  atomic.Int64
	_     [64]byte // its count is its own cache line
	err   error
}

// The count of what was sent is noted so often, but not more than so many times.
const (
	noteEvery = 10 * time.Millisecond
	maxNotes  = 100_000
)

// send sends from the start to the end. When ctx ends it ends early.
func (s *sender) send(ctx context.Context, o sendOrder) (sent, error) {
	message, err := appendMessage(nil, o.MessageSize)
	if err != nil {
		return sent{}, err
	}
	start := time.Unix(0, o.StartUnixNano)
	end := time.Unix(0, o.EndUnixNano)
	lanes := make([]lane, min(runtime.GOMAXPROCS(0), len(s.conns)))
	for i, c := range s.conns {
		l := &lanes[i%len(lanes)]
		l.conns = append(l.conns, c)
	}
	defer context.AfterFunc(ctx, s.stop)()
	// A write that blocks at the end must not block for ever.
	timer := time.AfterFunc(time.Until(end)+writeGrace, s.stop)
	defer timer.Stop()
	sleepUntil(ctx, start)
	var running sync.WaitGroup
	for i := range lanes {
		l := &lanes[i]
		running.Go(func() {
			part := float64(len(l.conns)) / float64(len(s.conns))
			l.err = l.run(&s.stopped, message, start, end, o.Rate*part, o.Interval)
		})
	}
	out := sent{}
	total := func() (n int64) {
		for i := range lanes {
			n += lanes[i].sent.Load()
		}
		return n
	}
	every := max(noteEvery, end.Sub(start)/maxNotes)
	for at := start; ctx.Err() == nil && at.Before(end); at = time.Now().Add(every) {
		sleepUntil(ctx, at)
		n := total()
		out.UnixNano, out.Messages = append(out.UnixNano, time.Now().UnixNano()), append(out.Messages, n)
	}
	running.Wait()
	out.Total = total()
	for i := range lanes {
		if err := lanes[i].err; err != nil && ctx.Err() == nil {
			out.Failure = err.Error()
		}
	}
	return out, nil
}

// writeGrace is how long a last write may take.
const writeGrace = 5 * time.Second

// step is how often a lane looks at the clock: it sends what has become due and sleeps.
const step = time.Millisecond

// run sends on one connection after the other.
func (l *lane) run(stopped *atomic.Bool, message []byte, start, end time.Time, rate float64, interval time.Duration) error {
	at, count := 0, int64(0)
	write := func() error {
		if _, err := l.conns[at].Write(message); err != nil {
			if stopped.Load() {
				return nil
			}
			return fmt.Errorf("send: %w", sysError(err))
		}
		count++
		l.sent.Store(count)
		if at++; at == len(l.conns) {
			at = 0
		}
		return nil
	}
	for !stopped.Load() {
		now := time.Now()
		if !now.Before(end) {
			return nil
		}
		n := int64(len(l.conns)) // a round
		switch {
		case rate > 0:
			n = int64(rate*now.Sub(start).Seconds()) - count
		case interval == 0:
			n = 64
		}
		// In long rounds the end is looked for now and then.
		for i := int64(0); i < n && !stopped.Load(); i++ {
			if err := write(); err != nil {
				return err
			}
			if i%64 == 63 && !time.Now().Before(end) {
				return nil
			}
		}
		switch {
		case rate > 0:
			time.Sleep(min(step, time.Until(end)))
		case interval > 0:
			time.Sleep(min(interval, time.Until(end)))
		}
	}
	return nil
}

// sysError is what the system said, without the addresses around it.
func sysError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// stop ends all writes.
func (s *sender) stop() {
	s.stopped.Store(true)
	for _, c := range s.conns {
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	}
}

// close closes all connections, without leaving their ports at rest for a minute.
func (s *sender) close() {
	for _, c := range s.conns {
		client.HangUp(c)
	}
	s.conns = nil
}
