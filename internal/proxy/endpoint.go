package proxy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// endpoint is one backend of a service port.
type endpoint struct {
	at                          netip.AddrPort
	ready, serving, terminating bool
	local                       bool   // it runs on this node
	zone, region                string // where it runs
	hints                       *hints
	of                          *part // the slice that tells of it
}

// hints are for whom an endpoint is meant, if that is said.
type hints struct{ zones, nodes []string }

func (e *endpoint) hintZones() []string {
	if e.hints == nil {
		return nil
	}
	return e.hints.zones
}

func (e *endpoint) hintNodes() []string {
	if e.hints == nil {
		return nil
	}
	return e.hints.nodes
}

// portKey names a port across a Service and its slices.
type portKey struct {
	name  string
	proto Proto
}

func protoOf(p corev1.Protocol) Proto {
	switch p {
	case corev1.ProtocolUDP:
		return UDP
	case corev1.ProtocolSCTP:
		return SCTP
	}
	return TCP
}

// part is what one slice has: the endpoints of each port, in the order of their
// addresses.
type part struct {
	family nft.Family
	ports  map[portKey][]*endpoint
}

// read takes a slice apart.
func read(s *discoveryv1.EndpointSlice, node string) *part {
	p := &part{family: nft.IPv4, ports: map[portKey][]*endpoint{}}
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4:
	case discoveryv1.AddressTypeIPv6:
		p.family = nft.IPv6
	default:
		return p
	}
	for i := range s.Ports {
		port := &s.Ports[i]
		if port.Port == nil || *port.Port < 1 || *port.Port > 65535 {
			continue // no port means any port, which cannot be proxied
		}
		key, all := portKey{deref(port.Name), protoOf(deref(port.Protocol))}, make([]endpoint, 0, len(s.Endpoints))
		for j := range s.Endpoints {
			if e, ok := newEndpoint(&s.Endpoints[j], uint16(*port.Port), p.family, node); ok {
				e.of = p
				all = append(all, e)
			}
		}
		list := slices.Grow(p.ports[key], len(all))
		for j := range all {
			list = append(list, &all[j])
		}
		if len(list) > 0 {
			p.ports[key] = list
		}
	}
	for _, list := range p.ports {
		slices.SortFunc(list, (*endpoint).compare)
	}
	return p
}

// in is the part if it is of the family, else nil.
func (p *part) in(f nft.Family) *part {
	if p == nil || p.family != f {
		return nil
	}
	return p
}

func (e *endpoint) compare(o *endpoint) int { return e.at.Compare(o.at) }

// endpoints are those of a service in one family, of all of its slices, in the order of
// their addresses. What several slices have is there several times.
type endpoints map[portKey][]*endpoint

// replace puts a slice in the place of its last state; either may be nil.
func (e *endpoints) replace(before, now *part) {
	if *e == nil && now != nil {
		*e = endpoints{}
	}
	for _, p := range []*part{before, now} {
		if p == nil {
			continue
		}
		for key := range p.ports {
			var come []*endpoint
			if now != nil {
				come = now.ports[key]
			}
			if p == now && before != nil && before.ports[key] != nil {
				continue // that was done with it
			}
			if list := replaceOf((*e)[key], before, come); len(list) > 0 {
				(*e)[key] = list
			} else {
				delete(*e, key)
			}
		}
	}
}

// replaceOf is the list without those of a part, and with those of come.
func replaceOf(list []*endpoint, gone *part, come []*endpoint) []*endpoint {
	if len(list) == 0 {
		return come
	}
	all := make([]*endpoint, 0, len(list)+len(come))
	for _, e := range list {
		if gone != nil && e.of == gone {
			continue
		}
		for len(come) > 0 && come[0].at.Compare(e.at) < 0 {
			all, come = append(all, come[0]), come[1:]
		}
		all = append(all, e)
	}
	return append(all, come...)
}

// merged is the list with each endpoint once, in the best of the states told.
func merged(list []*endpoint) []*endpoint {
	twice := false
	for i := 1; i < len(list) && !twice; i++ {
		twice = list[i].at == list[i-1].at
	}
	if !twice {
		return list
	}
	once := make([]*endpoint, 0, len(list))
	for _, e := range list {
		if n := len(once); n > 0 && once[n-1].at == e.at {
			once[n-1] = once[n-1].or(e)
			continue
		}
		once = append(once, e)
	}
	return once
}

func newEndpoint(e *discoveryv1.Endpoint, port uint16, f nft.Family, node string) (endpoint, bool) {
	if len(e.Addresses) == 0 {
		return endpoint{}, false
	}
	addr, err := netip.ParseAddr(e.Addresses[0]) // only the first has a meaning
	if err != nil || familyOf(addr) != f {
		return endpoint{}, false
	}
	ready := e.Conditions.Ready == nil || *e.Conditions.Ready
	n := endpoint{
		at:          netip.AddrPortFrom(addr, port),
		ready:       ready,
		serving:     ready,
		terminating: deref(e.Conditions.Terminating),
		local:       node != "" && deref(e.NodeName) == node,
		zone:        deref(e.Zone),
		region:      e.DeprecatedTopology[corev1.LabelTopologyRegion],
	}
	if e.Conditions.Serving != nil {
		n.serving = *e.Conditions.Serving
	}
	if e.Hints != nil {
		n.hints = &hints{}
		for _, z := range e.Hints.ForZones {
			n.hints.zones = append(n.hints.zones, z.Name)
		}
		for _, h := range e.Hints.ForNodes {
			n.hints.nodes = append(n.hints.nodes, h.Name)
		}
	}
	return n, true
}

// or is the better of two states of one endpoint.
func (e *endpoint) or(o *endpoint) *endpoint {
	best := *e
	if o.ready && !e.ready || o.ready == e.ready && o.serving && !e.serving {
		best = *o
	}
	best.local = e.local || o.local
	return &best
}

// pools are the endpoints that a service port may use.
type pools struct {
	cluster []netip.AddrPort // for clients that may be sent to any node
	local   []netip.AddrPort // for those that must stay on this node
	// serving are all that answer, ready or not: flows to them may go on.
	serving []netip.AddrPort
	// any says that there are usable endpoints, if only elsewhere: what must stay
	// here and cannot is dropped, not refused.
	any bool
}

// of is the pool of all nodes, or that of this one.
func (p *pools) of(local bool) []netip.AddrPort {
	if local {
		return p.local
	}
	return p.cluster
}

// choosePools applies readiness and, for the cluster pool, the topology hints.
// If no endpoint is ready, those that still serve while they terminate are
// used (KEP-1669); the local pool decides that for itself. A service's topology
// keys come before all that: what they leave out is as if it were not there.
func choosePools(all []*endpoint, node *NodeFacts, keys []string) pools {
	eps, near := all, func(*endpoint) bool { return true }
	if len(keys) > 0 {
		eps = byTopology(all, node, keys)
	} else {
		near = nearby(all, node)
	}
	var p pools
	p.cluster = pickOut(eps, func(e *endpoint) bool { return e.ready && near(e) })
	if len(p.cluster) == 0 {
		p.cluster = pickOut(eps, func(e *endpoint) bool { return e.serving && e.terminating })
	}
	p.local = pickOut(eps, func(e *endpoint) bool { return e.ready && e.local })
	if len(p.local) == 0 {
		p.local = pickOut(eps, func(e *endpoint) bool { return e.serving && e.terminating && e.local })
	}
	p.serving = pickOut(all, func(e *endpoint) bool { return e.ready || e.serving })
	p.any = len(p.cluster) > 0 || len(p.local) > 0
	return p
}

// byTopology returns the endpoints that are on nodes like this one by the first
// key by which any usable one is; none if there is no such key.
func byTopology(eps []*endpoint, node *NodeFacts, keys []string) []*endpoint {
	for _, usable := range []func(*endpoint) bool{
		func(e *endpoint) bool { return e.ready },
		func(e *endpoint) bool { return e.serving && e.terminating },
	} {
		for _, key := range keys {
			like := func(*endpoint) bool { return true }
			switch key {
			case corev1.LabelHostname:
				like = func(e *endpoint) bool { return e.local }
			case corev1.LabelTopologyZone:
				like = func(e *endpoint) bool { return node.Zone != "" && e.zone == node.Zone }
			case corev1.LabelTopologyRegion:
				like = func(e *endpoint) bool { return node.Region != "" && e.region == node.Region }
			}
			var found []*endpoint
			some := false
			for i := range eps {
				if like(eps[i]) {
					found = append(found, eps[i])
					some = some || usable(eps[i])
				}
			}
			if some {
				return found
			}
		}
	}
	return nil
}

func pickOut(eps []*endpoint, keep func(*endpoint) bool) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range eps {
		if keep(eps[i]) {
			if out == nil {
				out = make([]netip.AddrPort, 0, len(eps)-i)
			}
			out = append(out, eps[i].at)
		}
	}
	return out
}

// nearby returns which ready endpoints the hints leave for clients on this
// node: those for the node, else those for its zone. Hints count only if every
// ready endpoint has them and at least one is for here.
func nearby(eps []*endpoint, node *NodeFacts) func(*endpoint) bool {
	if hinted(eps, node.Name, (*endpoint).hintNodes) {
		return func(e *endpoint) bool { return slices.Contains(e.hintNodes(), node.Name) }
	}
	if hinted(eps, node.Zone, (*endpoint).hintZones) {
		return func(e *endpoint) bool { return slices.Contains(e.hintZones(), node.Zone) }
	}
	return func(*endpoint) bool { return true }
}

func hinted(eps []*endpoint, here string, hints func(*endpoint) []string) bool {
	if here == "" {
		return false
	}
	found := false
	for i := range eps {
		if !eps[i].ready {
			continue
		}
		h := hints(eps[i])
		if len(h) == 0 {
			return false
		}
		found = found || slices.Contains(h, here)
	}
	return found
}

// keepPlaces orders want so that endpoints which were there before keep their
// places as far as possible: an endpoint's place is part of its key in the kernel,
// and a change of one of a thousand endpoints must not move the others.
func keepPlaces(before, want []netip.AddrPort) []netip.AddrPort {
	if len(before) == 0 || len(want) == 0 {
		return want
	}
	wanted := make(map[netip.AddrPort]bool, len(want))
	for _, ep := range want {
		wanted[ep] = true
	}
	placed := make([]netip.AddrPort, len(want))
	kept := make(map[netip.AddrPort]bool, len(want))
	for i, ep := range before {
		if i < len(placed) && wanted[ep] {
			placed[i], kept[ep] = ep, true
		}
	}
	free := 0
	for _, ep := range want {
		if kept[ep] {
			continue
		}
		for placed[free].IsValid() {
			free++
		}
		placed[free] = ep
	}
	return placed
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
