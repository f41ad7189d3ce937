package proxy

import (
	"net/netip"
	"slices"

	"github.com/kemudi/kemudi/internal/api/core"
)

// relayed says that what comes to the balancer's addresses for the port is not passed on as packets.
func (c *compiler) relayed(p *servicePort) bool {
	return p.key.proto == TCP && (c.broken != nil || c.relay != nil && c.relayPort(p) != nil)
}

func (c *compiler) relayPort(p *servicePort) *core.RelayPort {
	i := slices.IndexFunc(c.relay.Ports, func(r core.RelayPort) bool { return r.Port == p.Port })
	if i < 0 {
		return nil
	}
	return &c.relay.Ports[i]
}

// hand gives what comes to a balancer's address to the edge of this node, at the port's node port, with the client's
// address as it is. The edge chooses the endpoint; the frontend belongs to itself, and its pool is the edge alone.
// Who may come is decided here: by source ranges, and, where external traffic must stay on the node, by
// whether there are endpoints here.
func (c *compiler) hand(p *servicePort, at frontend, onlyLocal bool) {
	name := netip.AddrPortFrom(at.addr, at.port)
	f := p.nowhere()
	if edge, ok := c.edge(p); ok {
		w := way{what: lead}
		c.use(w)
		of := Key{Set: ServiceEndpoints, Addr: name.Addr(), Proto: p.key.proto, Port: name.Port()}
		if findPool(c.pools[c.begun:], of, 0) == nil {
			c.pools = append(c.pools, &pool{at: of, placed: []netip.AddrPort{edge}})
		}
		do := w.number(1)
		f = Front{Do: do}
		if onlyLocal {
			w := way{what: outside}
			c.use(w)
			f = Front{Do: w.number(0), Cluster: do, Local: do}
			if len(p.pools.of(true)) == 0 {
				f.Local = p.nowhere().Do
			}
		}
	}
	f = c.guarded(p, name, f)
	sets := fronts[byIP]
	c.add(at.key(p, sets.actions), Value{Front: f})
	c.add(at.key(p, sets.owners), Value{To: name})
}

// edge is where the edge of this node takes what is for the port; there is none where nobody could be reached by it.
func (c *compiler) edge(p *servicePort) (at netip.AddrPort, ok bool) {
	if !c.cfg.Edge || c.broken != nil || !p.pools.any {
		return at, false
	}
	for _, a := range c.node.Primary {
		if familyOf(a.Addr()) == c.family {
			return netip.AddrPortFrom(a.Addr(), uint16(c.relayPort(p).NodePort)), true
		}
	}
	return at, false
}
