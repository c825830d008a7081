package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"kvmark/client"
	"kvmark/client/workload"
	"kvmark/kvserver/resp"
)

// Target is a server that runs already and is somebody else's: it is neither started nor stopped, its data are not
// flushed, its counters not reset, and what it does not tell is not shown.
type Target struct {
	Addr           string // host:port, or unix: and the path of a socket
	User, Password string
	TLS            client.TLS
}

// TargetForms are the URLs that ParseTarget reads.
const TargetForms = "redis://[[USER]:PASSWORD@]HOST[:PORT], rediss:// for TLS, or unix://[[USER]:PASSWORD@]/PATH"

// hostName is a host without what a part of a password that was taken for a host may hold.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?$`)

// ParseTarget reads one of TargetForms. No error repeats any of it: where a URL is not what it should be, a password may stand
// anywhere in it.
func ParseTarget(s string) (Target, error) {
	bad := func(why string) (Target, error) {
		return Target{}, fmt.Errorf("target: %s; want %s, with %%xx for a character of the password that has a meaning in URLs, "+
			"such as %%23 for # and %%2F for / (the URL is not shown: it may hold a password)", why, TargetForms)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil: // it quotes s
		return bad("this is not a URL")
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return bad("the URL begins with none of the schemes that are known")
	case u.Opaque != "":
		return bad("there is no // behind the scheme")
	case strings.ContainsAny(s, "?#"):
		return bad("a ? or # stands in the URL")
	}
	t := Target{User: u.User.Username(), TLS: client.TLS{On: u.Scheme == "rediss"}}
	var given bool
	if t.Password, given = u.User.Password(); t.User != "" && !given || t.User == "" && u.User != nil && t.Password == "" {
		return bad("a user needs a password, and a password alone is written :PASSWORD@")
	}
	if u.Scheme == "unix" {
		if u.Host != "" || len(u.Path) < 2 {
			return bad("the path of a Unix socket begins with the third /")
		}
		t.Addr = "unix:" + u.Path
		return t, nil
	}
	host, port := u.Hostname(), u.Port()
	ip, ipErr := netip.ParseAddr(host)
	bracketed := strings.HasPrefix(u.Host, "[")
	switch {
	case host == "" || bracketed != (ipErr == nil && ip.Is6()) || ipErr != nil && !hostName.MatchString(host):
		return bad("there is no host, or none of a form that hosts have")
	case u.Path != "" && u.Path != "/" && u.Path != "/0":
		return bad("only database 0 is measured: nothing but /0 may stand behind the host")
	case port == "" && strings.HasSuffix(u.Host, ":"):
		return bad("the port is missing behind the :")
	}
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return bad("the port is not within 1..65535")
	}
	t.Addr = net.JoinHostPort(host, port)
	return t, nil
}

// String is the target without its password; "" for none.
func (t Target) String() string {
	path, unix := strings.CutPrefix(t.Addr, "unix:")
	switch {
	case t.Addr == "":
		return ""
	case unix:
		return (&url.URL{Scheme: "unix", Path: path}).String()
	case t.TLS.On:
		return "rediss://" + t.Addr
	}
	return "redis://" + t.Addr
}

// Local reports whether the server is on this machine, as our own are.
func (t Target) Local() bool {
	host, _, _ := net.SplitHostPort(t.Addr)
	return t.Addr == "" || strings.HasPrefix(t.Addr, "unix:") || host == "localhost" || net.ParseIP(host).IsLoopback()
}

// targetMode is what a target's cells have for a mode: how it stores values is its own affair.
const targetMode = "target"

// targetTimeout bounds the first words with a target. Another protocol's server may wait for ever for ours.
const targetTimeout = 5 * time.Second

// newTarget stands for the process that we did not start.
func newTarget(t Target) *server {
	return &server{addr: t.Addr, user: t.User, password: t.Password, tls: t.TLS, foreign: true, done: make(chan struct{})}
}

// target is how the server is reached.
func (s *server) target() Target {
	return Target{Addr: s.addr, User: s.user, Password: s.password, TLS: s.tls}
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
	if err == nil && string(r.Bytes) != "PONG" {
		err = fmt.Errorf("%s answers %.40q", s.server.addr, r.Bytes)
	}
	if err != nil {
		return fmt.Errorf("PING: %w", s.server.hint(err))
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

// hint adds what helps to what a server said, or did not say, when it was greeted.
func (s *server) hint(err error) error {
	said, _ := errors.AsType[*client.ServerError](err)
	switch {
	case errors.As(err, new(resp.ProtocolError)), errors.As(err, new(*client.ReplyError)):
		return fmt.Errorf("%w: that is not Redis's protocol, which a target has to speak", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: it takes connections and says nothing on them: does it speak Redis's protocol, and is it alive?", err)
	case said == nil:
		return err
	case strings.HasPrefix(said.Text, "NOAUTH"):
		t := s.target()
		return fmt.Errorf("%w: give its password, %s", err, strings.Replace(t.String(), "://", "://:PASSWORD@", 1))
	case strings.HasPrefix(said.Text, "LOADING"):
		return fmt.Errorf("%w: wait until it has, then try again", err)
	}
	return err
}

// probe writes and reads one of the first worker's own keys, so that a command that is unknown or not allowed ends the
// run before it begins.
func (s *session) probe() error {
	w := s.workers[0]
	w.setDeadline(time.Now().Add(targetTimeout))
	w.key, w.value = w.gen.AppendKey(w.key[:0], 0), w.gen.AppendGeneration(w.value[:0], 0, w.last.next(0, w.gen.Generations()))
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
		Name: name, User: s.server.user, Password: s.server.password, TLS: s.server.tls, Timeout: targetTimeout, MaxReply: workload.MaxValueSize,
	})
	if err != nil {
		return nil, s.server.hint(err)
	}
	err = c.SetDeadline(time.Now().Add(targetTimeout))
	var in info
	if err == nil {
		in, err = readInfo(c)
	}
	said, _ := errors.AsType[*client.ServerError](err)
	switch id := in["run_id"]; {
	case said != nil && (strings.HasPrefix(said.Text, "NOAUTH") || strings.HasPrefix(said.Text, "LOADING")): // nor will it do anything else
		err = fmt.Errorf("INFO: %w", s.server.hint(err))
	case said != nil: // it has no INFO, or not for us
		err = nil
	case err != nil:
		err = fmt.Errorf("INFO: %w", s.server.hint(err))
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
