package announce

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
)

// Link finds the link that an address belongs to: one with an address of the same network, or
// else that of the default route. It must be one of Ethernet.
func Link(nl *netlink.Handle, addr netip.Addr) (netlink.Link, error) {
	link, err := linkOf(nl, addr)
	if err != nil {
		return nil, err
	}
	if len(link.Attrs().HardwareAddr) != len(hardware{}) {
		return nil, fmt.Errorf("link %s is no Ethernet, so that nobody could be told where the address is", link.Attrs().Name)
	}
	return link, nil
}

func linkOf(nl *netlink.Handle, addr netip.Addr) (netlink.Link, error) {
	family := netlink.FAMILY_V6
	if addr.Is4() {
		family = netlink.FAMILY_V4
	}
	addrs, err := dump.Addrs(nl, nil, family)
	if err != nil {
		return nil, err
	}
	for i := range addrs {
		p, ok := prefix(addrs[i].IPNet)
		if ok && p.Addr() != addr && p.Contains(addr) {
			return nl.LinkByIndex(addrs[i].LinkIndex)
		}
	}
	routes, err := dump.Routes(nl, family, netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, err
	}
	for i := range routes {
		if p, ok := prefix(routes[i].Dst); routes[i].LinkIndex > 0 && (!ok || p.Bits() == 0) {
			return nl.LinkByIndex(routes[i].LinkIndex)
		}
	}
	return nil, fmt.Errorf("no link of this machine has an address of the network of %s, and there is no default route", addr)
}

func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok
}
