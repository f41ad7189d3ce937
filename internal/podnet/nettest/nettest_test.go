package nettest

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHostsTalkOverALink(t *testing.T) {
	t.Parallel()
	a, b := New(t, "a"), New(t, "b")
	Link(a, "to-b", b, "to-a")
	a.Addr("to-b", "10.9.0.1/24")
	b.Addr("to-a", "10.9.0.2/24")
	a.Addr("to-b", "fd09::1/64")
	b.Addr("to-a", "fd09::2/64")
	for _, network := range []string{"tcp", "udp"} {
		for _, want := range [][2]string{{"10.9.0.2", "10.9.0.1"}, {"[fd09::2]", "fd09::1"}} {
			addr := b.Serve("bee", network, want[0]+":0")
			name, client, err := a.Ask(network, addr)
			if err != nil || name != "bee" || client != want[1] {
				t.Errorf("%s %s: got %q, %q, %v, want \"bee\", %q", network, addr, name, client, err, want[1])
			}
		}
	}
	if _, _, err := a.Ask("tcp", "10.9.0.2:9"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("ask a closed port: got %v, want connection refused", err)
	}
}

func TestBridgeJoinsManyHosts(t *testing.T) {
	t.Parallel()
	sw, a, b := New(t, "switch"), New(t, "a"), New(t, "b")
	Link(sw, "pa", a, "eth0")
	Link(sw, "pb", b, "eth0")
	sw.Bridge("br0", "pa", "pb")
	a.Addr("eth0", "10.9.0.1/24")
	b.Addr("eth0", "10.9.0.2/24")
	if name, _, err := a.Ask("udp", b.Serve("bee", "udp", "10.9.0.2:0")); err != nil || name != "bee" {
		t.Errorf("got %q, %v, want \"bee\"", name, err)
	}
}

func TestNothingIsLeftAfterATest(t *testing.T) {
	t.Parallel()
	var path string
	t.Run("make", func(t *testing.T) {
		h := New(t, "gone")
		path = h.Path()
		h.Serve("x", "tcp", "127.0.0.1:0")
	})
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) && path != "" {
		t.Errorf("stat %s: got %v, want that it does not exist", path, err)
	}
}
