package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"kvmark/client"
	"kvmark/client/workload"
	"kvmark/kvserver/resp"
)

// Target is a server that runs already and is somebody else's: it is neither started nor stopped, its data are not
// flushed, its counters not reset, and what it does not tell is not shown.
type Target struct {
	Addr           string
	User, Password string
}

// ParseTarget reads redis://[[user]:password@]host[:port]. Errors do not repeat the password.
func ParseTarget(s string) (Target, error) {
	const want = "want redis://[[USER]:PASSWORD@]HOST[:PORT]"
	u, err := url.Parse(s)
	switch {
	case err != nil: // it quotes s
		return Target{}, errors.New("target: " + want + ", with %xx for what may not stand in a URL")
	case u.Scheme != "redis" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return Target{}, fmt.Errorf("target %s: %s", u.Redacted(), want)
	case u.Path != "" && u.Path != "/" && u.Path != "/0":
		return Target{}, fmt.Errorf("target %s: only database 0 is measured", u.Redacted())
	}
	t := Target{Addr: net.JoinHostPort(u.Hostname(), "6379"), User: u.User.Username()}
	if u.Port() != "" {
		t.Addr = net.JoinHostPort(u.Hostname(), u.Port())
	}
	var given bool
	if t.Password, given = u.User.Password(); t.User != "" && !given {
		return Target{}, errors.New("target: a user needs a password; a password alone is written redis://:PASSWORD@HOST")
	}
	return t, nil
}

// String is the target without its password; "" for none.
func (t Target) String() string {
	if t.Addr == "" {
		return ""
	}
	return "redis://" + t.Addr
}

// Local reports whether the server is on this machine, as our own are.
func (t Target) Local() bool {
	host, _, _ := net.SplitHostPort(t.Addr)
	return t.Addr == "" || host == "localhost" || net.ParseIP(host).IsLoopback()
}

// targetMode is what a target's cells have for a mode: how it stores values is its own affair.
const targetMode = "target"

// targetTimeout bounds the first words with a target. Another protocol's server may wait for ever for ours.
const targetTimeout = 5 * time.Second

// newTarget stands for the process that we did not start.
func newTarget(t Target) *server {
	return &server{addr: t.Addr, user: t.User, password: t.Password, foreign: true, done: make(chan struct{})}
}

// target measures all operations, as often as asked, on the one target.
func (r *runner) target(ctx context.Context) error {
	s := &session{runner: r, mode: targetMode, repeat: 1, server: newTarget(r.Target)}
	r.Progress(s.progress("", "start"))
	defer s.close()
	if err := s.open(ctx); err != nil {
		return err
	}
	for ; s.repeat <= r.Repeat; s.repeat++ {
		if alive, err := s.measure(ctx); err != nil || !alive {
			return err
		}
	}
	if r.SecondOpinion {
		s.secondOpinion(ctx)
	}
	return nil
}

// introduce finds out whether the target can be measured at all, and whether it may.
func (s *session) introduce() error {
	if err := s.control.SetDeadline(time.Now().Add(targetTimeout)); err != nil {
		return err
	}
	r, err := s.control.Do("PING")
	switch {
	case err != nil && strings.Contains(err.Error(), "NOAUTH"):
		return fmt.Errorf("%w: give its password, redis://:PASSWORD@%s", err, s.server.addr)
	case err != nil:
		return fmt.Errorf("PING: %w: is this a server that speaks Redis's protocol?", err)
	case string(r.Bytes) != "PONG":
		return fmt.Errorf("%s answers PING with %.40q: is this a server that speaks Redis's protocol?", s.server.addr, r.Bytes)
	}
	if r, err = s.control.Do("DBSIZE"); err != nil {
		return fmt.Errorf("DBSIZE, by which keys are proved: %w", err)
	}
	if s.base = r.Int; s.base > 0 && !s.AllowData {
		return fmt.Errorf("%s already holds %d keys, which a measurement would write among and may overwrite: "+
			"use an empty server, or --allow-data if that does not matter", s.server.addr, s.base)
	}
	return nil
}

// probe writes and reads one of the first worker's own keys, so that a command that is unknown or not allowed ends the
// run before it begins.
func (s *session) probe() error {
	w := s.workers[0]
	w.setDeadline(time.Now().Add(targetTimeout))
	w.key, w.value = w.gen.AppendKey(w.key[:0], 0), w.gen.AppendValue(w.value[:0], 0)
	if err := w.conn.Set(w.key, w.value); err != nil {
		return fmt.Errorf("SET: %w", err)
	}
	w.written.set(0)
	value, found, err := w.conn.Get(w.key)
	switch {
	case err != nil:
		return fmt.Errorf("GET: %w", err)
	case !found || !w.gen.Verify(value, 0):
		return fmt.Errorf("%s does not give back what was just stored under %s", s.server.addr, w.key)
	}
	return nil
}

// dialTarget connects, and sees that the server is the one that was there before, as far as it says who it is.
func (s *session) dialTarget(ctx context.Context, name string) (*client.Conn, error) {
	c, err := client.Dial(ctx, s.server.addr, client.Options{
		Name: name, User: s.server.user, Password: s.server.password, Timeout: targetTimeout, MaxReply: workload.MaxValueSize,
	})
	if err != nil {
		if errors.As(err, new(resp.ProtocolError)) {
			err = fmt.Errorf("%w: is this a server that speaks Redis's protocol?", err)
		}
		return nil, err
	}
	err = c.SetDeadline(time.Now().Add(targetTimeout))
	var in info
	if err == nil {
		in, err = readInfo(c)
	}
	switch id := in["run_id"]; {
	case errors.As(err, new(*client.ServerError)): // it has no INFO, or not for us
		err = nil
	case err != nil:
		err = fmt.Errorf("INFO: %w: is this a server that speaks Redis's protocol?", err)
	case s.server.runID == "":
		s.server.runID = id
	case s.server.runID != id:
		err = fmt.Errorf("%s is another server than before: run id %q, then %q", s.server.addr, s.server.runID, id)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
