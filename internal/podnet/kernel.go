package podnet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
)

const (
	typeLocal       = unix.RTN_LOCAL
	typeUnreachable = unix.RTN_UNREACHABLE
)

// lastPriority is that of the routes that refuse: any other route is better.
const lastPriority = 1 << 20

// kernel is what the kernel has of ours that leads to peers.
type kernel struct {
	has     map[place]content
	devices map[overlay]*device
}

// device is one of our VXLAN devices.
type device struct {
	index, mtu int
	stations   int  // nodes that are reached by it
	sure       bool // it is as it should be, as far as we have looked
}

// put notes that the kernel has c in p.
func (k *kernel) put(p place, c content) {
	if _, had := k.has[p]; !had && p.kind == stationKind {
		k.devices[p.over].stations++
	}
	k.has[p] = c
}

// forget notes that a device has gone, and with it its tables and routes.
func (k *kernel) forget(over overlay) {
	delete(k.devices, over)
	maps.DeleteFunc(k.has, func(p place, c content) bool { return p.over == over || c.over == over })
}

// owns reports whether a link is one of our VXLAN devices.
func (k *kernel) owns(link int) bool {
	for _, d := range k.devices {
		if d.index == link {
			return true
		}
	}
	return false
}

// read finds out what the kernel has, unless that is known.
func (r *Routes) read() error {
	if r.have != nil && !r.stale {
		return nil
	}
	k := &kernel{has: map[place]content{}, devices: map[overlay]*device{}}
	for _, over := range []overlay{over4, over6} {
		link, err := r.nl.LinkByName(over.name())
		var notFound netlink.LinkNotFoundError
		if errors.As(err, &notFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find link %s: %w", over.name(), err)
		}
		if !ownDevice(link) {
			continue // ensureDevice tells of it, if it is in the way
		}
		k.devices[over] = &device{index: link.Attrs().Index, mtu: link.Attrs().MTU}
		r.watch.add(link.Attrs().Index)
		if err := r.readDevice(k, over); err != nil {
			return err
		}
	}
	routes, err := ourRoutes(r.nl)
	if err != nil {
		return err
	}
	for _, rt := range routes {
		c, ok := prefixOf(rt.Dst)
		gw, hasGw := netip.AddrFromSlice(rt.Gw)
		from, _ := netip.AddrFromSlice(rt.Src)
		found := content{via: gw.Unmap(), from: from.Unmap(), mtu: rt.MTU, link: rt.LinkIndex}
		for over, d := range k.devices {
			if d.index == rt.LinkIndex {
				found.over, found.link = over, 0
			}
		}
		switch {
		case !ok:
		case rt.Type == typeUnreachable:
			k.has[place{kind: routeKind, pods: c}] = content{refuse: true}
		case hasGw: // those without are to service addresses
			k.has[place{kind: routeKind, pods: c}] = found
		}
	}
	r.have, r.stale = k, false
	return nil
}

// readDevice reads the tables of a VXLAN device. What is in them and not for a node's
// hardware address is not ours.
func (r *Routes) readDevice(k *kernel, over overlay) error {
	lines, err := stations(k.devices[over].index)
	if err != nil {
		return fmt.Errorf("read %s: %w", over.name(), err)
	}
	for _, s := range lines {
		k.put(place{kind: stationKind, over: over, mac: s.mac}, content{via: s.node, port: s.port})
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := dump.Neighbours(r.nl, k.devices[over].index, family)
		if err != nil {
			return fmt.Errorf("read %s: %w", over.name(), err)
		}
		for _, n := range list {
			a, ok := netip.AddrFromSlice(n.IP)
			if m, known := ours(n.HardwareAddr); ok && known {
				k.has[place{kind: neighbourKind, over: over, addr: a.Unmap()}] = content{mac: m}
			}
		}
	}
	return nil
}

// set makes the kernel have c in p. It replaces nothing that is not ours.
func (r *Routes) set(p place, c content) error {
	if err := r.touch(); err != nil {
		return err
	}
	var err error
	switch p.kind {
	case routeKind:
		rt := r.kernelRoute(p, c)
		if _, has := r.have.has[p]; has {
			err = r.nl.RouteReplace(rt)
		} else {
			err = r.nl.RouteAdd(rt)
		}
		if errors.Is(err, unix.EEXIST) {
			err = errors.New("there is one already that is not ours: remove it")
		}
	case stationKind:
		err = changeStation(r.have.devices[p.over].index, unix.RTM_NEWNEIGH, station{p.mac, c.via, c.port})
	default:
		err = r.nl.NeighSet(r.kernelNeigh(p, c))
	}
	if err != nil {
		r.stale = true
		return fmt.Errorf("set %s: %w", p, err)
	}
	r.have.put(p, c)
	return nil
}

// unset makes the kernel have nothing of ours in p.
func (r *Routes) unset(p place) error {
	if err := r.touch(); err != nil {
		return err
	}
	c := r.have.has[p]
	var err error
	switch p.kind {
	case routeKind:
		rt := &netlink.Route{Dst: ipNet(p.pods), Protocol: routeProtocol}
		if c.refuse {
			rt.Type, rt.Priority = typeUnreachable, lastPriority
		}
		err = r.nl.RouteDel(rt)
	case stationKind:
		err = changeStation(r.have.devices[p.over].index, unix.RTM_DELNEIGH, station{p.mac, c.via, c.port})
	default:
		err = r.nl.NeighDel(r.kernelNeigh(p, c))
	}
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) {
		r.stale = true
		return fmt.Errorf("remove %s: %w", p, err)
	}
	if delete(r.have.has, p); p.kind == stationKind {
		r.have.devices[p.over].stations--
	}
	return nil
}

func (r *Routes) kernelRoute(p place, c content) *netlink.Route {
	rt := &netlink.Route{Dst: ipNet(p.pods), Protocol: routeProtocol, MTU: c.mtu, LinkIndex: c.link}
	if c.refuse {
		rt.Type, rt.Priority = typeUnreachable, lastPriority
		return rt
	}
	rt.Gw = c.via.AsSlice()
	if c.over != 0 {
		rt.LinkIndex, rt.Src = r.have.devices[c.over].index, c.from.AsSlice()
		if c.via.Is4() {
			rt.Flags = int(netlink.FLAG_ONLINK)
		}
	}
	return rt
}

func (r *Routes) kernelNeigh(p place, c content) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: r.have.devices[p.over].index, State: netlink.NUD_PERMANENT, IP: p.addr.AsSlice(), HardwareAddr: c.mac.hardware()}
}

func (p place) String() string {
	switch p.kind {
	case routeKind:
		return "route " + p.pods.String()
	case neighbourKind:
		return fmt.Sprintf("neighbour %s on %s", p.addr, p.over.name())
	}
	return fmt.Sprintf("forwarding to %s on %s", p.mac.hardware(), p.over.name())
}

// linkOf looks a link up, once between two refreshes.
func (r *Routes) linkOf(index int) (netlink.LinkAttrs, error) {
	if a, ok := r.asked[index]; ok {
		return a, nil
	}
	link, err := r.nl.LinkByIndex(index)
	if err != nil {
		return netlink.LinkAttrs{}, err
	}
	r.asked[index] = *link.Attrs()
	return *link.Attrs(), nil
}

// passesOn reports whether a neighbour on a link can be sent packets for others.
// Tunnels have no next hops: they know themselves what goes where.
func passesOn(link netlink.LinkAttrs) bool {
	return link.RawFlags&(unix.IFF_NOARP|unix.IFF_POINTOPOINT) == 0 && link.RawFlags&unix.IFF_BROADCAST != 0 && len(link.HardwareAddr) > 0
}

// ourRoutes lists the routes that carry our mark.
func ourRoutes(nl *netlink.Handle) ([]netlink.Route, error) {
	return dump.Routes(nl, netlink.FAMILY_ALL, netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
}

// routeProtocol marks our routes in the kernel, so that they are found again.
const routeProtocol netlink.RouteProtocol = 75
