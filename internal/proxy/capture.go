package proxy

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/proxy/userspace"
	"github.com/kemudi/kemudi/internal/task"
)

// relayKey names a port of TCP of a Service.
func relayKey(name types.NamespacedName, p portKey) userspace.Key {
	return userspace.Key{NamespacedName: name, Port: p.name}
}

// capture has connections to a port end at the relay of this node, if there is one, which spreads them over what the
// pools have: the rules know of one endpoint, which is the relay. Packets of UDP go as ever, and those of SCTP nowhere.
func (c *compiler) capture(p *servicePort) {
	if c.ports == nil {
		return
	}
	switch p.key.proto {
	case TCP:
	case UDP:
		return
	default:
		p.pools = pools{}
		return
	}
	to := userspace.Target{Endpoints: p.pools.cluster, Affinity: time.Duration(p.timeout) * time.Second}
	if len(to.Endpoints) == 0 || deref(c.svc.Spec.InternalTrafficPolicy) == corev1.ServiceInternalTrafficPolicyLocal {
		to.Endpoints = p.pools.local
	}
	p.timeout = 0
	if c.targets == nil {
		c.targets = map[portKey]userspace.Target{}
	}
	c.targets[p.key] = to
	var here []netip.AddrPort
	if number := c.ports[relayKey(types.NamespacedName{Namespace: c.svc.Namespace, Name: c.svc.Name}, p.key)]; number != 0 {
		for _, a := range c.node.Primary {
			if familyOf(a.Addr()) == c.family {
				here = []netip.AddrPort{netip.AddrPortFrom(a.Addr(), number)}
			}
		}
	}
	before := p.pools
	p.pools = pools{any: before.any}
	if len(before.cluster) > 0 {
		p.pools.cluster = here
	}
	if len(before.local) > 0 {
		p.pools.local = here
	}
}

// relayPorts are the names of the ports of TCP of a Service that is proxied here.
func relayPorts(svc *corev1.Service) (names []string) {
	if svc == nil || !proxied(svc) {
		return nil
	}
	for i := range svc.Spec.Ports {
		if protoOf(svc.Spec.Ports[i].Protocol) == TCP {
			names = append(names, svc.Spec.Ports[i].Name)
		}
	}
	return names
}

// open opens the relays of owners that are about to be compiled, and returns what leads them once they are.
func (p *Proxy) open(g *task.Group, touched []*owner) (lead func(), err error) {
	if p.relays == nil {
		return func() {}, nil
	}
	for _, o := range touched {
		names := relayPorts(o.svc)
		p.relays.Keep(o.key.NamespacedName, names)
		for k := range p.model.ports {
			if k.NamespacedName == o.key.NamespacedName && !slices.Contains(names, k.Port) {
				delete(p.model.ports, k)
			}
		}
		for _, name := range names {
			k := userspace.Key{NamespacedName: o.key.NamespacedName, Port: name}
			if p.model.ports[k], err = p.relays.Open(g, k, ":0"); err != nil {
				return nil, err
			}
		}
	}
	return func() {
		for _, o := range touched {
			for i, f := range families {
				if o.frags[i] == nil {
					continue
				}
				for key, to := range o.frags[i].targets {
					p.relays.Lead(relayKey(o.key.NamespacedName, key), f == nft.IPv6, to)
				}
			}
		}
	}, nil
}
