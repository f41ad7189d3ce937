package podnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// describe writes what the kernel must have as people would.
func describe(want map[place]content) string {
	var lines []string
	for p, c := range want {
		line := p.String()
		switch {
		case c.refuse:
			line += " refused"
		case p.kind == routeKind && c.over == 0:
			line += fmt.Sprintf(" via %s on link %d", c.via, c.link)
		case p.kind == routeKind:
			line += fmt.Sprintf(" via %s on %s from %s mtu %d", c.via, c.over.name(), c.from, c.mtu)
		case p.kind == neighbourKind:
			line += fmt.Sprintf(" has %s", c.mac.hardware())
		default:
			line += fmt.Sprintf(" by %s", c.via)
			if c.port != 0 {
				line += fmt.Sprintf(" port %d", c.port)
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestEachPrefixOfAPeerHasItsWay(t *testing.T) {
	t.Parallel()
	both, four, six := mustPrefixes("10.244.3.0/24", "fd00:244:0:3::/64"), mustPrefixes("10.244.3.0/24"), mustPrefixes("fd00:244:0:3::/64")
	near4, near6 := way{addr: netip.MustParseAddr("192.168.1.3"), neighbour: true, link: 2, mtu: 1500}, way{addr: netip.MustParseAddr("fd00:1::3"), neighbour: true, link: 2, mtu: 1500}
	far4, far6 := way{addr: netip.MustParseAddr("192.168.2.3"), link: 2, mtu: 1500}, way{addr: netip.MustParseAddr("fd00:2::3"), link: 2, mtu: 9000}
	narrow := way{addr: netip.MustParseAddr("fd00:2::3"), link: 2, mtu: 1280}
	const (
		route4 = "route 10.244.3.0/24 via 192.168.1.3 on link 2"
		route6 = "route fd00:244:0:3::/64 via fd00:1::3 on link 2"
		vxlan4 = "neighbour 10.244.3.0 on kemudi-vxlan4 has 0a:4b:0a:f4:03:00\nroute 10.244.3.0/24 via 10.244.3.0 on kemudi-vxlan4 from 10.244.1.1 mtu 1450"
	)
	for _, tc := range []struct {
		name string
		mode Mode
		peer Peer
		ways []way
		want string
	}{
		{"a neighbour in both families", Auto, Peer{PodCIDRs: both}, []way{near4, near6}, route4 + "\n" + route6},
		{
			"a neighbour of one family", Auto, Peer{PodCIDRs: both}, []way{near4},
			"forwarding to 0a:4b:0a:f4:03:00 on kemudi-vxlan4 by 192.168.1.3\nneighbour fe80::a4b:af4:300 on kemudi-vxlan4 has 0a:4b:0a:f4:03:00\n" + route4 +
				"\nroute fd00:244:0:3::/64 via fe80::a4b:af4:300 on kemudi-vxlan4 from fd00:244:0:1::1 mtu 1450",
		},
		{"a neighbour where routes alone are made", OnlyRoutes, Peer{PodCIDRs: both}, []way{near4}, route4},
		{"behind a router where routes alone are made", OnlyRoutes, Peer{PodCIDRs: both}, []way{far4, far6}, ""},
		{"a neighbour where nothing is made", None, Peer{PodCIDRs: both}, []way{near4, near6}, ""},
		{"a neighbour where all goes by VXLAN", OnlyVXLAN, Peer{PodCIDRs: four}, []way{near4}, "forwarding to 0a:4b:0a:f4:03:00 on kemudi-vxlan4 by 192.168.1.3\n" + vxlan4},
		{"behind a router", Auto, Peer{PodCIDRs: four}, []way{far4}, "forwarding to 0a:4b:0a:f4:03:00 on kemudi-vxlan4 by 192.168.2.3\n" + vxlan4},
		{"the first address counts", Auto, Peer{PodCIDRs: four}, []way{far4, far6}, "forwarding to 0a:4b:0a:f4:03:00 on kemudi-vxlan4 by 192.168.2.3\n" + vxlan4},
		{
			"over IPv6, large packets", Auto, Peer{PodCIDRs: six}, []way{far6},
			"forwarding to 0a:4b:00:00:00:03 on kemudi-vxlan6 by fd00:2::3\nneighbour fe80::a4b:0:3 on kemudi-vxlan6 has 0a:4b:00:00:00:03\n" +
				"route fd00:244:0:3::/64 via fe80::a4b:0:3 on kemudi-vxlan6 from fd00:244:0:1::1 mtu 8930",
		},
		{
			"a link that carries the least that IPv6 asks for", Auto, Peer{PodCIDRs: six}, []way{narrow},
			"forwarding to 0a:4b:00:00:00:03 on kemudi-vxlan6 by fd00:2::3\nneighbour fe80::a4b:0:3 on kemudi-vxlan6 has 0a:4b:00:00:00:03\n" +
				"route fd00:244:0:3::/64 via fe80::a4b:0:3 on kemudi-vxlan6 from fd00:244:0:1::1 mtu 1280",
		},
		{
			"translated, as if it were a neighbour", Auto, Peer{PodCIDRs: four, Translated: true}, []way{near4},
			"forwarding to 0a:4b:0a:f4:03:00 on kemudi-vxlan4 by 192.168.1.3\n" + vxlan4,
		},
		{
			"translated, by a port of its own", Auto, Peer{PodCIDRs: four, Addrs: []netip.Addr{far6.addr, far4.addr}, Ports: []uint16{1, 4790}, Translated: true}, []way{far4},
			"forwarding to 0a:4b:0a:f4:03:00 on kemudi-vxlan4 by 192.168.2.3 port 4790\n" + vxlan4,
		},
		{
			"translated, by the port of all", Auto, Peer{PodCIDRs: four, Addrs: []netip.Addr{far4.addr}, Ports: []uint16{4789}, Translated: true}, []way{far4},
			"forwarding to 0a:4b:0a:f4:03:00 on kemudi-vxlan4 by 192.168.2.3\n" + vxlan4,
		},
		{"translated, where routes alone are made", OnlyRoutes, Peer{PodCIDRs: four, Translated: true}, []way{near4}, ""},
		{"no way to it", Auto, Peer{PodCIDRs: both}, nil, ""},
		{"pods of this node and of nobody", Auto, Peer{PodCIDRs: mustPrefixes("10.244.1.128/25", "10.9.0.0/24", "10.244.3.0/24")}, []way{near4}, "not sent\n" + route4},
	} {
		o := Options{VXLAN: VXLAN{Port: 4789}, Mode: tc.mode, PodCIDRs: mustPrefixes("10.244.1.0/24", "fd00:244:0:1::/64"), ClusterCIDRs: mustPrefixes("10.244.0.0/16", "fd00:244::/48")}
		list, err := o.plan(tc.peer, tc.ways)
		got := describe(list)
		if err != nil {
			got = "not sent\n" + got
			for _, want := range []string{"those of this node", "not among those of the cluster"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want an error with %q", tc.name, err, want)
				}
			}
		}
		if got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, got, tc.want)
		}
	}
}

func TestHardwareAddressesOfNodesDiffer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ all, share string }{{"10.0.0.0/9", "/24"}, {"10.0.0.0/16", "/28"}, {"fd00:244::/48", "/64"}, {"fd00:244::/104", "/120"}, {"fd00::/32", "/61"}} {
		all := netip.MustParsePrefix(tc.all)
		at := map[mac]netip.Prefix{}
		for share := range shares(all, netip.MustParsePrefix(all.Addr().String()+tc.share).Bits()) {
			m := macOf(share)
			if other, taken := at[m]; taken {
				t.Fatalf("%s and %s have %s", other, share, m.hardware())
			}
			if _, own := ours(m.hardware()); !own {
				t.Fatalf("%s of %s is not known as ours", m.hardware(), share)
			}
			at[m] = share
		}
		if len(at) < 1000 {
			t.Errorf("%s has %d shares of %s, want many", tc.all, len(at), tc.share)
		}
	}
}

// shares are the first 5,000 prefixes of a length within another one.
func shares(all netip.Prefix, bits int) func(yield func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		for i := range 5000 {
			b := all.Masked().Addr().AsSlice()
			for at, left := bits-1, i; left > 0 && at >= 0; at, left = at-1, left>>1 {
				b[at/8] |= byte(left&1) << (7 - at%8)
			}
			a, _ := netip.AddrFromSlice(b)
			if p := netip.PrefixFrom(a, bits); !all.Contains(a) || !yield(p) {
				return
			}
		}
	}
}
