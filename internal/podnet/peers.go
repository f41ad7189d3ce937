package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Peer is another node: who its pods are, and where it is itself.
type Peer struct {
	PodCIDRs []netip.Prefix
	// Addrs are the node's own addresses, the one to be preferred first.
	Addrs []netip.Addr
	// Translated says that Addrs are not the node's own: something translates them, and
	// passes on to the node what is sent to them by VXLAN, and nothing else.
	Translated bool
	// Ports, if not nil, has for each of Addrs the UDP port to which VXLAN is sent there; 0
	// is the one that all nodes listen to. Several nodes behind one address differ in it.
	Ports []uint16
}

// Equal reports whether two peers are reached in the same way.
func (p Peer) Equal(q Peer) bool {
	return slices.Equal(p.PodCIDRs, q.PodCIDRs) && slices.Equal(p.Addrs, q.Addrs) && p.Translated == q.Translated && slices.Equal(p.Ports, q.Ports)
}

// way is how the kernel sends to a peer's address.
type way struct {
	addr      netip.Addr
	neighbour bool // and needs no router for that
	link      int
	mtu       int
}

// place is where the kernel keeps something that leads to a peer; content is what
// it keeps there.
type place struct {
	kind kind
	over overlay      // the device of a neighbour or a station
	pods netip.Prefix // of a route
	addr netip.Addr   // of a neighbour
	mac  mac          // of a station
}

type content struct {
	refuse bool       // of a route: nobody has these pods
	over   overlay    // of a route: by this device; 0: by link
	link   int        // of a route to a neighbour
	via    netip.Addr // of a route, who forwards; of a station, its node
	port   uint16     // of a station: where its node is sent to; 0: to the device's own port
	from   netip.Addr // of a route: the address that this machine itself sends from
	mtu    int        // of a route; 0: the link's
	mac    mac        // of a neighbour
}

// kind is the kind of a place. A packet needs them in the opposite order, so that
// they are made in this order, and removed in the other.
type kind int8

const (
	stationKind   kind = iota // a line of the forwarding table of a VXLAN device: which node has this hardware address
	neighbourKind             // a line of the neighbour table: which hardware address the next hop has
	routeKind
)

// overlay says which of our VXLAN devices: named by the family of the addresses of
// the nodes that it connects. Pods of both families go over either.
type overlay int8

const (
	over4 overlay = 4
	over6 overlay = 6
)

func overlayOf(node netip.Addr) overlay {
	if node.Is4() {
		return over4
	}
	return over6
}

// overhead is what VXLAN adds to each packet: Ethernet, VXLAN, UDP, IP.
func (v overlay) overhead() int {
	if v == over4 {
		return 14 + 8 + 8 + 20
	}
	return 14 + 8 + 8 + 40
}

// leastMTU is what a link must carry at a time to be of use for IPv6. Where the
// machines' network carries less, the outer packets are cut into pieces.
const leastMTU = 1280

// mac is the hardware address of a node's VXLAN device. All nodes know it without
// being told, since it is made of the node's share of the pod addresses, which is
// unlike those of all others and does not change when the node moves.
type mac [6]byte

// macStart begins the hardware addresses of our VXLAN devices: locally
// administered, and our mark.
var macStart = [2]byte{0x0a, byte(routeProtocol)}

// macOf takes the address of a prefix of IPv4, and the last 32 bits of one of IPv6:
// they differ between nodes, whose shares are of one size.
func macOf(share netip.Prefix) mac {
	var last [4]byte
	if share = share.Masked(); share.Addr().Is4() {
		last = share.Addr().As4()
	} else {
		b := share.Addr().As16()
		for i := range 32 {
			if at := share.Bits() - 32 + i; at >= 0 && b[at/8]&(0x80>>(at%8)) != 0 {
				last[i/8] |= 0x80 >> (i % 8)
			}
		}
	}
	return mac{macStart[0], macStart[1], last[0], last[1], last[2], last[3]}
}

func (m mac) hardware() net.HardwareAddr { return net.HardwareAddr(m[:]) }

// ours reports whether a hardware address is one of a node's VXLAN device.
func ours(a net.HardwareAddr) (mac, bool) {
	if len(a) != 6 || [2]byte(a[:2]) != macStart {
		return mac{}, false
	}
	return mac(a), true
}

// hop is the address of a family by which a peer is the next hop on a VXLAN
// device. Nobody asks for it on the wire, and nothing is ever sent to it.
func (p Peer) hop(four bool) netip.Addr {
	if four {
		i := slices.IndexFunc(p.PodCIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() })
		return p.PodCIDRs[i].Masked().Addr()
	}
	m := macOf(p.PodCIDRs[0])
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 10: m[0], 11: m[1], 12: m[2], 13: m[3], 14: m[4], 15: m[5]})
}

// plan is what the kernel must have for packets to a peer, given the ways to those
// of its addresses that can be reached. What can be is in it also when an error says what cannot.
func (o *Options) plan(p Peer, ways []way) (map[place]content, error) {
	list := map[place]content{}
	var (
		far    []netip.Prefix
		failed []error
	)
	for _, c := range p.PodCIDRs {
		c = c.Masked()
		if err := o.foreignPods(c); err != nil {
			failed = append(failed, err)
			continue
		}
		near := slices.IndexFunc(ways, func(w way) bool { return w.neighbour && w.addr.Is4() == c.Addr().Is4() })
		switch {
		case o.Mode.routes() && near >= 0 && !p.Translated:
			list[place{kind: routeKind, pods: c}] = content{via: ways[near].addr, link: ways[near].link}
		case o.Mode.tunnels():
			far = append(far, c)
		}
	}
	if len(far) == 0 || len(ways) == 0 {
		return list, errors.Join(failed...)
	}
	m, by := macOf(p.PodCIDRs[0]), ways[0]
	over := overlayOf(by.addr)
	mtu := max(by.mtu-over.overhead(), leastMTU)
	for _, c := range far {
		from, ok := o.ownAddr(c.Addr().Is4())
		if !ok {
			continue // no pod of this node could ask, nor get an answer
		}
		hop := p.hop(c.Addr().Is4())
		list[place{kind: stationKind, over: over, mac: m}] = content{via: by.addr, port: o.port(p, by.addr)}
		list[place{kind: neighbourKind, over: over, addr: hop}] = content{mac: m}
		list[place{kind: routeKind, pods: c}] = content{over: over, via: hop, from: from, mtu: mtu}
	}
	return list, errors.Join(failed...)
}

// port is where VXLAN is sent to at an address of a peer; 0: to the device's own port.
func (o *Options) port(p Peer, at netip.Addr) uint16 {
	i := slices.Index(p.Addrs, at)
	if i < 0 || i >= len(p.Ports) || p.Ports[i] == o.VXLAN.Port {
		return 0
	}
	return p.Ports[i]
}

// ownAddr is this node's address of a family in the pod network.
func (o *Options) ownAddr(four bool) (netip.Addr, bool) {
	for _, c := range o.PodCIDRs {
		if c.Addr().Is4() == four {
			return Gateway(c), true
		}
	}
	return netip.Addr{}, false
}

// foreignPods refuses prefixes that no other node can have: a node says itself
// which its pods are.
func (o *Options) foreignPods(c netip.Prefix) error {
	for _, own := range o.PodCIDRs {
		if own.Overlaps(c) {
			return fmt.Errorf("its pods' addresses %s are those of this node, %s: nothing is sent there", c, own)
		}
	}
	for _, all := range o.ClusterCIDRs {
		if all.Bits() <= c.Bits() && all.Contains(c.Addr()) {
			return nil
		}
	}
	return fmt.Errorf("its pods' addresses %s are not among those of the cluster, %v (--cluster-cidr): nothing is sent there", c, o.ClusterCIDRs)
}

// refused are the prefixes that are given to no node unless a more specific route
// says so: what is sent there comes back at once, instead of going out into the world.
func (o *Options) refused() map[place]content {
	list := map[place]content{}
	if !o.Mode.tunnels() {
		return list // the network's routers may know more nodes than we
	}
	for _, c := range o.ClusterCIDRs {
		if !slices.Contains(o.PodCIDRs, c) {
			list[place{kind: routeKind, pods: c.Masked()}] = content{refuse: true}
		}
	}
	return list
}
