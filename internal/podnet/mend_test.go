package podnet

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/test/wait"
)

func TestRunMendsWhatOthersTakeAway(t *testing.T) {
	t.Parallel()
	bin := plugins(t)
	n, _, outside := twoNodes(t)
	a, b := nettest.New(t, "a"), nettest.New(t, "b")
	ips := map[*nettest.Host][]netip.Addr{}
	for _, pod := range []*nettest.Host{a, b} {
		ips[pod] = n.attach(bin, pod)
	}
	n.net.pause = 50 * time.Millisecond
	n.keep()
	world := make([]string, 2)
	for i := range world {
		b.Serve("b", "tcp", netip.AddrPortFrom(ips[b][i], 8080).String())
		world[i] = outside.Serve("world", "udp", netip.AddrPortFrom(n.peer(3).Addrs[i], 0).String())
	}
	bridge := func() netlink.Link {
		l, err := n.Netlink().LinkByName("kemudi0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, fault := range []struct {
		name string
		make func() error
	}{
		{"bridge deleted", func() error { return n.Netlink().LinkDel(bridge()) }},
		{"bridge set down", func() error { return n.Netlink().LinkSetDown(bridge()) }},
		{"bridge without addresses", func() error {
			list, err := n.Netlink().AddrList(bridge(), netlink.FAMILY_ALL)
			for _, addr := range list {
				if err == nil && !addr.IP.IsLinkLocalUnicast() {
					err = n.Netlink().AddrDel(bridge(), &addr)
				}
			}
			return err
		}},
		{"forwarding off", func() error {
			return n.Do(func() error {
				err := writeSysctl("net/ipv4/ip_forward", "0")
				if err == nil {
					err = writeSysctl("net/ipv6/conf/all/forwarding", "0")
				}
				return err
			})
		}},
	} {
		if err := fault.make(); err != nil {
			t.Fatalf("%s: %v", fault.name, err)
		}
		within(t, fault.name, func() (err error) {
			n.Must(func() error {
				var what string
				if what, err = n.net.amiss(); err == nil && what != "" {
					err = fmt.Errorf("amiss: %s", what)
				}
				return nil
			})
			return err
		})
		for i := range world {
			within(t, fault.name, func() error {
				return ask(a, "tcp "+netip.AddrPortFrom(ips[b][i], 8080).String(), "b", ips[a][i].String())
			})
			within(t, fault.name, func() error { return ask(a, "udp "+world[i], "world", n.peer(1).Addrs[i].String()) })
		}
	}
}

// within tries until it works.
func within(t *testing.T, what string, try func() error) {
	t.Helper()
	if err := wait.Try(wait.Patience, try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestFirewallThatDropsForwardedIsToldOf(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("there is no nft")
	}
	h := nettest.New(t, "n1")
	told := make(chan string, 8)
	n := newNode(t, h, 1)
	n.net.o.Trouble = func(message string) { told <- message }
	n.keep()
	for _, policy := range []string{"accept", "drop"} {
		h.Must(func() error {
			out, err := exec.Command("nft", "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy "+policy+"; }").CombinedOutput()
			if err != nil {
				err = fmt.Errorf("nft: %w: %s", err, out)
			}
			return err
		})
	}
	select {
	case got := <-told:
		if want := "(ip filter FORWARD): pods may be cut off. Let pass what comes from and goes to kemudi0: iptables -I FORWARD -i kemudi0 -j ACCEPT; iptables -I FORWARD -o kemudi0 -j ACCEPT"; !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	case <-time.After(wait.Patience):
		t.Error("nobody was told")
	}
}
