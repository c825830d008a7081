package chat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"kvmark/kvserver/resp"
)

// A message begins with what a receiver checks; the rest is text. All numbers are little-endian.
//
//	0          4          8                16             text size
//	| sender   | number   | nanoseconds    | text ...     |
//	  in room    from 0     since the start
const headBytes = 4 + 4 + 8

// text is what everybody says, over and over.
const text = "123456789 "

// room is a channel and those who are in it.
type room struct {
	channel string
	head    []byte // how every message of this room begins on the wire
	frame   int    // its whole length there
	text    []byte // what follows the head of the message itself
	users   []*user
	total   atomic.Int64 // messages sent in this room, once that is known for good; -1 before
	clock   *clock
}

func newRoom(channel string, textSize int, proto resp.Proto, clock *clock) *room {
	r := &room{channel: channel, clock: clock, text: bytes.Repeat([]byte(text), textSize/len(text)+1)[:textSize-headBytes]}
	r.head = resp.AppendPush(nil, proto, 3)
	r.head = resp.AppendBulk(r.head, "message")
	r.head = resp.AppendBulk(r.head, channel)
	r.head = resp.AppendBulkHeader(r.head, textSize)
	r.frame = len(r.head) + textSize + len("\r\n")
	r.total.Store(-1)
	return r
}

// clock is the histograms that several rooms share.
type clock struct {
	mu             sync.Mutex
	delivery, turn *hdr.Histogram
}

const maxLatency = time.Minute

func newClock() *clock {
	return &clock{delivery: hdr.New(1, int64(maxLatency), 3), turn: hdr.New(1, int64(maxLatency), 3)}
}

func record(h *hdr.Histogram, nanos int64) {
	_ = h.RecordValue(min(max(nanos, 1), int64(maxLatency))) // within its bounds
}

// user is one connection and its goroutine.
type user struct {
	id       int // in its room
	room     *room
	conn     net.Conn // messages arrive here
	to       net.Conn // messages are published here: conn, or with RESP2 one of its own, on which replies are off
	replies  bool     // to PUBLISH come
	flood    bool
	in       []byte
	start    int // in[start:end] has arrived and is not yet read
	end      int
	out      []byte // a PUBLISH command
	payload  []byte // the part of out that is the message
	next     []uint32
	delivery []int64 // latencies of the batch
	turn     []int64

	sent, received, own, replied int64
	wrong                        int64 // messages that were not the next of their sender, or not what it said
	short                        int64 // messages that did not reach everybody
	firstWrong                   string
	last                         int64 // when the message that came last was sent
	quiet                        bool  // sends no more
	progress                     atomic.Int64
}

func newUser(id int, r *room, c Config, buffer int) *user {
	u := &user{id: id, room: r, flood: c.Pace == Flood, next: make([]uint32, c.Users), in: make([]byte, max(buffer, 2*r.frame))}
	u.out = resp.AppendArray(nil, 3)
	u.out = resp.AppendBulk(u.out, "PUBLISH")
	u.out = resp.AppendBulk(u.out, r.channel)
	u.out = resp.AppendBulkHeader(u.out, c.TextSize)
	at := len(u.out)
	u.out = append(u.out, make([]byte, headBytes)...)
	u.out = append(u.out, r.text...)
	u.payload = u.out[at : at+headBytes]
	u.out = append(u.out, '\r', '\n')
	binary.LittleEndian.PutUint32(u.payload, uint32(id))
	return u
}

// talk is the user's part of a run: it sends what it may, and reads, until it has everything.
func (u *user) talk(r *run) error {
	for {
		if r.cancelled.Load() {
			return errCancelled
		}
		if r.stopping.Load() && !u.quiet {
			u.quiet = true
			r.talking.Done()
		}
		for !u.quiet && u.mayTalk(r) {
			if err := u.send(r); err != nil {
				return err
			}
		}
		u.progress.Store(u.sent + u.received)
		if u.has(r) {
			return nil
		}
		if err := u.read(r); err != nil {
			return err
		}
	}
}

func (u *user) mayTalk(r *run) bool {
	if r.limit > 0 && u.sent == r.limit {
		return false
	}
	if r.pace == Turns {
		return (u.sent+u.received)%int64(len(u.room.users)) == int64(u.id)
	}
	return u.sent-u.own < r.window
}

// has reports whether the user has everything that was, and will be, sent in its room.
func (u *user) has(r *run) bool {
	if u.replies && u.replied < u.sent {
		return false
	}
	if total := u.room.total.Load(); total >= 0 {
		return u.received+u.own == total
	}
	return r.limit > 0 && u.sent == r.limit && u.received+u.own == r.limit*int64(len(u.room.users))
}

func (u *user) send(r *run) error {
	now := r.now()
	if r.pace == Turns && u.received > 0 {
		u.turn = append(u.turn, now-u.last)
	}
	binary.LittleEndian.PutUint32(u.payload[4:], uint32(u.sent))
	binary.LittleEndian.PutUint64(u.payload[8:], uint64(now))
	if _, err := u.to.Write(u.out); err != nil {
		return fmt.Errorf("publish: %w", plainly(err))
	}
	u.sent++
	return nil
}

// read waits for what comes, and takes it in.
func (u *user) read(r *run) error {
	if u.end > len(u.in)-u.room.frame { // so that one more message fits
		u.end = copy(u.in, u.in[u.start:u.end])
		u.start = 0
	}
	n, err := u.conn.Read(u.in[u.end:])
	u.end += n
	if n == 0 {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("read: %w", plainly(err))
		}
		// A past deadline wakes us to look around; once it is taken back, whatever it was for is seen.
		return u.conn.SetReadDeadline(time.Time{})
	}
	if err := u.take(r.now()); err != nil {
		return err
	}
	if u.start == u.end {
		u.start, u.end = 0, 0
	}
	u.record()
	return nil
}

// record hands in the latencies of a batch.
func (u *user) record() {
	if len(u.delivery)+len(u.turn) == 0 {
		return
	}
	c := u.room.clock
	c.mu.Lock()
	for _, d := range u.delivery {
		record(c.delivery, d)
	}
	for _, d := range u.turn {
		record(c.turn, d)
	}
	c.mu.Unlock()
	u.delivery, u.turn = u.delivery[:0], u.turn[:0]
}

// take reads what has arrived, in place.
func (u *user) take(now int64) error {
	r := u.room
	for u.start < u.end {
		b := u.in[u.start:u.end]
		if len(b) >= r.frame && bytes.HasPrefix(b, r.head) {
			u.hear(b[len(r.head):r.frame-len("\r\n")], now)
			u.start += r.frame
			continue
		}
		if k := min(len(b), len(r.head)); len(b) < r.frame && bytes.Equal(b[:k], r.head[:k]) {
			return nil // more of it is to come
		}
		line := bytes.IndexByte(b, '\n')
		switch {
		case line < 0 && len(b) < 1024:
			return nil
		case b[0] == resp.Int && line > 1:
			n, ok := resp.ParseInt(b[1 : line-1])
			if !ok {
				return fmt.Errorf("PUBLISH is answered by %q", b[:line])
			}
			u.replied++
			if n != int64(len(r.users)) {
				u.short++
			}
			u.start += line + 1
		default:
			return fmt.Errorf("a message of %s is due, and %.80q comes", r.channel, b)
		}
	}
	return nil
}

// hear takes in one message.
func (u *user) hear(message []byte, now int64) {
	sender := binary.LittleEndian.Uint32(message)
	number := binary.LittleEndian.Uint32(message[4:])
	u.last = int64(binary.LittleEndian.Uint64(message[8:]))
	switch {
	case int(sender) >= len(u.next):
		u.mistake("sender %d of %d", sender, len(u.next))
		return
	case number != u.next[sender] || !bytes.Equal(message[headBytes:], u.room.text):
		u.mistake("message %d of user %d where its %d is due", number, sender, u.next[sender])
	}
	u.next[sender] = number + 1
	if int(sender) == u.id {
		u.own++
		if u.flood {
			u.turn = append(u.turn, now-u.last)
		}
		return
	}
	u.received++
	u.delivery = append(u.delivery, now-u.last)
}

func (u *user) mistake(format string, args ...any) {
	if u.wrong++; u.firstWrong == "" {
		u.firstWrong = fmt.Sprintf("user %d of %s got "+format, append([]any{u.id, u.room.channel}, args...)...)
	}
}

var errCancelled = errors.New("given up")

// plainly is what the system said, without the addresses around it.
func plainly(err error) error {
	var sys *os.SyscallError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the server closed the connection: it cuts off subscribers that do not keep up")
	case errors.As(err, &sys):
		return sys.Err
	}
	return err
}

// channel names a room's channel.
func channel(token string, i int) string { return "kvmark:" + token + ":" + strconv.Itoa(i+1) }
