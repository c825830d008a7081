package rig

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// kind is what differs between the servers: how one is started, how it is spoken to, and whether it has a log.
type kind struct {
	command func(s *Server, port int) *exec.Cmd
	dial    func(ctx context.Context, addr string) (conn, error)
	log     bool
}

func (s Spec) kind() kind {
	switch name, _ := s.split(); name {
	case "redis", "valkey":
		return kind{redisCommand, dialRedis, true}
	case "memcached":
		return kind{memcachedCommand, dialMemcached, false}
	}
	return kind{kvserverCommand, dialRedis, true}
}

// split returns the mode or the server, and the flags behind it.
func (s Spec) split() (name string, flags []string) {
	parts := strings.Split(s.Name, ":")
	return parts[0], parts[1:]
}

// HasLog reports whether the server keeps a log, as all but memcached do: one without pays for less with each Set, and is
// empty after a restart.
func (s Spec) HasLog() bool { return s.kind().log }

// conn is a connection in the server's protocol. What is queued goes out with Ask; each request is then due one Receive
// of its kind, in order. A server is asked about itself while nothing is due.
type conn interface {
	QueuePing()
	QueueSet(key, value []byte)
	QueueGet(key []byte)
	Ask() error
	ReceivePing() error
	ReceiveSet() error
	ReceiveGet() (value []byte, found bool, err error)

	Info() (map[string]float64, error) // all numbers that the server tells, by its names
	Keys() (int64, error)              // that it has
	CPU() (seconds float64, err error) // of its process

	SetDeadline(time.Time) error
	Close() error
}

func kvserverCommand(s *Server, _ int) *exec.Cmd {
	mode, flags := s.split()
	args := []string{"--mode", mode, "--dir", filepath.Join(s.Dir, "data"), "--addr", s.Addr, "--wal-sync", s.Sync}
	for _, flag := range flags {
		args = append(args, "--"+flag)
	}
	return exec.Command(s.Kvserver, args...)
}
