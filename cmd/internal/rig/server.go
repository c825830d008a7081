// Package rig starts servers and drives them with one client, for the commands beside it: kvserver in any mode, and the
// other servers that this machine has. It is for those who work on kvserver; what users measure goes through kvmark.
package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Spec says which server to start, and how.
type Spec struct {
	// Name is MODE or MODE:flag=value:... for kvserver; or redis or valkey, which then keeps an append-only file and
	// nothing else, or memcached, which keeps nothing, for the server of that name, with flags likewise.
	Name     string
	Kvserver string // path of kvserver
	Sync     string // interval (everysec in Redis) or always; memcached has no log
}

// readyWithin bounds a start, the loading of the data included.
const readyWithin = 10 * time.Minute

// Server is a server's process on a directory of its own.
type Server struct {
	Spec
	Dir     string // holds the data, and the file "output" with what the server printed
	Addr    string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process has
	control conn
	workers []*Worker
	idle    []conn
}

// Start starts a server on an empty directory and waits until it serves.
func Start(ctx context.Context, spec Spec) (*Server, error) {
	dir, err := os.MkdirTemp("", "rig-")
	if err != nil {
		return nil, err
	}
	s := &Server{Spec: spec, Dir: dir}
	if err := s.launch(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// launch starts the process on s.Dir and waits until it answers a ping.
func (s *Server) launch(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	s.Addr = l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	cmd := s.kind().command(s, port)
	output, err := os.OpenFile(filepath.Join(s.Dir, "output"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	ended := make(chan struct{})
	s.cmd, s.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // what it printed says more
		close(ended)
	}()
	for until := time.Now().Add(readyWithin); ; time.Sleep(2 * time.Millisecond) {
		if err = s.ping(ctx); err == nil {
			return nil
		}
		select {
		case <-ended:
			err = errors.New("it has ended")
		case <-ctx.Done():
			err = ctx.Err()
		default:
			if time.Now().Before(until) {
				continue
			}
		}
		text, _ := os.ReadFile(output.Name())
		return fmt.Errorf("%s does not serve: %w\n%s", s.Name, err, text)
	}
}

// ping keeps the connection once it answers; a server that still loads its data answers an error.
func (s *Server) ping(ctx context.Context) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(readyWithin))
	c.QueuePing()
	err = c.Ask()
	if err == nil {
		err = c.ReceivePing()
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	s.control = c
	return c.SetDeadline(time.Time{})
}

// Restart kills the server with SIGKILL, starts it again on its data, and waits until it serves.
func (s *Server) Restart(ctx context.Context) error {
	s.disconnect()
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	<-s.ended
	s.cmd = nil
	return s.launch(ctx)
}

// Pid is the process's number.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// dial makes a connection to the server. Whatever waits on it returns when ctx ends.
func (s *Server) dial(ctx context.Context) (conn, error) {
	c, err := s.kind().dial(ctx, s.Addr)
	if err == nil {
		context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	}
	return c, err
}

// Info returns the numbers of the server's INFO, or of its stats (memcached).
func (s *Server) Info() (map[string]float64, error) { return s.control.Info() }

// Keys is the number of keys that the server says it has.
func (s *Server) Keys() (int64, error) { return s.control.Keys() }

// CPU is the processor time that the server says it has used, in seconds.
func (s *Server) CPU() (float64, error) { return s.control.CPU() }

// Memory reads the process's resident memory and its peak, in bytes, from Linux's /proc.
func (s *Server) Memory() (resident, peak float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			resident = kib * 1024
		case "VmHWM:":
			peak = kib * 1024
		}
	}
	return resident, peak, nil
}

// Stop ends the server and removes its data.
func (s *Server) Stop() error {
	s.disconnect()
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
		<-s.ended
		late.Stop()
	}
	return os.RemoveAll(s.Dir)
}

func (s *Server) disconnect() {
	for _, w := range s.workers {
		_ = w.conn.Close()
	}
	for _, c := range s.idle {
		_ = c.Close()
	}
	if s.control != nil {
		_ = s.control.Close()
	}
	s.workers, s.idle, s.control = nil, nil, nil
}
