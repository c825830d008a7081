package client_test

import (
	"bufio"
	"context"
	"fmt"
	"net"

	"kvmark/client"
)

// Two Sets in one batch. The server here answers whatever comes; a real one is kvserver or Redis.
func ExampleConn() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		in := bufio.NewScanner(nc) // a SET is seven lines of RESP
		for line := 1; in.Scan(); line++ {
			if line%7 == 0 {
				_, _ = nc.Write([]byte("+OK\r\n"))
			}
		}
	}()
	c, err := client.Dial(context.Background(), ln.Addr().String(), client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	c.QueueSet([]byte("a"), []byte("1"))
	c.QueueSet([]byte("b"), []byte("2"))
	if err := c.Flush(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(c.ReceiveSet(), c.ReceiveSet())
	// Output: <nil> <nil>
}
