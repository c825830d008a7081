package rig

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"kvmark/client"
)

func redisCommand(s *Server, port int) *exec.Cmd {
	name, flags := s.split()
	every := map[string]string{"interval": "everysec", "always": "always"}[s.Sync]
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", s.Dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", every, "--daemonize", "no",
	}
	for _, flag := range flags {
		option, value, _ := strings.Cut(flag, "=")
		args = append(args, "--"+option, value)
	}
	return exec.Command(name+"-server", args...)
}

// redisConn is a connection to kvserver, redis or valkey.
type redisConn struct{ *client.Conn }

func dialRedis(ctx context.Context, addr string) (conn, error) {
	c, err := client.Dial(ctx, addr, client.Options{Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	return redisConn{c}, nil
}

// Info returns the numbers of INFO.
func (c redisConn) Info() (map[string]float64, error) {
	r, err := c.Do("INFO", "all") // Redis leaves the counts of commands out otherwise
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

func (c redisConn) Keys() (int64, error) {
	r, err := c.Do("DBSIZE")
	return r.Int, err
}

func (c redisConn) CPU() (seconds float64, err error) {
	info, err := c.Info()
	return info["used_cpu_user"] + info["used_cpu_sys"], err
}
