package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
)

// flows are the connections that a network namespace's kernel knows. It belongs to one
// goroutine.
type flows struct{ nl *netlink.Handle }

// openFlows looks at the network namespace of the calling thread.
func openFlows() (*flows, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_NETFILTER, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &flows{nl}, nil
}

func (f *flows) close() { f.nl.Close() }

// end ends the connections that the node forwards and that are forbidden, and returns how
// many those were.
func (f *flows) end(forbidden func(Flow) bool) (ended int, _ error) {
	local := map[netip.Addr]bool{}
	list, err := dump.Addrs(f.nl, nil, netlink.FAMILY_ALL)
	if err != nil {
		return 0, err
	}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			local[ip.Unmap()] = true
		}
	}
	var failed error
	for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		n, err := f.nl.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter(func(c Flow) bool {
			return !local[c.Src] && !local[c.Dst] && forbidden(c)
		}))
		ended += int(n)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("end forbidden connections: %w", err))
		}
	}
	return ended, failed
}

// filter picks connections to be ended.
type filter func(Flow) bool

// MatchConntrackFlow reports whether the connection is to be ended. It looks at it as the rules
// do: where it really goes is who answers.
func (f filter) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	src, ok := netip.AddrFromSlice(c.Forward.SrcIP)
	dst, ok2 := netip.AddrFromSlice(c.Reverse.SrcIP)
	if !ok || !ok2 {
		return false
	}
	flow := Flow{Src: src.Unmap(), Dst: dst.Unmap(), Proto: c.Forward.Protocol}
	switch proto(flow.Proto) {
	case tcp, udp, sctp:
		flow.Port = c.Reverse.SrcPort
	}
	return f(flow)
}
