// Package client is one connection to a kvserver (or any server that speaks RESP), made for load generators: a request
// is built in a buffer of the connection, sent with one write, and its reply is read in place, so that Set and Get
// allocate nothing. A connection belongs to one goroutine; only SetDeadline and Close may be called from others. [Wire] is
// what of that knows no protocol.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"kvmark/kvserver/resp"
)

// ServerError is an error that the server sent as a reply (-ERR ...). The connection is still in order.
type ServerError struct {
	Addr string
	Text string // as sent: a code in capitals and a sentence
}

func (e *ServerError) Error() string { return fmt.Sprintf("%s answers %q", e.Addr, e.Text) }

// ReplyError is a reply of a kind that the request cannot have. Requests and replies may be out of step: give the
// connection up.
type ReplyError struct {
	Addr string
	Want string
	Got  string
}

func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s answers %s where %s is due", e.Addr, e.Got, e.Want)
}

// SurplusError tells that a server sent something when no reply was due: it answers requests that were not made, or some twice, so
// that a later request would find an answer that is none of its own. Give the connection up.
type SurplusError struct {
	Addr   string
	Begins string // its first bytes
}

func (e *SurplusError) Error() string {
	return fmt.Sprintf("%s sent %q where no reply was due", e.Addr, e.Begins)
}

// Options of a connection. The zero value works.
type Options struct {
	TLS      TLS           // how it is encrypted
	User     string        // sent with AUTH before the password; "": the server's default user
	Password string        // sent with AUTH; "" sends none
	Name     string        // sent with CLIENT SETNAME, to be told from others in CLIENT LIST; "" sends none
	Timeout  time.Duration // for connecting and for the requests above; 0 = 5 s
	MaxReply int           // bytes of one string in a reply; 0 = 512 MiB
}

// Conn is one connection: RESP on a [Wire].
type Conn struct {
	Wire
	parser resp.ReplyParser
}

// Dial connects to HOST:PORT, or to the Unix socket of unix:PATH, and signs in where the options say so.
func Dial(ctx context.Context, addr string, o Options) (*Conn, error) {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	secure, err := o.TLS.Load()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	conn, err := open(ctx, net.Dialer{}, addr, secure)
	if err != nil {
		return nil, fmt.Errorf("client: connect to %s: %w", addr, err)
	}
	c := New(conn, addr, o.MaxReply)
	// A cancelled context wakes a blocked sign-in by moving its deadline.
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	err = c.signIn(o)
	if !stop() && err == nil {
		err = fmt.Errorf("client: %s: %w", addr, context.Cause(ctx))
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		if secure == nil && c.silent() && ctx.Err() == nil && speaksTLS(addr) {
			err = fmt.Errorf("client: %s: the server speaks TLS there, not plain text: use rediss:// instead of redis:// (%w)", addr, err)
		}
		return nil, err
	}
	return c, nil
}

// New returns a connection over one that is there. addr is what errors call it; for maxReply see [Options].
func New(conn net.Conn, addr string, maxReply int) *Conn {
	c := &Conn{Wire: NewWire(conn, addr)}
	c.parser.Limits.MaxBulk = maxReply
	return c
}

func (c *Conn) signIn(o Options) error {
	if err := c.SignIn(o.User, o.Password); err != nil {
		return err
	}
	if o.Name != "" {
		// Servers without the command still serve.
		if _, err := c.Do("CLIENT", "SETNAME", o.Name); err != nil && !errors.As(err, new(*ServerError)) {
			return err
		}
	}
	return nil
}

// SignIn says who we are, if there is a password; user "" is the server's default one. The password is in no error, even where
// the server repeats it.
func (c *Conn) SignIn(user, password string) error {
	if password == "" {
		return nil
	}
	auth := []string{"AUTH", user, password}
	if user == "" {
		auth = []string{"AUTH", password}
	}
	_, err := c.Do(auth...)
	if said, ok := errors.AsType[*ServerError](err); ok {
		said.Text = strings.ReplaceAll(said.Text, password, "xxxxx")
	}
	if err != nil {
		return fmt.Errorf("client: sign in: %w", err)
	}
	return nil
}

// Do sends one command and returns its reply, which is valid until the next call. An error reply is a [ServerError].
func (c *Conn) Do(args ...string) (resp.Reply, error) {
	c.Queue(args...)
	if err := c.Ask(); err != nil {
		return resp.Reply{}, err
	}
	return c.Receive()
}

// Set stores value under key.
func (c *Conn) Set(key, value []byte) error {
	c.QueueSet(key, value)
	if err := c.Ask(); err != nil {
		return err
	}
	return c.ReceiveSet()
}

// Get returns the value of key, valid until the next call, and whether there is one.
func (c *Conn) Get(key []byte) (value []byte, found bool, err error) {
	c.QueueGet(key)
	if err := c.Ask(); err != nil {
		return nil, false, err
	}
	return c.ReceiveGet()
}

// Queue, QueueSet and QueueGet add a request to the batch that Ask or Flush sends with one write. Each request is then due one
// Receive, ReceiveSet or ReceiveGet, in order.
func (c *Conn) Queue(args ...string) { c.Out = resp.AppendCommand(c.Out, args...) }

// QueueSet adds a Set to the batch.
func (c *Conn) QueueSet(key, value []byte) {
	c.Out = append(c.Out, "*3\r\n$3\r\nSET\r\n"...)
	c.Out = resp.AppendBulk(c.Out, key)
	c.Out = resp.AppendBulk(c.Out, value)
}

// QueueGet adds a Get to the batch.
func (c *Conn) QueueGet(key []byte) {
	c.Out = append(c.Out, "*2\r\n$3\r\nGET\r\n"...)
	c.Out = resp.AppendBulk(c.Out, key)
}

// QueuePing adds a PING to the batch; its reply is due a ReceivePing.
func (c *Conn) QueuePing() { c.Out = append(c.Out, "*1\r\n$4\r\nPING\r\n"...) }

// Receive reads the next reply, which is valid until the next call. An error reply is a [ServerError].
func (c *Conn) Receive() (resp.Reply, error) {
	for {
		r, n, err := c.parser.Next(c.Arrived())
		if err != nil {
			return resp.Reply{}, c.broken("read", err)
		}
		if n > 0 {
			c.Take(n)
			if r.Kind == resp.Error || r.Kind == resp.BulkError {
				err := &ServerError{c.addr, string(r.Bytes)}
				c.said = err
				return resp.Reply{}, err
			}
			c.said = nil
			return r, nil
		}
		if err := c.More(); err != nil {
			return resp.Reply{}, err
		}
	}
}

// ReceiveSet reads the reply of a Set.
func (c *Conn) ReceiveSet() error { return c.receiveSimple("OK") }

// ReceivePing reads the reply of a PING.
func (c *Conn) ReceivePing() error { return c.receiveSimple("PONG") }

func (c *Conn) receiveSimple(want string) error {
	r, err := c.Receive()
	if err != nil {
		return err
	}
	if r.Kind != resp.Simple || string(r.Bytes) != want {
		return &ReplyError{c.addr, "+" + want, describe(r)}
	}
	return nil
}

// ReceiveGet reads the reply of a Get; the value is valid until the next call.
func (c *Conn) ReceiveGet() (value []byte, found bool, err error) {
	r, err := c.Receive()
	switch {
	case err != nil:
		return nil, false, err
	case r.Kind == resp.Bulk:
		return r.Bytes, true, nil
	case r.Kind == resp.Null:
		return nil, false, nil
	}
	return nil, false, &ReplyError{c.addr, "a string or null", describe(r)}
}

func describe(r resp.Reply) string {
	if r.Kind == resp.Int {
		return fmt.Sprintf(":%d", r.Int)
	}
	return fmt.Sprintf("%c%.40q", r.Kind, r.Bytes)
}
