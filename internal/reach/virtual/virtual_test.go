package virtual

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// families are the addresses of a test's network in both: that which moves, and those of
// the three machines, which end in their number.
var families = map[string]struct{ virtual, network string }{
	"IPv4": {"10.9.0.100", "10.9.0.%d/24"},
	"IPv6": {"fd09::100", "fd09::%d/64"},
}

// lan is three machines at one switch: two servers that may hold an address, and a client.
type lan struct {
	*testing.T
	hosts   map[string]*nettest.Host
	virtual netip.Addr
}

func newLAN(t *testing.T, family string) *lan {
	t.Helper()
	l := &lan{T: t, hosts: map[string]*nettest.Host{}, virtual: netip.MustParseAddr(families[family].virtual)}
	middle := nettest.New(t, "switch")
	var ports []string
	for i, name := range []string{"a", "b", "client"} {
		h := nettest.New(t, name)
		nettest.Link(h, "eth0", middle, name)
		h.Sysctl("net/ipv6/conf/eth0/accept_dad", "0")
		h.Addr("eth0", fmt.Sprintf(families[family].network, i+1))
		l.hosts[name], ports = h, append(ports, name)
	}
	middle.Bridge("br0", ports...)
	for _, name := range []string{"a", "b"} {
		l.hosts[name].Serve(name, "tcp", "[::]:6443")
	}
	return l
}

// hold has a machine hold the address until the returned function is called, or the test ends.
func (l *lan) hold(name string) (end func()) {
	l.Helper()
	var a *Address
	l.hosts[name].Must(func() (err error) {
		a, err = Open(l.virtual)
		return err
	})
	g := task.NewGroup(l.Context())
	g.Go("hold", a.Hold)
	end = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			l.Error(err)
		}
		if err := a.Close(); err != nil {
			l.Error(err)
		}
	})
	l.Cleanup(end)
	return end
}

// wantAt waits until the client finds the address at a machine.
func (l *lan) wantAt(name string) {
	l.Helper()
	wait.Until(l, func() error {
		got, _, err := l.hosts["client"].Ask("tcp", net.JoinHostPort(l.virtual.String(), "6443"))
		if err != nil || got != name {
			return fmt.Errorf("the address is at %q, %v, want %s", got, err, name)
		}
		return nil
	})
}

// has reports whether a machine has the address.
func (l *lan) has(name string) bool {
	found := false
	l.hosts[name].Must(func() error {
		all, err := net.InterfaceAddrs()
		for _, a := range all {
			found = found || strings.HasPrefix(a.String(), l.virtual.String()+"/")
		}
		return err
	})
	return found
}

func TestAddressMovesToWhoHoldsIt(t *testing.T) {
	t.Parallel()
	for family := range families {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t, family)
			for range 2 {
				for _, name := range []string{"a", "b"} {
					end := l.hold(name)
					l.wantAt(name)
					end()
					if l.has(name) {
						t.Errorf("machine %s has the address that it does not hold any more", name)
					}
				}
			}
		})
	}
}

// TestAddressIsTakenFromWhoWasKilled has a machine whose kernel has the address, and
// nobody who looks after it.
func TestAddressIsTakenFromWhoWasKilled(t *testing.T) {
	t.Parallel()
	for family := range families {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t, family)
			l.hosts["a"].Addr("eth0", netip.PrefixFrom(l.virtual, l.virtual.BitLen()).String())
			l.wantAt("a")
			l.hold("b")
			l.wantAt("b")
			// It is started again, and holds nothing yet.
			l.hosts["a"].Must(func() error {
				a, err := Open(l.virtual)
				if err != nil {
					return err
				}
				return a.Close()
			})
			if l.has("a") {
				t.Error("the address is still there after the start")
			}
		})
	}
}

func TestAddressOfNoNetworkIsRefused(t *testing.T) {
	t.Parallel()
	h := nettest.New(t, "alone")
	h.Must(func() error {
		if _, err := Open(netip.MustParseAddr("10.9.0.100")); err == nil || !strings.Contains(err.Error(), "--virtual-ip 10.9.0.100: no link of this machine") {
			t.Errorf("got %v", err)
		}
		return nil
	})
	h.Addr("lo", "10.9.0.1/24")
	h.Must(func() error {
		if _, err := Open(netip.MustParseAddr("10.9.0.100")); err == nil || !strings.Contains(err.Error(), "link lo is no Ethernet") {
			t.Errorf("got %v", err)
		}
		return nil
	})
}
