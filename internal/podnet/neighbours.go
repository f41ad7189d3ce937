package podnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ForgetNeighbours has the node ask anew who has the addresses, which a pod has just
// got. The link of the pod that had them before had another hardware address, and
// the kernel would send there for 8 s or more until it asks by itself. Other pods need not be
// told: they know of no neighbour but the gateway.
//
// It works on the network namespace of the calling thread, and may be called at any time.
func ForgetNeighbours(o Options, addrs []netip.Addr) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	link, err := nl.LinkByName(o.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", o.Bridge, err)
	}
	var errs []error
	for _, a := range addrs {
		family := unix.AF_INET
		if a.Is6() {
			family = unix.AF_INET6
		}
		err := nl.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: family, IP: a.AsSlice()})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("forget neighbour %s: %w", a, err))
		}
	}
	return errors.Join(errs...)
}
