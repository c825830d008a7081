package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"kvmark/client/chat"
	"kvmark/client/conns"
	"kvmark/client/load"
)

// driverFlags are those of compare that are about loads other than Sets and Gets.
func driverFlags() []cli.Flag {
	d, n := chat.Default(), conns.Default()
	return []cli.Flag{
		&cli.IntFlag{Name: "rooms", Value: d.Rooms, Usage: "of compare chat: channels"},
		&cli.IntFlag{Name: "users", Value: d.Users, Usage: "of compare chat: connections in each room"},
		&cli.StringFlag{Name: "pace", Value: string(d.Pace), Usage: "of compare chat: turns or flood"},
		&cli.IntFlag{Name: "window", Value: d.Window, Usage: "of compare chat --pace flood: own messages on their way"},
		&cli.IntFlag{Name: "text-size", Value: d.TextSize, Usage: "of compare chat: `BYTES` of a message"},
		&cli.IntFlag{Name: "connections", Value: n.Connections[1], Usage: "of compare conns; its --rate 0 is as fast as possible"},
	}
}

// chatDriver reads the flags of driverFlags that are about chat; its errors are usage errors.
func chatDriver(c *cli.Context) (load.Driver, error) {
	d := chat.Driver{Config: chat.Default()}
	d.Rooms, d.Users, d.Pace = c.Int("rooms"), c.Int("users"), chat.Pace(c.String("pace"))
	d.Window, d.TextSize = c.Int("window"), c.Int("text-size")
	return d, d.Validate()
}

// connsDriver reads those that are about conns; its errors are usage errors.
func connsDriver(c *cli.Context) (load.Driver, error) {
	d := conns.Driver{Config: conns.Default()}
	rate, err := load.ParseRate(c.String("rate"))
	if err != nil {
		return nil, err
	}
	if rate.From != rate.To {
		return nil, fmt.Errorf("rate %v: conns takes one that does not move", rate)
	}
	d.Config.Connections, d.Rates, d.Warmup = []int{c.Int("connections")}, []float64{rate.From}, time.Second
	return d, d.Validate()
}
