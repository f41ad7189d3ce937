package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
)

// span is a range of addresses that the cluster wants for itself, and the flag
// that changes it.
type span struct {
	netip.Prefix
	what, flag string
}

func (o *Options) spans() (pods, services []span) {
	for _, c := range o.ClusterCIDRs {
		pods = append(pods, span{c.Masked(), "pods", "--cluster-cidr"})
	}
	for _, c := range o.ServiceCIDRs {
		services = append(services, span{c.Masked(), "services", "--service-cluster-ip-range"})
	}
	return pods, services
}

// collision says what of the machine's own network is in the way of the cluster's
// addresses; nil: nothing is, or there are pods already. An address of the machine within them would be taken for that of a
// pod or service, and a route into them leads past those. Routes that are wider are only
// hidden in part, as a default route is.
func (n *Network) collision() error {
	var notFound netlink.LinkNotFoundError
	switch _, err := n.nl.LinkByName(n.o.Bridge); {
	case n.looked || err == nil:
		n.looked = true
		return nil
	case !errors.As(err, &notFound):
		return fmt.Errorf("find bridge %s: %w", n.o.Bridge, err)
	}
	pods, services := n.o.spans()
	have, err := dump.Addrs(n.nl, nil, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range have {
		p, ok := prefixOf(a.IPNet)
		if !ok || strings.HasPrefix(n.linkName(a.LinkIndex), overlayNames) {
			continue
		}
		for _, s := range append(pods, services...) {
			if s.Contains(p.Addr()) {
				return fmt.Errorf("this machine has the address %s (%s), which is one of those for %s, %s: choose others with %s",
					p.Addr(), n.linkName(a.LinkIndex), s.what, s.Prefix, s.flag)
			}
		}
	}
	// Of the pods' addresses only this node's share counts: the others' are routed
	// when there are others.
	var own []span
	for _, c := range n.o.PodCIDRs {
		own = append(own, span{c.Masked(), "pods of this node", "--cluster-cidr"})
	}
	own = append(own, services...)
	routes, err := dump.Routes(n.nl, netlink.FAMILY_ALL, netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	for _, r := range routes {
		p, ok := prefixOf(r.Dst)
		if !ok || isDefault(r.Dst) || r.Protocol == routeProtocol {
			continue
		}
		for _, s := range own {
			if p.Bits() >= s.Bits() && s.Contains(p.Addr()) {
				return fmt.Errorf("this machine has a route to %s (%s), into the addresses for %s, %s: choose others with %s",
					p, n.linkName(r.LinkIndex), s.what, s.Prefix, s.flag)
			}
		}
	}
	n.looked = true
	return nil
}

// linkName is the name of a link, for people.
func (n *Network) linkName(index int) string {
	link, err := n.nl.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("link %d", index)
	}
	return link.Attrs().Name
}
