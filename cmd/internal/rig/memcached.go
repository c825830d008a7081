package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"kvmark/client"
)

// memcachedCommand has one thread that serves, as redis has and as kvserver has on up to two processors; memcached's own
// default is 4 (memcached:threads=4). Like the others it has as much memory as there is: the limit is out of reach, and
// beyond a limit of the name's, a Set fails instead of driving out what a Get then misses.
func memcachedCommand(s *Server, port int) *exec.Cmd {
	args := []string{
		"--listen=127.0.0.1", "--port=" + strconv.Itoa(port), "--udp-port=0", "--threads=1", "--conn-limit=2048",
		"--memory-limit=" + strconv.Itoa(1<<20), "--disable-evictions", // the limit is in MiB
	}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // it refuses to run as root untold
	}
	_, flags := s.split()
	for _, flag := range flags {
		args = append(args, "--"+flag)
	}
	return exec.Command("memcached", args...)
}

// memcachedConn is a connection to memcached: its text protocol, on the same wire as RESP, so that the client does the
// same for every server. Where there are two requests for one purpose, it is the one that costs memcached less: replies
// to mn and get go out each with a write of its own, those to the others together. CPU time of memcached 1.6.18 per
// request, as ratios; one thread, 8 connections, values of 64 bytes, 2 cores of a Xeon, 2026-11-30:
//
//	in flight       1     16
//	mn / version    0.99  4.1
//	ms / set        1.02  0.97
//	mg / get        1.01  0.42
type memcachedConn struct{ client.Wire }

func dialMemcached(ctx context.Context, addr string) (conn, error) {
	d := net.Dialer{Timeout: time.Minute}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to memcached: %w", err)
	}
	return &memcachedConn{client.NewWire(c, addr)}, nil
}

func (c *memcachedConn) QueuePing() { c.Out = append(c.Out, "version\r\n"...) }

// QueueSet: flags 0, no expiry. A key is at most 250 bytes, without blanks.
func (c *memcachedConn) QueueSet(key, value []byte) {
	c.Out = append(c.Out, "set "...)
	c.Out = append(c.Out, key...)
	c.Out = append(c.Out, " 0 0 "...)
	c.Out = strconv.AppendInt(c.Out, int64(len(value)), 10)
	c.Out = append(c.Out, "\r\n"...)
	c.Out = append(c.Out, value...)
	c.Out = append(c.Out, "\r\n"...)
}

func (c *memcachedConn) QueueGet(key []byte) {
	c.Out = append(c.Out, "mg "...)
	c.Out = append(c.Out, key...)
	c.Out = append(c.Out, " v\r\n"...)
}

func (c *memcachedConn) ReceivePing() error {
	r, err := c.receive()
	if err == nil && !bytes.HasPrefix(r.line, []byte("VERSION ")) {
		err = c.unexpected(r, "VERSION")
	}
	return err
}

func (c *memcachedConn) ReceiveSet() error {
	r, err := c.receive()
	if err == nil && string(r.line) != "STORED" {
		err = c.unexpected(r, "STORED")
	}
	return err
}

func (c *memcachedConn) ReceiveGet() (value []byte, found bool, err error) {
	r, err := c.receive()
	if err == nil && r.value == nil && string(r.line) != "EN" {
		err = c.unexpected(r, "VA or EN")
	}
	return r.value, r.value != nil, err
}

// Info returns the numbers of stats.
func (c *memcachedConn) Info() (map[string]float64, error) {
	c.Out = append(c.Out, "stats\r\n"...)
	if err := c.Ask(); err != nil {
		return nil, err
	}
	fields := map[string]float64{}
	for {
		r, err := c.receive()
		if err != nil {
			return nil, err
		}
		if string(r.line) == "END" {
			return fields, nil
		}
		stat, ok := strings.CutPrefix(string(r.line), "STAT ")
		if !ok {
			return nil, c.unexpected(r, "STAT or END")
		}
		name, text, _ := strings.Cut(stat, " ")
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			fields[name] = v
		}
	}
}

func (c *memcachedConn) Keys() (int64, error) {
	info, err := c.Info()
	return int64(info["curr_items"]), err
}

func (c *memcachedConn) CPU() (seconds float64, err error) {
	info, err := c.Info()
	return info["rusage_user"] + info["rusage_system"], err
}

// receive reads the next reply, which is valid until the next call.
func (c *memcachedConn) receive() (memcachedReply, error) {
	for {
		r, n, err := parseMemcached(c.Arrived())
		if err != nil {
			return memcachedReply{}, fmt.Errorf("memcached at %s: %w", c.Addr(), err)
		}
		if n > 0 {
			c.Take(n)
			return r, nil
		}
		if err := c.More(); err != nil {
			return memcachedReply{}, err
		}
	}
}

// unexpected says what a reply is that is not the one due: an error of the server's, or out of step.
func (c *memcachedConn) unexpected(r memcachedReply, want string) error {
	switch code, _, _ := bytes.Cut(r.line, []byte(" ")); string(code) {
	case "ERROR", "CLIENT_ERROR", "SERVER_ERROR":
		return &client.ServerError{Addr: c.Addr(), Text: string(r.line)}
	}
	return &client.ReplyError{Addr: c.Addr(), Want: want, Got: fmt.Sprintf("%.40q", r.line)}
}

// memcachedReply is a line, and behind one that says VA a value of so many bytes:
//
//	STORED\r\n
//	VA 5\r\nhello\r\n
type memcachedReply struct {
	line  []byte // without its end
	value []byte // nil: there is none
}

const (
	maxMemcachedLine  = 2048    // bytes, with its end
	maxMemcachedValue = 1 << 30 // bytes: the most that memcached's max-item-size can be
)

// parseMemcached returns the reply at the start of buf, which it aliases, and its length; 0 if it is not all there.
func parseMemcached(buf []byte) (r memcachedReply, n int, err error) {
	i := bytes.IndexByte(buf[:min(len(buf), maxMemcachedLine)], '\n')
	switch {
	case i < 0 && len(buf) < maxMemcachedLine:
		return r, 0, nil
	case i < 1 || buf[i-1] != '\r':
		return r, 0, fmt.Errorf("not a reply: %.40q", buf)
	}
	r.line, n = buf[:i-1], i+1
	size, ok := bytes.CutPrefix(r.line, []byte("VA "))
	if !ok {
		return r, n, nil
	}
	length, err := strconv.ParseUint(string(size), 10, 64)
	if err != nil || length > maxMemcachedValue {
		return r, 0, fmt.Errorf("not the size of a value: %.40q", r.line)
	}
	end := n + int(length)
	if len(buf) < end+2 {
		return memcachedReply{}, 0, nil
	}
	r.value = buf[n:end]
	if string(buf[end:end+2]) != "\r\n" {
		return memcachedReply{}, 0, errors.New("a value does not end where its size says")
	}
	return r, end + 2, nil
}
