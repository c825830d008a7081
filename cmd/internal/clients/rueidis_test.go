package clients

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// newRueidis connects with the defaults, which want client-side caching.
func newRueidis(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestRueidisData(t *testing.T) {
	everywhere(t, func(t *testing.T, addr string) {
		ctx, c := limited(t), newRueidis(t, addr)
		str := func(what string, cmd rueidis.Completed, want string) {
			t.Helper()
			got, err := c.Do(ctx, cmd).ToString()
			is(t, what, got, err, want)
		}
		num := func(what string, cmd rueidis.Completed, want int64) {
			t.Helper()
			got, err := c.Do(ctx, cmd).AsInt64()
			is(t, what, got, err, want)
		}
		b := c.B()
		str("PING", b.Ping().Build(), "PONG")
		str("SET", b.Set().Key("k").Value("v").Ex(time.Minute).Build(), "OK")
		str("GET", b.Get().Key("k").Build(), "v")
		num("TTL", b.Ttl().Key("k").Build(), 60)
		if err := c.Do(ctx, b.Get().Key("none").Build()).Error(); !rueidis.IsRedisNil(err) {
			t.Errorf("GET of none: %v", err)
		}
		str("GETEX", b.Getex().Key("k").Persist().Build(), "v")
		num("APPEND", b.Append().Key("k").Value("w").Build(), 2)
		num("SETRANGE", b.Setrange().Key("k").Offset(1).Value("x").Build(), 2)
		str("GETRANGE", b.Getrange().Key("k").Start(0).End(-1).Build(), "vx")
		num("INCRBY", b.Incrby().Key("n").Increment(41).Build(), 41)
		str("INCRBYFLOAT", b.Incrbyfloat().Key("n").Increment(0.5).Build(), "41.5")
		str("MSET", b.Mset().KeyValue().KeyValue("a", "1").KeyValue("b", "2").Build(), "OK")
		num("COPY", b.Copy().Source("a").Destination("c").Replace().Build(), 1)
		str("RENAME", b.Rename().Key("c").Newkey("d").Build(), "OK")
		num("EXISTS", b.Exists().Key("a", "d", "c").Build(), 2)
		num("DEL", b.Del().Key("a", "b").Build(), 2)
		num("DBSIZE", b.Dbsize().Build(), 3)
		values, err := rueidis.MGet(c, ctx, []string{"k", "n"})
		if err != nil {
			t.Fatal(err)
		}
		k := values["k"]
		got, err := k.ToString()
		is(t, "MGET", got, err, "vx")
		cmds := make(rueidis.Commands, 0, 500)
		for i := range cap(cmds) {
			cmds = append(cmds, b.Set().Key(fmt.Sprint("s", i)).Value("x").Build())
		}
		for _, r := range c.DoMulti(ctx, cmds...) {
			if err := r.Error(); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]bool{}
		for cursor := uint64(0); ; {
			e, err := c.Do(ctx, b.Scan().Cursor(cursor).Match("s*").Count(50).Build()).AsScanEntry()
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range e.Elements {
				seen[k] = true
			}
			if cursor = e.Cursor; cursor == 0 {
				break
			}
		}
		if len(seen) != len(cmds) {
			t.Errorf("SCAN finds %d keys of %d", len(seen), len(cmds))
		}
	})
}

func TestRueidisTransaction(t *testing.T) {
	everywhere(t, func(t *testing.T, addr string) {
		ctx, c := limited(t), newRueidis(t, addr)
		err := c.Dedicated(func(d rueidis.DedicatedClient) error {
			replies := d.DoMulti(ctx, d.B().Watch().Key("k").Build(), d.B().Multi().Build(), d.B().Incr().Key("k").Build(), d.B().Get().Key("k").Build(), d.B().Exec().Build())
			values, err := replies[4].ToArray()
			if err != nil || len(values) != 2 {
				return fmt.Errorf("%v, %w", values, err)
			}
			got, err := values[1].ToString()
			is(t, "GET in the transaction", got, err, "1")
			// Another one comes between.
			if err := d.Do(ctx, d.B().Watch().Key("k").Build()).Error(); err != nil {
				return err
			}
			if err := c.Do(ctx, c.B().Incr().Key("k").Build()).Error(); err != nil {
				return err
			}
			replies = d.DoMulti(ctx, d.B().Multi().Build(), d.B().Incr().Key("k").Build(), d.B().Exec().Build())
			if err := replies[2].Error(); !rueidis.IsRedisNil(err) {
				return errors.New("EXEC did not fail")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// A value that is read twice comes from the client's own memory, and a change by anybody is seen soon.
func TestRueidisClientSideCaching(t *testing.T) {
	everywhere(t, func(t *testing.T, addr string) {
		ctx, c, other := limited(t), newRueidis(t, addr), newRueidis(t, addr)
		read := func() (string, bool) {
			r := c.DoCache(ctx, c.B().Get().Key("k").Cache(), time.Minute)
			v, err := r.ToString()
			if err != nil && !rueidis.IsRedisNil(err) {
				t.Fatal(err)
			}
			return v, r.IsCacheHit()
		}
		for i := range 50 {
			want := fmt.Sprint(i)
			if err := other.Do(ctx, other.B().Set().Key("k").Value(want).Build()).Error(); err != nil {
				t.Fatal(err)
			}
			for got, _ := read(); got != want; got, _ = read() {
				if ctx.Err() != nil {
					t.Fatalf("it reads %q for ever, want %q", got, want)
				}
			}
			if got, hit := read(); got != want || !hit {
				t.Fatalf("read again: %q, from the cache: %v", got, hit)
			}
		}
		if err := other.Do(ctx, other.B().Flushall().Build()).Error(); err != nil {
			t.Fatal(err)
		}
		for got, _ := read(); got != ""; got, _ = read() {
			if ctx.Err() != nil {
				t.Fatal("a cleared value is read for ever")
			}
		}
	})
}

func TestRueidisPubSub(t *testing.T) {
	everywhere(t, func(t *testing.T, addr string) {
		ctx, c := limited(t), newRueidis(t, addr)
		const n = 100
		got := make(chan string, n)
		listening, enough := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer enough()
		wg.Go(func() { // until enough
			_ = c.Receive(listening, c.B().Subscribe().Channel("news").Build(), func(m rueidis.PubSubMessage) { got <- m.Message })
		})
		for { // until the subscription is there
			heard, err := c.Do(ctx, c.B().Publish().Channel("news").Message("0").Build()).AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			if heard == 1 {
				break
			}
			runtime.Gosched()
		}
		for i := 1; i < n; i++ {
			if err := c.Do(ctx, c.B().Publish().Channel("news").Message(fmt.Sprint(i)).Build()).Error(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			select {
			case m := <-got:
				is(t, "message", m, nil, fmt.Sprint(i))
			case <-ctx.Done():
				t.Fatal("messages are missing")
			}
		}
	})
}
