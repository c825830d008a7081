package chat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvmark/client"
	"kvmark/client/load"
	"kvmark/client/result"
	"kvmark/kvserver/resp"
)

// run is one measured conversation.
type run struct {
	pace   Pace
	limit  int64 // messages of each user; 0: until stopping
	window int64
	t0     time.Time

	rooms     []*room
	clocks    []*clock
	talking   sync.WaitGroup // users that may still send
	stopping  atomic.Bool    // nobody sends any more
	cancelled atomic.Bool    // nobody waits any more

	mu    sync.Mutex
	first error // that ended it
}

func (r *run) now() int64 { return int64(time.Since(r.t0)) }

// clocks bounds how many histograms a run has, whatever the number of rooms.
const clocks = 16

// grace is how long deliveries may take once sending has been stopped by an interruption.
const grace = 3 * time.Second

// Measure has all users connect to the host, talk, and leave. A nil cell means that they could not be connected. An error with a cell
// says that the host is gone.
func Measure(ctx context.Context, host *load.Host, c Config, repeat int) (*result.Cell, error) {
	r := &run{pace: c.Pace, limit: int64(c.Messages), window: int64(c.Window)}
	progress := load.Progress{Mode: host.Mode(), Op: op(c.Pace), Repeat: repeat, Rounds: max(c.Runs, len(c.Levels)), Stage: "connect"}
	c.Load.Progress(progress)
	defer r.leave()
	if err := r.enter(ctx, host, c); err != nil {
		return nil, host.Cause(err)
	}
	if err := host.Reset(ctx); err != nil {
		return nil, host.Cause(err)
	}
	runtime.GC() // so that no run pays for the one before
	before, err := host.Read(ctx)
	if err != nil {
		return nil, host.Cause(err)
	}
	cell := &result.Cell{
		Mode: host.Mode(), Op: op(c.Pace), Repeat: repeat, Started: time.Now().UTC(), Valid: true, Checks: []result.Check{}, Series: []result.Row{},
		ClosedLoop: true, LatencyMeans: "of a delivery: from just before a message was sent to when a receiver had it",
		Chat: &result.Chat{Rooms: c.Rooms, Users: c.Users},
	}
	progress.Stage = "measure"
	seconds, cut := r.talk(ctx, host, c, cell, progress)
	after, err := host.Read(ctx)
	err = host.Cause(err)
	r.count(cell, seconds)
	r.judge(cell, c, cut, err)
	if err == nil {
		total := cell.Chat.Sent + cell.Chat.Received
		host.Enter(cell, before, after, total)
		books(cell, before, after)
	}
	return cell, err
}

// dialers is how many connections are opened at a time.
const dialers = 16

// enter connects everybody and has them subscribe.
func (r *run) enter(ctx context.Context, host *load.Host, c Config) error {
	if err := client.EnsureDescriptors(c.connections(c.Rooms), "have fewer --rooms or --users"); err != nil {
		return err
	}
	dialer, err := client.NewDialer(host.Addr(), host.Target().TLS)
	if err != nil {
		return err
	}
	for range min(c.Rooms, clocks) {
		r.clocks = append(r.clocks, newClock())
	}
	name := token()
	buffer := min(max((64<<20)/(c.Rooms*c.Users), 4<<10), 64<<10)
	var all []*user
	for i := range c.Rooms {
		room := newRoom(channel(name, i), c.TextSize, resp.Proto(c.Proto), r.clocks[i%len(r.clocks)])
		for id := range c.Users {
			room.users = append(room.users, newUser(id, room, c, buffer))
		}
		r.rooms = append(r.rooms, room)
		all = append(all, room.users...)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range dialers {
		running.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					return
				}
				if err := all[i].enter(ctx, dialer, host, c, i); err != nil {
					if full(err) {
						err = fmt.Errorf("%w: %d connections are wanted beside kvmark's own, so allow more (maxclients, kvserver's --max-clients), or have fewer --rooms or --users", err, c.connections(c.Rooms))
					}
					cancel(err)
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// enterTimeout bounds the first words on a connection.
const enterTimeout = 20 * time.Second

func (u *user) enter(ctx context.Context, dialer *client.Dialer, host *load.Host, c Config, i int) (err error) {
	each := c.connections(1) / c.Users
	if u.conn, err = u.connect(ctx, dialer, host, each*i, func(conn *client.Conn) error {
		if c.Proto == 3 {
			if _, err := conn.Do("HELLO", "3"); errors.As(err, new(*client.ServerError)) && !full(err) {
				return fmt.Errorf("HELLO 3: %w: a server without RESP3 can be measured with --protocol 2", err)
			} else if err != nil {
				return err
			}
		}
		reply, err := conn.Do("SUBSCRIBE", u.room.channel)
		if err != nil {
			return fmt.Errorf("SUBSCRIBE: %w", err)
		}
		if len(reply.Elems) != 3 || string(reply.Elems[0].Bytes) != "subscribe" {
			return fmt.Errorf("SUBSCRIBE is answered by %c%.40q", reply.Kind, reply.Bytes)
		}
		return nil
	}); err != nil {
		return err
	}
	if u.to, u.replies = u.conn, true; c.Proto == 3 {
		return nil
	}
	u.replies = false
	u.to, err = u.connect(ctx, dialer, host, each*i+1, func(conn *client.Conn) error {
		// OFF has no reply by which to see that the server knows it.
		if _, err := conn.Do("CLIENT", "REPLY", "ON"); err != nil {
			return fmt.Errorf("CLIENT REPLY: %w", err)
		}
		conn.Queue("CLIENT", "REPLY", "OFF")
		return conn.Flush()
	})
	return err
}

// connect opens a connection and says on it what has to be said. What is then received belongs to the user alone.
func (u *user) connect(ctx context.Context, dialer *client.Dialer, host *load.Host, i int, introduce func(*client.Conn) error) (net.Conn, error) {
	nc, err := dialer.Dial(ctx, i)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	err = nc.SetDeadline(time.Now().Add(enterTimeout))
	conn := client.New(nc, host.Addr(), 0)
	if err == nil {
		err = conn.SignIn(host.Target().User, host.Target().Password)
	}
	if err == nil {
		err = introduce(conn)
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("user %d of %s: %w", u.id, u.room.channel, err)
	}
	return nc, nil
}

// full reports whether a server said, before it closed a connection or in a reply, that it has as many as it may.
func full(err error) bool {
	return err != nil && strings.Contains(err.Error(), "max number of clients")
}

// leave closes all connections, without leaving their ports at rest for a minute.
func (r *run) leave() {
	for _, room := range r.rooms {
		for _, u := range room.users {
			for _, c := range []net.Conn{u.conn, u.to} {
				if c != nil {
					client.HangUp(c)
				}
			}
		}
	}
}

// wake makes every user look around.
func (r *run) wake() {
	for _, room := range r.rooms {
		for _, u := range room.users {
			_ = u.conn.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// cancel ends every wait.
func (r *run) cancel(err error) {
	r.mu.Lock()
	if r.first == nil {
		r.first = err
	}
	r.mu.Unlock()
	r.cancelled.Store(true)
	r.wake()
	for _, room := range r.rooms {
		for _, u := range room.users {
			_ = u.to.SetWriteDeadline(time.Unix(1, 0))
		}
	}
}

// talk lets everybody go and waits for them. It returns how long they took, and whether they were cut short.
func (r *run) talk(ctx context.Context, host *load.Host, c Config, cell *result.Cell, progress load.Progress) (seconds float64, cut bool) {
	start := make(chan struct{})
	var running sync.WaitGroup
	for _, room := range r.rooms {
		for _, u := range room.users {
			r.talking.Add(1)
			running.Go(func() {
				<-start
				err := u.talk(r)
				u.progress.Store(u.sent + u.received)
				if !u.quiet {
					r.talking.Done()
				}
				u.record()
				if err != nil && !errors.Is(err, errCancelled) {
					r.cancel(fmt.Errorf("user %d of %s: %w", u.id, room.channel, err))
				}
			})
		}
	}
	var took time.Duration
	done := make(chan struct{})
	go func() { // ends when the users have
		running.Wait()
		took = time.Since(r.t0)
		close(done)
	}()
	r.t0 = time.Now()
	close(start)
	cut = r.watch(ctx, host, c, done, cell, progress)
	return took.Seconds(), cut
}

// watch returns when all users are done, and sees to it that they are.
func (r *run) watch(ctx context.Context, host *load.Host, c Config, done <-chan struct{}, cell *result.Cell, progress load.Progress) (cut bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	interrupted, died, killed := ctx.Done(), host.Done(), c.Load.Kill
	var over, late <-chan time.Time
	if c.Duration > 0 {
		t := time.NewTimer(c.Duration)
		defer t.Stop()
		over = t.C
	}
	patience := c.Load.Patience
	if patience == 0 {
		patience = 20 * time.Second
	}
	var counted chan struct{}
	stop := func() {
		if counted != nil {
			return
		}
		counted = make(chan struct{})
		r.stopping.Store(true)
		r.wake()
		go func() { // ends when everybody has heard that nobody sends any more, or has left
			r.talking.Wait()
			close(counted)
		}()
	}
	last, lastMoved := int64(0), r.t0
	rowAt, rowCount := r.t0, int64(0)
	row := func(now time.Time, n int64) {
		seconds := now.Sub(rowAt).Seconds()
		if seconds <= 0 {
			return
		}
		cell.Series = append(cell.Series, result.Row{T: rowAt.Sub(r.t0).Seconds(), Seconds: seconds, OK: n - rowCount, QPS: result.Number(float64(n-rowCount) / seconds)})
		rowAt, rowCount = now, n
	}
	for {
		select {
		case <-done:
			row(time.Now(), r.progress())
			return cut
		case <-over:
			stop()
		case <-counted:
			counted = make(chan struct{}) // once
			for _, room := range r.rooms {
				total := int64(0)
				for _, u := range room.users {
					total += u.sent
				}
				room.total.Store(total)
			}
			r.wake()
		case <-interrupted:
			interrupted, cut = nil, true
			stop()
			t := time.NewTimer(min(grace, patience))
			defer t.Stop()
			late = t.C
		case <-late:
			r.cancel(errors.New("interrupted, and not all messages were delivered"))
		case <-died:
			died = nil
			r.cancel(errors.New("the server died"))
		case <-killed:
			killed, cut = nil, true
			r.cancel(errors.New("killed"))
		case now := <-tick.C:
			n := r.progress()
			row(now, n)
			progress.Elapsed, progress.Total = now.Sub(r.t0), c.Duration
			progress.Stage = fmt.Sprintf("%d messages,", n)
			c.Load.Progress(progress)
			if n != last {
				last, lastMoved = n, now
			} else if now.Sub(lastMoved) > patience {
				host.GiveUp()
				r.cancel(fmt.Errorf("no message for %v", patience))
			}
		}
	}
}

// progress is how many messages have been sent and received so far.
func (r *run) progress() (n int64) {
	for _, room := range r.rooms {
		for _, u := range room.users {
			n += u.progress.Load()
		}
	}
	return n
}

// count enters what the users counted. REQUIRES: all of them are done.
func (r *run) count(cell *result.Cell, seconds float64) {
	for _, room := range r.rooms {
		for _, u := range room.users {
			cell.Chat.Sent += u.sent
			cell.Chat.Received += u.received
			cell.Chat.Own += u.own
			cell.Wrong += u.wrong
		}
	}
	total := cell.Chat.Sent + cell.Chat.Received
	cell.Seconds, cell.OK = seconds, total
	if seconds > 0 {
		cell.QPS = result.Number(float64(total) / seconds)
	}
	all := newClock()
	for _, c := range r.clocks {
		all.delivery.Merge(c.delivery)
		all.turn.Merge(c.turn)
	}
	cell.LatencyUS, cell.Chat.TurnUS = load.Latency(all.delivery), load.Latency(all.turn)
	if b, err := all.delivery.EncodeV2(); err == nil && all.delivery.TotalCount() > 0 {
		cell.Histogram = string(b)
	}
}

// judge checks the laws of the counts. REQUIRES: all users are done.
func (r *run) judge(cell *result.Cell, c Config, cut bool, err error) {
	check := func(name string, pass bool, format string, args ...any) {
		cell.Checks = append(cell.Checks, result.Check{Name: name, Pass: pass, Detail: fmt.Sprintf(format, args...)})
		cell.Valid = cell.Valid && pass
	}
	if r.first != nil {
		cell.Errors, cell.FirstError = 1, r.first.Error()
	}
	if err == nil || r.first != nil && errors.Is(err, os.ErrDeadlineExceeded) { // then the first is the cause
		err = r.first
	}
	switch {
	case cut:
		check("completed", false, "interrupted after %.3f s", cell.Seconds)
	case err != nil:
		check("completed", false, "after %.3f s: %v", cell.Seconds, err)
	default:
		check("completed", true, "%.3f s", cell.Seconds)
	}
	sent := cell.Chat.Sent
	if r.limit > 0 {
		want := int64(c.Rooms) * int64(c.Users) * r.limit
		check("sent", sent == want, "%d messages, %d rooms x %d users x %d make %d", sent, c.Rooms, c.Users, r.limit, want)
		sent = want
	} else {
		check("sent", sent > 0, "%d messages", sent)
	}
	others := int64(c.Users - 1)
	check("received", cell.Chat.Received == sent*others, "%d messages, %d x %d others make %d", cell.Chat.Received, sent, others, sent*others)
	check("own_copies", cell.Chat.Own == sent, "%d of %d messages came back to their sender", cell.Chat.Own, sent)
	var short int64
	var first string
	for _, room := range r.rooms {
		for _, u := range room.users {
			short += u.short
			if first == "" && u.firstWrong != "" {
				first = ": " + u.firstWrong
			}
		}
	}
	check("order", cell.Wrong == 0, "%d messages out of the order of their sender, or changed%s", cell.Wrong, first)
	check("reach", short == 0, "%d messages that by their reply did not reach all %d users", short, c.Users)
}

// books compares what was sent with what the server counted.
func books(cell *result.Cell, before, after load.Reading) {
	a, errA := before.Calls("publish")
	b, errB := after.Calls("publish")
	c := result.Check{Name: "books_commands"}
	switch {
	case errors.Join(errA, errB) != nil:
		c.Detail = errors.Join(errA, errB).Error()
	case !after.Counts():
		c.Pass, c.Detail = true, result.NoCounters
	default:
		c.Pass = b-a == cell.Chat.Sent
		c.Detail = fmt.Sprintf("%d messages sent, server executed %d PUBLISH", cell.Chat.Sent, b-a)
	}
	cell.Checks = append(cell.Checks, c)
	cell.Valid = cell.Valid && c.Pass
}
