package podnet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// site is a cluster of three nodes with a pod on each: the first two are neighbours.
type site struct {
	t      *testing.T
	wire   *nettest.Host // that of neighbours
	router *nettest.Host // nil: all are neighbours
	nodes  []*node
	pods   []*nettest.Host
	ips    [][]netip.Addr // of the pods
	at     []Peer
}

// families says of which families the addresses of nodes and of pods are.
type families struct{ nodes, pods string }

func (f families) String() string { return "nodes with " + f.nodes + ", pods with " + f.pods }

func pick(families, four, six string) (list []string) {
	if families != "IPv6" {
		list = append(list, four)
	}
	if families != "IPv4" {
		list = append(list, six)
	}
	return list
}

// newSite makes the cluster on one wire, or with its third node behind a router.
func newSite(t *testing.T, routed bool, f families, mode Mode) *site {
	t.Helper()
	bin := plugins(t)
	sw, router := nettest.New(t, "switch"), nettest.New(t, "router")
	s := &site{t: t, wire: sw}
	router.Router()
	var hosts []*nettest.Host
	for i := range 3 {
		h := nettest.New(t, fmt.Sprintf("n%d", i+1))
		hosts = append(hosts, h)
		subnet := 1
		if routed && i == 2 {
			subnet = 2
			nettest.Link(router, "far", h, "eth0")
		} else {
			nettest.Link(sw, fmt.Sprintf("p%d", i), h, "eth0")
		}
		var p Peer
		for _, a := range pick(f.nodes, fmt.Sprintf("192.168.%d.%d/24", subnet, i+1), fmt.Sprintf("fd00:%d::%d/64", subnet, i+1)) {
			h.Addr("eth0", a)
			p.Addrs = append(p.Addrs, netip.MustParsePrefix(a).Addr())
		}
		p.PodCIDRs = mustPrefixes(pick(f.pods, fmt.Sprintf("10.244.%d.0/24", i+1), fmt.Sprintf("fd00:244:0:%d::/64", i+1))...)
		s.at = append(s.at, p)
	}
	if routed {
		nettest.Link(sw, "p9", router, "near")
		sw.Bridge("br0", "p0", "p1", "p9")
		for i, link := range []string{"near", "far"} {
			for _, a := range pick(f.nodes, fmt.Sprintf("192.168.%d.254/24", i+1), fmt.Sprintf("fd00:%d::254/64", i+1)) {
				router.Addr(link, a)
			}
		}
		for i, h := range hosts {
			for j, a := range pick(f.nodes, "192.168.%d.254", "fd00:%d::254") {
				h.Route(pick(f.nodes, "0.0.0.0/0", "::/0")[j], fmt.Sprintf(a, 1+i/2))
			}
		}
		s.router = router
	} else {
		sw.Bridge("br0", "p0", "p1", "p2")
	}
	for i, h := range hosts {
		n := newNodeWith(t, h, Options{
			Mode: mode, PodCIDRs: s.at[i].PodCIDRs,
			ClusterCIDRs: mustPrefixes(pick(f.pods, "10.244.0.0/16", "fd00:244::/48")...),
		})
		n.net.pause = 50 * time.Millisecond
		pod := nettest.New(t, fmt.Sprintf("pod%d", i+1))
		s.nodes, s.pods, s.ips = append(s.nodes, n), append(s.pods, pod), append(s.ips, n.attach(bin, pod))
	}
	return s
}

// meet tells every node of the others.
func (s *site) meet() {
	s.t.Helper()
	for i := range s.nodes {
		s.tell(i)
	}
}

func (s *site) tell(i int) {
	s.t.Helper()
	s.nodes[i].Must(func() error {
		for j, p := range s.at {
			if i != j {
				if err := s.nodes[i].net.Routes.Update(s.t.Context(), fmt.Sprintf("n%d", j+1), p); err != nil {
					return err
				}
			}
		}
		return s.nodes[i].net.Routes.Prune(s.t.Context())
	})
}

// check has pods and nodes talk with each other, in small and large packets.
func (s *site) check() {
	s.t.Helper()
	for j := range s.pods {
		for _, ip := range s.ips[j] {
			name := s.pods[j].Name
			tcp := s.pods[j].Serve(name, "tcp", netip.AddrPortFrom(ip, 0).String())
			udp := echo(s.t, s.pods[j], ip)
			for i := range s.pods {
				if i == j {
					continue
				}
				self := s.ips[i][slices.IndexFunc(s.ips[i], func(a netip.Addr) bool { return a.Is4() == ip.Is4() })]
				if err := ask(s.pods[i], "tcp "+tcp, name, self.String()); err != nil {
					s.t.Error(err)
				}
				if err := ask(s.nodes[i].Host, "tcp "+tcp, name, ""); err != nil {
					s.t.Error(err)
				}
				if err := stream(s.pods[i], tcp, 1<<20); err != nil {
					s.t.Errorf("pod %d streams to %s: %v", i+1, tcp, err)
				}
				if err := datagrams(s.pods[i], udp, 1, 1350, 1402, 1422, 1423, 1452, 1472, 1473, 4000); err != nil {
					s.t.Errorf("pod %d: %v", i+1, err)
				}
			}
		}
	}
}

// echo answers datagrams of any size with themselves until the test ends.
func echo(t *testing.T, h *nettest.Host, ip netip.Addr) string {
	t.Helper()
	var c net.PacketConn
	h.Must(func() (err error) {
		c, err = net.ListenPacket("udp", netip.AddrPortFrom(ip, 0).String())
		return err
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = c.WriteTo(buf[:n], from)
			}
		}
	})
	t.Cleanup(func() {
		_ = c.Close()
		wg.Wait()
	})
	return c.LocalAddr().String()
}

// datagrams sends datagrams and waits for them to come back, each again if it is
// lost: the first one that is larger than the way takes is lost while the sender
// is told so.
func datagrams(from *nettest.Host, addr string, sizes ...int) error {
	c, err := from.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 1<<16)
	for _, size := range sizes {
		sent := bytes.Repeat([]byte{byte(size)}, size)
		if err := wait.Try(wait.Patience, func() error {
			if _, err := c.Write(sent); err != nil {
				return fmt.Errorf("datagram of %d bytes to %s: %w", size, addr, err)
			}
			_ = c.SetReadDeadline(time.Now().Add(2 * time.Second)) // then the next one
			for {
				n, err := c.Read(buf)
				if err != nil {
					return fmt.Errorf("datagram of %d bytes to %s: %w", size, addr, err)
				}
				if n == size { // not a late one
					return nil
				}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// stream sends bytes to a server that sends them back.
func stream(from *nettest.Host, addr string, size int) error {
	c, err := from.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, _, err := nettest.AskOn(c); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(wait.Patience))
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err = c.Write(make([]byte, size))
	})
	n, readErr := io.CopyN(io.Discard, c, int64(size))
	wg.Wait()
	if err = errors.Join(err, readErr); err != nil {
		return fmt.Errorf("%d of %d bytes came back: %w", n, size, err)
	}
	return nil
}

// devices lists the VXLAN devices of a node.
func (n *node) devices() (list []string) {
	links, err := n.Netlink().LinkList()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, l := range links {
		if l.Type() == "vxlan" {
			list = append(list, l.Attrs().Name)
		}
	}
	return list
}

func TestPodsOfNodesThatAreNeighboursNeedNoVXLAN(t *testing.T) {
	t.Parallel()
	for _, f := range []families{{"IPv4", "IPv4"}, {"IPv6", "IPv6"}, {"both", "both"}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, false, f, Auto)
			s.meet()
			trace.Proves(t, "CONN-002", "CONN-005", "CONN-006")
			s.check()
			for _, n := range s.nodes {
				if got := n.devices(); len(got) > 0 {
					t.Errorf("%s has devices %q, want none", n.Name, got)
				}
			}
		})
	}
}

func TestPodsBehindARouterAreReachedByVXLAN(t *testing.T) {
	t.Parallel()
	for f, want := range map[families]string{
		{"IPv4", "IPv4"}: "kemudi-vxlan4", {"IPv6", "IPv6"}: "kemudi-vxlan6", {"both", "both"}: "kemudi-vxlan4",
		{"IPv4", "both"}: "kemudi-vxlan4", {"IPv6", "both"}: "kemudi-vxlan6", {"IPv6", "IPv4"}: "kemudi-vxlan6",
	} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, true, f, Auto)
			s.meet()
			trace.Proves(t, "CONN-002", "CONN-005", "CONN-006")
			s.check()
			for _, n := range s.nodes {
				if got := n.devices(); !slices.Equal(got, []string{want}) {
					t.Errorf("%s has devices %q, want %s", n.Name, got, want)
				}
			}
			if f.nodes == "both" || f.nodes == f.pods { // the neighbour is sent to directly
				routes, err := s.nodes[0].Netlink().RouteGet(s.ips[1][0].AsSlice())
				if err != nil || len(routes) != 1 || routes[0].Gw.String() != s.at[1].Addrs[0].String() {
					t.Errorf("route to a neighbour's pod: got %v, %v, want one via %s", routes, err, s.at[1].Addrs[0])
				}
			}
		})
	}
}

// kept is what the kernel of a node has for its peers, as people would write it.
func (n *node) kept() (list []string) {
	n.t.Helper()
	found, err := ourRoutes(n.Netlink())
	if err != nil {
		n.t.Fatal(err)
	}
	name := func(index int) string {
		l, err := n.Netlink().LinkByIndex(index)
		if err != nil {
			return fmt.Sprint(index)
		}
		return l.Attrs().Name
	}
	for _, r := range found {
		switch {
		case r.Type == unix.RTN_UNREACHABLE:
			list = append(list, fmt.Sprintf("route %s refused", r.Dst))
		case r.Gw != nil:
			list = append(list, strings.TrimSuffix(fmt.Sprintf("route %s via %s on %s mtu %d", r.Dst, r.Gw, name(r.LinkIndex), r.MTU), " mtu 0"))
		}
	}
	for _, d := range n.devices() {
		link, err := n.Netlink().LinkByName(d)
		if err != nil {
			n.t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("link %s %s mtu %d", d, link.Attrs().HardwareAddr, link.Attrs().MTU))
		for _, family := range []int{unix.AF_BRIDGE, netlink.FAMILY_V4, netlink.FAMILY_V6} {
			neighs, err := n.Netlink().NeighList(link.Attrs().Index, family)
			if err != nil {
				n.t.Fatal(err)
			}
			if family == unix.AF_BRIDGE {
				list = append(list, n.ports(d)...)
			}
			for _, e := range neighs {
				if !e.IP.IsMulticast() {
					list = append(list, fmt.Sprintf("%s is at %s on %s", e.HardwareAddr, e.IP, d))
				}
			}
		}
	}
	slices.Sort(list)
	return list
}

// ports are the forwarding entries of a device that name a port, as a program of others reads them.
func (n *node) ports(device string) (list []string) {
	n.t.Helper()
	var out []byte
	err := n.Do(func() (err error) {
		out, err = exec.Command("bridge", "fdb", "show", "dev", device).CombinedOutput()
		return err
	})
	if err != nil {
		n.t.Fatalf("bridge fdb: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if mac, rest, ok := strings.Cut(line, " dst "); ok && strings.Contains(rest, " port ") {
			_, port, _ := strings.Cut(rest, " port ")
			list = append(list, fmt.Sprintf("%s by port %s", mac, strings.Fields(port)[0]))
		}
	}
	return list
}

func (n *node) wantKept(what string, want ...string) {
	n.t.Helper()
	slices.Sort(want)
	if got := n.kept(); !slices.Equal(got, want) {
		n.t.Errorf("%s: %s has\n%s\nwant\n%s", what, n.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// changes tells what changes of links, addresses, routes and forwarding tables of a
// node until what it returns is called. The kernel's own changes to addresses that it
// still looks for on the links are over by then.
func (n *node) changes() func() []string {
	n.t.Helper()
	wait.Until(n.t, func() error {
		all, err := n.Netlink().AddrList(nil, netlink.FAMILY_V6)
		for _, a := range all {
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				return fmt.Errorf("%s is still looked for", a.IPNet)
			}
		}
		return err
	})
	var g *nft.Groups
	n.Must(func() (err error) {
		g, err = nft.Join(unix.NETLINK_ROUTE, "changes", unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
		return err
	})
	n.t.Cleanup(g.Close)
	return func() (seen []string) {
		n.t.Helper()
		marker := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "marker"}, PeerName: "marker2"}
		if err := n.Netlink().LinkAdd(marker); err != nil {
			n.t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(n.t.Context(), wait.Patience)
		defer cancel()
		if err := g.Next(ctx, func(m nft.Message) bool {
			if m.Type == unix.RTM_NEWLINK && bytes.Contains(m.Body, []byte("marker")) {
				return true
			}
			learned := (m.Type == unix.RTM_NEWNEIGH || m.Type == unix.RTM_DELNEIGH) && m.Body[0] != unix.AF_BRIDGE
			if !learned {
				seen = append(seen, fmt.Sprintf("message %d: %x", m.Type, m.Body))
			}
			return false
		}); err != nil {
			n.t.Fatal(err)
		}
		return seen
	}
}

// again makes a network as the next process on the node would.
func (n *node) again() {
	n.t.Helper()
	n.net = nil
	n.ensure()
	n.net.pause = 50 * time.Millisecond
}

func TestRestartKeepsWhatIsRightAndRemovesWhatIsNot(t *testing.T) {
	t.Parallel()
	s := newSite(t, true, families{"both", "both"}, Auto)
	n := s.nodes[0]
	n.wantKept("alone")
	s.meet()
	near := []string{
		"route 10.244.0.0/16 refused", "route fd00:244::/48 refused",
		"route 10.244.2.0/24 via 192.168.1.2 on eth0", "route fd00:244:0:2::/64 via fd00:1::2 on eth0",
	}
	want := append(slices.Clone(near),
		"link kemudi-vxlan4 0a:4b:0a:f4:01:00 mtu 1450",
		"0a:4b:0a:f4:03:00 is at 192.168.2.3 on kemudi-vxlan4",
		"0a:4b:0a:f4:03:00 is at 10.244.3.0 on kemudi-vxlan4",
		"0a:4b:0a:f4:03:00 is at fe80::a4b:af4:300 on kemudi-vxlan4",
		"route 10.244.3.0/24 via 10.244.3.0 on kemudi-vxlan4 mtu 1450",
		"route fd00:244:0:3::/64 via fe80::a4b:af4:300 on kemudi-vxlan4 mtu 1450",
	)
	n.wantKept("with its peers", want...)
	changes := n.changes()
	n.again()
	s.tell(0)
	n.wantKept("restarted", want...)
	if got := changes(); len(got) > 0 {
		t.Errorf("a restart changed %d things, want none:\n%s", len(got), strings.Join(got, "\n"))
	}
	// While nobody ran, the far node went.
	n.again()
	n.Must(func() error {
		return errors.Join(n.net.Routes.Update(t.Context(), "n2", s.at[1]), n.net.Routes.Prune(t.Context()))
	})
	n.wantKept("after the far node went", near...)
	n.again()
	n.Must(func() error { return n.net.Routes.Prune(t.Context()) })
	n.wantKept("alone again")
}

func TestProcessMayEndBetweenAnyTwoChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t, true, families{"both", "both"}, Auto)
	s.meet()
	n := s.nodes[0]
	want := n.kept()
	moved := s.at[2]
	moved.Addrs = mustAddrs("192.168.2.30", "fd00:2::30")
	killed := errors.New("killed")
	for at := 1; ; at++ {
		// One process loses its life while it brings about what is new, the next one while it
		// goes back to what was.
		ended := false
		for _, far := range []Peer{moved, s.at[2]} {
			n.again()
			calls := 0
			n.net.Routes.touch = func() error {
				if calls++; calls >= at {
					ended = true
					return killed
				}
				return nil
			}
			n.Must(func() error {
				_ = n.net.Routes.Update(t.Context(), "n3", far)
				_ = n.net.Routes.Delete(t.Context(), "n3")
				_ = n.net.Routes.Update(t.Context(), "n2", far)
				_ = n.net.Routes.Prune(t.Context())
				_ = n.net.Routes.Delete(t.Context(), "n2")
				return nil
			})
		}
		n.again()
		s.tell(0)
		n.wantKept(fmt.Sprintf("ended before change %d", at), want...)
		if !ended || t.Failed() {
			break
		}
	}
	s.check()
}

func mustAddrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestConnectionsOutliveTheMoveOfANode(t *testing.T) {
	t.Parallel()
	for _, f := range []families{{"IPv4", "IPv4"}, {"IPv6", "IPv6"}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, true, f, Auto)
			s.meet()
			far := s.nodes[2]
			for _, n := range s.nodes {
				n.keep()
			}
			addr := s.pods[2].Serve("far", "tcp", netip.AddrPortFrom(s.ips[2][0], 0).String())
			c, err := s.pods[0].Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, _, err := nettest.AskOn(c); err != nil {
				t.Fatal(err)
			}
			say := func(when string) {
				t.Helper()
				_ = c.SetDeadline(time.Now().Add(wait.Patience))
				buf := make([]byte, 100<<10)
				var wg sync.WaitGroup
				wg.Go(func() { _, err = c.Write(make([]byte, len(buf))) })
				_, readErr := io.ReadFull(c, buf)
				wg.Wait()
				if err := errors.Join(err, readErr); err != nil {
					t.Fatalf("%s: %v", when, err)
				}
			}
			say("before")
			// It gets another address behind the router.
			link, err := far.Netlink().LinkByName("eth0")
			if err != nil {
				t.Fatal(err)
			}
			gone := netip.PrefixFrom(s.at[2].Addrs[0], map[string]int{"IPv4": 24, "IPv6": 64}[f.nodes])
			addrs := pick(f.nodes, "192.168.2.33/24", "fd00:2::33/64")
			far.Addr("eth0", addrs[0])
			if err := far.Netlink().AddrDel(link, &netlink.Addr{IPNet: ipNet(gone)}); err != nil {
				t.Fatal(err)
			}
			if f.nodes == "IPv4" { // the kernel takes the routes away with the first address
				far.Addr("eth0", "192.168.2.33/25")
				_ = far.Netlink().AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("192.168.2.33/24"))})
				far.Addr("eth0", "192.168.2.33/24")
			}
			_ = far.Netlink().RouteReplace(&netlink.Route{Gw: netip.MustParseAddr(pick(f.nodes, "192.168.2.254", "fd00:2::254")[0]).AsSlice()})
			s.at[2].Addrs = mustAddrs(strings.Split(addrs[0], "/")[0])
			s.meet()
			say("after it moved behind the router")
			// It is carried to the others' wire.
			s.carry(2, 1)
			s.meet()
			say("after it became a neighbour")
			for _, n := range s.nodes {
				if got := n.devices(); len(got) > 0 {
					t.Errorf("%s has devices %q, want none", n.Name, got)
				}
			}
		})
	}
}

// carry moves a node behind the router to the wire of the other nodes.
func (s *site) carry(i, subnet int) {
	s.t.Helper()
	n := s.nodes[i]
	if err := s.router.Netlink().LinkDel(must(s.router.Netlink().LinkByName("far"))); err != nil {
		s.t.Fatal(err)
	}
	nettest.Link(s.wire, "p2", n.Host, "eth0")
	s.wire.Port("br0", "p2")
	var addrs []netip.Addr
	for _, a := range s.at[i].Addrs {
		to := fmt.Sprintf("192.168.%d.%d/24", subnet, i+1)
		if a.Is6() {
			to = fmt.Sprintf("fd00:%d::%d/64", subnet, i+1)
		}
		n.Addr("eth0", to)
		addrs = append(addrs, netip.MustParsePrefix(to).Addr())
	}
	s.at[i].Addrs = addrs
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestPodsOfANodeThatWentAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, true, families{"both", "both"}, Auto)
	s.meet()
	s.nodes[0].Must(func() error {
		return errors.Join(s.nodes[0].net.Routes.Delete(t.Context(), "n2"), s.nodes[0].net.Routes.Delete(t.Context(), "n3"))
	})
	for _, ips := range s.ips[1:] {
		for _, ip := range ips {
			for _, from := range []*nettest.Host{s.pods[0], s.nodes[0].Host} {
				start := time.Now()
				_, err := from.Dial("tcp", netip.AddrPortFrom(ip, 80).String())
				if !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) {
					t.Errorf("%s connects to %s: got %v after %s, want that there is no way", from.Name, ip, err, time.Since(start))
				}
			}
		}
	}
}

func TestWaysFollowTheMachineItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, true, families{"IPv4", "both"}, Auto)
	s.meet()
	n := s.nodes[0]
	n.keep()
	far := func(mtu, toFar int) []string {
		return []string{
			"route 10.244.0.0/16 refused", "route fd00:244::/48 refused",
			fmt.Sprintf("link kemudi-vxlan4 0a:4b:0a:f4:01:00 mtu %d", mtu),
			"0a:4b:0a:f4:03:00 is at 192.168.2.3 on kemudi-vxlan4",
			"0a:4b:0a:f4:03:00 is at 10.244.3.0 on kemudi-vxlan4",
			"0a:4b:0a:f4:03:00 is at fe80::a4b:af4:300 on kemudi-vxlan4",
			fmt.Sprintf("route 10.244.3.0/24 via 10.244.3.0 on kemudi-vxlan4 mtu %d", toFar),
			fmt.Sprintf("route fd00:244:0:3::/64 via fe80::a4b:af4:300 on kemudi-vxlan4 mtu %d", toFar),
			"0a:4b:0a:f4:02:00 is at 192.168.1.2 on kemudi-vxlan4",
			"0a:4b:0a:f4:02:00 is at fe80::a4b:af4:200 on kemudi-vxlan4",
			fmt.Sprintf("route fd00:244:0:2::/64 via fe80::a4b:af4:200 on kemudi-vxlan4 mtu %d", mtu),
		}
	}
	near := func(mtu, toFar int) []string {
		return append(far(mtu, toFar), "route 10.244.2.0/24 via 192.168.1.2 on eth0")
	}
	eventually := func(what string, want []string) {
		t.Helper()
		slices.Sort(want)
		within(t, what, func() error {
			if got := n.kept(); !slices.Equal(got, want) {
				return fmt.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			return nil
		})
	}
	n.wantKept("at first", near(1450, 1450)...)
	eth0 := must(n.Netlink().LinkByName("eth0"))
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(n.Netlink().LinkSetMTU(eth0, 1400))
	eventually("smaller MTU of the link", near(1350, 1350))
	ok(n.Netlink().LinkSetMTU(eth0, 1500))
	eventually("greater MTU of the link", near(1450, 1450))
	route := &netlink.Route{Dst: ipNet(netip.MustParsePrefix("192.168.2.0/24")), Gw: net.IPv4(192, 168, 1, 254), MTU: 1380}
	ok(n.Netlink().RouteAdd(route))
	eventually("route with an MTU", near(1450, 1330))
	ok(n.Netlink().RouteDel(route))
	eventually("route gone", near(1450, 1450))
	// The network gives the machine an address without neighbours, as some clouds do.
	n.Addr("eth0", "192.168.1.1/32")
	ok(n.Netlink().RouteAdd(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("192.168.1.254/32")), LinkIndex: eth0.Attrs().Index, Scope: netlink.SCOPE_LINK}))
	ok(n.Netlink().AddrDel(eth0, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("192.168.1.1/24"))}))
	_ = n.Netlink().RouteReplace(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("192.168.1.254/32")), LinkIndex: eth0.Attrs().Index, Scope: netlink.SCOPE_LINK})
	_ = n.Netlink().RouteReplace(&netlink.Route{Gw: net.IPv4(192, 168, 1, 254)})
	eventually("no neighbours", append(far(1450, 1450),
		"0a:4b:0a:f4:02:00 is at 10.244.2.0 on kemudi-vxlan4",
		"route 10.244.2.0/24 via 10.244.2.0 on kemudi-vxlan4 mtu 1450"))
	// Somebody takes the device away.
	ok(n.Netlink().LinkDel(must(n.Netlink().LinkByName("kemudi-vxlan4"))))
	eventually("device deleted", append(far(1450, 1450),
		"0a:4b:0a:f4:02:00 is at 10.244.2.0 on kemudi-vxlan4",
		"route 10.244.2.0/24 via 10.244.2.0 on kemudi-vxlan4 mtu 1450"))
	ok(n.Netlink().LinkSetDown(must(n.Netlink().LinkByName("kemudi-vxlan4"))))
	eventually("device set down", append(far(1450, 1450),
		"0a:4b:0a:f4:02:00 is at 10.244.2.0 on kemudi-vxlan4",
		"route 10.244.2.0/24 via 10.244.2.0 on kemudi-vxlan4 mtu 1450"))
}

func TestWhatIsNotOursIsLeftAndToldOf(t *testing.T) {
	t.Parallel()
	s := newSite(t, true, families{"IPv4", "IPv4"}, Auto)
	n := s.nodes[0]
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	update := func(j int) (err error) {
		n.Must(func() error {
			err = n.net.Routes.Update(t.Context(), fmt.Sprintf("n%d", j+1), s.at[j])
			return nil
		})
		return err
	}
	refuses := func(j int, want string) {
		t.Helper()
		if err := update(j); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("update of node %d: got %v, want an error with %q", j+1, err, want)
		}
	}
	// A device of the same name, of any kind.
	for _, l := range []netlink.Link{
		&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "kemudi-vxlan4"}},
		&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "kemudi-vxlan4"}, VxlanId: 3, Port: 8472},
	} {
		ok(n.Netlink().LinkAdd(l))
		refuses(2, "link of this name that is not ours")
		ok(n.Netlink().LinkDel(must(n.Netlink().LinkByName("kemudi-vxlan4"))))
	}
	// The same network.
	ok(n.Netlink().LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "other"}, VxlanId: 75, Port: 4789}))
	refuses(2, "--vxlan-id")
	ok(n.Netlink().LinkDel(must(n.Netlink().LinkByName("other"))))
	ok(update(2))
	// A route to the same pods.
	foreign := &netlink.Route{Dst: ipNet(s.at[1].PodCIDRs[0]), Gw: net.IPv4(192, 168, 1, 254)}
	ok(n.Netlink().RouteAdd(foreign))
	refuses(1, "not ours")
	if routes, err := n.Netlink().RouteGet(s.ips[1][0].AsSlice()); err != nil || !routes[0].Gw.Equal(foreign.Gw) {
		t.Errorf("route: got %v, %v, want the foreign one", routes, err)
	}
	ok(n.Netlink().RouteDel(foreign))
	ok(update(1))
	// A line of the forwarding table.
	index := must(n.Netlink().LinkByName("kemudi-vxlan4")).Attrs().Index
	other := &netlink.Neigh{LinkIndex: index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, IP: net.IPv4(9, 9, 9, 9), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	ok(n.Netlink().NeighSet(other))
	n.again()
	s.tell(0)
	if got := n.kept(); !slices.Contains(got, "02:00:00:00:00:01 is at 9.9.9.9 on kemudi-vxlan4") {
		t.Errorf("the foreign line is gone: %q", got)
	}
	// Nodes that say they have what is not theirs.
	for want, p := range map[string]Peer{
		"those of this node":      {PodCIDRs: mustPrefixes("10.244.0.0/20"), Addrs: s.at[2].Addrs},
		"not among those of the":  {PodCIDRs: mustPrefixes("11.0.0.0/8"), Addrs: s.at[2].Addrs},
		"one of this machine":     {PodCIDRs: mustPrefixes("10.244.9.0/24"), Addrs: s.at[0].Addrs},
		"taken for that of a pod": {PodCIDRs: mustPrefixes("10.244.9.0/24"), Addrs: s.ips[2]},
	} {
		n.Must(func() error {
			if err := n.net.Routes.Update(t.Context(), "liar", p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("update with %v: got %v, want an error with %q", p, err, want)
			}
			return nil
		})
	}
	s.meet()
	s.check()
}

func TestModesSayWhichWay(t *testing.T) {
	t.Parallel()
	for mode, want := range map[Mode][]string{
		None:       {},
		OnlyRoutes: {"route 10.244.2.0/24 via 192.168.1.2 on eth0"},
		OnlyVXLAN: {
			"route 10.244.0.0/16 refused", "link kemudi-vxlan4 0a:4b:0a:f4:01:00 mtu 1450",
			"0a:4b:0a:f4:02:00 is at 192.168.1.2 on kemudi-vxlan4", "0a:4b:0a:f4:02:00 is at 10.244.2.0 on kemudi-vxlan4", "route 10.244.2.0/24 via 10.244.2.0 on kemudi-vxlan4 mtu 1450",
			"0a:4b:0a:f4:03:00 is at 192.168.2.3 on kemudi-vxlan4", "0a:4b:0a:f4:03:00 is at 10.244.3.0 on kemudi-vxlan4", "route 10.244.3.0/24 via 10.244.3.0 on kemudi-vxlan4 mtu 1450",
		},
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, true, families{"IPv4", "IPv4"}, mode)
			s.meet()
			s.nodes[0].wantKept("in this mode", want...)
			if !mode.tunnels() { // the network knows the ways
				for i, via := range []string{"192.168.1.1", "192.168.1.2", "192.168.2.3"} {
					s.router.Route(fmt.Sprintf("10.244.%d.0/24", i+1), via)
				}
			}
			s.check()
		})
	}
}

func TestNodeBehindAddressTranslationIsReachedByTheAddressOfThat(t *testing.T) {
	t.Parallel()
	s := newSite(t, true, families{"IPv4", "both"}, Auto)
	const public = "192.168.1.200" // on the wire of the others, as if it were their neighbour
	s.router.Addr("near", public+"/24")
	const port = 4790 // as if there were further nodes behind the address
	s.translate(netip.AddrPortFrom(netip.MustParseAddr(public), port), "192.168.2.3")
	s.at[2].Addrs, s.at[2].Ports, s.at[2].Translated = mustAddrs(public), []uint16{port}, true
	s.meet()
	s.nodes[0].wantKept("with a peer that is translated", append([]string{
		"route 10.244.0.0/16 refused", "route fd00:244::/48 refused", "link kemudi-vxlan4 0a:4b:0a:f4:01:00 mtu 1450",
		"route 10.244.2.0/24 via 192.168.1.2 on eth0",
		"0a:4b:0a:f4:02:00 is at 192.168.1.2 on kemudi-vxlan4", "0a:4b:0a:f4:02:00 is at fe80::a4b:af4:200 on kemudi-vxlan4",
		"route fd00:244:0:2::/64 via fe80::a4b:af4:200 on kemudi-vxlan4 mtu 1450", "0a:4b:0a:f4:03:00 by port 4790",
	}, farWays(public)...)...)
	s.check()
	// A process that comes later finds it as it is, and can change it.
	s.nodes[0].again()
	s.tell(0)
	s.check()
	other := s.at[2]
	other.Ports = []uint16{s.nodes[0].net.Routes.o.VXLAN.Port} // the usual one
	s.nodes[0].Must(func() error { return s.nodes[0].net.Routes.Update(t.Context(), "n3", other) })
	if got := s.nodes[0].ports("kemudi-vxlan4"); len(got) != 0 {
		t.Errorf("after the port has become the usual one: got %q, want none", got)
	}
	// In a cluster of routes alone there is no way to it.
	s.nodes[0].o.Mode = OnlyRoutes
	s.nodes[0].again()
	s.tell(0)
	s.nodes[0].wantKept("with routes alone", "route 10.244.2.0/24 via 192.168.1.2 on eth0")
}

// farWays are what a node has for the third one, at an address.
func farWays(address string) []string {
	return []string{
		fmt.Sprintf("0a:4b:0a:f4:03:00 is at %s on kemudi-vxlan4", address),
		"0a:4b:0a:f4:03:00 is at 10.244.3.0 on kemudi-vxlan4",
		"0a:4b:0a:f4:03:00 is at fe80::a4b:af4:300 on kemudi-vxlan4",
		"route 10.244.3.0/24 via 10.244.3.0 on kemudi-vxlan4 mtu 1450",
		"route fd00:244:0:3::/64 via fe80::a4b:af4:300 on kemudi-vxlan4 mtu 1450",
	}
}

// translate has the router hide a machine behind an address, as clouds do: what the
// machine sends comes from that address, VXLAN sent to it goes to the machine, and
// nothing else does.
func (s *site) translate(public netip.AddrPort, machine string) {
	s.t.Helper()
	s.router.Must(func() error {
		conn, err := nft.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		tb := nft.Table{Family: nft.IPv4, Name: "nat"}
		addr := func(a string) []byte { return netip.MustParseAddr(a).AsSlice() }
		var b nft.Batch
		b.AddTable(tb)
		b.AddChain(tb, "out", &nft.Hook{Type: "nat", Num: unix.NF_INET_POST_ROUTING, Priority: 100})
		b.AddRule(tb, "out", nft.SourceAddr(nft.IPv4, nft.R0), nft.Equal(nft.R0, addr(machine)), nft.Masquerade())
		b.AddChain(tb, "in", &nft.Hook{Type: "nat", Num: unix.NF_INET_PRE_ROUTING, Priority: -100})
		b.AddRule(tb, "in", nft.DestinationAddr(nft.IPv4, nft.R0), nft.Equal(nft.R0, public.Addr().AsSlice()),
			nft.TransportProto(nft.R0), nft.Equal(nft.R0, []byte{unix.IPPROTO_UDP}),
			nft.DestinationPort(nft.R0), nft.Equal(nft.R0, binary.BigEndian.AppendUint16(nil, public.Port())),
			nft.Load(nft.R0, addr(machine)), nft.Load(nft.R0+1, []byte{4789 >> 8, 4789 & 0xff}), nft.DNAT(nft.IPv4, nft.R0, nft.R0+1))
		// Nobody outside knows a way to the machine itself.
		b.AddChain(tb, "guard", &nft.Hook{Type: "filter", Num: unix.NF_INET_PRE_ROUTING, Priority: -300})
		b.AddRule(tb, "guard", nft.DestinationAddr(nft.IPv4, nft.R0), nft.Equal(nft.R0, addr(machine)), nft.Do(nft.Drop, ""))
		return conn.Commit(s.t.Context(), &b)
	})
}

func TestPodsAreToldHowMuchTheWayCarries(t *testing.T) {
	t.Parallel()
	for f, want := range map[families]int{{"IPv4", "both"}: 1450, {"IPv6", "both"}: 1430} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, true, f, Auto)
			s.meet()
			for _, ip := range s.ips[2] {
				c, err := s.pods[0].Dial("udp", echo(t, s.pods[2], ip))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				carries := neverCut(t, c.(*net.UDPConn), ip.Is4())
				headers := 28
				if ip.Is6() {
					headers = 48
				}
				wait.Until(t, func() error {
					_, err := c.Write(make([]byte, 1500-headers)) // what the pod's own link carries
					if mtu := carries(); mtu != want {
						return fmt.Errorf("a datagram to %s: got %v, and that the way carries %d, want %d", ip, err, mtu, want)
					}
					return nil
				})
				if _, err := c.Write(make([]byte, want-headers+1)); !errors.Is(err, unix.EMSGSIZE) {
					t.Errorf("a byte too many to %s: got %v, want that it is too long", ip, err)
				}
				wait.Until(t, func() error {
					if _, err := c.Write(make([]byte, want-headers)); err != nil {
						return err
					}
					_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
					if n, err := c.Read(make([]byte, 1<<16)); n != want-headers {
						return fmt.Errorf("as much as the way to %s carries: got %d bytes back, %v, want %d", ip, n, err, want-headers)
					}
					return nil
				})
			}
		})
	}
}

// neverCut has a socket send whole packets only, and tells how much its way carries.
func neverCut(t *testing.T, c *net.UDPConn, four bool) (carries func() int) {
	t.Helper()
	level, discover, mtu, do := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_MTU, unix.IP_PMTUDISC_DO
	if !four {
		level, discover, mtu, do = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_MTU, unix.IPV6_PMTUDISC_DO
	}
	raw := must(c.SyscallConn())
	with := func(f func(fd int) error) {
		t.Helper()
		var err error
		if failed := raw.Control(func(fd uintptr) { err = f(int(fd)) }); failed != nil || err != nil {
			t.Fatal(failed, err)
		}
	}
	with(func(fd int) error { return unix.SetsockoptInt(fd, level, discover, do) })
	return func() (n int) {
		with(func(fd int) (err error) {
			n, err = unix.GetsockoptInt(fd, level, mtu)
			return err
		})
		return n
	}
}

func TestWayMayCarryLessThanItsLinkSays(t *testing.T) {
	t.Parallel()
	for _, f := range []families{{"IPv4", "both"}, {"IPv6", "both"}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, true, f, Auto)
			for h, link := range map[*nettest.Host]string{s.router: "far", s.nodes[2].Host: "eth0"} {
				if err := h.Netlink().LinkSetMTU(must(h.Netlink().LinkByName(link)), 1400); err != nil {
					t.Fatal(err)
				}
			}
			if f.nodes == "IPv6" { // nobody but the sender cuts packets of IPv6 into pieces
				for _, n := range s.nodes[:2] {
					narrow := &netlink.Route{Dst: ipNet(netip.MustParsePrefix("fd00:2::/64")), Gw: netip.MustParseAddr("fd00:1::254").AsSlice(), MTU: 1400}
					if err := n.Netlink().RouteAdd(narrow); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.meet()
			s.check()
		})
	}
}

func TestResetRemovesTheWaysToPeers(t *testing.T) {
	t.Parallel()
	s := newSite(t, true, families{"both", "both"}, Auto)
	n := s.nodes[0]
	s.meet()
	var removed, left []string
	n.Must(func() (err error) {
		if removed, err = Reset(t.Context(), n.o); err != nil {
			return err
		}
		left, err = Leftovers(t.Context(), n.o)
		return err
	})
	for _, want := range []string{"link kemudi-vxlan4", "route 10.244.0.0/16, unreachable", "route fd00:244:0:3::/64 via"} {
		if !slices.ContainsFunc(removed, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("removed %q, want also %q", removed, want)
		}
	}
	if len(left) > 0 || len(n.kept()) > 0 {
		t.Errorf("left after reset: %q, %q", left, n.kept())
	}
}
