package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/kemudi/kemudi/internal/dump"
	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// filterLimit is how many ports are asked for one by one: each question makes the
// kernel walk through its table, but tells of no other flows. Beyond it all UDP
// flows are read at once.
const filterLimit = 32

// endStale ends the UDP flows of a family to ports of ours that go where they may not (any
// more). The next packet of such a client is looked up as that of a new one.
// It returns how many it ended. After an error some may be left.
func (k *kernel) endStale(flows []flow, f nft.Family) (ended int, _ error) {
	match := newStaleFilter(flows, f)
	if match.empty() {
		return 0, nil
	}
	if len(match.ports) > 0 {
		if err := k.localAddrs(f, match.local); err != nil {
			return 0, err
		}
	}
	for _, filter := range match.filters(f) {
		n, err := k.endMatching(filter, match)
		ended += n
		if err != nil {
			return ended, fmt.Errorf("end stale UDP flows (%s): %w", f, err)
		}
	}
	return ended, nil
}

func (k *kernel) endMatching(filter nft.FlowFilter, match *staleFilter) (ended int, err error) {
	list, err := k.flows.Flows(filter)
	if err != nil {
		return 0, err
	}
	for i := range list {
		if !match.stale(&list[i]) {
			continue
		}
		if err := k.flows.EndFlow(&list[i]); err != nil {
			return ended, err
		}
		ended++
	}
	return ended, nil
}

func (k *kernel) localAddrs(f nft.Family, into map[netip.Addr]bool) error {
	family := netlink.FAMILY_V4
	if f == nft.IPv6 {
		family = netlink.FAMILY_V6
	}
	list, err := dump.Addrs(k.nl, nil, family)
	if err != nil {
		return err
	}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			into[ip.Unmap()] = true
		}
	}
	return nil
}

// staleFilter picks the connection tracking entries to be ended.
type staleFilter struct {
	addrs map[netip.AddrPort][]netip.AddrPort // where flows to an address and port may go
	ports map[uint16][]netip.AddrPort         // the same for ports of this node
	local map[netip.Addr]bool                 // the node's addresses
}

func newStaleFilter(flows []flow, f nft.Family) *staleFilter {
	s := &staleFilter{map[netip.AddrPort][]netip.AddrPort{}, map[uint16][]netip.AddrPort{}, map[netip.Addr]bool{}}
	for _, fl := range flows {
		switch {
		case fl.Family != f:
		case fl.Addr.IsValid():
			s.addrs[netip.AddrPortFrom(fl.Addr, fl.Port)] = fl.Valid
		default:
			s.ports[fl.Port] = fl.Valid
		}
	}
	return s
}

func (s *staleFilter) empty() bool { return len(s.addrs)+len(s.ports) == 0 }

// filters are what the kernel is asked for.
func (s *staleFilter) filters(f nft.Family) []nft.FlowFilter {
	if len(s.addrs)+len(s.ports) > filterLimit {
		return []nft.FlowFilter{{Family: f, Proto: uint8(UDP)}}
	}
	var all []nft.FlowFilter
	for at := range s.addrs {
		all = append(all, nft.FlowFilter{Family: f, Proto: uint8(UDP), To: at.Addr(), Port: at.Port()})
	}
	for port := range s.ports {
		all = append(all, nft.FlowFilter{Family: f, Proto: uint8(UDP), Port: port})
	}
	return all
}

// stale says whether the flow is to be ended.
func (s *staleFilter) stale(f *nft.Flow) bool {
	valid, ours := s.addrs[f.To]
	if !ours && s.local[f.To.Addr()] {
		valid, ours = s.ports[f.To.Port()]
	}
	if !ours {
		return false
	}
	_, may := slices.BinarySearchFunc(valid, f.Answers, netip.AddrPort.Compare)
	return !may
}

// latest adds flows to those that are still to be looked through: of two of the same
// port the new one counts.
func latest(pending, flows []flow) []flow {
	if len(pending) == 0 {
		return flows
	}
	type port struct {
		family nft.Family
		addr   netip.Addr
		port   uint16
	}
	at := map[port]int{}
	for i, f := range pending {
		at[port{f.Family, f.Addr, f.Port}] = i
	}
	for _, f := range flows {
		if i, ok := at[port{f.Family, f.Addr, f.Port}]; ok {
			pending[i] = f
			continue
		}
		pending = append(pending, f)
	}
	return pending
}
