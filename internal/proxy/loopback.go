package proxy

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/proxy/userspace"
	"github.com/kemudi/kemudi/internal/task"
)

// Of IPv4 the kernel leads connections to 127.0.0.1 elsewhere as well. A packet from ::1 can go nowhere else: there this
// process listens at the node ports of TCP itself, and spreads connections over what any client on the node may use (KEP-6032).

var loopback = netip.IPv6Loopback()

// atLoopback names a node port as a relay.
func atLoopback(service types.NamespacedName, port uint16) userspace.Key {
	return userspace.Key{NamespacedName: service, Port: strconv.Itoa(int(port))}
}

// servesLoopback says whether node ports are served at ::1.
func (c *Config) servesLoopback() bool {
	only, everywhere := c.nodePortRanges(&NodeFacts{})
	return everywhere || slices.ContainsFunc(only, func(p netip.Prefix) bool { return p.Contains(loopback) })
}

// loop notes where connections to the port at ::1 go. Without endpoints there is nobody to listen, which refuses them.
func (c *compiler) loop(p *servicePort) {
	if p.NodePort == 0 || c.family != nft.IPv6 || p.key.proto != TCP || len(p.pools.cluster) == 0 || !c.cfg.servesLoopback() {
		return
	}
	if c.looped == nil {
		c.looped = map[uint16]userspace.Target{}
	}
	c.looped[uint16(p.NodePort)] = userspace.Target{Endpoints: p.pools.cluster, Affinity: time.Duration(p.timeout) * time.Second}
}

// touched are the owners that the next Commit compiles, but for pods.
func (m *Model) touched() (all []*owner) {
	for o := range m.dirty {
		if !o.key.pod {
			all = append(all, o)
		}
	}
	return all
}

// serveLoopback has node ports at ::1 be as the owners' fragments say. One that somebody else has is left to him until the
// Service or its endpoints change again.
func (p *Proxy) serveLoopback(g *task.Group, touched []*owner) {
	looped := func(o *owner) map[uint16]userspace.Target {
		if frag := o.frags[indexOf(nft.IPv6)]; frag != nil {
			return frag.looped
		}
		return nil
	}
	for _, o := range touched { // first, so that ports may go from one Service to another
		var names []string
		for port := range looped(o) {
			names = append(names, atLoopback(o.key.NamespacedName, port).Port)
		}
		p.loopback.Keep(o.key.NamespacedName, names)
	}
	for _, o := range touched {
		for port, to := range looped(o) {
			key := atLoopback(o.key.NamespacedName, port)
			_, err := p.loopback.Open(g, key, netip.AddrPortFrom(loopback, port).String())
			switch {
			case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EAFNOSUPPORT): // a machine without IPv6
			case err != nil:
				p.o.Log.Warn("cannot serve a node port at ::1", "service", o.key.String(), "port", port, "err", err)
			default:
				p.loopback.Lead(key, true, to)
			}
		}
	}
	p.metrics.listeners.WithLabelValues(familyNames[indexOf(nft.IPv6)]).Set(float64(p.loopback.Len()))
}
