package port

import (
	"net"
	"strings"
	"testing"
)

func TestReservedPortIsTheCallersAlone(t *testing.T) {
	kept := map[int]bool{}
	for range 200 {
		kept[int(Reserve(t))] = true
	}
	if len(kept) != 200 {
		t.Errorf("got %d ports, want 200 different ones", len(kept))
	}
	// So many that of 200 ports some would be met.
	for i := range 4000 {
		l, err := net.Listen("tcp", [...]string{"127.0.0.1:0", ":0"}[i%2])
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := l.Addr().(*net.TCPAddr).Port; kept[got] {
			t.Fatalf("port %d was given to who asked for any", got)
		}
		if i%10 == 0 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got := c.LocalAddr().(*net.TCPAddr).Port; kept[got] {
				t.Fatalf("port %d was given to a connection", got)
			}
		}
	}
}

func TestOwnerListensAgainAndAgain(t *testing.T) {
	at := Address(t)
	for _, where := range []string{at, strings.Replace(at, "127.0.0.1", "", 1), at} {
		l, err := net.Listen("tcp", where)
		if err != nil {
			t.Fatalf("listen at %s: %v", where, err)
		}
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("somebody answers where nobody listens")
	}
}
