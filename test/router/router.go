// Package router is a router for tests: gobgp in a host of nettest, which puts what it is told into the
// host's kernel.
package router

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

// proto marks the routes in the kernel that are the router's.
const proto = unix.RTPROT_BGP

// alone is held by the router that runs: gobgp keeps settings of its own in variables of the process.
var alone sync.Mutex

// Router is one that runs.
type Router struct {
	Stop func() // may be called again

	t    *testing.T
	host *nettest.Host
	s    *server.BgpServer
}

// Options say how a router is.
type Options struct {
	AS     uint32
	ID     string
	Listen []string // addresses
	Port   int32
}

// Start starts a router in a host until the test ends. Of several, one runs at a time.
func Start(t *testing.T, host *nettest.Host, o Options) *Router {
	t.Helper()
	alone.Lock()
	r := &Router{t: t, host: host, s: server.NewBgpServer()}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := host.Do(func() error { // what is listened to is opened by who serves
			r.s.Serve()
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	r.Stop = sync.OnceFunc(func() {
		defer alone.Unlock()
		r.s.Stop()
		wg.Wait()
	})
	t.Cleanup(r.Stop)
	global := &api.Global{Asn: o.AS, RouterId: o.ID, ListenPort: o.Port, ListenAddresses: o.Listen}
	if err := r.s.StartBgp(t.Context(), &api.StartBgpRequest{Global: global}); err != nil {
		t.Fatalf("start a router: %v", err)
	}
	return r
}

// A Neighbour may tell the router of routes.
type Neighbour struct {
	Addr     string
	AS       uint32
	Password string
	Only     *api.Family // nil: routes of both
	Keeps    bool        // its routes are kept for a while when its session ends without a word
}

// IPv4 is the family of a neighbour that may tell of no other.
func IPv4() *api.Family { return &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST} }

// Accept lets a neighbour connect.
func (r *Router) Accept(n Neighbour) {
	r.t.Helper()
	families := []*api.Family{n.Only}
	if n.Only == nil {
		families = []*api.Family{IPv4(), {Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}}
	}
	p := &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: n.Addr, PeerAsn: n.AS, AuthPassword: n.Password},
		Transport: &api.Transport{PassiveMode: true},
	}
	for _, f := range families {
		p.AfiSafis = append(p.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: f, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: n.Keeps}},
		})
	}
	if n.Keeps {
		p.GracefulRestart = &api.GracefulRestart{Enabled: true, HelperOnly: true, RestartTime: 120}
	}
	if err := r.s.AddPeer(r.t.Context(), &api.AddPeerRequest{Peer: p}); err != nil {
		r.t.Fatalf("let %s connect: %v", n.Addr, err)
	}
}

// Refresh asks a neighbour for its routes again.
func (r *Router) Refresh(addr string) {
	r.t.Helper()
	err := r.s.ResetPeer(r.t.Context(), &api.ResetPeerRequest{Address: addr, Soft: true, Direction: api.ResetPeerRequest_DIRECTION_IN})
	if err != nil {
		r.t.Fatalf("ask %s for its routes again: %v", addr, err)
	}
}

// Forbid ends the session with a neighbour, for good.
func (r *Router) Forbid(addr string) {
	r.t.Helper()
	if err := r.s.DeletePeer(r.t.Context(), &api.DeletePeerRequest{Address: addr}); err != nil {
		r.t.Fatalf("end the session with %s: %v", addr, err)
	}
}

// Routes are what it has been told: to where each prefix leads, in order.
func (r *Router) Routes() (map[netip.Prefix][]netip.Addr, error) {
	all := map[netip.Prefix][]netip.Addr{}
	err := r.paths(func(to netip.Prefix, p *apiutil.Path) {
		for _, a := range p.Attrs {
			switch a := a.(type) {
			case *bgp.PathAttributeNextHop:
				all[to] = append(all[to], a.Value)
			case *bgp.PathAttributeMpReachNLRI:
				all[to] = append(all[to], a.Nexthop)
			}
		}
	})
	for _, hops := range all {
		slices.SortFunc(hops, netip.Addr.Compare)
	}
	return all, err
}

// Said is what it has been told of each route beside where it leads.
func (r *Router) Said() (map[string]string, error) {
	all := map[string]string{}
	err := r.paths(func(to netip.Prefix, p *apiutil.Path) {
		var words []string
		for _, a := range p.Attrs {
			switch a := a.(type) {
			case *bgp.PathAttributeLocalPref:
				words = append(words, fmt.Sprintf("preference %d", a.Value))
			case *bgp.PathAttributeCommunities:
				text := "communities"
				for _, c := range a.Value {
					if name, known := bgp.WellKnownCommunityNameMap[bgp.WellKnownCommunity(c)]; known {
						text += " " + name
					} else {
						text += fmt.Sprintf(" %d:%d", c>>16, c&0xffff)
					}
				}
				words = append(words, text)
			case *bgp.PathAttributeLargeCommunities:
				text := "large"
				for _, c := range a.Values {
					text += " " + c.String()
				}
				words = append(words, text)
			case *bgp.PathAttributeExtendedCommunities:
				text := "extended"
				for _, c := range a.Value {
					_, kind := c.GetTypes()
					text += fmt.Sprintf(" %d:%s", kind, c)
				}
				words = append(words, text)
			}
		}
		all[to.String()] = strings.Join(words, ", ")
	})
	return all, err
}

// Stale is how many routes it keeps of neighbours that have gone without a word.
func (r *Router) Stale() (n int, _ error) {
	err := r.paths(func(_ netip.Prefix, p *apiutil.Path) {
		if p.Stale {
			n++
		}
	})
	return n, err
}

// paths calls a function with each route that it has been told.
func (r *Router) paths(each func(to netip.Prefix, p *apiutil.Path)) error {
	for _, family := range []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC} {
		err := r.s.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}, func(to bgp.NLRI, paths []*apiutil.Path) {
			for _, p := range paths {
				each(to.(*bgp.IPAddrPrefix).Prefix, p)
			}
		})
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
	}
	return nil
}

// Install puts the routes into the host's kernel, and takes out what is true no more.
func (r *Router) Install() error {
	routes, err := r.Routes()
	if err != nil {
		return err
	}
	nl := r.host.Netlink()
	old, err := nl.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: proto}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("list the kernel's routes: %w", err)
	}
	for i := range old {
		if err := nl.RouteDel(&old[i]); err != nil {
			return fmt.Errorf("remove a route: %w", err)
		}
	}
	for prefix, hops := range routes {
		route := &netlink.Route{Dst: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}, Protocol: proto}
		for _, hop := range hops {
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: hop.AsSlice()})
		}
		if err := nl.RouteAdd(route); err != nil {
			return fmt.Errorf("add route %s by %s: %w", prefix, hops, err)
		}
	}
	return nil
}
