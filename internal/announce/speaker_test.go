package announce

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// families are the addresses of a test's network in both.
var families = map[string]struct{ balancer, network string }{
	"IPv4": {"10.9.0.100", "10.9.0.%d/24"},
	"IPv6": {"fd09::100", "fd09::%d/64"},
}

// lan is machines at one switch that may hold an address, and a client.
type lan struct {
	*testing.T
	hosts map[string]*nettest.Host
	addr  netip.Addr
}

func newLAN(t *testing.T, family string) *lan {
	t.Helper()
	l := &lan{T: t, hosts: map[string]*nettest.Host{}, addr: netip.MustParseAddr(families[family].balancer)}
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
		// What the service proxy is elsewhere: the address leads to a server here.
		l.hosts[name].Addr("lo", netip.PrefixFrom(l.addr, l.addr.BitLen()).String())
		l.hosts[name].Sysctl("net/ipv4/conf/all/arp_ignore", "1")
		l.hosts[name].Sysctl("net/ipv4/conf/all/arp_announce", "2")
		l.hosts[name].Serve(name, "tcp", net.JoinHostPort(l.addr.String(), "80"))
	}
	return l
}

// machine is a Speaker in a host.
type machine struct {
	s       *Speaker
	reports chan Report
	end     func()
}

// speak has a machine speak for the address until end is called, or the test ends.
func (l *lan) speak(name string, nodes ...string) *machine {
	l.Helper()
	m := &machine{reports: make(chan Report, 100)}
	m.s = NewSpeaker(Options{Node: name, Cluster: "c", Log: slog.New(slog.DiscardHandler), Report: func(r Report) { m.reports <- r }})
	m.s.open = func(addr netip.Addr) (w *wire, err error) {
		err = l.hosts[name].Do(func() error {
			w, err = openWire(addr)
			return err
		})
		return w, err
	}
	m.s.Set([]Want{{Addr: l.addr, Nodes: nodes, Number: 1}})
	g := task.NewGroup(l.Context())
	g.Go("speak", m.s.Run)
	m.end = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			l.Error(err)
		}
	})
	l.Cleanup(m.end)
	return m
}

// wantAt waits until the client finds the address at a machine.
func (l *lan) wantAt(name string) {
	l.Helper()
	wait.Until(l, func() error {
		got, _, err := l.hosts["client"].Ask("tcp", net.JoinHostPort(l.addr.String(), "80"))
		if err != nil || got != name {
			return fmt.Errorf("the address is at %q, %v, want %s", got, err, name)
		}
		return nil
	})
}

func TestAddressIsAnsweredForByOneMachine(t *testing.T) {
	t.Parallel()
	for family := range families {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t, family)
			a, b := l.speak("a", "a", "b"), l.speak("b", "a", "b")
			l.wantAt("a")
			if got := <-a.reports; got.Addr != l.addr || got.Link != "eth0" || got.Foreign != "" {
				t.Errorf("got %+v", got)
			}
			// It is drained.
			for _, m := range []*machine{a, b} {
				m.s.Set([]Want{{Addr: l.addr, Nodes: []string{"b"}, Number: 2}})
			}
			l.wantAt("b")
			// And goes in order.
			for _, m := range []*machine{a, b} {
				m.s.Set([]Want{{Addr: l.addr, Nodes: []string{"b", "a"}, Number: 3}})
			}
			l.wantAt("b")
			b.end()
			l.wantAt("a")
		})
	}
}

// TestAddressIsTakenOverWhenItsMachineDies pulls the cable of who holds it.
func TestAddressIsTakenOverWhenItsMachineDies(t *testing.T) {
	t.Parallel()
	for family := range families {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t, family)
			l.speak("a", "a", "b")
			b := l.speak("b", "a", "b")
			l.wantAt("a")
			link, err := l.hosts["a"].Netlink().LinkByName("eth0")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.hosts["a"].Netlink().LinkSetDown(link); err != nil {
				t.Fatal(err)
			}
			died := time.Now()
			if got := <-b.reports; got.Foreign != "" {
				t.Errorf("got %+v", got)
			}
			t.Logf("it was taken over after %s", time.Since(died))
			l.wantAt("b")
			// It comes back.
			l.hosts["a"].Up("eth0")
			if family == "IPv6" { // which the kernel takes from a link that is down
				l.hosts["a"].Addr("eth0", "fd09::1/64")
			}
			l.wantAt("a")
		})
	}
}

func TestAddressThatAnotherMachineHasIsNotUsed(t *testing.T) {
	t.Parallel()
	for family := range families {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t, family)
			l.hosts["client"].Addr("eth0", netip.PrefixFrom(l.addr, l.addr.BitLen()).String())
			a := l.speak("a", "a")
			got := <-a.reports
			var link net.Interface
			l.hosts["client"].Must(func() error {
				i, err := net.InterfaceByName("eth0")
				if err == nil {
					link = *i
				}
				return err
			})
			if got.Foreign != link.HardwareAddr.String() {
				t.Errorf("got %+v, want it at %s", got, link.HardwareAddr)
			}
		})
	}
}

func TestKernelHandsOverWhatIsAboutTheAddresses(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, mostFiltered, mostFiltered + 1} {
		for _, first := range []string{"192.0.2.0", "2001:db8::"} {
			var addrs []netip.Addr
			for a := netip.MustParseAddr(first); len(addrs) < n; a = a.Next() {
				addrs = append(addrs, a)
			}
			program := filterOf(addrs, netip.MustParseAddr(first).Is6())
			for i, op := range program {
				if int(op.Jt)+i+1 >= len(program) && i+1 < len(program) {
					t.Errorf("%d addresses: instruction %d leads behind the end", n, i)
				}
			}
			if len(program) > 255 && slices.ContainsFunc(addrs, netip.Addr.Is6) {
				t.Errorf("%d addresses: got %d instructions", n, len(program))
			}
		}
	}
}
