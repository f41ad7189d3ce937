package dump

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// tries is how often a list is asked for before what others change meanwhile is an error. A
// machine that starts a hundred pods at once interrupts some of them, hardly two after each other.
const tries = 20

// Whole returns a list that nothing was changed in while the kernel handed it out. what names it in
// an error.
func Whole[T any](what string, list func() ([]T, error)) ([]T, error) {
	for try := 1; ; try++ {
		all, err := list()
		if err == nil {
			return all, nil
		}
		if try == tries || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list %s: %w", what, err)
		}
	}
}

// Links lists the links of the machine.
func Links(nl *netlink.Handle) ([]netlink.Link, error) {
	return Whole("links", nl.LinkList)
}

// Addrs lists the addresses of a link, nil: of all, in a family.
func Addrs(nl *netlink.Handle, link netlink.Link, family int) ([]netlink.Addr, error) {
	return Whole("addresses", func() ([]netlink.Addr, error) { return nl.AddrList(link, family) })
}

// Routes lists the routes of a family that are as the filter in those of its fields that the mask names.
func Routes(nl *netlink.Handle, family int, filter netlink.Route, mask uint64) ([]netlink.Route, error) {
	return Whole("routes", func() ([]netlink.Route, error) { return nl.RouteListFiltered(family, &filter, mask) })
}

// Neighbours lists the neighbours of a family that are known on a link.
func Neighbours(nl *netlink.Handle, link, family int) ([]netlink.Neigh, error) {
	return Whole("neighbours", func() ([]netlink.Neigh, error) { return nl.NeighList(link, family) })
}
