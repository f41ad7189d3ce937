package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeProtocol marks our routes in the kernel, so that they are found again.
const routeProtocol netlink.RouteProtocol = 75

// Peer is another node, as far as routes go.
type Peer struct {
	PodCIDRs []netip.Prefix
	// Addrs are the node's own addresses: the neighbour to send to is the first
	// of the same family. A family without one gets no route.
	Addrs []netip.Addr
}

// Routes are the routes to the pods of other nodes, which must be neighbours of
// this one. They belong to one goroutine.
type Routes struct {
	nl    *netlink.Handle
	peers map[string]map[netip.Prefix]netip.Addr
}

func newRoutes(nl *netlink.Handle) *Routes {
	return &Routes{nl: nl, peers: map[string]map[netip.Prefix]netip.Addr{}}
}

// Update makes the routes to a peer what they ought to be.
func (r *Routes) Update(ctx context.Context, name string, p Peer) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	want := map[netip.Prefix]netip.Addr{}
	for _, c := range p.PodCIDRs {
		i := slices.IndexFunc(p.Addrs, func(a netip.Addr) bool { return a.Is4() == c.Addr().Is4() })
		if i >= 0 {
			want[c.Masked()] = p.Addrs[i]
		}
	}
	var failed []error
	for c, via := range want {
		err := r.nl.RouteReplace(&netlink.Route{Dst: ipNet(c), Gw: via.AsSlice(), Protocol: routeProtocol})
		if err != nil {
			failed = append(failed, fmt.Errorf("route %s of node %s via %s: %w", c, name, via, err))
		}
	}
	old := r.peers[name]
	r.peers[name] = want
	failed = append(failed, r.unroute(old))
	return errors.Join(failed...)
}

// Delete removes the routes to a peer.
func (r *Routes) Delete(ctx context.Context, name string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	old := r.peers[name]
	delete(r.peers, name)
	return r.unroute(old)
}

// unroute deletes those routes that no peer has any more.
func (r *Routes) unroute(routes map[netip.Prefix]netip.Addr) error {
	var failed []error
	for c := range routes {
		if r.wanted(c) {
			continue
		}
		err := r.nl.RouteDel(&netlink.Route{Dst: ipNet(c), Protocol: routeProtocol})
		if err != nil && !errors.Is(err, unix.ESRCH) {
			failed = append(failed, fmt.Errorf("delete route %s: %w", c, err))
		}
	}
	return errors.Join(failed...)
}

func (r *Routes) wanted(c netip.Prefix) bool {
	for _, routes := range r.peers {
		if _, ok := routes[c]; ok {
			return true
		}
	}
	return false
}

// Prune deletes the routes of ours that no Update since the start has asked for:
// what an earlier process left. Call it when all peers are known.
func (r *Routes) Prune(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	list, err := ourRoutes(r.nl)
	if err != nil {
		return err
	}
	var failed []error
	for _, rt := range list {
		// Those without a gateway are to service addresses.
		if c, ok := prefixOf(rt.Dst); ok && rt.Gw != nil && !r.wanted(c) {
			if err := r.nl.RouteDel(&rt); err != nil && !errors.Is(err, unix.ESRCH) {
				failed = append(failed, fmt.Errorf("delete route %s: %w", c, err))
			}
		}
	}
	return errors.Join(failed...)
}

// ourRoutes lists the routes that carry our mark.
func ourRoutes(nl *netlink.Handle) ([]netlink.Route, error) {
	list, err := nl.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return list, nil
}
