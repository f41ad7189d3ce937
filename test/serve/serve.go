// Package serve has servers on the loopback for tests that need somebody to talk to. It is for tests only.
package serve

import (
	"net"
	"testing"
)

// TCP serves each connection by a goroutine of its own, until the test ends, and closes it when that returns. It
// returns its address, "127.0.0.1:40123".
func TCP(t testing.TB, each func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c)
			}()
		}
	}()
	return l.Addr().String()
}
