package podnet

import (
	"context"
	"encoding/binary"
	"maps"
	"net/netip"
	"sync/atomic"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// moves hears of what may change the ways to other nodes: of addresses and routes of
// the machine, and of the links by which peers are reached.
type moves struct {
	groups *nft.Groups
	links  atomic.Pointer[map[int]bool] // never changed, only replaced
}

// watchMoves opens the watch in the network namespace of the calling thread.
func watchMoves() (*moves, error) {
	groups, err := nft.Join(unix.NETLINK_ROUTE, "ways to other nodes",
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, err
	}
	m := &moves{groups: groups}
	m.links.Store(&map[int]bool{})
	return m, nil
}

func (m *moves) Close() { m.groups.Close() }

// add has a link watched.
func (m *moves) add(link int) {
	if old := *m.links.Load(); !old[link] {
		links := maps.Clone(old)
		links[link] = true
		m.links.Store(&links)
	}
}

// next waits until something has changed that the ways to other nodes may depend on.
func (m *moves) next(ctx context.Context) error { return m.groups.Next(ctx, m.concerns) }

// concerns is true of few messages, since a pod that comes or goes leads to a dozen,
// and all ways are looked at for one.
func (m *moves) concerns(msg nft.Message) bool {
	links, b := *m.links.Load(), msg.Body
	if len(links) == 0 {
		return false // there are no peers
	}
	number := func(at int) int { return int(binary.NativeEndian.Uint32(b[at:])) }
	switch msg.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return len(b) >= unix.SizeofIfInfomsg && links[number(4)]
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return len(b) >= unix.SizeofIfAddrmsg && b[3] < unix.RT_SCOPE_LINK
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return len(b) >= unix.SizeofRtMsg && routeConcerns(msg.Type, b)
	}
	return false
}

// routeConcerns leaves out what the kernel keeps for addresses of the machine and of
// single links, and the routes that we make.
func routeConcerns(typ uint16, b []byte) bool {
	const cloned = 0x200
	family, table, protocol, flags := b[0], b[4], b[5], binary.NativeEndian.Uint32(b[8:])
	if table == unix.RT_TABLE_LOCAL || flags&cloned != 0 || protocol == byte(routeProtocol) && typ == unix.RTM_NEWROUTE {
		return false
	}
	if family != unix.AF_INET6 {
		return true
	}
	attrs, err := nl.ParseRouteAttr(b[unix.SizeofRtMsg:])
	if err != nil {
		return true
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_DST {
			dst, ok := netip.AddrFromSlice(a.Value)
			return !ok || !dst.IsLinkLocalUnicast() && !dst.IsMulticast()
		}
	}
	return true // a default route
}
