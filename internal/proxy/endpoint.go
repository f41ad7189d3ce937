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
	zones, nodes                []string
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

// gather merges the slices of a service into the endpoints of each port, in the
// order of their addresses. What several slices have is one endpoint, in the
// best of the states told.
func gather(all []*discoveryv1.EndpointSlice, f nft.Family, node string) map[portKey][]endpoint {
	want := discoveryv1.AddressTypeIPv4
	if f == nft.IPv6 {
		want = discoveryv1.AddressTypeIPv6
	}
	found := map[portKey]map[netip.AddrPort]*endpoint{}
	for _, s := range all {
		if s.AddressType != want {
			continue
		}
		for i := range s.Ports {
			p := &s.Ports[i]
			if p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
				continue // no port means any port, which cannot be proxied
			}
			key := portKey{deref(p.Name), protoOf(deref(p.Protocol))}
			if found[key] == nil {
				found[key] = map[netip.AddrPort]*endpoint{}
			}
			for j := range s.Endpoints {
				if e, ok := newEndpoint(&s.Endpoints[j], uint16(*p.Port), f, node); ok {
					merge(found[key], e)
				}
			}
		}
	}
	sorted := make(map[portKey][]endpoint, len(found))
	for key, eps := range found {
		list := make([]endpoint, 0, len(eps))
		for _, e := range eps {
			list = append(list, *e)
		}
		slices.SortFunc(list, func(a, b endpoint) int { return a.at.Compare(b.at) })
		sorted[key] = list
	}
	return sorted
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
		for _, z := range e.Hints.ForZones {
			n.zones = append(n.zones, z.Name)
		}
		for _, h := range e.Hints.ForNodes {
			n.nodes = append(n.nodes, h.Name)
		}
	}
	return n, true
}

func merge(eps map[netip.AddrPort]*endpoint, e endpoint) {
	old := eps[e.at]
	if old == nil {
		eps[e.at] = &e
		return
	}
	if e.ready && !old.ready || e.ready == old.ready && e.serving && !old.serving {
		e.local = e.local || old.local
		*old = e
	}
	old.local = old.local || e.local
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

// choosePools applies readiness and, for the cluster pool, the topology hints.
// If no endpoint is ready, those that still serve while they terminate are
// used (KEP-1669); the local pool decides that for itself. A service's topology
// keys come before all that: what they leave out is as if it were not there.
func choosePools(all []endpoint, node *NodeFacts, keys []string) pools {
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
func byTopology(eps []endpoint, node *NodeFacts, keys []string) []endpoint {
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
			var found []endpoint
			some := false
			for i := range eps {
				if like(&eps[i]) {
					found = append(found, eps[i])
					some = some || usable(&eps[i])
				}
			}
			if some {
				return found
			}
		}
	}
	return nil
}

func pickOut(eps []endpoint, keep func(*endpoint) bool) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range eps {
		if keep(&eps[i]) {
			out = append(out, eps[i].at)
		}
	}
	return out
}

// nearby returns which ready endpoints the hints leave for clients on this
// node: those for the node, else those for its zone. Hints count only if every
// ready endpoint has them and at least one is for here.
func nearby(eps []endpoint, node *NodeFacts) func(*endpoint) bool {
	if hinted(eps, node.Name, func(e *endpoint) []string { return e.nodes }) {
		return func(e *endpoint) bool { return slices.Contains(e.nodes, node.Name) }
	}
	if hinted(eps, node.Zone, func(e *endpoint) []string { return e.zones }) {
		return func(e *endpoint) bool { return slices.Contains(e.zones, node.Zone) }
	}
	return func(*endpoint) bool { return true }
}

func hinted(eps []endpoint, here string, hints func(*endpoint) []string) bool {
	if here == "" {
		return false
	}
	found := false
	for i := range eps {
		if !eps[i].ready {
			continue
		}
		h := hints(&eps[i])
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
