package rig

import (
	"context"
	"strconv"
	"strings"
	"time"

	"kvmark/client"
)

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
	r, err := c.Do("INFO")
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
