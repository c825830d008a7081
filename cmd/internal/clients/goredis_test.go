package clients

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"kvmark/kvserver"
)

func goRedis(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// is checks a result of go-redis.
func is[T comparable](t *testing.T, what string, got T, err error, want T) {
	t.Helper()
	if err != nil || got != want {
		t.Errorf("%s: %v, %v; want %v", what, got, err, want)
	}
}

func TestGoRedisData(t *testing.T) {
	everywhere(t, func(t *testing.T, addr string) {
		ctx, c := limited(t), goRedis(t, addr)
		str := func(what string, cmd interface{ Result() (string, error) }, want string) {
			t.Helper()
			got, err := cmd.Result()
			is(t, what, got, err, want)
		}
		num := func(what string, cmd *redis.IntCmd, want int64) {
			t.Helper()
			got, err := cmd.Result()
			is(t, what, got, err, want)
		}
		yes := func(what string, cmd *redis.BoolCmd, want bool) {
			t.Helper()
			got, err := cmd.Result()
			is(t, what, got, err, want)
		}
		missing := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, redis.Nil) {
				t.Errorf("%s: %v, want redis.Nil", what, err)
			}
		}
		str("PING", c.Ping(ctx), "PONG")
		str("SET", c.Set(ctx, "k", "v", time.Minute), "OK")
		str("GET", c.Get(ctx, "k"), "v")
		if d, err := c.TTL(ctx, "k").Result(); err != nil || d != time.Minute {
			t.Errorf("TTL: %v, %v", d, err)
		}
		missing("GET of none", c.Get(ctx, "none").Err())
		yes("SETNX", c.SetNX(ctx, "k", "w", 0), false)
		yes("SETXX", c.SetXX(ctx, "k", "w", redis.KeepTTL), true)
		str("SetArgs", c.SetArgs(ctx, "k", "x", redis.SetArgs{Get: true}), "w")
		str("GETSET", c.GetSet(ctx, "k", "y"), "x") //lint:ignore SA1019 programs that were written before Redis 6.2 send it
		str("GETEX", c.GetEx(ctx, "k", time.Hour), "y")
		str("GETDEL", c.GetDel(ctx, "k"), "y")
		num("APPEND", c.Append(ctx, "k", "hello"), 5)
		num("SETRANGE", c.SetRange(ctx, "k", 1, "a"), 5)
		str("GETRANGE", c.GetRange(ctx, "k", 0, 1), "ha")
		num("STRLEN", c.StrLen(ctx, "k"), 5)
		num("INCR", c.Incr(ctx, "n"), 1)
		num("INCRBY", c.IncrBy(ctx, "n", 9), 10)
		num("DECR", c.Decr(ctx, "n"), 9)
		num("DECRBY", c.DecrBy(ctx, "n", 4), 5)
		f, err := c.IncrByFloat(ctx, "n", 0.5).Result()
		is(t, "INCRBYFLOAT", f, err, 5.5)
		str("MSET", c.MSet(ctx, "a", "1", "b", "2"), "OK")
		yes("MSETNX", c.MSetNX(ctx, "a", "1", "z", "2"), false)
		values, err := c.MGet(ctx, "a", "none", "b").Result()
		if err != nil || !slices.Equal(values, []any{"1", nil, "2"}) {
			t.Errorf("MGET: %v, %v", values, err)
		}
		num("COPY", c.Copy(ctx, "a", "c", 0, true), 1)
		str("RENAME", c.Rename(ctx, "c", "d"), "OK")
		yes("RENAMENX", c.RenameNX(ctx, "d", "a"), false)
		num("EXISTS", c.Exists(ctx, "a", "d", "c"), 2)
		num("TOUCH", c.Touch(ctx, "a", "c"), 1)
		str("TYPE", c.Type(ctx, "a"), "string")
		yes("EXPIRE", c.Expire(ctx, "a", time.Minute), true)
		yes("EXPIREGT", c.ExpireGT(ctx, "a", time.Second), false)
		yes("PERSIST", c.Persist(ctx, "a"), true)
		str("OBJECT ENCODING", c.ObjectEncoding(ctx, "a"), "int")
		num("DEL", c.Del(ctx, "a", "b"), 2)
		num("UNLINK", c.Unlink(ctx, "d"), 1)
		num("DBSIZE", c.DBSize(ctx), 2)
		if err := c.RandomKey(ctx).Err(); err != nil {
			t.Errorf("RANDOMKEY: %v", err)
		}
		str("FLUSHALL", c.FlushAll(ctx), "OK")
		missing("RANDOMKEY of none", c.RandomKey(ctx).Err())
		if err := c.Eval(ctx, "return 1", nil).Err(); err == nil {
			t.Error("EVAL is said to work")
		}
	})
}

func TestGoRedisPipelinesAndTransactions(t *testing.T) {
	everywhere(t, func(t *testing.T, addr string) {
		ctx, c := limited(t), goRedis(t, addr)
		const n = 1000
		cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range n {
				p.Set(ctx, fmt.Sprint("k", i), i, 0)
			}
			p.Get(ctx, "k999")
			return nil
		})
		if err != nil || cmds[n].(*redis.StringCmd).Val() != "999" {
			t.Fatalf("pipeline: %v, %v", cmds[n], err)
		}
		cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Incr(ctx, "n")
			p.Incr(ctx, "n")
			p.Get(ctx, "n")
			return nil
		})
		if err != nil || cmds[2].(*redis.StringCmd).Val() != "2" {
			t.Fatalf("transaction: %v, %v", cmds, err)
		}
		// As in go-redis's own example: many count at once, each reading first.
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 5 {
					for {
						err := c.Watch(ctx, func(tx *redis.Tx) error {
							v, err := tx.Get(ctx, "n").Int()
							if err != nil {
								return err
							}
							_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
								p.Set(ctx, "n", v+1, 0)
								return nil
							})
							return err
						}, "n")
						if err == nil {
							break
						}
						if !errors.Is(err, redis.TxFailedErr) {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		got, err := c.Get(ctx, "n").Int()
		is(t, "the sum", got, err, 42)

		keys := map[string]bool{}
		for iter := c.Scan(ctx, 0, "k*", 100).Iterator(); iter.Next(ctx); {
			keys[iter.Val()] = true
		}
		if len(keys) != n {
			t.Errorf("SCAN finds %d keys of %d", len(keys), n)
		}
	})
}

func TestGoRedisPubSub(t *testing.T) {
	everywhere(t, func(t *testing.T, addr string) {
		ctx, c := limited(t), goRedis(t, addr)
		sub := c.Subscribe(ctx, "news")
		defer sub.Close()
		pattern := c.PSubscribe(ctx, "n*")
		defer pattern.Close()
		for _, s := range []*redis.PubSub{sub, pattern} {
			if _, err := s.Receive(ctx); err != nil { // the confirmation
				t.Fatal(err)
			}
		}
		for i := range 100 {
			n, err := c.Publish(ctx, "news", i).Result()
			is(t, "PUBLISH", n, err, 2)
		}
		for _, s := range []*redis.PubSub{sub, pattern} {
			for i := range 100 {
				m, err := s.ReceiveMessage(ctx)
				if err != nil || m.Payload != fmt.Sprint(i) {
					t.Fatalf("message %d: %v, %v", i, m, err)
				}
			}
		}
	})
}

func TestGoRedisWithThousandConnections(t *testing.T) {
	for _, path := range []kvserver.IO{kvserver.Goroutine, kvserver.DefaultIO} {
		t.Run(string(path), func(t *testing.T) {
			ctx := limited(t)
			const n = 1000
			c := redis.NewClient(&redis.Options{Addr: start(t, kvserver.Options{IO: path}), PoolSize: n, MinIdleConns: n, PoolTimeout: time.Minute, DialTimeout: 30 * time.Second, ReadTimeout: 30 * time.Second})
			defer c.Close()
			var wg sync.WaitGroup
			conns := make([]*redis.Conn, n)
			for i := range n {
				conns[i] = c.Conn()
				wg.Go(func() {
					if err := conns[i].Set(ctx, fmt.Sprint(i), i, 0).Err(); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for i := range n {
				wg.Go(func() {
					defer conns[i].Close()
					got, err := conns[i].Get(ctx, fmt.Sprint((i+1)%n)).Int()
					is(t, "GET", got, err, (i+1)%n)
				})
			}
			wg.Wait()
		})
	}
}
