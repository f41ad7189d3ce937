package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kemudi/kemudi/internal/task"
)

// serviceRanges are addresses of services on their way to the goroutine that routes them.
type serviceRanges struct {
	set chan struct{} // holds one token: there is a new list
	mu  struct {
		sync.Mutex
		to []netip.Prefix
	}
}

// SetServiceCIDRs says which are the addresses of services from now on. Run gives them their
// routes, and takes away those of others.
func (n *Network) SetServiceCIDRs(list []netip.Prefix) {
	n.next.mu.Lock()
	n.next.mu.to = list
	n.next.mu.Unlock()
	select {
	case n.next.set <- struct{}{}:
	default: // that there are others is known already
	}
}

// changeServices routes the newest addresses of services, and tries again until that succeeds
// or ctx ends.
func (n *Network) changeServices(ctx context.Context) {
	n.next.mu.Lock()
	n.o.ServiceCIDRs = n.next.mu.to
	n.next.mu.Unlock()
	back := task.Backoff{Initial: n.pause, Max: 30 * time.Second, Jitter: 0.2}
	for ctx.Err() == nil {
		err := errors.Join(n.ensureServiceRoutes(), n.dropServiceRoutes())
		if err == nil {
			return
		}
		wait := back.Next()
		n.o.Log.Error("cannot route the addresses of services", "err", err, "retry", wait)
		_ = task.Sleep(ctx, wait) // the loop looks at ctx
	}
}

// ensureServiceRoutes gives packets to service addresses a way, and with it a
// source address. It is never gone to its end: the proxy rewrites or drops them first.
func (n *Network) ensureServiceRoutes() error {
	link, err := n.nl.LinkByName(n.o.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", n.o.Bridge, err)
	}
	for _, c := range n.serviceRoutes() {
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(c), Scope: netlink.SCOPE_LINK, Protocol: routeProtocol}
		if err := n.nl.RouteReplace(r); err != nil {
			return fmt.Errorf("route service addresses %s: %w", c, err)
		}
	}
	return nil
}

// dropServiceRoutes takes away the routes to what are no service addresses any more, those of an earlier
// process included. Of our routes, only those to services lead to the bridge.
func (n *Network) dropServiceRoutes() error {
	link, err := n.nl.LinkByName(n.o.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", n.o.Bridge, err)
	}
	routes, err := ourRoutes(n.nl)
	if err != nil {
		return err
	}
	want := n.serviceRoutes()
	for _, r := range routes {
		if p, ok := prefixOf(r.Dst); !ok || r.LinkIndex != link.Attrs().Index || slices.Contains(want, p) {
			continue
		}
		if err := n.nl.RouteDel(&r); err != nil {
			return fmt.Errorf("delete the route to service addresses %s: %w", r.Dst, err)
		}
	}
	return nil
}

// serviceRoutes are the service addresses that are routed to the bridge.
// Without pods of a family it has no address to send from.
func (n *Network) serviceRoutes() (list []netip.Prefix) {
	for _, c := range n.o.ServiceCIDRs {
		if slices.ContainsFunc(n.o.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() == c.Addr().Is4() }) {
			list = append(list, c.Masked())
		}
	}
	return list
}
