package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Wire is a connection below its protocol: a batch of requests is built in its buffer and sent with one write, and what
// arrives is read in place. A protocol appends its requests to Out and, for each reply, looks at Arrived, asks for More
// while that is incomplete, and Takes it:
//
//	w.Out = append(w.Out, "PING\r\n"...)
//	err := w.Ask()
//	for !complete(w.Arrived()) {
//		err = w.More()
//	}
//	w.Take(length)
//
// [Conn] is RESP on a Wire. Make one with [NewWire], and do not copy it once it is in use.
type Wire struct {
	Out []byte // requests not yet sent

	addr       string
	conn       net.Conn
	sending    []byte        // a large batch that a goroutine of ours writes
	sent       chan error    // has its end; nil: none was ever sent so
	busy       bool          // it has not been taken from sent
	lay        time.Duration // see ReadDelay
	layKnown   bool
	exchange   *exchange // nil: there is none for this kind
	in         []byte    // in[start:end] has arrived and is not yet taken; the last reply aliases what is before it
	start, end int
	taken      bool         // something has been
	said       *ServerError // the last reply, if it was an error: often why the server then closes the connection
}

const (
	readBuffer = 16 << 10
	keepBuffer = 1 << 20 // a buffer that has grown beyond this is not kept

	// maxExchange is how large a batch may be to be sent by an exchange: copying it keeps a processor.
	maxExchange = 64 << 10
)

// NewWire returns a wire over a connection. addr is what errors call it.
func NewWire(conn net.Conn, addr string) Wire {
	return Wire{addr: addr, conn: conn, exchange: newExchange(conn), in: make([]byte, readBuffer)}
}

// Addr is the address that was dialled.
func (w *Wire) Addr() string { return w.addr }

// LocalAddr is this side's address, by which the server's CLIENT LIST names the connection.
func (w *Wire) LocalAddr() net.Addr { return w.conn.LocalAddr() }

// SetDeadline bounds all reads and writes from now on; the zero time means no bound. Set it once a phase: it costs a
// timer. A deadline in the past wakes a blocked call.
func (w *Wire) SetDeadline(t time.Time) error {
	if err := w.conn.SetDeadline(t); err != nil {
		return fmt.Errorf("client: %s: %w", w.addr, err)
	}
	return nil
}

// Close closes the connection. Calls that are blocked on it return an error.
func (w *Wire) Close() error { return w.conn.Close() }

// Ask sends the batch as Flush does, and may wait until the first of its replies begins to arrive, which is cheaper where
// it is read next: a batch without a reply, such as that of CLIENT REPLY OFF, is for Flush.
func (w *Wire) Ask() error {
	w.layKnown = false
	if len(w.Out) == 0 || w.start < w.end { // no reply, or those to what was sent before
		return w.Flush()
	}
	if w.exchange == nil && len(w.Out) <= maxExchange { // fits into the buffers between the two sides
		return w.Flush()
	}
	if err := w.settle(); err != nil {
		return err
	}
	if len(w.Out) > maxExchange {
		return w.send()
	}
	w.room()
	sent, n, err := w.exchange.do(w.Out, w.in[w.end:])
	w.end += n
	if err != nil {
		what := "read"
		if sent < len(w.Out) {
			what = "write"
		}
		w.Out = w.Out[:0]
		return w.broken(what, err)
	}
	w.lay, w.layKnown = w.exchange.delay()
	w.Out = w.Out[:copy(w.Out, w.Out[sent:])]
	if len(w.Out) == 0 {
		return nil
	}
	return w.send()
}

// send has a goroutine write the batch, so that replies can be read meanwhile: a server that is not read from stops reading,
// and both sides would wait for ever. The next Ask or Flush waits for its end.
func (w *Wire) send() error {
	if err := w.settle(); err != nil {
		return err
	}
	if w.sent == nil {
		w.sent = make(chan error, 1)
	}
	w.Out, w.sending, w.busy = w.sending[:0], w.Out, true
	go func(conn net.Conn, b []byte, sent chan<- error) { // ends with the write: the connection has a deadline, or is closed
		_, err := conn.Write(b)
		sent <- err
	}(w.conn, w.sending, w.sent)
	return nil
}

// settle waits until a batch that a goroutine writes has gone out.
func (w *Wire) settle() error {
	if !w.busy {
		return nil
	}
	err := <-w.sent
	w.busy = false
	if cap(w.sending) > keepBuffer {
		w.sending = nil
	}
	if err != nil {
		return w.broken("write", err)
	}
	return nil
}

// TrackReads asks the system to note when data arrive, and reports whether it does, for [Wire.ReadDelay].
func (w *Wire) TrackReads() bool { return w.exchange.track() }

// ReadDelay is how long the first bytes behind the last Ask had been there before they were read, if the system noted it:
// what of a reply's time is this client's.
func (w *Wire) ReadDelay() (d time.Duration, ok bool) { return w.lay, w.layKnown }

// Flush sends the batch and returns when it has gone out. The batch must be small enough for the server to take it in
// without its replies being read meanwhile: a few hundred ordinary requests. Ask has no such bound.
func (w *Wire) Flush() error {
	if err := w.settle(); err != nil {
		return err
	}
	_, err := w.conn.Write(w.Out)
	w.Out = w.Out[:0]
	if cap(w.Out) > keepBuffer {
		w.Out = nil
	}
	if err != nil {
		return w.broken("write", err)
	}
	return nil
}

// Arrived is what has arrived and is not yet taken, valid until the next call of More or Ask.
func (w *Wire) Arrived() []byte { return w.in[w.start:w.end] }

// Surplus is what has come although no reply is due, or nil: bytes that have been read, or that the system has (on Linux, plain TCP
// and Unix sockets; elsewhere the next read finds them).
func (w *Wire) Surplus() error {
	b := w.Arrived()
	if len(b) == 0 {
		b = make([]byte, surplusMost)
		b = b[:w.exchange.peek(b)]
	}
	if len(b) == 0 {
		return nil
	}
	return &SurplusError{Addr: w.addr, Begins: string(b[:min(len(b), surplusMost)])}
}

// surplusMost is how many bytes of a surplus are shown.
const surplusMost = 48

// Take takes the first n bytes of Arrived off it. They stay valid as long.
func (w *Wire) Take(n int) {
	w.start += n
	w.taken = true
}

// silent reports whether the server has said nothing that could be understood.
func (w *Wire) silent() bool { return !w.taken }

// More waits for more bytes behind those of Arrived.
func (w *Wire) More() error {
	w.room()
	n, err := w.conn.Read(w.in[w.end:])
	w.end += n
	if n > 0 || err == nil {
		return nil
	}
	return w.broken("read", err)
}

// room makes some behind in[start:end]: by moving that to the front or, for a reply that is larger than the buffer, by a
// larger buffer. It grows by doubling and only as bytes arrive, so a length that a server declares but does not send
// costs nothing.
func (w *Wire) room() {
	switch {
	case w.start == w.end:
		w.start, w.end = 0, 0
		if len(w.in) > keepBuffer {
			w.in = make([]byte, readBuffer)
		}
	case w.end == len(w.in) && w.start > 0:
		w.end = copy(w.in, w.in[w.start:w.end])
		w.start = 0
	case w.end == len(w.in):
		w.in = append(w.in, make([]byte, len(w.in))...)
	}
}

// broken is the error of a connection that has to be given up, with what the server said last.
func (w *Wire) broken(what string, err error) error {
	closed := false
	switch {
	case errors.Is(err, io.EOF):
		closed, err = true, errors.New("server closed the connection")
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		closed, err = true, fmt.Errorf("server closed the connection (%w)", cause(err))
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no reply in time: %w", os.ErrDeadlineExceeded)
	default:
		// What the system said, without the addresses and the name of the call around it.
		var sys *os.SyscallError
		if errors.As(err, &sys) {
			err = sys.Err
		}
		err = wantsCertificate(err)
	}
	if closed {
		if words := w.lastWords(); words != "" {
			err = fmt.Errorf("%w after it had said %q", err, words)
		}
	}
	return fmt.Errorf("client: %s: %s: %w", w.addr, what, err)
}

// lastWords is what a server that has closed the connection had said before: most likely why. After a write that failed it may
// have arrived and not have been read.
func (w *Wire) lastWords() string {
	if w.start == w.end {
		_ = w.conn.SetReadDeadline(time.Now().Add(wordsTimeout))
		w.room()
		n, _ := w.conn.Read(w.in[w.end:]) // the error is known
		w.end += n
	}
	if line, _, _ := bytes.Cut(w.Arrived(), []byte("\r\n")); len(line) > 0 {
		return string(line[:min(len(line), wordsMost)])
	}
	if w.said != nil {
		return "-" + w.said.Text
	}
	return ""
}

const (
	wordsTimeout = 100 * time.Millisecond
	wordsMost    = 200 // bytes
)
