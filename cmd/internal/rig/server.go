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

	"kvmark/client"
)

// Spec says which server to start, and how.
type Spec struct {
	// Name is MODE or MODE:flag=value:... for kvserver, or redis or valkey for the server of that name, which then
	// keeps an append-only file and nothing else.
	Name     string
	Kvserver string // path of kvserver
	Sync     string // interval (everysec in Redis) or always
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
	control *client.Conn
	workers []*Worker
	idle    []*client.Conn
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

// launch starts the process on s.Dir and waits until it answers a PING.
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
	cmd := s.command(port)
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

// ping keeps the connection once it answers PONG; a server that still loads its data answers an error.
func (s *Server) ping(ctx context.Context) error {
	c, err := s.Dial(ctx)
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(readyWithin))
	if _, err := c.Do("PING"); err != nil {
		return errors.Join(err, c.Close())
	}
	s.control = c
	return c.SetDeadline(time.Time{})
}

func (s *Server) command(port int) *exec.Cmd {
	switch s.Name {
	case "redis", "valkey":
		every := map[string]string{"interval": "everysec", "always": "always"}[s.Sync]
		return exec.Command(s.Name+"-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", s.Dir, "--save", "",
			"--appendonly", "yes", "--appendfsync", every, "--daemonize", "no")
	}
	parts := strings.Split(s.Name, ":")
	args := []string{"--mode", parts[0], "--dir", filepath.Join(s.Dir, "data"), "--addr", s.Addr, "--wal-sync", s.Sync}
	for _, flag := range parts[1:] {
		args = append(args, "--"+flag)
	}
	return exec.Command(s.Kvserver, args...)
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

// Dial makes a connection to the server. Whatever waits on it returns when ctx ends.
func (s *Server) Dial(ctx context.Context) (*client.Conn, error) {
	c, err := client.Dial(ctx, s.Addr, client.Options{Timeout: time.Minute})
	if err == nil {
		context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	}
	return c, err
}

// Info returns the numbers of the server's INFO.
func (s *Server) Info() (map[string]float64, error) {
	r, err := s.control.Do("INFO")
	if err != nil {
		return nil, err
	}
	fields := map[string]float64{}
	for line := range strings.Lines(string(r.Bytes)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			fields[name] = v
		}
	}
	return fields, nil
}

// Keys is the number of keys that the server has, by its DBSIZE.
func (s *Server) Keys() (int64, error) {
	r, err := s.control.Do("DBSIZE")
	return r.Int, err
}

// CPU is the processor time that the server has used, in seconds, by its INFO.
func (s *Server) CPU() (float64, error) {
	info, err := s.Info()
	return info["used_cpu_user"] + info["used_cpu_sys"], err
}

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
