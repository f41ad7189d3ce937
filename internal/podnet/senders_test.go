package podnet

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// who is a pod or the node as it shows on the bridge.
type who struct {
	mac      net.HardwareAddr
	ip4, ip6 netip.Addr
}

func (w who) local() netip.Addr { return linkLocal(w.mac) }

// whoIs reads the addresses of a link.
func whoIs(t *testing.T, h *nettest.Host, link string, ips []netip.Addr) who {
	t.Helper()
	l, err := h.Netlink().LinkByName(link)
	if err != nil {
		t.Fatal(err)
	}
	return who{l.Attrs().HardwareAddr, ips[0], ips[1]}
}

// sent is a frame, and whether it may pass.
type sent struct {
	name   string
	passes bool
	frame  []byte
}

// room is how much there is at the end of each packet for what it is known by.
const room = 16

func frame(from, to net.HardwareAddr, typ uint16, content []byte) []byte {
	return append(binary.BigEndian.AppendUint16(slices.Concat(to, from), typ), content...)
}

// packet4 is a datagram of UDP.
func packet4(from, to netip.Addr) []byte {
	const length = 20 + 8 + room
	p := slices.Concat([]byte{0x45, 0, 0, length, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, from.AsSlice(), to.AsSlice(), []byte{0x30, 0x39, 0x30, 0x39, 0, 8 + room, 0, 0}, make([]byte, room))
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	return p
}

func packet6(from, to netip.Addr, proto byte, content []byte) []byte {
	return slices.Concat([]byte{0x60, 0, 0, 0, 0, byte(len(content) + room), proto, 255}, from.AsSlice(), to.AsSlice(), content, make([]byte, room))
}

func udp6(from, to netip.Addr) []byte {
	return packet6(from, to, unix.IPPROTO_UDP, []byte{0x30, 0x39, 0x30, 0x39, 0, 8 + room, 1, 1})
}

// found is a message of neighbour discovery about an address.
func found(from, to netip.Addr, typ byte, about netip.Addr) []byte {
	return packet6(from, to, unix.IPPROTO_ICMPV6, slices.Concat([]byte{typ, 0, 1, 1, 0, 0, 0, 0}, about.AsSlice()))
}

func arp(op byte, mac net.HardwareAddr, ip netip.Addr, to who) []byte {
	return slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, op}, mac, ip.AsSlice(), to.mac, to.ip4.AsSlice(), make([]byte, room))
}

// triedFrames are what a pod a tries, with a neighbour b and the gateway g of both.
func triedFrames(a, b, g who) []sent {
	none, elsewhere := netip.IPv6Unspecified(), netip.MustParseAddr("203.0.113.9")
	ip := func(p []byte) []byte { return frame(a.mac, b.mac, unix.ETH_P_IP, p) }
	ip6 := func(p []byte) []byte { return frame(a.mac, b.mac, unix.ETH_P_IPV6, p) }
	ask := func(p []byte) []byte { return frame(a.mac, b.mac, unix.ETH_P_ARP, p) }
	mld := []byte{131, 0, 1, 1, 0, 0, 0, 0}
	return []sent{
		{"its own address", true, ip(packet4(a.ip4, b.ip4))},
		{"its own address of IPv6", true, ip6(udp6(a.ip6, b.ip6))},
		{"its link-local address", true, ip6(udp6(a.local(), b.local()))},
		{"ARP with its own address", true, ask(arp(1, a.mac, a.ip4, b))},
		{"ARP with no address", true, ask(arp(1, a.mac, netip.IPv4Unspecified(), b))},
		{"it says who it is", true, ip6(found(a.ip6, b.ip6, neighbour, a.ip6))},
		{"it asks who b is", true, ip6(found(a.local(), b.ip6, whoHas, b.ip6))},
		{"it asks whether it is alone", true, ip6(found(none, b.ip6, whoHas, a.local()))},
		{"it joins a group without an address", true, ip6(packet6(none, b.ip6, unix.IPPROTO_ICMPV6, mld))},
		{"something that is no IP", true, frame(a.mac, b.mac, 0x88b5, make([]byte, room))},

		{"the address of its neighbour", false, ip(packet4(b.ip4, b.ip4))},
		{"the address of the gateway", false, ip(packet4(g.ip4, b.ip4))},
		{"an address of elsewhere", false, ip(packet4(elsewhere, b.ip4))},
		{"no address", false, ip(packet4(netip.IPv4Unspecified(), b.ip4))},
		{"an address of elsewhere in a VLAN", false, frame(a.mac, b.mac, unix.ETH_P_8021Q, slices.Concat([]byte{0, 5, 8, 0}, packet4(elsewhere, b.ip4)))},
		{"another hardware address", false, frame(net.HardwareAddr{2, 0, 0, 0, 0, 9}, b.mac, unix.ETH_P_IP, packet4(a.ip4, b.ip4))},
		{"the address of IPv6 of the gateway", false, ip6(udp6(g.ip6, b.ip6))},
		{"the link-local address of the gateway", false, ip6(udp6(g.local(), b.local()))},
		{"UDP without an address of IPv6", false, ip6(udp6(none, b.ip6))},
		{"ARP: it is the gateway", false, ask(arp(2, a.mac, g.ip4, b))},
		{"ARP: its neighbour has the address", false, ask(arp(2, b.mac, a.ip4, b))},
		{"ARP of another form", false, ask(append([]byte{0, 6}, arp(2, a.mac, g.ip4, b)[2:]...))},
		{"it says that it is the gateway", false, ip6(found(a.ip6, b.ip6, neighbour, g.ip6))},
		{"it says that it is a router", false, ip6(found(a.local(), b.ip6, routerAdvert, a.local()))},
		{"it says who has another way", false, ip6(found(a.local(), b.ip6, redirectType, g.ip6))},
		{"it asks whether its neighbour is alone", false, ip6(found(none, b.ip6, whoHas, b.ip6))},
		{"without an address it says who it is", false, ip6(found(none, b.ip6, neighbour, b.ip6))},
	}
}

// wiretap has frames sent by one host, and sees which of them another gets.
type wiretap struct{ in, out int }

func tap(t *testing.T, from, to *nettest.Host) *wiretap {
	t.Helper()
	open := func(h *nettest.Host) (fd int) {
		h.Must(func() (err error) {
			l, err := h.Netlink().LinkByName("eth0")
			if err != nil {
				return err
			}
			all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
			if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
				return err
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
			_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
			return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Attrs().Index})
		})
		return fd
	}
	return &wiretap{open(to), open(from)}
}

// arrive sends all frames, and returns those that come. It waits until all of want have.
func (w *wiretap) arrive(t *testing.T, frames []sent, want map[string]bool) map[string]bool {
	t.Helper()
	const mark = "tried:"
	for i, f := range frames {
		copy(f.frame[len(f.frame)-room:], fmt.Sprintf(mark+"%04d", i))
		if _, err := unix.Write(w.out, f.frame); err != nil {
			t.Fatalf("send %s: %v", f.name, err)
		}
	}
	got, buf := map[string]bool{}, make([]byte, 2048)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		n, err := unix.Read(w.in, buf)
		if err != nil {
			if maps.Equal(got, want) {
				break // and nothing more for a while
			}
			continue
		}
		if _, number, ok := strings.Cut(string(buf[:n]), mark); ok {
			if i, err := strconv.Atoi(number[:4]); err == nil {
				got[frames[i].name] = true
			}
		}
	}
	return got
}

// TestPodsSendWithTheirOwnAddressesAlone has a pod send frames with all kinds of addresses to its
// neighbour: with the rules those get through that are its own. Connections by services, back to
// the pod itself too, go on, whether or not br_netfilter has a hand in them.
func TestPodsSendWithTheirOwnAddressesAlone(t *testing.T) {
	t.Parallel()
	bin := plugins(t)
	n := newNode(t, nettest.New(t, "n"), 1)
	a, b := nettest.New(t, "a"), nettest.New(t, "b")
	ipA, ipB := n.attach(bin, a), n.attach(bin, b)
	gateway := whoIs(t, n.Host, DefaultBridge, []netip.Addr{Gateway(n.o.PodCIDRs[0]), Gateway(n.o.PodCIDRs[1])})
	tried := triedFrames(whoIs(t, a, "eth0", ipA), whoIs(t, b, "eth0", ipB), gateway)
	all, own := map[string]bool{}, map[string]bool{}
	for _, f := range tried {
		all[f.name] = true
		if f.passes {
			own[f.name] = true
		}
	}
	n.Sysctl("net/bridge/bridge-nf-call-iptables", "0")
	n.Sysctl("net/bridge/bridge-nf-call-ip6tables", "0")
	w := tap(t, a, b)
	if got := w.arrive(t, tried, all); !maps.Equal(got, all) {
		t.Fatalf("before the rules there came %v, want all", slices.Sorted(maps.Keys(got)))
	}
	for _, pod := range []*nettest.Host{a, b} {
		if err := n.net.Connected(t.Context(), pod.Name); err != nil {
			t.Fatal(err)
		}
	}
	serviceOf(t, n, ipA[0], ipB[0])
	a.Serve("a", "tcp", "0.0.0.0:8080")
	b.Serve("b", "tcp", "[::]:8080")
	for _, filtered := range []string{"0", "1"} {
		n.Sysctl("net/bridge/bridge-nf-call-iptables", filtered)
		n.Sysctl("net/bridge/bridge-nf-call-ip6tables", filtered)
		got := w.arrive(t, tried, own)
		for _, f := range tried {
			if got[f.name] != f.passes {
				t.Errorf("bridge-nf-call-iptables=%s: %s: it came: %v, want %v", filtered, f.name, got[f.name], f.passes)
			}
		}
		for _, err := range []error{
			ask(a, fmt.Sprintf("tcp %s:8080", ipB[0]), "b", ipA[0].String()),
			ask(a, fmt.Sprintf("tcp [%s]:8080", ipB[1]), "b", ipA[1].String()),
			ask(a, "tcp 10.96.0.5:8080", "b", ipA[0].String()),
			ask(a, "tcp 10.96.0.6:8080", "a", gateway.ip4.String()),
			ask(n.Host, fmt.Sprintf("tcp %s:8080", ipA[0]), "a", gateway.ip4.String()),
		} {
			if err != nil {
				t.Errorf("bridge-nf-call-iptables=%s: %v", filtered, err)
			}
		}
	}
	n.ensure() // as after a restart
	if got := w.arrive(t, tried, own); !maps.Equal(got, own) {
		t.Errorf("written anew: there came %v", slices.Sorted(maps.Keys(got)))
	}
	if _, err := n.cni(bin, "DEL", b); err != nil {
		t.Fatal(err)
	}
	if err := n.net.send.prune(t.Context(), n.net.nl); err != nil || len(n.net.send.mu.known) != 1 {
		t.Errorf("after a pod has gone: %v, %v, want the other one alone", n.net.send.mu.known, err)
	}
}

// serviceOf leads from 10.96.0.5 to a pod and from 10.96.0.6 to the pod a, also from itself.
func serviceOf(t *testing.T, n *node, a, b netip.Addr) {
	t.Helper()
	services := nft.Table{Family: nft.IPv4, Name: "services"}
	var batch nft.Batch
	batch.AddTable(services)
	batch.AddChain(services, "in", &nft.Hook{Type: "nat", Num: unix.NF_INET_PRE_ROUTING, Priority: -100})
	batch.AddChain(services, "out", &nft.Hook{Type: "nat", Num: unix.NF_INET_POST_ROUTING, Priority: 99})
	for at, pod := range map[string]netip.Addr{"10.96.0.5": b, "10.96.0.6": a} {
		batch.AddRule(services, "in", nft.DestinationAddr(nft.IPv4, nft.R0), nft.Equal(nft.R0, netip.MustParseAddr(at).AsSlice()),
			nft.Load(nft.R0, pod.AsSlice()), nft.Load(nft.R0+1, []byte{0x1f, 0x90}), nft.DNAT(nft.IPv4, nft.R0, nft.R0+1))
	}
	batch.AddRule(services, "out", nft.SourceAddr(nft.IPv4, nft.R0), nft.Equal(nft.R0, a.AsSlice()), nft.DestinationAddr(nft.IPv4, nft.R0), nft.Equal(nft.R0, a.AsSlice()), nft.Masquerade())
	n.Must(func() error {
		conn, err := nft.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.Commit(t.Context(), &batch)
	})
}
